package middleware_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/middleware"
)

func ExampleCorrelation() {
	bill := func(ctx context.Context, _ usage) settle.Outcome {
		zerolog.Ctx(ctx).Info().Msg("billed") // the handler needs to know nothing of ids
		return settle.Ack()
	}
	app := newApp(settle.Handle("meters/+/usage", bill))
	app.Use(middleware.Correlation(terminal()))
	app.deliver("meters/42/usage", `{"kwh": 1.5}`, `{"kwh": 2}`)
	// Output:
	// INF billed message_id=m-1 route=meters/+/usage
	// INF billed message_id=m-2 route=meters/+/usage
}

func ExampleAbout() {
	chart := func(ctx context.Context, samples []usage) settle.Outcomes {
		for i := range samples {
			log := middleware.About(*zerolog.Ctx(ctx), settle.DeliveriesFrom(ctx)[i])
			log.Info().Msg("charted")
		}
		return settle.Every(settle.Ack())
	}
	app := newApp(settle.HandleBatch("meters/+/power", chart))
	app.Use(middleware.Correlation(terminal()))
	app.deliver("meters/42/power", `{"kwh": 1.5}`)
	// Output:
	// INF charted message_id=m-1 route=meters/+/power
}

func TestCorrelationData(t *testing.T) {
	uuid := "\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff"
	for name, test := range map[string]struct{ data, field, want string }{
		"text":                {"order 66, größer", "correlation_data", "order 66, größer"},
		"bytes":               {uuid, "correlation_data_hex", "00112233445566778899aabbccddeeff"},
		"two lines":           {"a\nb", "correlation_data_hex", "610a62"},
		"an escape sequence":  {"\x1b[2J", "correlation_data_hex", "1b5b324a"},
		"not UTF-8":           {"a\xff", "correlation_data_hex", "61ff"},
		"as long as may be":   {strings.Repeat("x", 512), "correlation_data", strings.Repeat("x", 512)},
		"long text":           {strings.Repeat("x", 513), "correlation_data", strings.Repeat("x", 512) + "…"},
		"long bytes":          {strings.Repeat("\xff", 257), "correlation_data_hex", strings.Repeat("ff", 256) + "…"},
		"cut in a long rune":  {strings.Repeat("x", 511) + "ä", "correlation_data", strings.Repeat("x", 511) + "…"},
		"bytes that just fit": {strings.Repeat("\xff", 256), "correlation_data_hex", strings.Repeat("ff", 256)},
	} {
		t.Run(name, func(t *testing.T) {
			var out lines
			app := newScripted(t, settle.Handle("ask", func(ctx context.Context, _ []byte) settle.Outcome {
				zerolog.Ctx(ctx).Info().Msg("asked")
				return settle.Ack()
			}))
			app.Use(middleware.Correlation(zerolog.New(&out)))
			app.start(1)
			app.send("ask", "x", correlation(test.data), messageID("7"))
			app.await(1)
			app.stop()
			got := fields(t, joined(out.get()))
			if got[test.field] != test.want || got["message_id"] != "7" || got["route"] != "ask" || len(got) != 5 {
				t.Errorf("got %v, want %s: %q", got, test.field, test.want)
			}
		})
	}
}

func TestCorrelationAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out lines
		app := newScripted(t, settle.Handle("a", func(ctx context.Context, _ []byte) settle.Outcome {
			zerolog.Ctx(ctx).Info().Msg("tried")
			if settle.DeliveryFrom(ctx).Attempt() < 2 {
				return settle.Retry(errLedgerDown)
			}
			return settle.Ack()
		}))
		app.Use(middleware.Correlation(zerolog.New(&out)))
		app.start(1)
		app.send("a", "x") // without a message id: the same is minted for both
		app.await(2)
		app.stop()
		got := out.get()
		first, second := fields(t, got[0]), fields(t, got[1])
		if first["attempt"] != nil || second["attempt"] != 2.0 || first["message_id"] != second["message_id"] || first["message_id"] == "" {
			t.Errorf("got\n%s", joined(got))
		}
	})
}

func TestCorrelationBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out lines
		app := newScripted(t, settle.HandleBatch("a", func(ctx context.Context, _ []usage) settle.Outcomes {
			zerolog.Ctx(ctx).Info().Msg("all")
			return settle.Every(settle.Ack())
		}, settle.Linger(time.Second)))
		app.Use(middleware.Correlation(zerolog.New(&out)))
		app.start(1)
		app.sendAtOnce("a", `{"kwh":1}`, `{"kwh":2}`)
		app.await(1)
		app.stop()
		if got := fields(t, joined(out.get())); got["batch"] != 2.0 || got["route"] != "a" || got["message_id"] != nil {
			t.Errorf("got %v", got)
		}
	})
}

// A handler called as the function that it is has the logger that it was given.
func TestAboutNothing(t *testing.T) {
	var out lines
	log := middleware.About(zerolog.New(&out).With().Str("kept", "yes").Logger(), nil)
	log.Info().Msg("x")
	if got := joined(out.get()); got != `{"level":"info","kept":"yes","message":"x"}` {
		t.Error(got)
	}
}
