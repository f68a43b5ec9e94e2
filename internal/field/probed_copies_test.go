package field_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/testkit"
)

// Two replicas that are no group have one retry topic. Each copy is handled once: by the one whose it is, or by any member where they are a group.
func TestK7_OneHandlingACopy(t *testing.T) {
	const n = 5
	for name, options := range map[string][]settle.RouteOption{"replicas": nil, "a group": {settle.Shared("g")}} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				b := testkit.NewBroker(t)
				all := []*calls{newCalls(), newCalls()}
				members := make([]*service, len(all))
				for i, c := range all {
					members[i] = begin(t, b, member([]string{"one", "two"}[i]),
						settle.Handle("a", c.failing(1), append(options, settle.RetryTo("r"), settle.Backoff(settle.Constant(time.Second)))...))
				}
				members[0].publish("a", 1, numbered(n)...)
				var want, got []string
				for _, p := range numbered(n) {
					want = append(want, p+" 1", p+" 2")
				}
				slices.Sort(want)
				for i, s := range members {
					s.quiet()
					own := all[i].list()
					slices.Sort(own)
					if got = append(got, own...); options == nil && !slices.Equal(own, want) {
						t.Errorf("a replica has handled %q, want %q", own, want)
					}
				}
				slices.Sort(got)
				if options != nil && !slices.Equal(got, want) {
					t.Errorf("the group has handled %q, want %q", got, want)
				}
			})
		})
	}
}

// A key function panics: that delivery is retried, and the rest goes on.
func TestK8_AKeyFunctionThatPanics(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		failed := false
		s := begin(t, testkit.NewBroker(t), nil, settle.Handle("a", c.failing(0), settle.Backoff(settle.Constant(time.Second)), settle.Workers(4, func(d *settle.Delivery) string {
			if string(d.Payload()) == "bad" && !failed {
				failed = true
				panic("key")
			}
			return "k"
		})), settle.Handle("b", c.failing(0)))
		s.publish("a", 1, "bad", "good")
		s.publish("b", 1, "other")
		c.expectAll(t, "good 1", "other 1")
		s.sent("PUB")
		s.quiet()
		c.expectAll(t, "good 1", "other 1", "bad 2")
		s.sent("PUB", pubacks(1, 3)...)
		s.expect(`settle_settled_total{outcome="retry",route="a"}`, 1)
	})
}

// A hundred deliveries for a handler that ignores its context. No more than a few run at once, the log and liveness name the route, other routes go on, and when the
// handlers return after all, everything is acknowledged, in order.
func TestK8_AHundredHandlersThatIgnoreTheirContext(t *testing.T) {
	in(t, func(t *testing.T) {
		const n = 100
		c, other := newCalls(), newCalls()
		release := make(chan struct{})
		s := begin(t, testkit.NewBroker(t, testkit.Options{WireLog: 2000}), nil,
			settle.Handle("deaf", func(ctx context.Context, payload []byte) settle.Outcome {
				<-release
				return c.ack(ctx, payload)
			}, settle.Timeout(time.Second), settle.OnTimeout(func(error) settle.Outcome { return settle.Drop("too slow") })),
			settle.Handle("b", other.ack))
		s.publish("deaf", 1, numbered(n)...)
		pass(5 * time.Minute)
		ran := len(s.wire("svc", "> PUBACK"))
		if ran < 2 || ran > 20 {
			t.Errorf("%d handlers of one lane were given up", ran)
		}
		s.logged("handlers ignore the end of their context")
		if err := s.app.Live(); err == nil || !strings.Contains(err.Error(), `"deaf"`) {
			t.Errorf("live: %v", err)
		}
		if err := s.app.Ready(); err != nil {
			t.Error(err)
		}
		s.publish("b", 1, "b")
		other.expect(t, "b")
		close(release)
		s.quiet()
		c.expectAll(t, numbered(n)...)
		s.sent("PUB", pubacks(1, n+1)...)
		s.expect("settle_stale_settlements_total", float64(ran))
		if err := s.app.Live(); err != nil {
			t.Error(err)
		}
	})
}

