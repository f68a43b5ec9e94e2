package settle_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/settlemq/settle"
)

func TestK12_AHopThatComesBackBeforeItsPuback(t *testing.T) {
	for name, confirmFirst := range map[string]bool{"before": false, "after": true} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				c := newCalls()
				f, main, second := upBoth(t, nil, settle.Handle("a", failing(c, 0), settle.RetryTo("r")))
				far := publish("r", 1, 1, "far", "settle-copy-id", "far", "settle-owner", "svc", "settle-attempt", "1", "settle-route", "a",
					"settle-not-before", time.Now().Add(time.Hour).Format(time.RFC3339), "settle-delay-ms", "3600000")
				main.set(func(h *hooks) { h.publish = func(*packets.Publish) (byte, bool) { return 0, false } })
				second.send(far)
				for i := range uint16(12) { // finished ones behind it
					second.send(publish("r", 1, 10+i, fmt.Sprint(i), "settle-copy-id", fmt.Sprint(i), "settle-owner", "svc", "settle-attempt", "1", "settle-route", "a"))
				}
				pass(3 * time.Second)
				hops := main.published("r")
				if len(hops) != 1 || user(hops[0], "settle-copy-id") != "far" || user(hops[0], "settle-attempt") != "1" {
					t.Fatalf("%d hops", len(hops))
				}
				if ms, _ := strconv.Atoi(user(hops[0], "settle-delay-ms")); ms < 3_590_000 || ms > 3_600_000 {
					t.Errorf("the hop waits for %d ms", ms)
				}
				second.expect()
				confirm := func() { main.write(&packets.Puback{PacketID: hops[0].PacketID}); synctest.Wait() }
				if confirmFirst {
					confirm()
				}
				second.send(comeBack(hops[0], 2))
				want := append([]string{"PUBACK 1"}, pubacks(10, 12)...)
				second.expect(want...) // either way its old place is free
				if !confirmFirst {
					confirm()
				}
				second.expect()
				f.expectValue(`settle_retry_waiting{route="a"}`, 1)
				f.expectValue(`settle_inflight{route="a"}`, 1)
				if n := len(c.list()); n != 12 {
					t.Errorf("%d handled", n)
				}
				circle(main, second, 100, "r")
				pass(time.Hour)
				if got := c.list(); len(got) != 13 || got[12] != "far 2" {
					t.Errorf("handled %q", got)
				}
				f.expectValue(`settle_inflight{route="a"}`, 0)
			})
		})
	}
}

func TestK13_FiveHundredCopiesThatAllFailAgainGoRound(t *testing.T) {
	in(t, func(t *testing.T) {
		const n = 500
		c := newCalls()
		f, main, second := upBoth(t, func(c *settle.Config) { c.RetryBacklog = n },
			settle.Handle("a", failing(c, 3), settle.RetryTo("r"), settle.Workers(8), settle.Backoff(settle.Constant(time.Second))))
		circle(main, second, 0, "r")
		main.send(numbered("a", 1, 1, n)...)
		pass(5 * time.Minute)
		if got := len(c.list()); got != 4*n {
			t.Errorf("%d attempts, want %d", got, 4*n)
		}
		f.expectValue("settle_window_unacked", 0)
		f.expectValue(`settle_inflight{route="a"}`, 0)
		f.expectValue(`settle_retry_waiting{route="a"}`, 0)
	})
}

func TestK3_ConfirmedCopiesOnTheirWayAreBounded(t *testing.T) {
	in(t, func(t *testing.T) {
		const backlog, n = 50, 300
		c := newCalls()
		f, main, second := upBoth(t, func(c *settle.Config) { c.RetryBacklog = backlog },
			settle.Handle("a", failing(c, 1), settle.RetryTo("r"), settle.Backoff(settle.Constant(time.Second))))
		main.send(numbered("a", 1, 1, n)...) // the server confirms, and brings nothing back
		pass(10 * time.Second)
		copies := main.published("r")
		if len(copies) != backlog {
			t.Fatalf("%d copies are on their way", len(copies))
		}
		f.expectValue("settle_window_unacked", n-backlog)
		for i := range n { // each that comes makes room for one
			if i >= len(copies) {
				t.Fatalf("only %d copies", len(copies))
			}
			second.send(comeBack(copies[i], uint16(i+1)))
			copies = main.published("r")
			if want := min(backlog+i+1, n); len(copies) != want {
				t.Fatalf("%d copies after %d have come back", len(copies), i+1)
			}
		}
		pass(10 * time.Second)
		if got := len(c.list()); got != 2*n {
			t.Errorf("%d attempts", got)
		}
		f.expectValue("settle_window_unacked", 0)
	})
}

