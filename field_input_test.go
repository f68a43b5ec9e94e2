package settle_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/internal/link/linktest"
)

type report struct {
	Meter string  `json:"meter"`
	KWh   float64 `json:"kwh"`
}

func TestF1_UndecodablePayloadsAreRejectedWithTheirBytes(t *testing.T) {
	bad := map[string]*packets.Publish{
		"half a JSON":  publish("a", 1, 1, "{"),
		"not UTF-8":    publish("a", 1, 1, "\x80"),
		"another type": publish("a", 1, 1, `{"meter":7}`),
		"null":         publish("a", 1, 1, `"x"`),
		"content type": publish("a", 1, 1, `{"meter":"1"}`),
	}
	bad["content type"].Properties.ContentType = "application/x-unknown"
	for name, p := range bad {
		for _, batch := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, batch %t", name, batch), func(t *testing.T) {
				in(t, func(t *testing.T) {
					c := newCalls()
					route := settle.Handle("a", func(_ context.Context, u report) settle.Outcome {
						c.note(u.Meter)
						return settle.Ack()
					}, settle.DeadLetterTo("dead"))
					if batch {
						route = settle.HandleBatch("a", func(ctx context.Context, all []report) settle.Outcomes {
							for i, u := range all {
								// What fell out in decoding shifts nothing.
								c.note(fmt.Sprintf("%s", u.Meter))
								if string(settle.DeliveriesFrom(ctx)[i].Payload()) != fmt.Sprintf(`{"meter":%q}`, u.Meter) {
									t.Errorf("element %d has another's delivery", i)
								}
							}
							return settle.Every(settle.Ack())
						}, settle.DeadLetterTo("dead"), settle.BatchSize(3))
					}
					f, main := up(t, nil, route)
					before, after := publish("a", 1, 2, `{"meter":"before"}`), publish("a", 1, 3, `{"meter":"after"}`)
					main.send(before, p, after)
					c.expect(t, "before", "after")
					pass(time.Second)
					dead := main.published("dead")
					if len(dead) != 1 || string(dead[0].Payload) != string(p.Payload) || dead[0].Properties.ContentType != p.Properties.ContentType {
						t.Fatalf("dead letters %v", dead)
					}
					if why := user(dead[0], "settle-reason"); why == "" || strings.Contains(why, string(p.Payload)) && len(p.Payload) > 1 {
						t.Errorf("settle-reason %q", why)
					}
					acks := slices.DeleteFunc(main.took(), func(s string) bool { return !strings.HasPrefix(s, "PUBACK") })
					if !slices.Equal(acks, []string{"PUBACK 2", "PUBACK 1", "PUBACK 3"}) {
						t.Errorf("acknowledged %q", acks)
					}
					f.expectValue(`settle_settled_total{outcome="reject",route="a"}`, 1)
				})
			})
		}
	}
}

func TestF1_ThePolicySeesTheDelivery(t *testing.T) {
	in(t, func(t *testing.T) {
		var told error
		_, main := up(t, nil, settle.Handle("a", func(context.Context, *report) settle.Outcome { return settle.Ack() },
			settle.OnDecodeFailure(func(err error) settle.Outcome { told = err; return settle.Drop("seen") })))
		main.send(publish("a", 1, 1, "null"))
		main.expect("PUBACK 1")
		var decode *settle.DecodeError
		if !errors.As(told, &decode) || decode.Delivery.Topic() != "a" || string(decode.Delivery.Payload()) != "null" {
			t.Errorf("the policy was told %v", told)
		}
	})
}

