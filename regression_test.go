package settle_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/settlemq/settle"
)

// A held delivery that nobody else has is handled at Stop, also where the route has a key function of the user's.
func TestStopHandlesHoldsOfARouteWithAKeyFunction(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		key := func(d *settle.Delivery) string { return d.Topic() }
		failing := true
		f, main := up(t, nil, settle.Handle("a", func(_ context.Context, b []byte) settle.Outcome {
			c.note(string(b))
			if failing {
				failing = false
				return settle.RetryAfter(time.Hour, errFails)
			}
			return settle.Ack()
		}, settle.AtMostOnce, settle.Workers(2, key)))
		main.send(publish("a", 0, 0, "1"))
		c.expect(t, "1")
		_ = f.stop()
		c.expect(t, "1", "1")
	})
}

// A Retry because the app stops spends no attempt: with DropExhausted neither.
func TestStoppingDropsNothingExhausted(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main := up(t, func(cfg *settle.Config) { cfg.ShutdownTimeout = time.Second },
			settle.Handle("a", c.polite, settle.MaxAttempts(1), settle.DropExhausted()))
		main.send(publish("a", 1, 1, "1"))
		c.expect(t, "1")
		_ = f.stop()
		for _, line := range main.history() {
			if line == "PUBACK 1" {
				t.Error("a delivery whose handler was stopped was acknowledged")
			}
		}
	})
}

func TestShutdownTimeoutIsKept(t *testing.T) {
	const timeout = 30 * time.Second
	for name, end := range map[string]time.Duration{"no end": 0, "as Run": timeout + 5*time.Second} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				var told time.Duration
				var stopAt time.Time
				f, main := up(t, func(cfg *settle.Config) { cfg.ShutdownTimeout = timeout },
					settle.Handle("a", func(ctx context.Context, _ []byte) settle.Outcome {
						<-ctx.Done()
						told = time.Since(stopAt)
						return settle.Ack()
					}, settle.Timeout(0)))
				main.send(publish("a", 1, 1, "1"))
				stopAt = time.Now()
				ctx, cancel := context.Background(), context.CancelFunc(func() {})
				if end > 0 {
					ctx, cancel = context.WithTimeout(ctx, end)
				}
				defer cancel()
				f.mu.Lock()
				f.stopped = true
				f.mu.Unlock()
				_ = f.Stop(ctx)
				if told < timeout {
					t.Errorf("the handler was told after %s, ShutdownTimeout is %s", told, timeout)
				}
			})
		})
	}
}

func TestStopReturnsItsResultThoughItsContextHasEnded(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range 50 {
		app, err := settle.New(settle.Config{ClientID: "svc", Servers: []string{"mqtt://server"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := app.Stop(ctx); err != nil {
			t.Fatalf("the app has stopped, and Stop says: %v", err)
		}
	}
}

// No lock is held over user code: a middleware that asks the app something when it is put around a route must not wait for itself.
func TestAMiddlewareMayAskTheAppAtStart(t *testing.T) {
	app, err := settle.New(settle.Config{ClientID: "svc", Servers: []string{"mqtt://server"},
		Dial: nil}, settle.Handle("a", func(context.Context, []byte) settle.Outcome { return settle.Ack() }))
	if err != nil {
		t.Fatal(err)
	}
	app.Use(func(next settle.Next) settle.Next {
		_ = app.Err()
		return next
	})
	done := make(chan struct{})
	go func() {
		_ = app.Start(t.Context())
		close(done)
	}()
	select {
	case <-done:
		_ = app.Stop(context.Background())
	case <-time.After(2 * time.Second):
		t.Fatal("Start waits for itself")
	}
}

type panickingError struct{}

func (*panickingError) Error() string { panic("a nil error") }

// A cause whose text panics costs an attempt, not the process.
func TestACauseThatPanics(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		_, main := up(t, nil, settle.Handle("a", func(_ context.Context, b []byte) settle.Outcome {
			c.note(string(b))
			if string(b) == "1" {
				return settle.Reject((*panickingError)(nil))
			}
			return settle.Ack()
		}))
		main.send(publish("a", 1, 1, "1"), publish("a", 1, 2, "2"))
		c.expect(t, "1", "2")
		main.expect("PUBACK 1", "PUBACK 2")
	})
}

// Parked deliveries wait five seconds at most, whatever else arrives meanwhile.
func TestParkedAreReleasedUnderQoS0Traffic(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main := up(t, func(cfg *settle.Config) { cfg.ReceiveMaximum = 2 },
			settle.Handle("a", func(_ context.Context, b []byte) settle.Outcome {
				c.note(string(b))
				if string(b) == "open" {
					return settle.RetryAfter(10*time.Hour, errFails)
				}
				return settle.Ack()
			}), settle.Handle("q", func(context.Context, []byte) settle.Outcome { return settle.Ack() }, settle.AtMostOnce))
		one, two := publish("a", 1, 1, "1"), publish("a", 1, 2, "2")
		main.send(one, two, publish("a", 1, 3, "open"))
		main.expect("PUBACK 1", "PUBACK 2")
		main.cut()
		pass(200 * time.Millisecond)
		main = f.main(true)
		main.send(again(one), again(two)) // its acknowledgements were lost, and the third is not shown
		c.expect(t, "1", "2", "open")
		for range 100 { // ten seconds
			main.send(publish("q", 0, 0, "x"))
			pass(100 * time.Millisecond)
		}
		c.expect(t, "1", "2", "open", "1", "2")
	})
}

func TestWaitReadyEndsWithAnAppThatWasNeverStarted(t *testing.T) {
	in(t, func(t *testing.T) {
		f := prepare(t, nil)
		_ = f.stop()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		began := time.Now()
		err := f.WaitReady(ctx)
		if err == nil || errors.Is(err, context.DeadlineExceeded) || time.Since(began) > time.Second {
			t.Errorf("WaitReady returned after %s: %v", time.Since(began), err)
		}
		began = time.Now()
		if err := f.Publish(ctx, "a", 1); time.Since(began) > time.Second {
			t.Errorf("Publish returned after %s: %v", time.Since(began), err)
		}
	})
}
