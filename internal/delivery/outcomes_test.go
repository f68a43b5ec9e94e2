package delivery_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/testkit"
)

var outcomeScenarios = []scenario{
	{"AckAcknowledges", func(w *world) {
		kit := w.begin(settle.Handle("jobs/+", w.acks, settle.ExactlyOnce))
		for qos, option := range []settle.QoS{settle.AtMostOnce, settle.AtLeastOnce, settle.ExactlyOnce} {
			kit.Publish("jobs/1", fmt.Append(nil, qos), option)
		}
		for _, got := range kit.Settled("jobs/+", 3) {
			if got.Acknowledged != (got.Delivery.QoS() > settle.AtMostOnce) || got.Attempt != 1 {
				w.t.Error(got)
			}
		}
		w.quiet()
	}},
	{"DropAcknowledges", func(w *world) {
		kit := w.begin(settle.Handle("jobs/+", w.says(settle.Drop("not ours")), settle.DeadLetterTo("dead")))
		kit.Publish("jobs/1", []byte("a"))
		if got := kit.Settled("jobs/+", 1)[0]; !got.Acknowledged || got.SentTo != "" {
			w.t.Error(got)
		}
		w.quiet()
		w.wantHandled("a")
	}},
	{"RetryWithATopicSendsACopyThenAcknowledges", func(w *world) {
		kit := w.begin(settle.Handle("jobs/+", w.first(settle.Retry(errDown)), settle.RetryTo("retry"), settle.Backoff(settle.Constant(backoff))))
		kit.Publish("jobs/1", []byte("a"))
		got := kit.Settled("jobs/+", 2)
		if got[0].SentTo != "retry" || !got[0].Acknowledged || got[0].Due.IsZero() {
			w.t.Errorf("the failure: %v", got[0])
		}
		if got[1].Attempt != 2 || got[1].Topic != "jobs/1" || !got[1].Acknowledged || got[1].At.Before(got[0].Due) || got[1].MessageID != got[0].MessageID {
			w.t.Errorf("the second attempt: %v", got[1])
		}
		kit.Published("retry", 1)
		w.quiet()
		w.wantHandled("a", "a")
	}},
	{"RetryWithoutATopicHoldsAndRunsAgain", func(w *world) {
		kit := w.begin(settle.Handle("jobs/+", w.first(settle.Retry(errDown)), settle.Backoff(settle.Constant(300*time.Millisecond))))
		kit.Publish("jobs/1", []byte("a"))
		if got := kit.Settled("jobs/+", 1)[0]; got.Acknowledged || got.SentTo != "" || got.Due.IsZero() {
			w.t.Errorf("held: %v", got)
		}
		if got := kit.Settled("jobs/+", 2)[1]; got.Attempt != 2 || !got.Acknowledged || got.Delivery.Redelivered() {
			w.t.Errorf("run again: %v", got)
		}
		w.quiet()
	}},
	{"RetryAfterWaitsAsLongAsItSays", func(w *world) {
		kit := w.begin(
			settle.Handle("jobs/held", w.first(settle.RetryAfter(700*time.Millisecond, errDown)), settle.Backoff(settle.Constant(time.Hour))),
			settle.Handle("jobs/copied", w.first(settle.RetryAfter(700*time.Millisecond, errDown)), settle.Backoff(settle.Constant(time.Hour)), settle.RetryTo("retry")))
		for _, topic := range []string{"jobs/held", "jobs/copied"} {
			kit.Publish(topic, []byte(topic))
			got := kit.Settled(topic, 2)
			if waited := got[1].At.Sub(got[0].At); waited < 695*time.Millisecond {
				w.t.Errorf("%s: after %v", topic, waited)
			}
		}
	}},
	{"RejectSendsADeadLetterThenAcknowledges", func(w *world) {
		kit := w.begin(settle.Handle("jobs/+", w.says(settle.Reject(errDown)), settle.ExactlyOnce, settle.DeadLetterTo("dead")))
		for _, qos := range []settle.QoS{settle.AtMostOnce, settle.AtLeastOnce, settle.ExactlyOnce} {
			kit.Publish("jobs/1", []byte("bytes"), qos, settle.MessageID("m-1"), settle.Header("site", "north"), settle.Expiry(time.Hour))
		}
		for _, got := range kit.Settled("jobs/+", 3) {
			if got.SentTo != "dead" || got.Acknowledged != (got.Delivery.QoS() > settle.AtMostOnce) {
				w.t.Error(got)
			}
		}
		for _, letter := range kit.Published("dead", 3) {
			_, expires := letter.Expiry()
			if string(letter.Payload()) != "bytes" || letter.QoS() != settle.AtLeastOnce || expires || letter.Retain() ||
				header(letter, "site") != "north" || header(letter, "settle-message-id") != "m-1" || header(letter, "settle-reason") != errDown.Error() ||
				header(letter, "settle-original-topic") != "jobs/1" || header(letter, "settle-attempt") != "1" {
				w.t.Errorf("%+v", letter)
			}
		}
		w.quiet()
	}},
	{"RejectWithoutADeadLetterTopicIsADrop", func(w *world) {
		kit := w.begin(settle.Handle("jobs/+", w.says(settle.Reject(errDown))))
		kit.Publish("jobs/1", []byte("a"))
		if got := kit.Settled("jobs/+", 1)[0]; !got.Acknowledged || got.SentTo != "" {
			w.t.Error(got)
		}
		w.quiet()
		w.wantHandled("a")
	}},
	{"TheZeroOutcomeIsARetry", func(w *world) {
		kit := w.begin(settle.Handle("jobs/+", w.first(settle.Outcome{}), settle.Backoff(settle.Constant(backoff))))
		kit.Publish("jobs/1", []byte("a"))
		if got := kit.Settled("jobs/+", 2)[1]; got.Attempt != 2 || !got.Acknowledged {
			w.t.Error(got)
		}
		w.quiet()
	}},
	{"TheElementsOfABatchGoTheirOwnWays", func(w *world) {
		handler := func(_ context.Context, payloads []string) settle.Outcomes {
			each := make([]settle.Outcome, len(payloads))
			for i, p := range payloads {
				switch again := w.journal.note([]byte(p)) > 1; {
				case p == "retry" && !again:
					each[i] = settle.Retry(errDown)
				case p == "reject":
					each[i] = settle.Reject(errDown)
				default:
					each[i] = settle.Ack()
				}
			}
			return settle.Each(each...)
		}
		kit := w.begin(settle.HandleBatch("jobs/+", handler, settle.BatchSize(3), settle.Linger(time.Second),
			settle.RetryTo("retry"), settle.Backoff(settle.Constant(backoff)), settle.DeadLetterTo("dead")))
		for _, p := range []string{"ack", "retry", "reject"} {
			kit.Publish("jobs/1", p)
		}
		got := kit.Batches("jobs/+", 1)[0]
		sentTo := []string{got[0].SentTo, got[1].SentTo, got[2].SentTo}
		if strings.Join(sentTo, ",") != ",retry,dead" || !got[0].Acknowledged || !got[1].Acknowledged || !got[2].Acknowledged {
			w.t.Error(got)
		}
		if again := kit.Settled("jobs/+", 4)[3]; again.Attempt != 2 || again.Body != "retry" {
			w.t.Error(again)
		}
		w.quiet()
	}},
	{"TwoRoutesOnOneMessageRetryOnTheirOwn", func(w *world) {
		kit := w.begin(
			settle.Handle("jobs/#", w.acks, settle.Name("good")),
			settle.Handle("jobs/+", func(ctx context.Context, _ []byte) settle.Outcome {
				if settle.DeliveryFrom(ctx).Attempt() == 1 {
					return settle.Retry(errDown)
				}
				return settle.Ack()
			}, settle.Name("bad"), settle.Backoff(settle.Constant(300*time.Millisecond))))
		kit.Publish("jobs/1", []byte("a"))
		kit.Settled("bad", 1)
		if got := kit.Settled("good", 1)[0]; got.Acknowledged {
			w.t.Errorf("acknowledged before both have settled: %v", got)
		}
		if got := kit.Settled("bad", 2)[1]; !got.Acknowledged || got.Attempt != 2 {
			w.t.Error(got)
		}
		w.quiet()
		w.wantHandled("a")
	}},
}

