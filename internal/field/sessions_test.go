package field_test

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

// The session expires while the app is cut off. It subscribes anew, says so, and consumes.
func TestA1_ASessionThatIsLostIsConsumedAgain(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		b := testkit.NewBroker(t)
		s := begin(t, b, func(c *settle.Config) { c.SessionExpiry = 2 * time.Second }, settle.Handle("a", c.ack))
		accept := b.RefuseConnect(0x88)
		s.CutConnection()
		pass(5 * time.Second)
		s.unready("0x88")
		s.expect("settle_connected", 0)
		if err := s.app.Live(); err != nil {
			t.Errorf("a lost connection is no reason to restart the process: %v", err)
		}
		b.Publish("a", []byte("into the void"))
		accept()
		s.ready()
		s.expect("settle_sessions_lost_total", 1)
		s.expect("settle_connected", 1)
		s.publish("a", 1, "x")
		s.quiet()
		c.expect(t, "x")
		last := s.epochs("svc")
		if got := last[len(last)-1]; !strings.HasPrefix(got[1], "< CONNACK session-present=false 0x00") || len(among(got, "> SUBSCRIBE")) != 1 {
			t.Errorf("the last connection: %q", got)
		}
	})
}

// The next release wants another filter under the same client identifier, and finds the session of the one before. It
// consumes its own; the old subscription goes if it is named, and what comes of it otherwise is counted.
func TestA2_AChangedFilterIsSubscribedInASessionThatIsThere(t *testing.T) {
	for _, retire := range []bool{true, false} {
		t.Run(fmt.Sprintf("retire %t", retire), func(t *testing.T) {
			in(t, func(t *testing.T) {
				c := newCalls()
				b := testkit.NewBroker(t)
				begin(t, b, nil, settle.Handle("a", c.ack)).stop()
				s := begin(t, b, func(c *settle.Config) {
					if retire {
						c.RetireFilters = []string{"a"}
					}
				}, settle.Handle("b", c.ack))
				if got := s.wire("svc", "< CONNACK"); !strings.HasPrefix(got[1], "< CONNACK session-present=true") {
					t.Fatalf("%q", got)
				}
				unmatched, unsubscribed := 1.0, 0
				if retire {
					unmatched, unsubscribed = 0, 1
				}
				s.publish("b", 1, "x")
				s.publish("a", 1, "old")
				s.quiet()
				c.expect(t, "x")
				s.expect("settle_unmatched_total", unmatched)
				if got := s.wire("svc", "> UNSUBSCRIBE"); len(got) != unsubscribed {
					t.Errorf("%q", got)
				}
				s.expect("settle_window_unacked", 0)
			})
		})
	}
}

// A backlog comes with CONNACK, before anything is subscribed. All of it is handled, in order.
func TestA3_ABacklogBehindConnackFindsItsHandlers(t *testing.T) {
	in(t, func(t *testing.T) {
		const n = 500
		c := newCalls()
		b := testkit.NewBroker(t, testkit.Options{WireLog: 10 * n})
		begin(t, b, nil, settle.Handle("a", c.ack)).stop()
		for _, p := range numbered(n) {
			b.Publish("a", []byte(p))
		}
		s := begin(t, b, nil, settle.Handle("a", c.ack))
		s.quiet()
		c.expect(t, numbered(n)...)
		epoch := s.epoch("svc", 1)
		if first := among(epoch, "<")[1]; !strings.HasPrefix(first, "< PUBLISH") {
			t.Errorf("behind CONNACK came %s", first)
		}
		if got := among(epoch, "> PUBACK"); !slices.Equal(got, prefixed("> ", pubacks(1, n))) {
			t.Errorf("acknowledged %q", got)
		}
		s.expect("settle_unmatched_total", 0)
	})
}

