package delivery_test

import (
	"context"
	"slices"
	"time"

	"github.com/settlemq/settle"
)

var lossScenarios = []scenario{
	{"ACutLosesNothing", func(w *world) {
		kit := w.begin(settle.Handle("jobs/+", w.acks, settle.ExactlyOnce, settle.Workers(4)))
		for i := range 3 {
			for j, p := range numbered(20) {
				kit.Publish("jobs/1", []byte(p+"-"+string(rune('a'+i))), []settle.QoS{settle.AtLeastOnce, settle.ExactlyOnce}[j%2])
			}
			kit.CutConnection()
		}
		w.quiet()
		seen := w.journal.all()
		for i := range 3 {
			for _, p := range numbered(20) {
				if !slices.Contains(seen, p+"-"+string(rune('a'+i))) {
					w.t.Errorf("%s-%c is lost", p, 'a'+i)
				}
			}
		}
	}},
	{"AStopLosesNothing", func(w *world) {
		g := newGate()
		kit := w.begin(settle.Handle("jobs/+", func(_ context.Context, payload []byte) settle.Outcome {
			g.wait(payload)
			w.journal.note(payload)
			return settle.Ack()
		}))
		w.publishAll("jobs/1", numbered(5)...)
		w.held(g)
		stopped := make(chan error)
		go func() { stopped <- kit.Stop() }()
		close(g.open) // the one at work is finished and acknowledged; those behind it may be, or come again
		if err := <-stopped; err != nil {
			w.t.Fatal(err)
		}
		w.begin(settle.Handle("jobs/+", w.acks))
		w.publishAll("jobs/1", "last")
		w.quiet()
		w.wantHandled(append(numbered(5), "last")...)
	}},
	{"WhatIsPublishedWhileTheAppIsStoppedWaits", func(w *world) {
		w.begin(settle.Handle("jobs/+", w.acks))
		w.publishAll("jobs/1", "before")
		w.quiet()
		w.stop()
		other := w.config
		w.config.ClientID = "publisher"
		w.begin(settle.Handle("elsewhere", w.acks))
		w.publishAll("jobs/1", numbered(10)...)
		w.stop()
		w.config = other
		w.begin(settle.Handle("jobs/+", w.acks)).Settled("jobs/+", 10)
		w.quiet()
		w.wantHandled(append([]string{"before"}, numbered(10)...)...)
	}},
	{"AServerThatForgetsEverythingLosesNothingThatWeHave", func(w *world) {
		g := newGate()
		kit := w.begin(settle.Handle("jobs/+", func(_ context.Context, payload []byte) settle.Outcome {
			g.wait(payload)
			w.journal.note(payload)
			return settle.Ack()
		}, settle.Timeout(time.Hour)))
		w.publishAll("jobs/1", numbered(3)...)
		w.held(g)
		kit.Until("all are here", func() bool { return w.metric("settle_deliveries_total") == 3 })
		w.restart()
		kit.Until("connected again", func() bool { return w.metric("settle_sessions_lost_total") == 1 && w.app.Ready() == nil })
		close(g.open)
		w.publishAll("jobs/1", "new")
		kit.Settled("jobs/+", 4)
		w.quiet()
		w.wantHandled(append(numbered(3), "new")...)
	}},
	{"ARetryCopyOutlivesAServerThatForgetsEverything", func(w *world) {
		kit := w.begin(settle.Handle("jobs/+", w.first(settle.Retry(errDown)), settle.RetryTo("retry"), settle.Backoff(settle.Constant(time.Second))))
		w.publishAll("jobs/1", "a")
		kit.Settled("jobs/+", 1)
		w.quietCopies()
		w.restart()
		if got := kit.Settled("jobs/+", 2)[1]; got.Attempt != 2 {
			w.t.Error(got)
		}
	}},
	{"WithoutASessionWhatTheAppHasIsHandledAtStop", func(w *world) {
		w.config.SessionExpiry = -1
		kit := w.begin(settle.Handle("jobs/+", func(_ context.Context, payload []byte) settle.Outcome {
			w.journal.note(payload)
			<-time.After(20 * time.Millisecond)
			return settle.Ack()
		}))
		w.publishAll("jobs/1", numbered(5)...)
		kit.Until("all are here", func() bool { return w.metric("settle_deliveries_total") == 5 })
		w.stop()
		w.wantHandled(numbered(5)...)
	}},
	{"QoS0IsHandledAtStopToo", func(w *world) {
		kit := w.begin(settle.Handle("jobs/+", func(_ context.Context, payload []byte) settle.Outcome {
			w.journal.note(payload)
			<-time.After(20 * time.Millisecond)
			return settle.Ack()
		}))
		for _, p := range numbered(5) {
			kit.Publish("jobs/1", []byte(p), settle.AtMostOnce)
		}
		kit.Until("all are here", func() bool { return w.metric("settle_deliveries_total") == 5 })
		w.stop()
		w.wantHandled(numbered(5)...)
	}},
}