var faultScenarios = []scenario{
	{"WhatDoesNotDecodeIsRejectedWithItsBytes", func(w *world) {
		kit := w.begin(settle.Handle("jobs/+", func(context.Context, map[string]int) settle.Outcome {
			w.t.Error("the handler was called")
			return settle.Ack()
		}, settle.DeadLetterTo("dead")))
		raw := []string{"{", "\x80", "", `"text"`}
		for _, p := range raw {
			kit.Publish("jobs/1", []byte(p))
		}
		var letters []string // they are published side by side
		for _, letter := range kit.Published("dead", len(raw)) {
			letters = append(letters, string(letter.Payload()))
		}
		slices.Sort(letters)
		if slices.Sort(raw); !slices.Equal(letters, raw) {
			w.t.Errorf("dead letters %q, want %q", letters, raw)
		}
		w.quiet()
	}},
	{"WhatIsTooLargeIsRejectedWithoutItsPayload", func(w *world) {
		w.config.MaxPayload = 100
		kit := w.begin(settle.Handle("jobs/+", w.acks, settle.DeadLetterTo("dead")))
		kit.Publish("jobs/1", []byte(strings.Repeat("x", 101)))
		kit.Publish("jobs/1", []byte("fits"))
		if letter := kit.Published("dead", 1)[0]; len(letter.Payload()) > 0 || header(letter, "settle-stub") == "" {
			w.t.Errorf("%+v", letter)
		}
		w.quiet()
		w.wantHandled("fits")
	}},
	{"APanicIsARetry", func(w *world) {
		kit := w.begin(settle.Handle("jobs/+", func(_ context.Context, payload []byte) settle.Outcome {
			if w.journal.note(payload) == 1 {
				panic("a bug")
			}
			return settle.Ack()
		}, settle.Backoff(settle.Constant(backoff))))
		kit.Publish("jobs/1", []byte("a"))
		if got := kit.Settled("jobs/+", 2)[1]; !got.Acknowledged || got.Attempt != 2 {
			w.t.Error(got)
		}
		w.quiet()
	}},
	{"ATimeoutIsARetry", func(w *world) {
		kit := w.begin(settle.Handle("jobs/+", func(ctx context.Context, payload []byte) settle.Outcome {
			if w.journal.note(payload) == 1 {
				<-ctx.Done()
			}
			return settle.Ack()
		}, settle.Timeout(100*time.Millisecond), settle.Backoff(settle.Constant(backoff))))
		kit.Publish("jobs/1", []byte("a"))
		if got := kit.Settled("jobs/+", 2); got[0].Outcome.Kind() != settle.KindRetry || !got[1].Acknowledged {
			w.t.Error(got)
		}
		w.quiet()
	}},
}

// A settlement that is looked at before its time is no excuse: wantAcknowledged waits for it.
func wantAcknowledged(t *testing.T, all []testkit.Settlement) {
	t.Helper()
	for _, got := range all {
		if !got.Acknowledged {
			t.Error(got)
		}
	}
}
