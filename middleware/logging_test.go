package middleware_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/middleware"
)

func ExampleLogging() {
	bill := func(_ context.Context, u usage) settle.Outcome {
		switch {
		case u.KWh < 0:
			return settle.Reject(errors.New("negative usage"))
		case u.KWh > 100:
			return settle.Retry(errLedgerDown)
		}
		return settle.Ack()
	}
	app := newApp(settle.Handle("meters/+/usage", bill))
	app.Use(middleware.Logging(terminal()))
	app.deliver("meters/42/usage", `{"kwh": 1.5}`, `{"kwh": -1}`, `{"kwh": 500}`)
	// Output:
	// INF handled attempt=1 message_id=m-1 outcome=ack route=meters/+/usage topic=meters/42/usage
	// ERR handled attempt=1 cause="negative usage" message_id=m-2 outcome=reject route=meters/+/usage topic=meters/42/usage
	// WRN handled attempt=1 cause="ledger down" message_id=m-3 outcome=retry route=meters/+/usage topic=meters/42/usage
}

// fields are those of a JSON line.
func fields(t *testing.T, line string) map[string]any {
	t.Helper()
	var f map[string]any
	if err := json.Unmarshal([]byte(line), &f); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return f
}

// logged runs one call of Logging around next, outside of any delivery.
func logged(t *testing.T, o settle.Outcomes) map[string]any {
	t.Helper()
	var out lines
	got := middleware.Logging(zerolog.New(&out))(func(context.Context) settle.Outcomes { return o })(t.Context())
	if got.At(0).Kind() != o.At(0).Kind() {
		t.Errorf("the outcome became %v", got.At(0))
	}
	all := out.get()
	if len(all) != 1 {
		t.Fatalf("%d lines: %q", len(all), all)
	}
	return fields(t, all[0])
}

func TestLoggingOutcomes(t *testing.T) {
	for _, test := range []struct {
		outcome settle.Outcome
		level   string
		want    map[string]any
	}{
		{settle.Ack(), "info", map[string]any{"outcome": "ack", "cause": nil, "retry_after": nil}},
		{settle.Drop("old"), "info", map[string]any{"outcome": "drop", "cause": "old"}},
		{settle.Retry(errLedgerDown), "warn", map[string]any{"outcome": "retry", "cause": "ledger down", "retry_after": nil}},
		{settle.RetryAfter(time.Minute, errLedgerDown), "warn", map[string]any{"outcome": "retry", "retry_after": 60_000.0}},
		{settle.Reject(errors.New("no")), "error", map[string]any{"outcome": "reject", "cause": "no"}},
		{settle.Outcome{}, "error", map[string]any{"outcome": "invalid"}},
	} {
		got := logged(t, settle.Every(test.outcome))
		if got["level"] != test.level || got["attempt"] != 1.0 || got["message"] != "handled" {
			t.Errorf("%v: %v", test.outcome, got)
		}
		for name, want := range test.want {
			if got[name] != want {
				t.Errorf("%v: %s is %v, want %v", test.outcome, name, got[name], want)
			}
		}
		if _, timed := got["took"].(float64); !timed {
			t.Errorf("%v: no time in %v", test.outcome, got)
		}
	}
}

func TestLoggingClipsCauses(t *testing.T) {
	cause := logged(t, settle.Every(settle.Retry(errors.New(strings.Repeat("ä", 1000)))))["cause"].(string)
	if want := strings.Repeat("ä", 256) + "…"; cause != want {
		t.Errorf("a cause of %d bytes: %s", len(cause), cause)
	}
}

func TestLoggingLevels(t *testing.T) {
	var out lines
	log := zerolog.New(&out).Level(zerolog.WarnLevel)
	for _, o := range []settle.Outcome{settle.Ack(), settle.Drop(""), settle.Retry(nil)} {
		middleware.Logging(log)(func(context.Context) settle.Outcomes { return settle.Every(o) })(t.Context())
	}
	if got := out.get(); len(got) != 1 || !strings.Contains(got[0], `"retry"`) {
		t.Errorf("got %q", got)
	}
}

func TestLoggingBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out lines
		app := newScripted(t, settle.HandleBatch("power", func(_ context.Context, all []usage) settle.Outcomes {
			each := make([]settle.Outcome, len(all))
			for i := range each {
				each[i] = settle.Ack()
				if all[i].KWh < 0 {
					each[i] = settle.Drop("negative")
				}
			}
			return settle.Each(each...)
		}, settle.Linger(time.Second), settle.Name("chart")))
		app.Use(middleware.Logging(zerolog.New(&out)))
		app.start(1)
		app.sendAtOnce("power", `{"kwh":1}`, `{"kwh":-2}`, `secret`, `{"kwh":3}`)
		app.await(1)
		app.stop()

		got := out.get()
		if len(got) != 3 {
			t.Fatalf("%d lines:\n%s", len(got), joined(got))
		}
		batch, dropped, rejected := fields(t, got[0]), fields(t, got[1]), fields(t, got[2])
		if s := fmt.Sprintln(batch["level"], batch["message"], batch["route"], batch["batch"], batch["ack"], batch["drop"], batch["reject"], batch["retry"]); s != "error handled a batch chart 4 2 1 1 <nil>\n" {
			t.Errorf("%s of %s", s, got[0])
		}
		if dropped["outcome"] != "drop" || dropped["cause"] != "negative" || dropped["level"] != "info" || dropped["topic"] != "power" {
			t.Errorf("second line: %s", got[1])
		}
		if rejected["outcome"] != "reject" || rejected["level"] != "error" || rejected["message_id"] == "" || rejected["message_id"] == dropped["message_id"] {
			t.Errorf("third line: %s", got[2])
		}
		if strings.Contains(joined(got), "secret") {
			t.Errorf("a payload is in the log:\n%s", joined(got))
		}
	})
}

// A handler that outlives its timeout has been settled; what it returns later is not logged as an outcome.
func TestLoggingTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out lines
		app := newScripted(t, settle.Handle("a", func(ctx context.Context, _ []byte) settle.Outcome {
			<-ctx.Done()
			return settle.Ack()
		}, settle.Timeout(time.Second), settle.OnTimeout(settle.Reject)))
		app.Use(middleware.Logging(zerolog.New(&out)))
		app.start(1)
		app.send("a", "x", messageID("slow"))
		app.await(1)
		app.stop()
		got := out.get()
		if len(got) != 1 {
			t.Fatalf("%d lines:\n%s", len(got), joined(got))
		}
		if f := fields(t, got[0]); f["message"] != "returned after its timeout" || f["message_id"] != "slow" || f["level"] != "warn" || f["outcome"] != nil {
			t.Errorf("got %s", got[0])
		}
	})
}
