package settle_test

import (
	"context"
	"testing"
	"time"

	"github.com/settlemq/settle"
)

// A handler that outlives its timeout took time too: the histogram must not leave out the slowest calls.
func TestTimedOutHandlersAreInTheHistogram(t *testing.T) {
	in(t, func(t *testing.T) {
		f, main := up(t, nil, settle.Handle("a", func(ctx context.Context, _ []byte) settle.Outcome {
			<-ctx.Done()
			return settle.Ack()
		}, settle.Timeout(time.Second), settle.OnTimeout(func(error) settle.Outcome { return settle.Drop("late") })))
		main.send(publish("a", 1, 1, "1"))
		pass(2 * time.Second)
		main.expect("PUBACK 1")
		f.expectValue(`settle_handler_seconds{route="a"}`, 1)
	})
}

// Retire does not end a session that still has a copy of ours in its queue.
func TestRetireWaitsForACopyThatTheServerDeliversLate(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main, second := upBoth(t, nil, settle.Handle("a", func(_ context.Context, b []byte) settle.Outcome {
			c.note(string(b))
			if len(c.seen) == 1 {
				return settle.RetryAfter(time.Second, errFails)
			}
			return settle.Ack()
		}, settle.RetryTo("r")))
		main.send(publish("a", 1, 1, "1"))
		pass(time.Second)
		copies := main.published("r")
		if len(copies) != 1 {
			t.Fatalf("%d copies", len(copies))
		}
		f.mu.Lock()
		f.stopped = true
		f.mu.Unlock()
		done := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			done <- f.Retire(ctx)
		}()
		pass(time.Minute) // the server is slow
		second.send(comeBack(copies[0], 1))
		pass(3 * time.Minute)
		<-done
		c.expect(t, "1", "1")
	})
}

// poison's decoder panics.
type poison struct{ s string }

func (p *poison) UnmarshalJSON(b []byte) error {
	if string(b) == `"poison"` {
		panic("a bug in a decoder")
	}
	p.s = string(b)
	return nil
}

// One payload whose decoder panics does not disturb the others of its batch.
func TestADecoderThatPanicsDisturbsNoOtherElement(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		_, main := up(t, nil, settle.HandleBatch("a", func(_ context.Context, all []poison) settle.Outcomes {
			for _, p := range all {
				c.note(p.s)
			}
			return settle.Every(settle.Ack())
		}, settle.BatchSize(3), settle.OnPanic(settle.Reject)))
		main.send(publish("a", 1, 1, `"1"`), publish("a", 1, 2, `"poison"`), publish("a", 1, 3, `"3"`))
		pass(time.Second)
		c.expect(t, `"1"`, `"3"`)
	})
}

// What the second connection subscribes to cannot be given up on it.
func TestRetireFiltersHoldNoRetryTopicInUse(t *testing.T) {
	_, err := settle.New(settle.Config{ClientID: "svc", Servers: []string{"mqtt://server"}, RetireFilters: []string{"r"}},
		settle.Handle("a", newCalls().ack, settle.RetryTo("r")))
	if err == nil {
		t.Error("a retry topic that is in use may be retired")
	}
}

// Acknowledgements leave at Stop also where an unsorted delivery of another route stands before them.
func TestStopGoesOnWithWhatASorterHas(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		gate := make(chan struct{})
		key := func(d *settle.Delivery) string { <-gate; return d.Topic() }
		f, main := up(t, nil, settle.Handle("k", c.ack, settle.Workers(2, key)), settle.Handle("a", c.ack))
		main.send(publish("k", 1, 1, "k1"), publish("k", 1, 2, "k2"), publish("a", 1, 3, "a"))
		c.expect(t, "a")
		time.AfterFunc(time.Second/2, func() { close(gate) }) // within what Stop gives a sorter
		_ = f.stop()
		acked := false
		for _, line := range main.history() {
			acked = acked || line == "PUBACK 3"
		}
		if !acked {
			t.Error("the acknowledgement of what was settled has not left: it is handled again by the next process")
		}
	})
}
