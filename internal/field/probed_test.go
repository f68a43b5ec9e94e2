package field_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/testkit"
)

// A backlog was queued under the subscription identifiers of an older release: they are unknown now, or another route's. Topics decide, and each of two routes
// on one filter gets a message once.
func TestK1_ABacklogUnderOlderIdentifiers(t *testing.T) {
	for name, older := range map[string]func(ids map[string]int, topic string) *int{
		"unknown": func(map[string]int, string) *int { id := 77; return &id },
		"another route's": func(ids map[string]int, topic string) *int {
			id := ids["a/+"]
			if strings.HasPrefix(topic, "a/") {
				id = ids["b/+"]
			}
			return &id
		},
		"none": func(map[string]int, string) *int { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				c := newCalls()
				routes := []settle.Route{
					settle.Handle("a/+", c.ack, settle.Name("one")), settle.Handle("a/+", c.ack, settle.Name("two")), settle.Handle("b/+", c.ack, settle.Name("other")),
				}
				var mu sync.Mutex
				ids := make(map[string]int)
				b := testkit.NewBroker(t)
				b.Intercept(func(_ string, toClient bool, p testkit.Packet) testkit.Verdict {
					decoded, err := p.Decode()
					if err != nil {
						return testkit.Verdict{}
					}
					mu.Lock()
					defer mu.Unlock()
					switch content := decoded.Content.(type) {
					case *packets.Subscribe:
						ids[content.Subscriptions[0].Topic] = *content.Properties.SubscriptionIdentifier
					case *packets.Publish:
						if toClient {
							content.Properties.SubscriptionIdentifier = older(ids, content.Topic)
							return testkit.Verdict{Replace: encoded(t, content)}
						}
					}
					return testkit.Verdict{}
				})
				begin(t, b, nil, routes...).stop()
				for _, p := range numbered(5) {
					b.Publish("a/x", []byte("a"+p))
					b.Publish("b/x", []byte("b"+p))
				}
				s := begin(t, b, nil, routes...)
				s.quiet()
				for route, topic := range map[string]string{"one": "a", "two": "a", "other": "b"} {
					var got []string
					for _, settled := range s.Settlements(route) {
						got = append(got, string(settled.Payload))
					}
					if want := prefixed(topic, numbered(5)); !slices.Equal(got, want) {
						t.Errorf("%s has handled %q, want %q", route, got, want)
					}
				}
				s.sent("PUBACK", pubacks(1, 10)...)
				s.expect("settle_unmatched_total", 0)
			})
		})
	}
}

// Exactly once, and nobody reads the retry topic or the dead letters. At QoS 2 a server would not even say so: copies go at QoS 1, and the original is held.
func TestK2_CopiesOfQoS2GoAtQoS1(t *testing.T) {
	for topic, outcome := range map[string]settle.Outcome{"dead": settle.Reject(errFails), "r": settle.Retry(errFails)} {
		t.Run("to "+topic, func(t *testing.T) {
			in(t, func(t *testing.T) {
				b := testkit.NewBroker(t)
				s := begin(t, b, nil, settle.Handle("a", func(ctx context.Context, _ []byte) settle.Outcome {
					if settle.DeliveryFrom(ctx).Attempt() == 1 {
						return outcome
					}
					return settle.Ack()
				}, settle.ExactlyOnce, settle.RetryTo("r"), settle.DeadLetterTo("dead"), settle.Backoff(settle.Constant(time.Second))))
				undo := b.RefusePublish(topic, 0x10)
				s.publish("a", 2, "x")
				pass(time.Minute)
				tries := s.wire("svc", "> PUB")
				for _, try := range tries {
					if try != fmt.Sprintf(`> PUBLISH q1 %q "x"`, topic) {
						t.Errorf("sent %s", try)
					}
				}
				if len(tries) < 2 {
					t.Errorf("%d tries", len(tries))
				}
				s.expect("settle_window_unacked", 1)
				undo()
				if got := s.Settled("a", 1)[0]; !got.Acknowledged || got.SentTo != topic {
					t.Error(got)
				}
				s.quiet()
				s.sent("PUBREC", acks(2, 1)[0])
			})
		})
	}
}