func TestK3_ASlotOfACopyThatNeverComesIsGivenUp(t *testing.T) {
	in(t, func(t *testing.T) {
		f, main, _ := upBoth(t, func(c *settle.Config) { c.RetryBacklog = 1 },
			settle.Handle("a", failing(newCalls(), 1), settle.RetryTo("r")))
		main.send(numbered("a", 1, 1, 3)...)
		pass(29 * time.Second)
		if got := len(main.published("r")); got != 1 {
			t.Errorf("%d copies", got)
		}
		pass(2 * time.Second)
		if got := len(main.published("r")); got != 2 {
			t.Errorf("%d copies", got)
		}
		pass(time.Minute)
		f.expectValue("settle_window_unacked", 0)
		f.expectLogged("has not come back yet")
	})
}

func TestK15_AServersInFlightLimitDoesNotHideWhatIsDue(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main, second := upBoth(t, nil, settle.Handle("a", failing(c, 1), settle.RetryTo("r"), settle.Workers(4),
			settle.Backoff(always{time.Hour})))
		// A server that has at most twenty in flight, in the order of its queue.
		var queue []*packets.Publish
		flying, id := 0, uint16(0)
		push := func() {
			for flying < 20 && len(queue) > 0 {
				id++
				flying++
				second.write(comeBack(queue[0], id))
				queue = queue[1:]
			}
		}
		step := func() {
			queue = append(queue, main.published("r")...)
			main.mu.Lock()
			main.publishes = nil
			main.mu.Unlock()
			for _, s := range second.took() {
				if strings.HasPrefix(s, "PUBACK") {
					flying--
				}
			}
			push()
			synctest.Wait()
		}
		main.send(numbered("a", 1, 1, 20)...)
		step()
		second.took()
		second.send() // nothing
		queue = append(queue, publish("r", 1, 0, "soon", "settle-copy-id", "soon", "settle-owner", "svc", "settle-attempt", "1", "settle-route", "a",
			"settle-not-before", time.Now().Add(time.Second).Format(time.RFC3339), "settle-delay-ms", "1000"))
		began := time.Now()
		for !slices.Contains(c.list(), "soon 2") && time.Since(began) < 10*time.Minute {
			pass(100 * time.Millisecond)
			step()
		}
		if took := time.Since(began); took > 45*time.Second {
			t.Errorf("what was due in a second was handled after %s", took)
		}
		f.expectValue(`settle_retry_waiting{route="a"}`, f.value(`settle_retry_waiting{route="a"}`))
	})
}

// always is a policy of the user's own.
type always struct{ d time.Duration }

func (a always) Delay(int) time.Duration { return a.d }

func TestALostRetrySessionIsPublishedAgain(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main, second := upBoth(t, nil, settle.Handle("a", failing(c, 1), settle.RetryTo("r"), settle.Backoff(settle.Constant(time.Minute))))
		main.send(publish("a", 1, 1, "waits"), publish("a", 1, 2, "out"))
		copies := main.published("r")
		if len(copies) != 2 {
			t.Fatal(len(copies))
		}
		second.send(comeBack(copies[0], 1))
		main.took()
		second.cut()
		second = f.second(false)
		pass(time.Second)
		sent := main.published("r")[2:]
		circle(main, second, 100, "r")
		var got []string
		for i, p := range sent {
			got = append(got, string(p.Payload))
			second.send(comeBack(p, uint16(i+1)))
		}
		slices.Sort(got)
		if !slices.Equal(got, []string{"out", "waits"}) {
			t.Fatalf("published again: %q", got)
		}
		pass(2 * time.Minute)
		c.expectAll(t, "out 1", "out 2", "waits 1", "waits 2")
		f.expectValue(`settle_inflight{route="a"}`, 0)
		f.expectValue(`settle_retry_waiting{route="a"}`, 0)
	})
}

