package settle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/internal/broker/brokertest"
)

func TestA1_ALostSessionIsConsumedAgain(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main := up(t, func(c *settle.Config) { c.SessionExpiry = 2 * time.Second }, settle.Handle("a", c.ack))
		if err := f.Ready(); err != nil {
			t.Fatal(err)
		}
		if e := main.connect.Properties.SessionExpiryInterval; e == nil || *e != 2 {
			t.Errorf("Session Expiry Interval %v", e)
		}
		f.refuseDials(errors.New("no route to host"))
		main.cut()
		pass(5 * time.Second)
		if err := f.Ready(); err == nil || !strings.Contains(err.Error(), "no route to host") {
			t.Errorf("ready while it is down: %v", err)
		}
		if err := f.Live(); err != nil {
			t.Errorf("a lost connection is no reason to restart the process: %v", err)
		}
		f.expectValue("settle_connected", 0)
		f.refuseDials(nil)

		main = f.main(false)
		if got := main.history(); len(got) != 1 || got[0] != "SUBSCRIBE a q1" {
			t.Errorf("subscribed with %q", got)
		}
		f.ready()
		f.expectValue("settle_sessions_lost_total", 1)
		f.expectValue("settle_connected", 1)
		main.send(publish("a", 1, 1, "x"))
		c.expect(t, "x")
		main.expect("PUBACK 1")
	})
}

func TestA2_AChangedFilterIsSubscribedInTheOldSession(t *testing.T) {
	for _, retire := range []bool{false, true} {
		t.Run(fmt.Sprintf("retire %t", retire), func(t *testing.T) {
			in(t, func(t *testing.T) {
				c := newCalls()
				f, first := up(t, nil, settle.Handle("a", c.ack))
				if err := f.stop(); err != nil {
					t.Fatal(err)
				}
				first.expect("DISCONNECT")

				f = begin(t, func(c *settle.Config) {
					if retire {
						c.RetireFilters = []string{"a"}
					}
				}, settle.Handle("b", c.ack))
				main := f.main(true)
				want := []string{"SUBSCRIBE b q1"}
				if retire {
					want = append(want, "UNSUBSCRIBE a")
				}
				if got := main.history(); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("sent %q, want %q", got, want)
				}
				main.send(publish("b", 1, 1, "x"), publish("a", 1, 2, "old"))
				c.expect(t, "x")
				main.took()
				f.expectLogged("no route wants")
				f.expectValue("settle_unmatched_total", 1)
				f.expectValue("settle_window_unacked", 0)
			})
		})
	}
}

func TestA3_ABacklogInTheSegmentOfConnackFindsItsHandlers(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f := begin(t, nil, settle.Handle("a", c.ack))
		main := f.next(false)
		out := []brokertest.Packet{brokertest.Connack(true)}
		var want, acks []string
		for i := range uint16(500) {
			out = append(out, publish("a", 1, i+1, fmt.Sprint(i)))
			want = append(want, fmt.Sprint(i))
			acks = append(acks, fmt.Sprintf("PUBACK %d", i+1))
		}
		main.send(out...)
		c.expect(t, want...)
		main.expect(acks...)
		f.expectValue("settle_unmatched_total", 0)
	})
}

func TestA4_LateSettlementMeetsNoOtherMessage(t *testing.T) {
	for qos, acks := range map[byte][]string{1: {"PUBACK 1"}, 2: {"PUBREC 1", "PUBCOMP 1"}} {
		for _, lateFirst := range []bool{true, false} {
			t.Run(fmt.Sprintf("qos %d, late first %t", qos, lateFirst), func(t *testing.T) {
				in(t, func(t *testing.T) {
					gates := map[string]chan settle.Outcome{"old": make(chan settle.Outcome), "new": make(chan settle.Outcome)}
					c := newCalls()
					f, main := up(t, nil, settle.Handle("a", func(_ context.Context, b []byte) settle.Outcome {
						c.note(string(b))
						return <-gates[string(b)]
					}, settle.QoS(qos), settle.Workers(2), settle.Timeout(0), settle.DeadLetterTo("dead")))
					main.send(publish("a", qos, 1, "old"))
					main.cut()
					main = f.main(false)
					main.send(publish("a", qos, 1, "new"))
					c.expectAll(t, "old", "new")

					old := func() {
						gates["old"] <- settle.Ack()
						main.expect()
						f.expectValue("settle_stale_settlements_total", 1)
					}
					if lateFirst {
						old()
					}
					gates["new"] <- settle.Reject(errFails)
					main.expect(append([]string{"PUBLISH dead q1 new"}, acks...)...)
					if !lateFirst {
						old()
					}
					f.expectValue("settle_window_unacked", 0)
				})
			})
		}
	}
}