// A server that keeps no session, or takes nothing above QoS 0, cannot keep copies: an error at start says which grant a route lacks.
func TestK9_WhatTheServerMustGrant(t *testing.T) {
	none, zero, one := uint32(0), byte(0), byte(1)
	for name, test := range map[string]struct {
		granted testkit.Options
		options []settle.RouteOption
		want    []string
	}{
		"no session":             {testkit.Options{SessionExpiryMaximum: &none}, []settle.RouteOption{settle.RetryTo("r")}, []string{"Session Expiry"}},
		"no QoS 1, retry":        {testkit.Options{MaximumQoS: &zero}, []settle.RouteOption{settle.AtMostOnce, settle.RetryTo("r")}, []string{"Maximum QoS", "bill"}},
		"no QoS 1, dead letters": {testkit.Options{MaximumQoS: &zero}, []settle.RouteOption{settle.AtMostOnce, settle.DeadLetterTo("d")}, []string{"Maximum QoS", "bill"}},
		"no QoS 2":               {testkit.Options{MaximumQoS: &one}, []settle.RouteOption{settle.ExactlyOnce}, []string{"Maximum QoS", "bill"}},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				s := attach(t, testkit.NewBroker(t, test.granted), nil, settle.Handle("a", says(settle.Ack()), append(test.options, settle.Name("bill"))...))
				s.launch()
				<-s.app.Done()
				for _, err := range []error{s.app.Err(), s.app.Live(), s.app.Ready()} {
					for _, want := range test.want {
						if err == nil || !strings.Contains(err.Error(), want) {
							t.Errorf("%v does not say %q", err, want)
						}
					}
				}
			})
		})
	}
}

// The next release has another retry topic, and copies are queued under the old one. They are dead-lettered, or held until somebody has the old topic
// again: none is acknowledged away.
func TestK10_CopiesUnderAnOldRetryTopic(t *testing.T) {
	for _, letters := range []bool{true, false} {
		t.Run(fmt.Sprintf("dead letters %t", letters), func(t *testing.T) {
			in(t, func(t *testing.T) {
				const n = 3
				c := newCalls()
				b := testkit.NewBroker(t)
				route := func(topic string) settle.Route {
					options := []settle.RouteOption{settle.RetryTo(topic), settle.Backoff(settle.Constant(time.Minute))}
					if letters {
						options = append(options, settle.DeadLetterTo("dead"))
					}
					return settle.Handle("a", c.failing(1), options...)
				}
				old := begin(t, b, nil, route("old/retry"))
				old.publish("a", 1, numbered(n)...)
				old.Until("the copies wait", func() bool { return old.value(`settle_retry_waiting{route="a"}`) == n })
				old.stop()

				s := begin(t, b, nil, route("new/retry"))
				pass(10 * time.Minute)
				c.expect(t, "1 1", "2 1", "3 1")
				s.logged("no route's retry topic")
				if letters {
					var payloads []string // they are published side by side
					for _, letter := range s.Published("dead", n) {
						if payloads = append(payloads, string(letter.Payload())); header(letter, "settle-attempt") != "1" || header(letter, "settle-original-topic") != "a" {
							t.Errorf("%+v", letter)
						}
					}
					if slices.Sort(payloads); !slices.Equal(payloads, numbered(n)) {
						t.Errorf("dead letters %q", payloads)
					}
					s.quiet()
					s.sentBy("svc-retry", "PUBACK", pubacks(1, n+1)...) // with the marker of a process that finds its session
					return
				}
				s.logged("it is held")
				if got := s.wire("svc-retry", "> PUBACK"); len(got) > 0 {
					t.Errorf("acknowledged: %q", got)
				}
				s.die()
				s = begin(t, b, nil, route("old/retry"))
				s.quiet()
				c.expectAll(t, "1 1", "2 1", "3 1", "1 2", "2 2", "3 2")
			})
		})
	}
}