// 3,000 deliveries fail while nobody takes the copies, which the app does not see, and the server keeps a thousand of them and answers 0x00 for all. No more than
// RetryBacklog are entrusted to it; the originals of the others are held, and none is lost.
func TestK3_ThreeThousandRetriesWithoutTheRetrySession(t *testing.T) {
	in(t, func(t *testing.T) {
		n, backlog := scaled(3000), scaled(500)
		c := newCalls()
		b := testkit.NewBroker(t, testkit.Options{QueueLimit: 2 * backlog, WireLog: -1})
		s := begin(t, b, func(c *settle.Config) {
			c.ReceiveMaximum, c.RetryReceiveMaximum, c.RetryBacklog, c.KeepAlive = n+100, 20, backlog, time.Hour
		}, settle.Handle("a", c.failing(1), settle.RetryTo("r"), settle.Backoff(settle.Constant(50*time.Millisecond))), settle.Handle("bystander", c.ack))
		takes := b.Intercept(func(clientID string, toClient bool, p testkit.Packet) testkit.Verdict {
			return testkit.Verdict{Drop: clientID == "svc-retry" && toClient && p.Type == typePublish}
		})
		for i, p := range numbered(n) {
			if s.publish("a", 1, p); i%50 == 0 {
				synctest.Wait() // nothing is in the main session's queue, which is as short
			}
		}
		pass(20 * time.Second)
		s.expect(`settle_retry_copies_total{result="confirmed",route="a"}`, float64(backlog))
		s.expect("settle_window_unacked", float64(n-backlog))
		s.publish("bystander", 1, "bystander")
		if got := c.list(); len(got) != n+1 {
			t.Errorf("%d calls", len(got))
		}

		takes()
		b.Cut("svc-retry")
		s.quiet()
		want := []string{"bystander"}
		for _, p := range numbered(n) {
			want = append(want, p+" 1", p+" 2")
		}
		c.expectAll(t, want...)
	})
}

// Stops in the middle of a stream. What was handled is acknowledged, so none of it comes again to the next process, and no will is published.
func TestK4_StopWhileDeliveriesArrive(t *testing.T) {
	for _, workers := range []int{1, 4} {
		t.Run(fmt.Sprintf("workers %d", workers), func(t *testing.T) {
			in(t, func(t *testing.T) {
				const rounds, each = 3, 150
				c := newCalls()
				b := testkit.NewBroker(t)
				change := func(c *settle.Config) {
					c.Will = &settle.Will{Topic: "will", Payload: []byte("down"), QoS: settle.AtLeastOnce}
				}
				for range rounds {
					s := begin(t, b, change, settle.Handle("a", func(ctx context.Context, payload []byte) settle.Outcome {
						<-time.After(time.Millisecond)
						return c.ack(ctx, payload)
					}, settle.Workers(workers)))
					go func() {
						for range each {
							<-time.After(100 * time.Microsecond)
							b.Publish("a", nil)
						}
					}()
					pass(20 * time.Millisecond)
					s.stop()
					s.sent("UNSUBSCRIBE")
					if n := len(s.Settlements("a")); n == 0 || n == each {
						t.Errorf("%d were handled before the stop: it was to be in the middle", n)
					}
					pass(time.Second) // what is published meanwhile waits
				}
				s := begin(t, b, change, settle.Handle("a", c.ack), settle.Handle("will", func(context.Context, []byte) settle.Outcome {
					t.Error("the will was published")
					return settle.Ack()
				}))
				s.quiet()
				if n := len(c.list()); n != rounds*each {
					t.Errorf("%d calls for %d messages", n, rounds*each)
				}
			})
		})
	}
}

// Six deliveries of one key: four are acknowledged, which the server does not get to see, one runs, one waits. After the cut the four do not run again,
// and the key's order holds.
func TestK5_AKeysOrderHoldsOverACut(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		b := testkit.NewBroker(t)
		s := begin(t, b, nil, settle.Handle("a", func(ctx context.Context, payload []byte) settle.Outcome {
			if string(payload) == "5" {
				return c.wait(ctx, payload)
			}
			return c.ack(ctx, payload)
		}, settle.Workers(3, settle.ByKey)))
		hears := b.Intercept(func(_ string, toClient bool, p testkit.Packet) testkit.Verdict {
			return testkit.Verdict{Drop: !toClient && p.Type == typePuback}
		})
		for _, p := range numbered(6) {
			s.Publish("a", []byte(p), settle.PartitionKey("k"))
		}
		pass(10 * time.Millisecond) // a busy lane puts acknowledgements off by one
		c.expect(t, numbered(5)...)
		s.sent("PUBACK", pubacks(1, 4)...)
		hears()
		s.CutConnection()
		s.ready()
		pass(time.Second)
		c.expect(t, numbered(5)...)
		c.release(t, settle.Ack())
		s.quiet()
		c.expect(t, numbered(6)...)
		epoch := s.epoch("svc", 1)
		if got := among(epoch, "< PUBLISH"); len(got) != 6 || !strings.Contains(got[0], "dup") {
			t.Errorf("redelivered: %q", got)
		}
		if got := among(epoch, "> PUBACK"); !slices.Equal(got, prefixed("> ", pubacks(1, 6))) {
			t.Errorf("acknowledged: %q", got)
		}
	})
}