func TestF2_AnEmptyPayload(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		t.Run(fmt.Sprintf("allowed %t", allowed), func(t *testing.T) {
			in(t, func(t *testing.T) {
				c := newCalls()
				options := []settle.RouteOption{settle.DeadLetterTo("dead")}
				if allowed {
					options = append(options, settle.AllowEmpty())
				}
				_, main := up(t, nil, settle.Handle("a", func(_ context.Context, u report) settle.Outcome {
					c.note(fmt.Sprint(u))
					return settle.Ack()
				}, options...), settle.Handle("raw", func(_ context.Context, b []byte) settle.Outcome {
					c.note(fmt.Sprintf("raw %d", len(b)))
					return settle.Ack()
				}))
				main.send(publish("a", 1, 1, ""), publish("raw", 1, 2, ""))
				pass(time.Second)
				if allowed {
					c.expectAll(t, "{ 0}", "raw 0")
					main.expect("PUBACK 1", "PUBACK 2")
					return
				}
				c.expect(t, "raw 0")
				dead := main.published("dead")
				if len(dead) != 1 || !strings.Contains(user(dead[0], "settle-reason"), "empty") {
					t.Errorf("dead letters %v", dead)
				}
			})
		})
	}
}

func TestF4_OversizeIsJudgedHere(t *testing.T) {
	for _, qos := range []byte{0, 1, 2} {
		for _, batch := range []bool{false, true} {
			t.Run(fmt.Sprintf("qos %d, batch %t", qos, batch), func(t *testing.T) {
				in(t, func(t *testing.T) {
					c := newCalls()
					var told error
					options := []settle.RouteOption{settle.QoS(qos), settle.DeadLetterTo("dead"),
						settle.OnOversize(func(err error) settle.Outcome { told = err; return settle.Reject(err) })}
					route := settle.Handle("a", c.ack, options...)
					if batch {
						route = settle.HandleBatch("a", func(_ context.Context, all []text) settle.Outcomes {
							for _, s := range all {
								c.note(string(s))
							}
							return settle.Every(settle.Ack())
						}, append(options, settle.BatchSize(2))...)
					}
					f, main := up(t, func(c *settle.Config) { c.MaxPayload, c.Codecs = 1000, []settle.Codec{textCodec{}} }, route)
					if main.connect.Properties.MaximumPacketSize != nil {
						t.Error("Maximum Packet Size is advertised")
					}
					main.send(publish("a", qos, 1, strings.Repeat("x", 5000), "site", "north"), publish("a", qos, 2, "small"))
					pass(time.Second)
					c.expect(t, "small")
					var oversize *settle.OversizeError
					if !errors.As(told, &oversize) || oversize.Size != 5000 || oversize.Limit != 1000 || oversize.Delivery.Payload() != nil {
						t.Errorf("the policy was told %v", told)
					}
					dead := main.published("dead")
					if len(dead) != 1 || len(dead[0].Payload) != 0 || user(dead[0], "site") != "north" || !strings.Contains(user(dead[0], "settle-stub"), "5000 bytes") {
						t.Errorf("dead letters %v", dead)
					}
					f.expectValue("settle_window_unacked", 0)
				})
			})
		}
	}
}

// An oversize message that is to be retried has no payload to copy: it is held, not sent round as an empty one.
func TestF4_AnOversizeMessageIsNeverCopiedWithoutItsPayload(t *testing.T) {
	in(t, func(t *testing.T) {
		f, main, _ := upBoth(t, func(c *settle.Config) { c.MaxPayload = 1000 },
			settle.Handle("a", newCalls().ack, settle.RetryTo("r"), settle.OnOversize(settle.Retry)))
		main.send(publish("a", 1, 1, strings.Repeat("x", 5000)))
		pass(time.Minute)
		main.expect()
		f.expectValue("settle_window_unacked", 1)
	})
}

func TestF5_RepeatedUserPropertiesKeepTheirOrder(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		_, main := up(t, nil, settle.Handle("a", func(ctx context.Context, _ []byte) settle.Outcome {
			d := settle.DeliveryFrom(ctx)
			for k, v := range d.Headers() {
				c.note(k + "=" + v)
			}
			first, _ := d.Header("k")
			c.note("first " + first)
			return settle.Ack()
		}))
		main.send(publish("a", 1, 1, "", "k", "2", "a", "", "k", "1", "k", "2"))
		c.expect(t, "k=2", "a=", "k=1", "k=2", "first 2")
	})
}