// An acknowledgement reached the server, and the connection was lost with it, as far as the app can tell. The server has used the identifier again, for a message
// of the same bytes: sent on the next connection, or on the one that was lost. It is a message that nobody has handled.
func TestK11_AnIdentifierThatIsUsedAgainForTheSameBytes(t *testing.T) {
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprintf("sent on the lost connection %t", lost), func(t *testing.T) {
			in(t, func(t *testing.T) {
				c := newCalls()
				b := testkit.NewBroker(t)
				s := begin(t, b, nil, settle.Handle("a", c.ack))
				acknowledged, deaf := 0, false
				b.Intercept(func(_ string, toClient bool, p testkit.Packet) testkit.Verdict {
					switch {
					case toClient && p.Type == typePublish && p.ID == 2: // as the server's second message has identifier 1 again
						return testkit.Verdict{Replace: renumbered(p.Bytes, 4+len(p.Topic), 1), Drop: deaf}
					case !toClient && p.Type == typePuback:
						if acknowledged++; acknowledged == 1 {
							return testkit.Verdict{Cut: !lost} // the server has handled it
						}
						return testkit.Verdict{Replace: renumbered(p.Bytes, 2, 2)}
					}
					return testkit.Verdict{}
				})
				s.publish("a", 1, "same")
				s.Settled("a", 1)
				if lost {
					deaf = true
					s.publish("a", 1, "same")
					synctest.Wait()
					deaf = false
					b.Cut("svc")
				}
				s.Until("the connection is a new one", func() bool { return s.value(`settle_connections_total{result="accepted"}`) == 2 })
				if !lost {
					s.publish("a", 1, "same")
				}
				s.quiet()
				c.expect(t, "same", "same")
				dup := ""
				if lost {
					dup = "dup "
				}
				if got, want := among(s.epoch("svc", 1), "< PUBLISH"), `< PUBLISH 1 q1 `+dup+`"a" "same"`; !slices.Equal(got, []string{want}) {
					t.Errorf("the second came as %q, want %s", got, want)
				}
				s.expect("settle_adopted_total", 0)
			})
		})
	}
}

// renumbered is a packet with another Packet Identifier, which stands at that place.
func renumbered(packet []byte, at int, id byte) []byte {
	packet = slices.Clone(packet)
	packet[at], packet[at+1] = 0, id
	return packet
}

// A copy that is due in ten minutes goes to the end of its topic now and then, and comes back before the server has confirmed that. One waits, none is lost.
func TestK12_AHopThatComesBackBeforeItsPuback(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		b := testkit.NewBroker(t, testkit.Options{WireLog: 1000})
		s := begin(t, b, nil, settle.Handle("a", c.failing(1), settle.RetryTo("r"), settle.Backoff(settle.Constant(10*time.Minute))))
		s.publish("a", 1, "far")
		s.Settled("a", 1)
		b.AnswerLate("r", 7*time.Second)
		for range 9 {
			pass(time.Minute)
			s.expect(`settle_retry_waiting{route="a"}`, 1)
			s.expect(`settle_inflight{route="a"}`, 1)
		}
		hops := len(s.wire("svc", `> PUBLISH q1 "r"`)) - 1
		if hops == 0 {
			t.Error("it has not gone to the end of its topic")
		}
		c.expect(t, "far 1")
		id := header(s.Published("r", 1)[0], "settle-copy-id")
		for _, hop := range s.Published("r", hops+1) {
			if header(hop, "settle-copy-id") != id || header(hop, "settle-attempt") != "1" {
				t.Errorf("a hop is another copy: %+v", hop)
			}
		}
		s.quiet()
		c.expect(t, "far 1", "far 2")
		if came, acked := len(s.wire("svc-retry", "< PUBLISH")), len(s.wire("svc-retry", "> PUBACK")); came != acked {
			t.Errorf("%d came, %d were acknowledged", came, acked)
		}
		s.expect(`settle_retry_waiting{route="a"}`, 0)
		s.expect(`settle_inflight{route="a"}`, 0)
	})
}