// CONNACK comes with an authentication method that nobody asked for.
func TestK6_ConnackWithAnAuthenticationMethod(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		b := testkit.NewBroker(t)
		sane := b.Intercept(func(_ string, toClient bool, p testkit.Packet) testkit.Verdict {
			if !toClient || p.Type != typeConnack {
				return testkit.Verdict{}
			}
			return testkit.Verdict{Replace: encoded(t, &packets.Connack{Properties: &packets.Properties{AuthMethod: "KERBEROS"}})}
		})
		s := attach(t, b, nil, settle.Handle("a", c.ack))
		s.launch()
		pass(time.Minute)
		s.unready()
		if err := s.app.Live(); err != nil {
			t.Error(err)
		}
		sane()
		s.publish("a", 1, "x")
		s.quiet()
		c.expect(t, "x")
	})
}

// PUBREC comes behind our DISCONNECT, for a publish that waits for it, or for one that nobody has made.
func TestK6_PubrecBehindTheEnd(t *testing.T) {
	in(t, func(t *testing.T) {
		b := testkit.NewBroker(t)
		s := begin(t, b, nil, settle.Handle("a", says(settle.Ack())))
		b.WithholdAck("elsewhere")
		unanswered := make(chan error, 1)
		go func() { unanswered <- s.app.Publish(t.Context(), "elsewhere", nil, settle.ExactlyOnce) }()
		synctest.Wait()
		pubrecs := slices.Concat(
			encoded(t, &packets.Pubrec{PacketID: 2, Properties: &packets.Properties{}}), // behind SUBSCRIBE
			encoded(t, &packets.Pubrec{PacketID: 9, Properties: &packets.Properties{}}))
		b.Intercept(func(_ string, toClient bool, p testkit.Packet) testkit.Verdict {
			if toClient || p.Type != typeDisconnect {
				return testkit.Verdict{}
			}
			return testkit.Verdict{Drop: true, Send: pubrecs, Cut: true}
		})
		began := time.Now()
		s.stop()
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %s", took)
		}
		if err := <-unanswered; !errors.Is(err, settle.ErrUnconfirmed) {
			t.Errorf("the publish: %v", err)
		}
		epoch := s.epoch("svc", 0)
		if got := epoch[len(epoch)-3:]; got[0] != "> DISCONNECT 0x00" || got[1] != "< PUBREC id=2 0x00" || got[2] != "< PUBREC id=9 0x00" {
			t.Errorf("the end: %q", got)
		}
	})
}

// A server reads no more once it has sent CONNACK. Whoever waits for anything is let go when its context ends.
func TestK6_APeerThatStopsReadingAtConnack(t *testing.T) {
	in(t, func(t *testing.T) {
		b := testkit.NewBroker(t)
		s := attach(t, b, nil, settle.Handle("a", says(settle.Ack())))
		b.Intercept(func(_ string, toClient bool, p testkit.Packet) testkit.Verdict {
			if toClient || p.Type == typeConnect {
				return testkit.Verdict{}
			}
			return testkit.Verdict{Hold: 24 * time.Hour}
		})
		s.launch()
		const patience = 3 * time.Second
		s.within("WaitReady", patience, s.app.WaitReady)
		s.within("Publish", patience, func(ctx context.Context) error { return s.app.Publish(ctx, "b", make([]byte, 1<<20)) })
		s.within("Stop", patience, s.app.Stop)
	})
}

// within wants a call to fail when its context ends, and not later.
func (s *service) within(name string, patience time.Duration, call func(context.Context) error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	began := time.Now()
	err := call(ctx)
	if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > patience {
		s.t.Errorf("%s: %v after %s", name, err, took)
	}
}
