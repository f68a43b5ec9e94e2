package testkit_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/testkit"
)

// The code of docs/testing.md. TestGuide sees to it that it is the same there and here.

type Usage struct {
	Meter string  `json:"meter"`
	KWh   float64 `json:"kwh"`
}

var errLedgerDown = errors.New("the ledger is down")

// bill is the handler under test: it posts a reading to the ledger and publishes an invoice.
func bill(post func(Usage) error) func(context.Context, Usage) settle.Outcome {
	return func(ctx context.Context, usage Usage) settle.Outcome {
		if usage.KWh < 0 {
			return settle.Drop("negative usage")
		}
		if err := post(usage); err != nil {
			return settle.Retry(err)
		}
		return settle.OrRetry(settle.Publish(ctx, "invoices/"+usage.Meter, usage))
	}
}

func chart(context.Context, []Usage) settle.Outcomes { return settle.Every(settle.Ack()) }

// service is the app as production makes it.
func service(t testing.TB, post func(Usage) error) *settle.App {
	t.Helper()
	app, err := settle.New(
		settle.Config{ClientID: "billing", Servers: []string{"mqtts://mqtt.example.com"}, Logger: zerolog.Nop()},
		settle.Handle("meters/+/usage", bill(post),
			settle.RetryTo("billing/retry"), settle.Backoff(settle.Constant(5*time.Minute)),
			settle.MaxAttempts(3), settle.DeadLetterTo("billing/dead")),
		settle.HandleBatch("meters/+/power", chart, settle.AtMostOnce),
	)
	if err != nil {
		t.Fatal(err)
	}
	return app
}

func works(Usage) error { return nil }
func fails(Usage) error { return errLedgerDown }

// A handler is a function.
func TestBillAlone(t *testing.T) {
	ctx := testkit.Context(t.Context(), testkit.Delivery("meters/42/usage", nil, settle.PartitionKey("42"), testkit.Attempt(2)))
	if got := bill(works)(ctx, Usage{Meter: "42", KWh: 1.5}); got.Kind() != settle.KindAck {
		t.Fatal(got)
	}
	if sent := testkit.PublishedFrom(ctx); len(sent) != 1 || sent[0].Topic() != "invoices/42" {
		t.Fatalf("published: %v", sent)
	}
	if got := bill(fails)(ctx, Usage{Meter: "42"}); got.Kind() != settle.KindRetry || !errors.Is(got.Cause(), errLedgerDown) {
		t.Fatal(got)
	}
}

// The whole app, unchanged, against a server in this process.
func TestBilling(t *testing.T) {
	kit := testkit.Start(t, service(t, works))

	kit.Publish("meters/42/usage", Usage{Meter: "42", KWh: 1.5}, settle.ExactlyOnce)
	kit.Publish("meters/42/usage", []byte("{"))

	got := kit.Settled("meters/+/usage", 2) // waits until both are settled and acknowledged
	if got[0].Outcome.Kind() != settle.KindAck || got[0].Body != (Usage{Meter: "42", KWh: 1.5}) || !got[0].Acknowledged {
		t.Errorf("the first: %v", got[0])
	}
	if got[1].Outcome.Kind() != settle.KindReject || got[1].SentTo != "billing/dead" {
		t.Errorf("the second: %v", got[1])
	}
	if letter := kit.Published("billing/dead", 1)[0]; string(letter.Payload()) != "{" {
		t.Errorf("the dead letter: %q", letter.Payload())
	}
}

// What is handled in batches.
func TestChart(t *testing.T) {
	kit := testkit.Start(t, service(t, works))
	for range 3 {
		kit.Publish("meters/7/power", Usage{Meter: "7", KWh: 0.1}, settle.AtMostOnce)
	}
	if batch := kit.Batches("meters/+/power", 1)[0]; len(batch) != 3 {
		t.Fatalf("a batch of %d", len(batch))
	}
}

