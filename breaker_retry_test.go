package settle_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/settlemq/settle"
)

// Copies that were on their way when the session was lost are the only ones there are, and have their slots already: they do not wait
// behind originals that wait for a slot, or each would wait for the other.
func TestCopiesOfALostSessionGoBeforeOriginalsThatWaitForASlot(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main, second := upBoth(t, func(c *settle.Config) { c.RetryBacklog = 2 },
			settle.Handle("a", failing(c, 1), settle.RetryTo("r"), settle.Backoff(settle.Constant(time.Second))))
		main.send(numbered("a", 1, 1, 6)...)
		if n := len(main.published("r")); n != 2 {
			t.Fatalf("%d copies are on their way", n)
		}
		second.cut()
		second = f.next(true)
		circle(main, second, 100, "r")
		second.accept(false)
		pass(20 * time.Second) // before slots are given up
		if got := len(c.list()); got != 12 {
			t.Errorf("%d attempts, want 12", got)
		}
		f.expectValue("settle_window_unacked", 0)
		f.expectValue(`settle_inflight{route="a"}`, 0)
	})
}

// leftOver is a copy that an earlier process published.
func leftOver(id uint16, name string, wait time.Duration) *packets.Publish {
	return publish("r", 1, id, name, "settle-copy-id", name, "settle-owner", "svc", "settle-attempt", "1", "settle-route", "a",
		"settle-not-before", time.Now().Add(wait).Format(time.RFC3339Nano), "settle-delay-ms", fmt.Sprint(wait.Milliseconds()))
}

// A server that has few in flight does not bring the marker before one of those is acknowledged: what takes the place of a copy that
// came back needs no marker.
func TestTheMarkerIsNotWaitedForBehindCopiesThatWaitForIt(t *testing.T) {
	for name, wait := range map[string]time.Duration{"far": time.Hour, "failing": time.Second} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				c := newCalls()
				f := begin(t, nil, settle.Handle("a", failing(c, 2), settle.RetryTo("r"), settle.Backoff(settle.Constant(wait))))
				main, second := f.main(true), f.second(true)
				f.ready()
				if n := len(main.published("r")); n != 1 {
					t.Fatalf("%d markers", n)
				}
				second.send(leftOver(1, "x", wait), leftOver(2, "y", wait)) // and no more: two is all that the server has in flight
				pass(20 * time.Second)
				var again []string
				for _, p := range main.published("r") {
					if user(p, "settle-marker") == "" {
						again = append(again, string(p.Payload))
					}
				}
				if !slices.Contains(again, "x") {
					t.Errorf("published: %q", again)
				}
				if got := second.took(); !slices.Contains(got, "PUBACK 1") {
					t.Errorf("acknowledged: %q", got)
				}
			})
		})
	}
}

// The first connection found the session and was cut before it was subscribed. What an earlier process left is still there.
func TestTheMarkerRoundIsMadeBySecondConnectionsToo(t *testing.T) {
	in(t, func(t *testing.T) {
		f := begin(t, nil, settle.Handle("a", failing(newCalls(), 1), settle.RetryTo("r")))
		main := f.main(true)
		first := f.next(true)
		first.set(func(h *hooks) { h.subscribe = func(*packets.Subscribe) []byte { return nil } })
		first.accept(true)
		first.cut()
		f.second(true)
		f.ready()
		if sent := main.published("r"); len(sent) != 1 || user(sent[0], "settle-marker") == "" {
			t.Errorf("%d markers", len(sent))
		}
	})
}

