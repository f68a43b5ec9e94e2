package settle_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/internal/broker/brokertest"
)

func TestOneLaneHandlesOneAfterTheOtherInOrder(t *testing.T) {
	in(t, func(t *testing.T) {
		var running, most atomic.Int32
		c := newCalls()
		_, main := up(t, nil, settle.Handle("a", func(ctx context.Context, b []byte) settle.Outcome {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			sleep(rand.N(10 * time.Millisecond))
			return c.ack(ctx, b)
		}, settle.ExactlyOnce))
		var out []brokertest.Packet
		var want []string
		for i := range 200 {
			out = append(out, publish("a", byte(i%3), uint16(i+1), strconv.Itoa(i)))
			want = append(want, strconv.Itoa(i))
		}
		main.send(out...)
		pass(time.Minute)
		c.expect(t, want...)
		if most.Load() != 1 {
			t.Errorf("%d at once", most.Load())
		}
	})
}

func TestWorkersRunAtOnceAndNoMore(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		_, main := up(t, nil, settle.Handle("a", c.wait, settle.Workers(5)))
		main.send(numbered("a", 1, 1, 20)...)
		if got := c.list(); len(got) != 5 {
			t.Errorf("%d run at once", len(got))
		}
		for range 20 {
			c.release(settle.Ack())
		}
		main.expect(pubacks(1, 20)...)
	})
}

func TestAKeysDeliveriesKeepTheirOrder(t *testing.T) {
	topicOf := func(d *settle.Delivery) string { return d.Level(1) }
	for name, key := range map[string]settle.KeyFunc{"ByKey": settle.ByKey, "ByTopic": settle.ByTopic, "custom": topicOf} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				var mu sync.Mutex
				last, busy := map[string]int{}, map[string]bool{}
				var running, most int
				f, main := up(t, nil, settle.Handle("a/+", func(ctx context.Context, b []byte) settle.Outcome {
					k := settle.DeliveryFrom(ctx).Level(1)
					n, _ := strconv.Atoi(string(b))
					mu.Lock()
					running++
					most = max(most, running)
					if busy[k] || n <= last[k] {
						t.Errorf("key %s: %d after %d, another running: %t", k, n, last[k], busy[k])
					}
					last[k], busy[k] = n, true
					mu.Unlock()
					sleep(rand.N(10 * time.Millisecond))
					mu.Lock()
					busy[k] = false
					running--
					mu.Unlock()
					return settle.Ack()
				}, settle.Workers(8, key)))
				var out []brokertest.Packet
				for i := 1; i <= 500; i++ {
					k := strconv.Itoa(rand.N(20))
					out = append(out, publish("a/"+k, 1, uint16(i), strconv.Itoa(i), settle.PartitionKeyHeader, k))
				}
				main.send(out...)
				pass(time.Minute)
				main.expect(pubacks(1, 500)...)
				if most < 3 || most > 8 {
					t.Errorf("%d lanes at work", most)
				}
				f.expectValue(`settle_inflight{route="a/+"}`, 0)
			})
		})
	}
}

func TestDeliveriesWithoutAKeyTakeTurns(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		_, main := up(t, nil, settle.Handle("a", c.wait, settle.Workers(4, settle.ByKey)))
		main.send(numbered("a", 1, 1, 4)...)
		if got := c.list(); len(got) != 4 {
			t.Errorf("%d of 4 lanes run", len(got))
		}
		for range 4 {
			c.release(settle.Ack())
		}
	})
}

// A key's retries go to the key's lane: the copy carries the key, and the topic is the original one.
func TestRetriesGoToTheirKeysLane(t *testing.T) {
	for name, key := range map[string]settle.KeyFunc{"ByKey": settle.ByKey, "ByTopic": settle.ByTopic} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				c := newCalls()
				_, main, second := upBoth(t, nil, settle.Handle("a/+", func(ctx context.Context, b []byte) settle.Outcome {
					if string(b) == "fails" && settle.DeliveryFrom(ctx).Attempt() == 1 {
						return settle.Retry(errFails)
					}
					return c.wait(ctx, b)
				}, settle.Workers(16, key), settle.RetryTo("r"), settle.Timeout(0), settle.Backoff(settle.Constant(time.Second))))
				circle(main, second, 0, "r")
				main.send(publish("a/k", 1, 1, "fails", settle.PartitionKeyHeader, "k"), publish("a/k", 1, 2, "next", settle.PartitionKeyHeader, "k"))
				pass(2 * time.Second)
				c.expect(t, "next") // the retry waits for its lane
				c.release(settle.Ack())
				c.expect(t, "next", "fails")
				c.release(settle.Ack())
			})
		})
	}
}

func TestRoutesDoNotHoldUpOneAnother(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		_, main := up(t, nil, settle.Handle("a", c.wait), settle.Handle("b", c.ack))
		main.send(publish("a", 1, 1, "a"), publish("b", 1, 2, "b"))
		c.expectAll(t, "a", "b")
		main.expect()
		c.release(settle.Ack())
		main.expect("PUBACK 1", "PUBACK 2")
	})
}