func TestF7_ViolationsCloseTheConnectionAndNoHandlerRuns(t *testing.T) {
	alias := linktest.Bytes(publish("", 1, 1, "x"))
	aliased := publish("a", 1, 1, "x")
	one := uint16(1)
	aliased.Properties.TopicAlias = &one
	unknown := publish("", 1, 1, "x")
	unknown.Properties.TopicAlias = &one
	for name, test := range map[string]struct {
		bytes []byte
		want  string
	}{
		"an empty topic":       {alias, "DISCONNECT 0x82"},
		"an unknown alias":     {linktest.Bytes(unknown), "DISCONNECT 0x94"},
		"a topic alias":        {linktest.Bytes(aliased), "DISCONNECT 0x94"},
		"a wildcard":           {linktest.Bytes(publish("a/#", 1, 1, "x")), "DISCONNECT 0x"},
		"QoS 3":                {[]byte{0x36, 6, 0, 1, 'a', 0, 1, 0}, "DISCONNECT 0x81"},
		"identifier 0":         {linktest.Bytes(publish("a", 1, 0, "x")), "DISCONNECT 0x8"},
		"a client's packet":    {[]byte{0xC0, 0}, "DISCONNECT 0x8"},
		"a length of 5 bytes":  {[]byte{0x30, 0xFF, 0xFF, 0xFF, 0xFF, 0x01}, "DISCONNECT 0x81"},
		"properties cut short": {[]byte{0x32, 6, 0, 1, 'a', 0, 1, 99}, "DISCONNECT 0x81"},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				c := newCalls()
				f, main := up(t, nil, settle.Handle("#", c.ack))
				main.SendRaw(test.bytes)
				got := main.took()
				if len(got) != 1 || !strings.HasPrefix(got[0], test.want) {
					t.Errorf("sent %q, want %s", got, test.want)
				}
				c.expect(t)
				main = f.main(true)
				main.send(publish("a", 1, 1, "good"))
				c.expect(t, "good")
			})
		})
	}
}

func TestE2_ASharedRouteNeedsASession(t *testing.T) {
	for qos, ok := range map[settle.QoS]bool{0: true, 1: false, 2: false} {
		_, err := settle.New(settle.Config{ClientID: "c", Servers: []string{"mqtt://s"}, SessionExpiry: -1},
			settle.Handle("a", newCalls().ack, settle.Shared("g"), qos))
		var invalid *settle.ConfigError
		if ok != (err == nil) || err != nil && !errors.As(err, &invalid) {
			t.Errorf("qos %d: %v", qos, err)
		}
	}
}

func TestE3_RetireUnsubscribesDrainsAndEndsTheSessions(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main, second := upBoth(t, nil, settle.Handle("a", failing(c, 1), settle.Shared("g"), settle.RetryTo("r"), settle.Backoff(settle.Constant(10*time.Second))))
		circle(main, second, 0, "r")
		main.send(publish("a", 1, 1, "x"))
		main.took()
		retired := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			retired <- f.Retire(ctx)
		}()
		pass(100 * time.Millisecond)
		main.expect("UNSUBSCRIBE $share/g/a")
		second.expect() // what is on its way round is waited for
		main.send(publish("a", 1, 2, "backlog"))
		var err error
		select {
		case err = <-retired:
		case <-time.After(10 * time.Minute):
			t.Fatal("Retire has not returned")
		}
		if err != nil {
			t.Error(err)
		}
		c.expect(t, "x 1", "backlog 1", "x 2", "backlog 2")
		main.expect("PUBLISH r q1 backlog", "PUBACK 2", "DISCONNECT")
		second.expect("PUBACK 1", "PUBACK 2", "UNSUBSCRIBE $share/g/r", "DISCONNECT")
		for _, p := range []*peer{main, second} {
			p.mu.Lock()
			e := p.sessionExpiry
			p.mu.Unlock()
			if e == nil || *e != 0 {
				t.Errorf("DISCONNECT with Session Expiry %v", e)
			}
		}
	})
}

func TestE3_ARetireThatIsCutShortKeepsTheSessions(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main := up(t, nil, settle.Handle("a", c.polite, settle.Timeout(0)))
		main.send(publish("a", 1, 1, "x"))
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := f.Retire(ctx); err == nil || !strings.Contains(err.Error(), "are kept") {
			t.Errorf("Retire returned %v", err)
		}
		main.expect("UNSUBSCRIBE a", "DISCONNECT")
		if main.sessionExpiry != nil {
			t.Error("the session was ended")
		}
	})
}