// The session is lost between a copy's PUBLISH and its PUBACK: the PUBACK says that the server had stored it, in the session that is gone.
func TestACopyConfirmedForASessionThatIsGoneIsPublishedAgain(t *testing.T) {
	for _, hop := range []bool{false, true} {
		t.Run(fmt.Sprintf("hop %t", hop), func(t *testing.T) {
			in(t, func(t *testing.T) {
				c := newCalls()
				f, main, second := upBoth(t, nil, settle.Handle("a", failing(c, 1), settle.RetryTo("r"), settle.Backoff(settle.Constant(5*time.Minute))))
				silent := func(h *hooks) { h.publish = func(*packets.Publish) (byte, bool) { return 0, false } }
				if !hop {
					main.set(silent)
				}
				main.send(publish("a", 1, 1, "x"))
				copies := main.published("r")
				if hop {
					main.set(silent)
					second.send(comeBack(copies[0], 1))
					pass(31 * time.Second) // quiet for so long: it goes to the end of its topic
					copies = main.published("r")[1:]
				}
				if len(copies) != 1 {
					t.Fatalf("%d copies", len(copies))
				}
				second.cut()
				second = f.second(false)
				circle(main, second, 100, "r")
				main.write(&packets.Puback{PacketID: copies[0].PacketID})
				pass(10 * time.Minute)
				if attempts := c.list(); !slices.Equal(attempts, []string{"x 1", "x 2"}) {
					t.Errorf("handled %q", attempts)
				}
				f.expectValue("settle_window_unacked", 0)
				f.expectValue(`settle_inflight{route="a"}`, 0)
				f.expectValue(`settle_retry_waiting{route="a"}`, 0)
			})
		})
	}
}

func TestAWaitingCopyOutlastsACut(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main, second := upBoth(t, nil, settle.Handle("a", failing(c, 1), settle.RetryTo("r"), settle.Backoff(settle.Constant(time.Minute))))
		main.send(publish("a", 1, 1, "x"))
		back := comeBack(main.published("r")[0], 1)
		second.send(back)
		second.cut()
		second = f.second(true)
		circle(main, second, 100, "r") // it may go to the end of its topic meanwhile
		second.send(again(back))
		pass(2 * time.Minute)
		c.expect(t, "x 1", "x 2")
		if got := second.took(); len(got) == 0 || got[0] != "PUBACK 1" {
			t.Errorf("sent %q", got)
		}
		f.expectValue(`settle_inflight{route="a"}`, 0)
	})
}

// A copy that carries an expiry is not adopted by the window, and is recognised by its copy id all the same.
func TestAWaitingCopyWithAnExpiryOutlastsACut(t *testing.T) {
	for _, running := range []bool{false, true} {
		t.Run(fmt.Sprintf("running %t", running), func(t *testing.T) {
			in(t, func(t *testing.T) {
				c := newCalls()
				f, main, second := upBoth(t, nil, settle.Handle("a", func(ctx context.Context, b []byte) settle.Outcome {
					if settle.DeliveryFrom(ctx).Attempt() == 1 {
						return settle.Retry(errFails)
					}
					return c.wait(ctx, b)
				}, settle.RetryTo("r"), settle.Backoff(settle.Constant(10*time.Second)), settle.Timeout(0)))
				p := publish("a", 1, 1, "x")
				expiry := uint32(600)
				p.Properties.MessageExpiry = &expiry
				main.send(p)
				back := comeBack(main.published("r")[0], 1)
				second.send(back)
				if running {
					pass(11 * time.Second)
					c.expect(t, "x")
				}
				second.cut()
				second = f.second(true)
				second.send(again(back))
				pass(time.Minute)
				c.expect(t, "x")
				c.release(settle.Ack())
				second.expect("PUBACK 1")
				f.expectValue(`settle_inflight{route="a"}`, 0)
				f.expectValue(`settle_retry_waiting{route="a"}`, 0)
			})
		})
	}
}

func TestAProcessThatFindsItsRetrySessionSendsAMarkerRound(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f := begin(t, nil, settle.Handle("a", failing(c, 1), settle.RetryTo("r"), settle.Backoff(settle.Constant(time.Second))))
		main, second := f.main(true), f.second(true)
		f.ready()
		markers := main.published("r")
		if len(markers) != 1 || user(markers[0], "settle-marker") == "" || len(markers[0].Payload) != 0 {
			t.Fatalf("%d markers", len(markers))
		}
		main.took()
		main.send(publish("a", 1, 1, "x"))
		pass(time.Second)
		main.expect() // an earlier process may have filled the queue: no copy before the marker has come round
		second.send(publish("r", 1, 1, "left", "settle-copy-id", "1", "settle-owner", "svc", "settle-attempt", "1", "settle-route", "a", "settle-delay-ms", "1000",
			"settle-not-before", time.Now().Add(time.Minute).Format(time.RFC3339)))
		main.expect()
		second.send(comeBack(markers[0], 2))
		main.expect("PUBLISH r q1 x", "PUBACK 1")
		pass(2 * time.Second)
		c.expect(t, "x 1", "left 2")
		second.expect("PUBACK 1", "PUBACK 2")
	})
}
