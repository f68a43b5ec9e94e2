package delivery_test

import (
	"context"
	"time"

	"github.com/settlemq/settle"
)

var neverScenarios = []scenario{
	{"AcknowledgesNothingOutOfOrder", func(w *world) {
		g := newGate()
		kit := w.begin(settle.Handle("jobs/+", func(_ context.Context, payload []byte) settle.Outcome {
			if string(payload) == "m0" {
				g.wait(payload)
			}
			w.journal.note(payload)
			return settle.Ack()
		}, settle.Workers(4)))
		w.publishAll("jobs/1", numbered(4)...)
		w.held(g)
		kit.Until("the others are settled", func() bool { return len(kit.Settlements("jobs/+")) == 3 })
		for _, got := range kit.Settlements("jobs/+") {
			if got.Acknowledged {
				w.t.Errorf("before the first: %v", got)
			}
		}
		close(g.open)
		wantAcknowledged(w.t, kit.Settled("jobs/+", 4))
		w.quiet()
	}},
	{"AcknowledgesAnOriginalWhoseCopyIsNotStored", func(w *world) {
		route := func(o settle.Outcome) settle.Route {
			return settle.Handle("jobs/+", w.says(o), settle.RetryTo("denied/retry"), settle.DeadLetterTo("denied/dead"))
		}
		for _, o := range []settle.Outcome{settle.Retry(errDown), settle.Reject(errDown)} {
			kit := w.begin(route(o))
			if o.Kind() == settle.KindRetry { // of the second app it is the same message, which the first has not acknowledged
				w.publishAll("jobs/1", "a")
			}
			kit.Until("it is refused, again and again", func() bool {
				return w.labelled("settle_retry_copies_total", "result", "refused")+w.labelled("settle_dead_letters_total", "result", "refused") >= 3
			})
			if got := kit.Settlements("jobs/+"); len(got) != 1 || got[0].Acknowledged || got[0].SentTo != "" {
				w.t.Errorf("%s: %v", o, got)
			}
			w.stop()
		}
		w.begin(settle.Handle("jobs/+", w.acks)).Settled("jobs/+", 1)
		w.quiet()
		w.wantHandled("a", "a", "a")
	}},
	{"LosesTheConnectionToASlowHandler", func(w *world) {
		w.config.KeepAlive, w.config.ReceiveMaximum = time.Second, 2
		kit := w.begin(settle.Handle("jobs/+", func(_ context.Context, payload []byte) settle.Outcome {
			if w.journal.note(payload); string(payload) == "m0" {
				<-time.After(4 * time.Second)
			}
			return settle.Ack()
		}))
		w.publishAll("jobs/1", numbered(5)...)
		wantAcknowledged(w.t, kit.Settled("jobs/+", 5))
		if n := w.metric("settle_connections_total"); n != 1 {
			w.t.Errorf("%v connections, want 1", n)
		}
		w.wantHandled(numbered(5)...)
	}},
	{"DeadlocksOnAPublishInAHandler", func(w *world) {
		kit := w.begin(settle.Handle("jobs/+", func(ctx context.Context, payload []byte) settle.Outcome {
			w.journal.note(payload)
			return settle.OrRetry(settle.Publish(ctx, "results/1", payload, settle.ExactlyOnce))
		}, settle.Workers(20)))
		w.publishAll("jobs/1", numbered(40)...)
		wantAcknowledged(w.t, kit.Settled("jobs/+", 40))
		kit.Published("results/1", 40)
		w.quiet()
	}},
	{"LosesASlotOfTheWindow", func(w *world) {
		w.config.ReceiveMaximum, w.config.MaxPayload = 2, 100
		kit := w.begin(settle.Handle("jobs/+", func(ctx context.Context, kind string) settle.Outcome {
			if settle.DeliveryFrom(ctx).Attempt() > 1 {
				return settle.Ack()
			}
			switch kind {
			case "panic":
				panic("a bug")
			case "timeout":
				<-ctx.Done()
			}
			return settle.Ack()
		}, settle.Timeout(50*time.Millisecond), settle.Backoff(settle.Constant(backoff)), settle.DeadLetterTo("dead")))
		for range 4 {
			kit.Publish("jobs/1", "panic")
			kit.Publish("jobs/1", "timeout")
			kit.Publish("jobs/1", []byte("{"))
			kit.Publish("jobs/1", make([]byte, 101))
		}
		kit.Publish("jobs/1", "fine")
		kit.Published("dead", 8)
		w.quiet()
		last := kit.Settlements("jobs/+")
		if got := last[len(last)-1]; len(last) != 4*6+1 || !got.Acknowledged {
			w.t.Errorf("%d settlements, the last is %v", len(last), got)
		}
	}},
	{"UnsubscribesOrEndsTheSessionAtStop", func(w *world) {
		w.begin(settle.Handle("jobs/+", w.acks))
		w.stop()
		w.config.ClientID = "publisher"
		w.begin(settle.Handle("elsewhere", w.acks))
		w.publishAll("jobs/1", "a")
		w.stop()
		w.config.ClientID = ""
		w.begin(settle.Handle("other/+", w.acks, settle.Name("other")), settle.Handle("jobs/#", w.acks, settle.Name("jobs"))).Settled("jobs", 1)
		w.quiet()
		w.wantHandled("a")
	}},
}