func TestA5_ARedeliveredMessageIsAcknowledgedOnce(t *testing.T) {
	for qos, ack := range map[byte][]string{1: {"PUBACK 1"}, 2: {"PUBREC 1", "PUBCOMP 1"}} {
		t.Run(fmt.Sprintf("qos %d", qos), func(t *testing.T) {
			in(t, func(t *testing.T) {
				c := newCalls()
				f, main := up(t, nil, settle.Handle("a", c.wait, settle.QoS(qos), settle.Timeout(0)))
				first := publish("a", qos, 1, "x")
				main.send(first)
				for range 3 {
					main.cut()
					main = f.main(true)
					main.send(again(first))
					main.expect()
				}
				f.expectValue("settle_adopted_total", 3)
				c.release(settle.Ack())
				main.expect(ack...)
				c.expect(t, "x")
				main.send(publish("a", qos, 2, "y"))
				c.release(settle.Ack())
				c.expect(t, "x", "y")
				main.took()

				// And what was acknowledged does not come at the next reconnect.
				main.cut()
				main = f.main(true)
				pass(10 * time.Second)
				main.expect()
				f.expectValue("settle_stale_settlements_total", 0)
			})
		})
	}
}

func TestA7_AHalfOpenConnectionIsNoticed(t *testing.T) {
	in(t, func(t *testing.T) {
		f, main := up(t, func(c *settle.Config) { c.KeepAlive = 20 * time.Second }, settle.Handle("a", newCalls().ack))
		pass(time.Minute) // pings keep it
		if f.dialled() != 1 || main.pinged() == 0 {
			t.Fatalf("%d dials, %d pings", f.dialled(), main.pinged())
		}
		main.set(func(h *hooks) { h.deaf, h.stay = true, true })
		f.refuseDials(errors.New("down"))
		pass(50 * time.Second) // at most a keep-alive until the first ping without answer, and half of one
		if err := f.Ready(); err == nil {
			t.Error("a half-open connection looks healthy")
		}
		f.refuseDials(nil)
		f.main(true)
		f.ready()
	})
}

func TestA8_ADurableSessionNeedsAClientID(t *testing.T) {
	_, err := settle.New(settle.Config{Servers: []string{"mqtt://s"}}, settle.Handle("a", newCalls().ack))
	var invalid *settle.ConfigError
	if !errors.As(err, &invalid) || invalid.Field != "ClientID" {
		t.Error(err)
	}
}

func TestB8_ARepetitionOnALiveConnectionRunsOnce(t *testing.T) {
	for qos, ack := range map[byte][]string{1: {"PUBACK 1"}, 2: {"PUBREC 1", "PUBCOMP 1"}} {
		t.Run(fmt.Sprintf("qos %d", qos), func(t *testing.T) {
			in(t, func(t *testing.T) {
				c := newCalls()
				f, main := up(t, nil, settle.Handle("a", c.wait, settle.QoS(qos), settle.Timeout(0), settle.Workers(2)))
				m := publish("a", qos, 1, "x")
				main.send(m, again(m))
				main.send(again(m))
				c.release(settle.Ack())
				main.expect(ack...)
				c.expect(t, "x")
				f.expectValue("settle_window_unacked", 0)
				// One that had left before the acknowledgement reached the server, and comes after it.
				if qos == 1 {
					main.send(again(m))
					main.expect()
					c.expect(t, "x")
				}
				// The identifier is the server's again.
				main.send(publish("a", qos, 1, "y"))
				c.release(settle.Ack())
				main.expect(ack...)
				c.expect(t, "x", "y")
			})
		})
	}
}

func TestH4_NoGoroutineIsLeftByReconnects(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main, second := upBoth(t, nil, settle.Handle("a", c.ack, settle.RetryTo("r")))
		synctest.Wait()
		before := goroutines()
		for range 300 {
			main.send(publish("a", 0, 0, "x"), &packets.Disconnect{ReasonCode: 0x80}) // keeps the backoff short
			second.send(publish("r", 0, 0, "x"), &packets.Disconnect{ReasonCode: 0x80})
			main.cut()
			second.cut()
			main, second = f.main(true), f.second(true)
		}
		pass(time.Minute)
		if after := goroutines(); after > before {
			t.Errorf("%d goroutines before, %d after", before, after)
		}
		f.mu.Lock()
		f.peers = f.peers[len(f.peers)-2:]
		f.mu.Unlock()
	})
}
