package delivery_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/settlemq/settle"
)

var retryScenarios = []scenario{
	{"ACopyKeepsTheMessage", func(w *world) {
		var headers []string
		kit := w.begin(settle.Handle("jobs/+", func(ctx context.Context, payload []byte) settle.Outcome {
			d := settle.DeliveryFrom(ctx)
			if w.journal.note(payload); d.Attempt() == 1 {
				return settle.Retry(errDown)
			}
			for name, value := range d.Headers() {
				headers = append(headers, name+"="+value)
			}
			if d.ContentType() != "text/plain" || d.ResponseTopic() != "answers" || string(d.CorrelationData()) != "c" || d.Topic() != "jobs/1" || d.MessageID() != "m-1" {
				w.t.Errorf("the copy: %q %q %q %q %q", d.ContentType(), d.ResponseTopic(), d.CorrelationData(), d.Topic(), d.MessageID())
			}
			return settle.Ack()
		}, settle.RetryTo("retry"), settle.Backoff(settle.Constant(backoff))))
		kit.Publish("jobs/1", []byte("a"), settle.ContentType("text/plain"), settle.ResponseTopic("answers"), settle.CorrelationData([]byte("c")),
			settle.MessageID("m-1"), settle.Header("k", "1"), settle.Header("b", "2"), settle.Header("k", "3"), settle.Expiry(time.Hour), settle.Retain())
		kit.Settled("jobs/+", 2)
		if want := []string{"k=1", "b=2", "k=3"}; !slices.Equal(slices.DeleteFunc(headers, func(h string) bool { return h == "message-id=m-1" }), want) {
			w.t.Errorf("headers %q, want %q", headers, want)
		}
		sent := kit.Published("retry", 1)[0]
		if left, expires := sent.Expiry(); sent.Retain() || !expires || left > time.Hour || left < time.Hour-time.Minute || header(sent, "settle-owner") != "svc" {
			w.t.Errorf("%+v", sent)
		}
	}},
	{"MaxAttemptsCountsTheFirst", func(w *world) {
		for i, options := range [][]settle.RouteOption{{}, {settle.RetryTo("retry")}} {
			filter := fmt.Sprintf("jobs%d/+", i)
			kit := w.begin(settle.Handle(filter, w.says(settle.Retry(errDown)),
				append(options, settle.Backoff(settle.Constant(backoff)), settle.MaxAttempts(3), settle.DeadLetterTo("dead"))...))
			kit.Publish(filter[:6]+"1", []byte("a"))
			if got := kit.Settled(filter, 3)[2]; got.Attempt != 3 || got.SentTo != "dead" || !got.Acknowledged {
				w.t.Error(got)
			}
			w.quiet()
			if letter := kit.Published("dead", 1)[0]; header(letter, "settle-attempt") != "3" {
				w.t.Errorf("%+v", letter)
			}
			w.stop()
		}
		w.wantHandled("a", "a", "a", "a", "a", "a")
	}},
	{"AWaitTakesNoSlotOfTheWindow", func(w *world) {
		w.config.ReceiveMaximum = 1
		kit := w.begin(settle.Handle("jobs/+", func(_ context.Context, payload []byte) settle.Outcome {
			if w.journal.note(payload) == 1 && string(payload) != "fine" {
				return settle.Retry(errDown)
			}
			return settle.Ack()
		}, settle.RetryTo("retry"), settle.Backoff(settle.Constant(time.Second))))
		w.publishAll("jobs/1", append(numbered(5), "fine")...)
		kit.Settled("jobs/+", 11)
		if got, want := w.journal.all()[:6], append(numbered(5), "fine"); !slices.Equal(got, want) {
			w.t.Errorf("handled %q before any retry was due, want %q", got, want)
		}
		w.quiet()
	}},
	{"AWaitingCopyOutlastsACut", func(w *world) {
		kit := w.begin(settle.Handle("jobs/+", w.first(settle.Retry(errDown)), settle.RetryTo("retry"), settle.Backoff(settle.Constant(time.Second))))
		w.publishAll("jobs/1", numbered(3)...)
		kit.Settled("jobs/+", 3)
		kit.CutConnection()
		for _, got := range kit.Settled("jobs/+", 6)[3:] {
			if got.Attempt != 2 || !got.Acknowledged {
				w.t.Error(got)
			}
		}
		w.quiet()
		if n := len(w.journal.all()); n != 6 {
			w.t.Errorf("%d calls, want 6", n)
		}
	}},
	{"AWaitingCopyOutlivesTheProcessAndCountsItsAttempts", func(w *world) {
		route := func(o settle.Outcome) settle.Route {
			return settle.Handle("jobs/+", w.says(o), settle.RetryTo("retry"), settle.Backoff(settle.Constant(500*time.Millisecond)))
		}
		w.begin(route(settle.Retry(errDown))).Publish("jobs/1", []byte("a"), settle.MessageID("m-1"))
		w.kit.Settled("jobs/+", 1)
		w.quietCopies()
		w.stop()
		if got := w.begin(route(settle.Ack())).Settled("jobs/+", 1)[0]; got.Attempt != 2 || got.Topic != "jobs/1" || got.MessageID != "m-1" || !got.Acknowledged {
			w.t.Error(got)
		}
		w.quiet()
	}},
	{"ARetryTopicInsideTheFilterDoublesNothing", func(w *world) {
		kit := w.begin(settle.Handle("jobs/+/usage", w.first(settle.Retry(errDown)), settle.RetryTo("jobs/retry/usage"), settle.Backoff(settle.Constant(backoff))))
		w.publishAll("jobs/1/usage", numbered(5)...)
		kit.Settled("jobs/+/usage", 10)
		w.quiet()
		if n := len(w.journal.all()); n != 10 {
			w.t.Errorf("%d calls, want 10: %q", n, w.journal.all())
		}
	}},
	{"AForeignMessageOnTheRetryTopicIsAFirstDelivery", func(w *world) {
		kit := w.begin(settle.Handle("jobs/+", w.acks, settle.RetryTo("retry")))
		kit.Publish("retry", []byte("a"), settle.MessageID("m-1"))
		if got := kit.Settled("jobs/+", 1)[0]; got.Attempt != 1 || got.Topic != "retry" || !got.Acknowledged {
			w.t.Error(got)
		}
	}},
	{"ManyFailuresAtOnceAllComeBack", func(w *world) {
		var failed atomic.Int64
		kit := w.begin(settle.Handle("jobs/+", func(ctx context.Context, _ []byte) settle.Outcome {
			if settle.DeliveryFrom(ctx).Attempt() == 1 {
				failed.Add(1)
				return settle.Retry(errDown)
			}
			return settle.Ack()
		}, settle.Workers(8), settle.RetryTo("retry"), settle.Backoff(settle.Constant(backoff))))
		w.publishAll("jobs/1", numbered(100)...)
		wantAcknowledged(w.t, kit.Settled("jobs/+", 200))
		if failed.Load() != 100 {
			w.t.Errorf("%d first attempts, want 100", failed.Load())
		}
		w.quiet()
	}},
}