func TestMiddlewareOrder(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		layer := func(name string) settle.Middleware {
			return func(next settle.Next) settle.Next {
				return func(ctx context.Context) settle.Outcomes {
					c.note("> " + name)
					defer c.note("< " + name)
					return next(ctx)
				}
			}
		}
		f := prepare(t, func(c *settle.Config) {
			c.RouteDefaults = []settle.RouteOption{settle.With(layer("defaults"))}
		}, settle.Handle("a", c.ack, settle.With(layer("route 1"), layer("route 2")), settle.With(layer("route 3"))))
		f.Use(layer("app 1"), layer("app 2"))
		f.Use(layer("app 3"))
		if err := f.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		main := f.main(false)
		main.send(publish("a", 1, 1, "handler"))
		order := []string{"app 1", "app 2", "app 3", "defaults", "route 1", "route 2", "route 3"}
		var want []string
		for _, s := range order {
			want = append(want, "> "+s)
		}
		want = append(want, "handler")
		for _, s := range slices.Backward(order) {
			want = append(want, "< "+s)
		}
		c.expect(t, want...)
	})
}

func TestMiddlewareSeesAndChangesOutcomes(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		see := func(next settle.Next) settle.Next {
			return func(ctx context.Context) settle.Outcomes {
				out := next(ctx)
				for i, o := range out.All() {
					c.note(fmt.Sprintf("%s %s", settle.DeliveriesFrom(ctx)[i].Payload(), o.Kind()))
				}
				if out.Len() == 1 && out.At(0).Kind() == settle.KindReject {
					return settle.Every(settle.Drop("changed"))
				}
				return out
			}
		}
		f, main := up(t, nil, settle.Handle("a", func(context.Context, report) settle.Outcome { return settle.OrRetry(nil) }, settle.With(see)),
			settle.HandleBatch("b", func(context.Context, []report) settle.Outcomes {
				return settle.Every(settle.Ack())
			}, settle.With(see), settle.BatchSize(3)))
		main.send(publish("a", 1, 1, `{"meter":"1"}`), publish("a", 1, 2, "bad"))
		main.send(publish("b", 1, 3, `{}`), publish("b", 1, 4, "bad"), publish("b", 1, 5, `{}`))
		c.expectAll(t, `{"meter":"1"} ack`, "bad reject", "{} ack", "bad reject", "{} ack")
		f.expectValue(`settle_settled_total{outcome="drop",route="a"}`, 1)
		f.expectValue(`settle_settled_total{outcome="reject",route="b"}`, 1)
	})
}

// A middleware that answers by itself keeps the handler from running; its answer counts for the batch.
func TestMiddlewareThatDoesNotCallNext(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		closed := func(settle.Next) settle.Next {
			return func(context.Context) settle.Outcomes { return settle.Every(settle.RetryAfter(time.Hour, errFails)) }
		}
		f, main := up(t, func(c *settle.Config) { c.Codecs = []settle.Codec{textCodec{}} },
			settle.HandleBatch("a", func(context.Context, []text) settle.Outcomes { c.note("ran"); return settle.Every(settle.Ack()) },
				settle.With(closed), settle.BatchSize(3)))
		main.send(numbered("a", 1, 1, 3)...)
		main.expect()
		c.expect(t)
		f.expectValue(`settle_held{route="a"}`, 3)
	})
}

func TestMiddlewareWithAForeignContextPanicsAndIsRetried(t *testing.T) {
	in(t, func(t *testing.T) {
		f, main := up(t, nil, settle.Handle("a", newCalls().ack, settle.With(func(next settle.Next) settle.Next {
			return func(context.Context) settle.Outcomes { return next(context.Background()) }
		})))
		main.send(publish("a", 1, 1, "x"))
		main.expect()
		f.expectValue(`settle_held{route="a"}`, 1)
	})
}

func TestUseAfterStartPanics(t *testing.T) {
	in(t, func(t *testing.T) {
		f, _ := up(t, nil, settle.Handle("a", newCalls().ack))
		defer func() {
			if v := recover(); v == nil || !strings.Contains(fmt.Sprint(v), "Use") {
				t.Errorf("it panicked with %v", v)
			}
		}()
		f.Use(func(next settle.Next) settle.Next { return next })
	})
}

func TestAHandlersContext(t *testing.T) {
	in(t, func(t *testing.T) {
		type key struct{}
		got := make(chan context.Context, 1)
		f := prepare(t, nil, settle.Handle("a", func(ctx context.Context, _ []byte) settle.Outcome {
			child, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			if child.Value(key{}) != "value" {
				t.Error("Start's values are not inherited")
			}
			if d := settle.DeliveryFrom(child); d == nil || d.Topic() != "a" || len(settle.DeliveriesFrom(child)) != 1 {
				t.Errorf("delivery %v", d)
			}
			if ctx.Err() != nil {
				t.Error(ctx.Err())
			}
			got <- ctx
			return settle.Ack()
		}))
		start, cancel := context.WithCancel(context.WithValue(context.Background(), key{}, "value"))
		if err := f.Start(start); err != nil {
			t.Fatal(err)
		}
		main := f.main(false)
		cancel() // its end does not stop the app
		synctest.Wait()
		main.send(publish("a", 1, 1, "x"))
		main.expect("PUBACK 1")
		ctx := <-got
		select {
		case <-ctx.Done():
		default:
			t.Error("the context of a handler that has returned has not ended")
		}
		if d := settle.DeliveryFrom(ctx); string(d.Payload()) != "x" {
			t.Error("a delivery is not valid after its handler")
		}
	})
}