// quietCopies waits until the copies are back and wait.
func (w *world) quietCopies() {
	w.t.Helper()
	w.kit.Until("the copies wait", func() bool { return w.metric("settle_retry_waiting") > 0 })
}

var redeliveryScenarios = []scenario{
	{"WhatIsInWorkIsJoinedWithItsRedelivery", func(w *world) { w.joined(settle.AtLeastOnce) }},
	{"AtQoS2Too", func(w *world) { w.joined(settle.ExactlyOnce) }},
	{"WhatWasAcknowledgedIsProvedByWhatIsInWorkBehindIt", func(w *world) {
		g := newGate()
		kit := w.begin(settle.Handle("jobs/+", func(_ context.Context, payload []byte) settle.Outcome {
			if w.journal.note(payload); string(payload) == "m3" {
				g.wait(payload)
			}
			return settle.Ack()
		}))
		w.publishAll("jobs/1", numbered(6)...)
		w.held(g)
		kit.CutConnection()
		kit.Until("connected again", func() bool { return w.app.Ready() == nil })
		close(g.open)
		w.quiet()
		w.wantHandled(numbered(6)...)
	}},
	{"WhatIsHeldIsJoinedWithItsRedelivery", func(w *world) {
		kit := w.begin(settle.Handle("jobs/+", w.first(settle.Retry(errDown)), settle.Backoff(settle.Constant(time.Second))))
		w.publishAll("jobs/1", "a")
		kit.Settled("jobs/+", 1)
		kit.CutConnection()
		if got := kit.Settled("jobs/+", 2)[1]; got.Attempt != 2 || !got.Acknowledged {
			w.t.Error(got)
		}
		w.quiet()
		w.wantHandled("a", "a")
	}},
	{"HandleAgainHandlesEveryRedelivery", func(w *world) {
		w.config.Redelivery = settle.HandleAgain
		g := newGate()
		kit := w.begin(settle.Handle("jobs/+", func(_ context.Context, payload []byte) settle.Outcome {
			if w.journal.note(payload) == 1 {
				g.wait(payload)
			}
			return settle.Ack()
		}, settle.Timeout(time.Hour)))
		w.publishAll("jobs/1", "a")
		w.held(g)
		kit.CutConnection()
		kit.Until("it has come again", func() bool { return w.metric("settle_deliveries_total") == 2 })
		close(g.open)
		if got := kit.Settled("jobs/+", 2)[1]; !got.Delivery.Redelivered() || !got.Acknowledged {
			w.t.Error(got)
		}
		w.quiet()
		w.wantHandled("a", "a")
	}},
}

func (w *world) joined(qos settle.QoS) {
	w.t.Helper()
	g := newGate()
	kit := w.begin(settle.Handle("jobs/+", func(_ context.Context, payload []byte) settle.Outcome {
		w.journal.note(payload)
		g.wait(payload)
		return settle.Ack()
	}, settle.ExactlyOnce))
	kit.Publish("jobs/1", []byte("a"), qos)
	w.held(g)
	kit.CutConnection()
	kit.Until("it is joined", func() bool { return w.metric("settle_adopted_total") == 1 })
	close(g.open)
	wantAcknowledged(w.t, kit.Settled("jobs/+", 1))
	w.quiet()
	w.wantHandled("a")
}