// The session is lost while a handler works on identifier 1, and the server's new session begins with identifier 1. What the old handler
// says is a counted no-op; the new message gets its own outcome and its own acknowledgement.
func TestA4_ALateSettlementMeetsNoOtherMessage(t *testing.T) {
	for _, qos := range []settle.QoS{1, 2} {
		for _, lateFirst := range []bool{true, false} {
			t.Run(fmt.Sprintf("qos %s, late first %t", qos, lateFirst), func(t *testing.T) {
				in(t, func(t *testing.T) {
					gates := map[string]chan settle.Outcome{"old": make(chan settle.Outcome), "new": make(chan settle.Outcome)}
					c := newCalls()
					b := testkit.NewBroker(t)
					s := begin(t, b, nil, settle.Handle("a", func(_ context.Context, payload []byte) settle.Outcome {
						c.note(string(payload))
						return <-gates[string(payload)]
					}, qos, settle.Workers(2), settle.Timeout(0), settle.DeadLetterTo("dead")))
					s.publish("a", qos, "old")
					c.expect(t, "old")
					b.Restart(false)
					s.Until("the session is known to be lost", func() bool { return s.value("settle_sessions_lost_total") == 1 })
					s.ready()
					s.publish("a", qos, "new")
					c.expectAll(t, "old", "new")

					old := func() {
						before := s.wire("svc", ">")
						gates["old"] <- settle.Ack()
						pass(time.Second)
						s.expect("settle_stale_settlements_total", 1)
						if after := s.wire("svc", ">"); len(after) != len(before) {
							t.Errorf("what it said was sent: %q", after[len(before):])
						}
					}
					if lateFirst {
						old()
					}
					gates["new"] <- settle.Reject(errFails)
					if letter := s.Published("dead", 1)[0]; string(letter.Payload()) != "new" {
						t.Errorf("the dead letter is %q", letter.Payload())
					}
					pass(time.Second)
					if !lateFirst {
						old()
					}
					s.quiet()
					before, after := s.epoch("svc", 0), s.epoch("svc", 1)
					if got := among(after, "< PUBLISH"); len(got) != 1 || !strings.HasPrefix(got[0], "< PUBLISH 1 ") {
						t.Fatalf("the new session does not begin with identifier 1: %q", got)
					}
					if got := among(before, "> PUB"); len(got) > 0 {
						t.Errorf("on the old connection: %q", got)
					}
					want := prefixed("> ", append([]string{`PUBLISH q1 "dead" "new"`}, acks(qos, 1)...))
					if got := among(after, "> PUB"); !slices.Equal(got, want) {
						t.Errorf("on the new connection %q, want %q", got, want)
					}
					s.connected(2)
				})
			})
		}
	}
}

// A delivery outlives three connections in its handler. It is acknowledged once, on the connection that lives, and does not come again.
func TestA5_ARedeliveredMessageIsAcknowledgedOnce(t *testing.T) {
	for _, qos := range []settle.QoS{1, 2} {
		t.Run("qos "+qos.String(), func(t *testing.T) {
			in(t, func(t *testing.T) {
				c := newCalls()
				s := begin(t, testkit.NewBroker(t), nil, settle.Handle("a", c.wait, qos, settle.Timeout(0)))
				s.publish("a", qos, "x")
				c.expect(t, "x")
				for i := range 3 {
					s.ready()
					s.CutConnection()
					s.Until("it is joined with its redelivery", func() bool { return s.value("settle_adopted_total") == float64(i+1) })
				}
				c.release(t, settle.Ack())
				s.quiet()
				s.publish("a", qos, "y")
				c.release(t, settle.Ack())
				s.quiet()
				c.expect(t, "x", "y")
				s.sent("PUB", append(acks(qos, 1), acks(qos, 2)...)...)

				s.CutConnection()
				s.ready()
				s.quiet()
				c.expect(t, "x", "y")
				epochs := s.epochs("svc")
				if got := among(epochs[len(epochs)-1], "< PUBLISH"); len(got) > 0 {
					t.Errorf("it comes again: %q", got)
				}
				s.expect("settle_stale_settlements_total", 0)
			})
		})
	}
}

// The network dies without a word. That is noticed within one and a half keep-alives, health says so, and the app connects again.
func TestA7_AHalfOpenConnectionIsNoticed(t *testing.T) {
	in(t, func(t *testing.T) {
		const keepAlive = 20 * time.Second
		c := newCalls()
		b := testkit.NewBroker(t)
		s := begin(t, b, func(c *settle.Config) { c.KeepAlive = keepAlive }, settle.Handle("a", c.ack))
		pass(time.Hour) // silence is no death, as long as pings are answered
		s.connected(1)
		revive := b.DropPackets()
		died := time.Now()
		s.Until("the app has noticed", func() bool { return s.app.Ready() != nil })
		if took := time.Since(died); took > keepAlive*3/2+time.Millisecond {
			t.Errorf("noticed after %s", took)
		}
		pass(time.Minute)
		s.unready("main connection")
		s.expect("settle_connected", 0)
		if err := s.app.Live(); err != nil {
			t.Error(err)
		}
		revive()
		s.ready()
		s.publish("a", 1, "x")
		s.quiet()
		c.expect(t, "x")
	})
}
