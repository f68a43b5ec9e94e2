package settle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle"
)

func TestK8_AKeyFunctionThatFailsIsARetry(t *testing.T) {
	for name, fault := range map[string]func(){
		"panic":  func() { panic("key") },
		"Goexit": goexit,
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				c := newCalls()
				failed := false
				f, main := up(t, nil, settle.Handle("a", func(ctx context.Context, b []byte) settle.Outcome {
					c.note(fmt.Sprintf("%s %d", b, settle.DeliveryFrom(ctx).Attempt()))
					return settle.Ack()
				}, settle.Backoff(settle.Constant(time.Second)), settle.Workers(4, func(d *settle.Delivery) string {
					if string(d.Payload()) == "bad" && !failed {
						failed = true
						fault()
					}
					return "k"
				})), settle.Handle("b", c.ack))
				main.send(publish("a", 1, 1, "bad"), publish("a", 1, 2, "good"), publish("b", 1, 3, "other"))
				c.expectAll(t, "good 1", "other")
				main.expect()
				pass(2 * time.Second)
				c.expectAll(t, "good 1", "other", "bad 2")
				main.expect("PUBACK 1", "PUBACK 2", "PUBACK 3")
				f.expectValue(`settle_settled_total{outcome="retry",route="a"}`, 1)
			})
		})
	}
}

// A key function that blocks holds up its own route, and nothing else.
func TestK8_AKeyFunctionThatBlocksHoldsUpItsRouteAlone(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		gate := make(chan struct{})
		f, main := up(t, func(c *settle.Config) { c.KeepAlive = 5 * time.Second },
			settle.Handle("a", c.ack, settle.Workers(2, func(*settle.Delivery) string { <-gate; return "" })),
			settle.Handle("b", c.ack))
		main.send(publish("a", 1, 1, "a"), publish("b", 1, 2, "b"))
		pass(time.Minute)
		c.expect(t, "b")
		if f.dialled() != 1 {
			t.Error("the connection was lost")
		}
		close(gate)
		c.expect(t, "b", "a")
		main.expect("PUBACK 1", "PUBACK 2")
	})
}

func TestK8_AHundredHandlersThatIgnoreTheirContext(t *testing.T) {
	in(t, func(t *testing.T) {
		const n = 100
		release := make(chan struct{})
		c := newCalls()
		f, main := up(t, nil,
			settle.Handle("deaf", func(context.Context, []byte) settle.Outcome {
				c.note("deaf")
				<-release
				return settle.Ack()
			}, settle.Timeout(time.Second), settle.OnTimeout(func(error) settle.Outcome { return settle.Drop("too slow") })),
			settle.Handle("b", c.ack))
		before := goroutines()
		main.send(numbered("deaf", 1, 1, n)...)
		pass(5 * time.Minute)
		ran := len(c.list())
		if ran < 2 || ran > 20 {
			t.Errorf("%d handlers run at once on one lane", ran)
		}
		if grown := goroutines() - before; grown > ran+2 {
			t.Errorf("%d goroutines more", grown)
		}
		f.expectLogged("handlers ignore the end of their context")
		if err := f.Live(); err == nil || !strings.Contains(err.Error(), `"deaf"`) {
			t.Errorf("live: %v", err)
		}
		if f.Ready() != nil {
			t.Error(f.Ready())
		}
		main.expect(pubacks(1, ran)...)
		main.send(publish("b", 1, 200, "b")) // the rest goes on; its acknowledgement waits for its turn
		if got := c.list(); got[len(got)-1] != "b" {
			t.Error("another route is held up")
		}
		close(release)
		pass(time.Second)
		main.expect(append(pubacks(ran+1, n-ran), "PUBACK 200")...)
		if err := f.Live(); err != nil {
			t.Error(err)
		}
		f.expectValue("settle_stale_settlements_total", float64(ran))
		f.expectValue(`settle_settled_total{outcome="drop",route="deaf"}`, float64(ran))
		f.expectValue(`settle_settled_total{outcome="ack",route="deaf"}`, float64(n-ran))
		f.expectValue(`settle_inflight{route="deaf"}`, 0)
	})
}

func TestATimeoutEndsTheContextWithItsCause(t *testing.T) {
	in(t, func(t *testing.T) {
		causes := make(chan error, 1)
		var told error
		f, main := up(t, nil, settle.Handle("a", func(ctx context.Context, _ []byte) settle.Outcome {
			if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) != 5*time.Second {
				t.Errorf("deadline %v %t", deadline, ok)
			}
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return settle.Ack()
		}, settle.Timeout(5*time.Second), settle.OnTimeout(func(err error) settle.Outcome { told = err; return settle.Drop("") })))
		began := time.Now()
		main.send(publish("a", 1, 1, "x"))
		if cause := <-causes; !errors.Is(cause, settle.ErrHandlerTimeout) || time.Since(began) != 5*time.Second {
			t.Errorf("%v after %s", cause, time.Since(began))
		}
		main.expect("PUBACK 1")
		var timeout *settle.TimeoutError
		if !errors.As(told, &timeout) || !errors.Is(told, settle.ErrHandlerTimeout) || timeout.After != 5*time.Second || timeout.Delivery.Topic() != "a" {
			t.Errorf("the policy was told %v", told)
		}
		f.expectValue("settle_stale_settlements_total", 1)
	})
}

// Waiting in middleware is not the handler's time.
func TestMiddlewaresWaitIsNoTimeout(t *testing.T) {
	in(t, func(t *testing.T) {
		f, main := up(t, nil, settle.Handle("a", newCalls().ack, settle.Timeout(time.Second), settle.With(func(next settle.Next) settle.Next {
			return func(ctx context.Context) settle.Outcomes {
				sleep(time.Minute)
				return next(ctx)
			}
		})))
		main.send(publish("a", 1, 1, "x"))
		pass(2 * time.Minute)
		main.expect("PUBACK 1")
		f.expectValue(`settle_settled_total{outcome="ack",route="a"}`, 1)
		f.expectValue("settle_stale_settlements_total", 0)
	})
}

func TestATimedOutBatchRetriesEachElement(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main := up(t, func(c *settle.Config) { c.Codecs = []settle.Codec{textCodec{}} },
			settle.HandleBatch("a", func(ctx context.Context, all []text) settle.Outcomes {
				c.note(fmt.Sprint(len(all), " ", settle.DeliveryFrom(ctx).Attempt()))
				if settle.DeliveryFrom(ctx).Attempt() == 1 {
					<-ctx.Done()
				}
				return settle.Every(settle.Ack())
			}, settle.BatchSize(3), settle.Timeout(time.Second), settle.Backoff(settle.Constant(time.Second))))
		main.send(numbered("a", 1, 1, 3)...)
		pass(time.Minute)
		c.expect(t, "3 1", "3 2")
		main.expect(pubacks(1, 3)...)
		f.expectValue("settle_stale_settlements_total", 3)
		f.expectValue(`settle_inflight{route="a"}`, 0)
	})
}