// identified adds subscription identifiers, of which the packets package knows one only.
func identified(p *packets.Publish, ids ...int) raw {
	b := linktest.Bytes(p)
	if len(b) > 100 {
		panic("too long for this")
	}
	// fixed header 2, topic, identifier, then the property length in one byte
	at := 2 + 2 + len(p.Topic)
	if p.QoS > 0 {
		at += 2
	}
	var extra []byte
	for _, id := range ids {
		extra = append(extra, 0x0B)
		extra = binary.AppendUvarint(extra, uint64(id))
	}
	out := slices.Insert(slices.Clone(b), at+1, extra...)
	out[1] += byte(len(extra))
	out[at] += byte(len(extra))
	return raw(out)
}

func TestE5_OverlappingFiltersRunEachRouteOnce(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		note := func(name string) func(context.Context, []byte) settle.Outcome {
			return func(_ context.Context, b []byte) settle.Outcome { c.note(name + " " + string(b)); return settle.Ack() }
		}
		f := begin(t, nil,
			settle.Handle("a/#", note("hash")),
			settle.Handle("a/+", note("plus"), settle.ExactlyOnce),
			settle.Handle("a/+", note("twin"), settle.Name("twin")))
		main := f.next(false)
		ids := map[string]int{}
		main.set(func(h *hooks) {
			h.subscribe = func(s *packets.Subscribe) []byte {
				ids[s.Subscriptions[0].Topic] = *s.Properties.SubscriptionIdentifier
				return []byte{s.Subscriptions[0].QoS}
			}
		})
		main.accept(false)
		if got := main.history(); !slices.Equal(got, []string{"SUBSCRIBE a/# q1", "SUBSCRIBE a/+ q2"}) {
			t.Errorf("subscribed with %q", got)
		}
		hash, plus := ids["a/#"], ids["a/+"]
		if hash == 0 || plus == 0 || hash == plus {
			t.Fatalf("identifiers %v", ids)
		}
		check := func(name string, id uint16, p raw, want ...string) {
			t.Helper()
			c.mu.Lock()
			c.seen = nil
			c.mu.Unlock()
			main.send(p)
			c.expectAll(t, want...)
			if got := main.took(); len(got) == 0 || !strings.HasSuffix(got[0], fmt.Sprint(" ", id)) {
				t.Errorf("%s: sent %q", name, got)
			}
		}
		check("one copy for one subscription", 1, identified(publish("a/b", 1, 1, "1"), hash), "hash 1")
		check("and one for the other", 2, identified(publish("a/b", 2, 2, "1"), plus), "plus 1", "twin 1")
		check("one for both", 3, identified(publish("a/b", 2, 3, "2"), plus, hash), "hash 2", "plus 2", "twin 2")
		check("an identifier twice", 4, identified(publish("a/b", 1, 4, "3"), hash, hash), "hash 3")
		check("no identifier", 5, raw(linktest.Bytes(publish("a/b", 1, 5, "4"))), "hash 4", "plus 4", "twin 4")
		check("an older release's", 6, identified(publish("a/b", 1, 6, "5"), 77), "hash 5", "plus 5", "twin 5")
		check("one that does not fit the topic", 7, identified(publish("a/b/c", 1, 7, "6"), plus), "hash 6")
		f.expectValue("settle_window_unacked", 0)
	})
}

// A message that several routes have is acknowledged when all have settled it.
func TestE5_AcknowledgedWhenAllRoutesHaveSettled(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		_, main := up(t, nil, settle.Handle("a/#", c.wait), settle.Handle("a/+", c.ack))
		main.send(publish("a/b", 1, 1, "x"))
		c.expect(t, "x", "x")
		main.expect()
		c.release(settle.Ack())
		main.expect("PUBACK 1")
	})
}

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
			settle.Handle("deaf", func(_ context.Context, b []byte) settle.Outcome {
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
				time.Sleep(time.Minute)
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