// While copies wait, the app stops and waits for a dead letter: a hop that begins meanwhile must not be waited for.
func TestNoCopyHopsWhileTheAppStops(t *testing.T) {
	in(t, func(t *testing.T) {
		f, main, second := upBoth(t, nil, settle.Handle("a", func(_ context.Context, b []byte) settle.Outcome {
			if string(b) == "bad" {
				return settle.Reject(errFails)
			}
			return settle.Ack()
		}, settle.RetryTo("r"), settle.DeadLetterTo("d")))
		main.set(func(h *hooks) { h.publish = func(p *packets.Publish) (byte, bool) { return 0, p.Topic == "other" } })
		second.send(leftOver(1, "far", time.Hour))
		for i := range uint16(12) {
			second.send(leftOver(10+i, fmt.Sprint(i), 0))
		}
		main.send(publish("a", 1, 1, "bad"))
		stopped := make(chan error, 1)
		go func() { stopped <- f.stop() }()
		synctest.Wait()
		pass(3 * time.Second)
		if n := len(main.published("r")); n != 0 {
			t.Errorf("%d hops", n)
		}
		main.write(&packets.Puback{PacketID: main.published("d")[0].PacketID})
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}

// Another server that knows our client id has a session of its own for it: what we published went to the one before.
func TestCopiesAreNotLeftBehindOnAnotherServer(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main, second := upBoth(t, func(c *settle.Config) { c.Servers = []string{"mqtt://one", "mqtt://two"} },
			settle.Handle("a", failing(c, 1), settle.RetryTo("r"), settle.Backoff(settle.Constant(time.Minute))))
		main.send(publish("a", 1, 1, "waits"), publish("a", 1, 2, "out"))
		copies := main.published("r")
		second.send(comeBack(copies[0], 1))
		f.refuse(func(host string) error {
			if host == "one" {
				return errors.New("it is gone for good")
			}
			return nil
		})
		main.cut()
		second.cut()
		main, second = f.next(false), f.next(true)
		circle(main, second, 100, "r")
		main.accept(true)
		second.accept(true)
		pass(10 * time.Minute)
		c.expectAll(t, "waits 1", "out 1", "waits 2", "out 2")
		f.expectValue(`settle_inflight{route="a"}`, 0)
		f.expectValue(`settle_retry_waiting{route="a"}`, 0)
	})
}

// A policy is user code as a handler is: whatever it does, each delivery settles, and the lane lives.
func TestAPolicyThatCallsGoexitCostsNothing(t *testing.T) {
	exits := func(error) settle.Outcome { goexit(); return settle.Ack() }
	backoff := settle.Backoff(settle.Constant(time.Second))
	once := func(f func(context.Context) settle.Outcome) func(context.Context, []byte) settle.Outcome {
		return func(ctx context.Context, _ []byte) settle.Outcome {
			if settle.DeliveryFrom(ctx).Attempt() == 1 && string(settle.DeliveryFrom(ctx).Payload()) == "1" {
				return f(ctx)
			}
			return settle.Ack()
		}
	}
	panics := func(context.Context) settle.Outcome { panic("x") }
	for name, route := range map[string]func() settle.Route{
		"panic": func() settle.Route { return settle.Handle("a", once(panics), settle.OnPanic(exits), backoff) },
		"goexit": func() settle.Route {
			return settle.Handle("a", once(func(context.Context) settle.Outcome { runtime.Goexit(); return settle.Ack() }), settle.OnPanic(exits), backoff)
		},
		"timeout": func() settle.Route {
			return settle.Handle("a", once(func(ctx context.Context) settle.Outcome { <-ctx.Done(); return settle.Ack() }),
				settle.Timeout(time.Second), settle.OnTimeout(exits), backoff)
		},
		"backoff": func() settle.Route {
			return settle.Handle("a", once(func(context.Context) settle.Outcome { return settle.Retry(errFails) }), settle.Backoff(exiting{}))
		},
		"key": func() settle.Route {
			n := 0
			return settle.Handle("a", once(func(context.Context) settle.Outcome { return settle.Ack() }),
				settle.Workers(2, func(*settle.Delivery) string {
					if n++; n == 1 {
						panic("x")
					}
					return ""
				}), settle.OnPanic(exits), backoff)
		},
		"middleware": func() settle.Route {
			n := 0
			return settle.Handle("a", once(func(context.Context) settle.Outcome { return settle.Ack() }),
				settle.With(func(next settle.Next) settle.Next {
					return func(ctx context.Context) settle.Outcomes {
						if n++; n == 1 {
							panic("x")
						}
						return next(ctx)
					}
				}), settle.OnPanic(exits), backoff)
		},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				f, main := up(t, nil, route())
				main.send(numbered("a", 1, 1, 3)...)
				pass(time.Minute)
				if got := main.took(); !slices.Equal(got, pubacks(1, 3)) {
					t.Errorf("sent %q", got)
				}
				f.expectValue(`settle_inflight{route="a"}`, 0)
				if err := f.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// exiting is a policy of the user's own.
type exiting struct{}

func (exiting) Delay(int) time.Duration { goexit(); return 0 }