// Ten minutes of backoff and a dead letter, in no time.
func TestLedgerDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kit := testkit.Start(t, service(t, fails))
		kit.Publish("meters/42/usage", Usage{Meter: "42", KWh: 1.5})

		got := kit.Settled("meters/+/usage", 3)
		if wait := got[1].At.Sub(got[0].At); wait < 5*time.Minute || wait > 6*time.Minute {
			t.Errorf("the second attempt came after %s", wait)
		}
		if got[2].Attempt != 3 || got[2].SentTo != "billing/dead" {
			t.Errorf("the third: %v", got[2])
		}
		if reason, _ := kit.Published("billing/dead", 1)[0].Header("settle-reason"); reason != errLedgerDown.Error() {
			t.Errorf("the dead letter's reason: %q", reason)
		}
	})
}

// A service that is cut off, stopped, and started again on the session that it left.
func TestRestart(t *testing.T) {
	server := testkit.NewBroker(t)
	kit := testkit.StartOn(t, server, service(t, works))
	kit.CutConnection()
	if err := kit.Stop(); err != nil {
		t.Fatal(err)
	}
	server.Publish("meters/1/usage", Usage{Meter: "1", KWh: 2})

	kit = testkit.StartOn(t, server, service(t, works))
	if first := kit.Settled("meters/+/usage", 1)[0]; first.Topic != "meters/1/usage" {
		t.Errorf("the first: %v", first)
	}
	if !kit.Quiet(time.Second) { // nothing in flight, nothing queued, nothing unacknowledged
		t.Error("something is still going on")
	}
	if n := len(kit.Settlements("meters/+/usage")); n != 1 {
		t.Errorf("%d settlements", n)
	}
}

// A server that refuses dead letters: the original is held, and not lost.
func TestDeadLettersRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kit := testkit.Start(t, service(t, works))
		allow := kit.Broker().RefusePublish("billing/dead", 0x87) // not authorized
		kit.Publish("meters/42/usage", []byte("{"))

		kit.Until("the reading is rejected", func() bool { return len(kit.Settlements("meters/+/usage")) == 1 })
		if kit.Quiet(time.Minute) {
			t.Error("the app gave up")
		}
		allow()
		if got := kit.Settled("meters/+/usage", 1)[0]; got.SentTo != "billing/dead" || !got.Acknowledged {
			t.Errorf("%v", got)
		}
	})
}

// The same service as an fx program assembles it.
func TestModule(t *testing.T) {
	var kit *testkit.Kit
	program := fxtest.New(t,
		fx.Supply(settle.Config{ClientID: "billing", Servers: []string{"mqtts://mqtt.example.com"}, Logger: zerolog.Nop()}),
		settle.Module,
		settle.ProvideRoute(func() settle.Route { return settle.Handle("meters/+/usage", bill(works)) }),

		testkit.Module(t),
		fx.Populate(&kit),
	)
	program.RequireStart()
	defer program.RequireStop()

	kit.Publish("meters/42/usage", Usage{Meter: "42", KWh: 1.5})
	if got := kit.Settled("meters/+/usage", 1)[0]; got.Outcome.Kind() != settle.KindAck {
		t.Fatal(got)
	}
}

// The same test body on a server in this process and on a real one.
func TestLiveInvoice(t *testing.T) {
	test := func(t *testing.T, kit *testkit.Kit) {
		t.Helper()
		kit.Publish("meters/42/usage", Usage{Meter: "42", KWh: 1.5})
		if got := kit.Settled("meters/+/usage", 1)[0]; !got.Acknowledged {
			t.Error(got)
		}
		if invoice := kit.Published("invoices/+", 1)[0]; invoice.Topic() != "invoices/42" {
			t.Errorf("an invoice to %q", invoice.Topic())
		}
	}
	t.Run("in this process", func(t *testing.T) { test(t, testkit.Start(t, service(t, works))) })
	t.Run("Live", func(t *testing.T) {
		test(t, testkit.StartLive(t, realServer(t), service(t, works)))
	})
}