// As many copies as the backlog takes, and all of them fail again, and again. Their next attempts go out; nothing waits for ever.
func TestK13_FiveHundredCopiesThatAllFailAgain(t *testing.T) {
	in(t, func(t *testing.T) {
		n := scaled(500)
		c := newCalls()
		s := begin(t, testkit.NewBroker(t, testkit.Options{QueueLimit: 2 * n, WireLog: -1}), func(c *settle.Config) { c.RetryBacklog = n },
			settle.Handle("a", c.failing(3), settle.RetryTo("r"), settle.Workers(8), settle.Backoff(settle.Constant(time.Second))))
		began := time.Now()
		s.publish("a", 1, numbered(n)...)
		s.quiet()
		var want []string
		for _, p := range numbered(n) {
			want = append(want, p+" 1", p+" 2", p+" 3", p+" 4")
		}
		c.expectAll(t, want...)
		if took := time.Since(began); took > time.Minute {
			t.Errorf("it took %s", took)
		}
		s.expect(`settle_inflight{route="a"}`, 0)
		s.expect(`settle_retry_waiting{route="a"}`, 0)
	})
}

// Two unrelated services on one filter, each with a retry topic inside it. What is a copy for one is no original for the other.
func TestK14_TwoServicesWithRetryTopicsInsideOneFilter(t *testing.T) {
	in(t, func(t *testing.T) {
		const n = 5
		b := testkit.NewBroker(t)
		var want []string
		for _, p := range numbered(n) {
			want = append(want, p+" 1", p+" 2", p+" 3")
		}
		var all []*calls
		var services []*service
		for _, id := range []string{"billing", "charts"} {
			c := newCalls()
			all = append(all, c)
			services = append(services, begin(t, b, member(id), settle.Handle("meters/+/usage", c.failing(2),
				settle.RetryTo("meters/"+id+"-retry/usage"), settle.Backoff(settle.Constant(time.Second)))))
		}
		services[0].publish("meters/7/usage", 1, numbered(n)...)
		for _, s := range services {
			s.quiet()
		}
		for _, s := range services {
			s.quiet() // with what the other has published meanwhile
			for _, settled := range s.Settlements("meters/+/usage") {
				if settled.Topic != "meters/7/usage" || !settled.Acknowledged {
					t.Error(settled)
				}
			}
		}
		for _, c := range all {
			c.expectAll(t, want...)
		}
	})
}

// The server has no more than twenty messages in flight, and twenty copies wait for an hour. One that is due in a second is handled soon all the same.
func TestK15_AnInFlightLimitDoesNotHideWhatIsDue(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		s := begin(t, testkit.NewBroker(t, testkit.Options{MaxInflight: 20, WireLog: -1}), nil, settle.Handle("a", func(ctx context.Context, payload []byte) settle.Outcome {
			attempt := settle.DeliveryFrom(ctx).Attempt()
			c.note(fmt.Sprintf("%s %d", payload, attempt))
			switch {
			case attempt > 1:
				return settle.Ack()
			case string(payload) == "soon":
				return settle.RetryAfter(time.Second, errFails)
			}
			return settle.RetryAfter(time.Hour, errFails)
		}, settle.RetryTo("r")))
		s.publish("a", 1, numbered(20)...)
		s.Until("twenty wait", func() bool { return s.value(`settle_retry_waiting{route="a"}`) == 20 })
		began := time.Now()
		s.publish("a", 1, "soon")
		s.Until("it is handled", func() bool { return slices.Contains(c.list(), "soon 2") })
		if took := time.Since(began); took < time.Second || took > 12*time.Second {
			t.Errorf("handled after %s, due after a second", took)
		}
		if early := len(c.list()); early != 22 {
			t.Errorf("%d calls before the hour is over: %q", early, c.list())
		}
		s.quiet()
		if n := len(c.list()); n != 42 {
			t.Errorf("%d calls", n)
		}
	})
}
