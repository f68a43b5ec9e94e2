package field_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/testkit"
)

func member(id string) func(*settle.Config) {
	return func(c *settle.Config) { c.ClientID = id }
}

// What a group's member without a session has not acknowledged would go to nobody. Neither a configuration without one is accepted, nor a server that grants none.
func TestE2_AGroupsMemberNeedsASession(t *testing.T) {
	for qos, ok := range map[settle.QoS]bool{0: true, 1: false, 2: false} {
		t.Run("qos "+qos.String(), func(t *testing.T) {
			route := settle.Handle("a", newCalls().ack, settle.Shared("g"), qos)
			_, err := settle.New(settle.Config{ClientID: "c", Servers: []string{"mqtt://s"}, SessionExpiry: -1}, route)
			var invalid *settle.ConfigError
			if ok != (err == nil) || err != nil && !errors.As(err, &invalid) {
				t.Errorf("configured without a session: %v", err)
			}
			if ok {
				return
			}
			in(t, func(t *testing.T) {
				none := uint32(0)
				s := attach(t, testkit.NewBroker(t, testkit.Options{SessionExpiryMaximum: &none}), nil, route)
				s.launch()
				<-s.app.Done()
				if err := s.app.Err(); err == nil || !strings.Contains(err.Error(), "Session Expiry") {
					t.Errorf("granted no session: %v", err)
				}
				s.sent("SUBSCRIBE")
				s.unready("Session Expiry")
			})
		})
	}
}

// A group is scaled down. The member that retires takes no more, finishes what it has, its copies included, and ends its sessions; the other one gets the rest.
func TestE3_AMemberThatRetiresLeavesNoOrphan(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		b := testkit.NewBroker(t, testkit.Options{WireLog: 2000})
		route := settle.Handle("a", c.failing(1), settle.Shared("g"), settle.RetryTo("r"), settle.Backoff(settle.Constant(time.Minute)))
		one := begin(t, b, member("one"), route)
		two := begin(t, b, member("two"), route)
		two.publish("a", 1, numbered(10)...)
		pass(time.Second)
		if n, m := len(one.Settlements("a")), len(two.Settlements("a")); n != 5 || m != 5 {
			t.Fatalf("%d and %d settled", n, m)
		}
		began := time.Now()
		if err := one.app.Retire(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 50*time.Second {
			t.Errorf("it did not wait for the copies: %s", took)
		}
		for id, filter := range map[string]string{"one": "$share/g/a", "one-retry": "$share/g/r"} {
			if got := one.wire(id, "> UNSUBSCRIBE"); len(got) != 1 || !strings.HasSuffix(got[0], fmt.Sprintf("%q", filter)) {
				t.Errorf("%s: %q", id, got)
			}
			one.sentBy(id, "DISCONNECT", "DISCONNECT 0x00 session-expiry=0")
		}
		two.publish("a", 1, "late 1", "late 2", "late 3", "late 4")
		two.quiet()
		var want []string
		for _, p := range append(numbered(10), "late 1", "late 2", "late 3", "late 4") {
			want = append(want, p+" 1", p+" 2")
		}
		c.expectAll(t, want...)

		again := begin(t, b, member("one"), route) // there is nothing left of its sessions
		for _, id := range []string{"one", "one-retry"} {
			if got := again.wire(id, "< CONNACK"); !strings.HasPrefix(got[len(got)-1], "< CONNACK session-present=false") {
				t.Errorf("%s: %q", id, got)
			}
		}
	})
}

// Filters that overlap, and two routes on one: whether the server sends one PUBLISH for all of them or one for each, each route gets a message once.
func TestE5_OverlappingFiltersRunEachRouteOnce(t *testing.T) {
	for name, overlap := range map[string]testkit.Options{"one for all": {Overlap: testkit.OnePublish}, "one each": {Overlap: testkit.OneEach}} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				c := newCalls()
				s := begin(t, testkit.NewBroker(t, overlap), nil,
					settle.Handle("a/#", c.ack, settle.Name("hash")),
					settle.Handle("a/+", c.ack, settle.Name("plus")),
					settle.Handle("a/+", c.ack, settle.Name("twin")))
				s.publish("a/b", 1, numbered(10)...)
				s.publish("a/b/c", 1, "below")
				s.quiet()
				for route, want := range map[string][]string{"hash": append(numbered(10), "below"), "plus": numbered(10), "twin": numbered(10)} {
					var got []string
					for _, settled := range s.Settlements(route) {
						if got = append(got, string(settled.Payload)); !settled.Acknowledged {
							t.Error(settled)
						}
					}
					if !slices.Equal(got, want) {
						t.Errorf("%s has handled %q, want %q", route, got, want)
					}
				}
				if got := s.wire("svc", "> SUBSCRIBE"); len(got) != 2 {
					t.Errorf("subscribed with %q", got)
				}
				s.expect("settle_window_unacked", 0)
				s.expect("settle_unmatched_total", 0)
			})
		})
	}
}

// A server comes back from its disk with the session and without its shared subscriptions, as Mosquitto 2.0.11 does. They are asked for on every connection.
func TestE7_ASharedSubscriptionThatTheServerForgot(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		b := testkit.NewBroker(t)
		s := begin(t, b, nil, settle.Handle("a", c.ack, settle.Shared("g")))
		s.publish("a", 1, "before")
		s.quiet()
		undo := b.Intercept(func(_ string, toClient bool, p testkit.Packet) testkit.Verdict {
			if !toClient || p.Type != typeConnack {
				return testkit.Verdict{}
			}
			present := slices.Clone(p.Bytes)
			present[2] |= 1 // Session Present
			return testkit.Verdict{Replace: present}
		})
		b.Restart(false)
		s.Until("connected again", func() bool {
			return s.value(`settle_connections_total{result="accepted"}`) == 2 && s.app.Ready() == nil
		})
		undo()
		s.publish("a", 1, "after")
		s.quiet()
		c.expect(t, "before", "after")
		if got := s.epoch("svc", 1); !strings.HasPrefix(got[1], "< CONNACK session-present=true") || len(among(got, "> SUBSCRIBE")) != 1 {
			t.Errorf("the second connection: %q", got)
		}
		s.expect("settle_sessions_lost_total", 0)
	})
}
