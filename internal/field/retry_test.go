package field_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/testkit"
)

// A dead letter is refused, goes nowhere, or is not answered. Its original is held, the publish tried again with backoff, and somebody told; when the
// server takes it, the original is acknowledged.
func TestD1_ADeadLetterThatFailsKeepsItsOriginal(t *testing.T) {
	for name, test := range map[string]struct {
		fault  func(*testkit.Broker) (undo func())
		result string
	}{
		"denied":    {func(b *testkit.Broker) func() { return b.RefusePublish("dead", 0x87) }, "refused"},
		"quota":     {func(b *testkit.Broker) func() { return b.RefusePublish("dead", 0x97) }, "refused"},
		"nobody":    {func(b *testkit.Broker) func() { return b.RefusePublish("dead", 0x10) }, "not_stored"},
		"swallowed": {func(b *testkit.Broker) func() { return b.WithholdAck("dead") }, "unconfirmed"},
	} {
		for _, qos := range []settle.QoS{1, 2} {
			t.Run(fmt.Sprintf("%s, qos %s", name, qos), func(t *testing.T) {
				in(t, func(t *testing.T) {
					b := testkit.NewBroker(t)
					s := begin(t, b, nil, settle.Handle("a", says(settle.Reject(errFails)), qos, settle.DeadLetterTo("dead")))
					undo := test.fault(b)
					s.publish("a", qos, "x")
					pass(2 * time.Minute)
					tries := s.wire("svc", "> PUB")
					if len(tries) < 4 || len(tries) > 20 {
						t.Errorf("%d tries in two minutes", len(tries))
					}
					for _, try := range tries {
						if try != `> PUBLISH q1 "dead" "x"` {
							t.Errorf("sent %s", try)
						}
					}
					s.expect("settle_window_unacked", 1)
					s.expect(`settle_dead_letters_total{result="confirmed",route="a"}`, 0)
					if n := s.value(`settle_dead_letters_total{result="` + test.result + `",route="a"}`); n < float64(len(tries)-1) || n > float64(len(tries)) {
						t.Errorf("%v counted of %d tries", n, len(tries))
					}
					s.logged("its original is held", `"level":"warn"`)
					if got := s.Settlements("a")[0]; got.Acknowledged || got.SentTo != "" {
						t.Error(got)
					}

					undo()
					if got := s.Settled("a", 1)[0]; !got.Acknowledged || got.SentTo != "dead" {
						t.Error(got)
					}
					s.quiet()
					s.expect(`settle_dead_letters_total{result="confirmed",route="a"}`, 1)
					if got, want := s.wire("svc", "> PUB"), prefixed("> ", acks(qos, 1)); !slices.Equal(got[len(got)-len(want):], want) {
						t.Errorf("sent %q", got)
					}
				})
			})
		}
	}
}

// A copy's answer is lost for eleven seconds, or the copy itself is late by as much: it is published twice, under one message id, and handled once.
func TestD2_ACopyThatIsPublishedTwiceIsHandledOnce(t *testing.T) {
	for name, fault := range map[string]func(*testkit.Broker) (undo func()){
		"answer withheld": func(b *testkit.Broker) func() { return b.WithholdAck("r") },
		"answer late":     func(b *testkit.Broker) func() { return b.AnswerLate("r", 11*time.Second) },
		"publish late": func(b *testkit.Broker) func() {
			return b.Intercept(func(_ string, toClient bool, p testkit.Packet) testkit.Verdict {
				if toClient || p.Type != typePublish || p.Topic != "r" {
					return testkit.Verdict{}
				}
				return testkit.Verdict{Hold: 11 * time.Second}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				c := newCalls()
				b := testkit.NewBroker(t)
				s := begin(t, b, nil, settle.Handle("a", c.failing(1), settle.RetryTo("r"), settle.Backoff(settle.Constant(2*time.Minute))))
				undo := fault(b)
				s.publish("a", 1, "x")
				pass(10500 * time.Millisecond)
				undo()
				copies := s.Published("r", 2)
				for _, name := range []string{"settle-message-id", "settle-copy-id"} {
					if id := header(copies[0], name); id == "" || header(copies[1], name) != id {
						t.Errorf("%s: %q and %q", name, id, header(copies[1], name))
					}
				}
				if got := s.Settled("a", 2); !got[0].Acknowledged || !got[1].Acknowledged || got[1].MessageID != got[0].MessageID {
					t.Error(got)
				}
				s.quiet()
				c.expect(t, "x 1", "x 2")
				s.sent("PUBACK", pubacks(1, 1)...)
				s.expect(`settle_retry_waiting{route="a"}`, 0)
			})
		})
	}
}

// Nobody subscribes to the retry topic, says the server. The copy is counted as not stored, and its original held.
func TestD3_ACopyWithoutSubscribersIsNotStored(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		b := testkit.NewBroker(t)
		s := begin(t, b, nil, settle.Handle("a", c.failing(1), settle.RetryTo("r"), settle.Backoff(settle.Constant(time.Second))))
		undo := b.RefusePublish("r", 0x10)
		s.publish("a", 1, "x")
		pass(time.Minute)
		tries := len(s.wire("svc", `> PUBLISH q1 "r"`))
		if tries < 2 {
			t.Errorf("%d tries", tries)
		}
		s.expect(`settle_retry_copies_total{result="not_stored",route="a"}`, float64(tries))
		s.expect("settle_window_unacked", 1)
		undo()
		s.quiet()
		c.expect(t, "x 1", "x 2")
		s.expect(`settle_retry_copies_total{result="confirmed",route="a"}`, 1)
	})
}

// Nothing is published to the retry topic before the server has granted its subscription.
func TestD3_TheRetryTopicIsSubscribedBeforeItsFirstUse(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		b := testkit.NewBroker(t)
		begin(t, b, nil, settle.Handle("a", c.failing(1), settle.RetryTo("r"))).stop()
		b.Restart(true)
		b.Publish("a", []byte("x"))
		s := attach(t, b, nil, settle.Handle("a", c.failing(1), settle.RetryTo("r"), settle.Backoff(settle.Constant(time.Second))))
		var order []string
		b.Intercept(func(clientID string, toClient bool, p testkit.Packet) testkit.Verdict {
			switch {
			case clientID == "svc-retry" && toClient && p.Type == typeSuback:
				order = append(order, "granted")
				return testkit.Verdict{Hold: 5 * time.Second}
			case clientID == "svc" && !toClient && p.Type == typePublish && p.Topic == "r":
				order = append(order, "published")
			}
			return testkit.Verdict{}
		})
		s.launch()
		pass(4 * time.Second)
		c.expect(t, "x 1")
		s.unready("retry connection")
		s.sent("PUB")
		s.quiet()
		c.expect(t, "x 1", "x 2")
		if order[0] != "granted" || len(order) < 2 {
			t.Errorf("the order was %q", order)
		}
	})
}

// Another service listens to the same topic. However often ours fails, that one sees the message once: copies go to our retry topic alone.
func TestD4_CopiesMultiplyForNobodyElse(t *testing.T) {
	in(t, func(t *testing.T) {
		c, healthy := newCalls(), newCalls()
		b := testkit.NewBroker(t)
		other := begin(t, b, func(c *settle.Config) { c.ClientID = "other" }, settle.Handle("a", healthy.ack))
		s := begin(t, b, nil, settle.Handle("a", c.failing(3), settle.RetryTo("svc/retry"), settle.Backoff(settle.Constant(time.Second))))
		s.publish("a", 1, "x")
		s.Settled("a", 4)
		s.quiet()
		other.quiet()
		c.expect(t, "x 1", "x 2", "x 3", "x 4")
		healthy.expect(t, "x")
		copied := `PUBLISH q1 "svc/retry" "x"`
		s.sent("PUB", copied, acks(1, 1)[0], copied, copied)
	})
}

// A poison message ends: attempts are counted in its copies, over a crash of the process too, and the last failure is dead-lettered.
func TestD5_APoisonMessageEnds(t *testing.T) {
	for _, most := range []int{1, 5, 0} {
		for _, retryTopic := range []bool{true, false} {
			t.Run(fmt.Sprintf("at most %d, retry topic %t", most, retryTopic), func(t *testing.T) {
				in(t, func(t *testing.T) {
					c := newCalls()
					options := []settle.RouteOption{settle.DeadLetterTo("dead"), settle.Backoff(settle.Constant(20 * time.Second))}
					n := most
					if most > 0 {
						options = append(options, settle.MaxAttempts(most))
					} else {
						n = 10 // with a dead-letter topic
					}
					if retryTopic {
						options = append(options, settle.RetryTo("r"))
					}
					b := testkit.NewBroker(t)
					s := begin(t, b, nil, settle.Handle("a", c.failing(1000), options...))
					s.publish("a", 1, "x")
					if retryTopic && n > 1 {
						pass(30 * time.Second) // two attempts, and a copy of the second waits
						s.die()
						s = begin(t, b, nil, settle.Handle("a", c.failing(1000), options...))
					}
					s.Until("the dead letter is stored", func() bool { return s.value(`settle_dead_letters_total{result="confirmed",route="a"}`) == 1 })
					s.quiet()
					var want []string
					for i := range n {
						want = append(want, fmt.Sprintf("x %d", i+1))
					}
					c.expect(t, want...)
					if letter := s.Published("dead", 1)[0]; header(letter, "settle-attempt") != strconv.Itoa(n) || header(letter, "settle-original-topic") != "a" || string(letter.Payload()) != "x" {
						t.Errorf("%+v", letter)
					}
				})
			})
		}
	}
}

// A handler's panic, of whatever kind, costs that delivery an attempt, and nobody else anything.
func TestD7_APanicCostsOneAttempt(t *testing.T) {
	for name, fault := range map[string]func(){
		"an error": func() { panic(errFails) },
		"a string": func() { panic("s3cret") },
		"nil":      func() { panic(nil) }, //nolint:govet // it is the point
		"Goexit":   runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				c := newCalls()
				s := begin(t, testkit.NewBroker(t), nil, settle.Handle("a", func(ctx context.Context, payload []byte) settle.Outcome {
					attempt := settle.DeliveryFrom(ctx).Attempt()
					c.note(fmt.Sprintf("%s %d", payload, attempt))
					if string(payload) == "1" && attempt == 1 {
						fault()
					}
					return settle.Ack()
				}, settle.RetryTo("r"), settle.Backoff(settle.Constant(time.Second))))
				s.publish("a", 1, "1", "2", "3")
				s.quiet()
				c.expect(t, "1 1", "2 1", "3 1", "1 2")
				if got := s.Settlements("a"); got[0].Outcome.Kind() != settle.KindRetry || got[0].SentTo != "r" || len(got) != 4 {
					t.Error(got)
				}
				s.sent("PUBACK", pubacks(1, 3)...)
				s.expect(`settle_inflight{route="a"}`, 0)
				if strings.Contains(s.log.String(), "s3cret") {
					t.Error("the panic's text is in the log")
				}
				s.stop()
			})
		})
	}
}

// A retained message fails. Its copy and its dead letter are not retained, or they would stay on the server for ever; a header remembers it.
func TestD8_TheRetainFlagStaysOffCopies(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		b := testkit.NewBroker(t)
		b.Publish("a", []byte("x"), settle.Retain())
		s := begin(t, b, nil, settle.Handle("a", func(ctx context.Context, _ []byte) settle.Outcome {
			d := settle.DeliveryFrom(ctx)
			c.note(fmt.Sprintf("%d retained %t", d.Attempt(), d.Retained()))
			return settle.Retry(errFails)
		}, settle.RetryTo("r"), settle.DeadLetterTo("dead"), settle.MaxAttempts(2), settle.Backoff(settle.Constant(time.Second))))
		s.Settled("a", 2)
		s.quiet()
		c.expect(t, "1 retained true", "2 retained true")
		for _, topic := range []string{"r", "dead"} {
			if m := s.Published(topic, 1)[0]; m.Retain() || header(m, "settle-retained") != "1" {
				t.Errorf("to %s: retain %t, header %q", topic, m.Retain(), header(m, "settle-retained"))
			}
		}
		later := newCalls()
		reader := begin(t, b, func(c *settle.Config) { c.ClientID = "reader" }, settle.Handle("r", later.ack), settle.Handle("dead", later.ack))
		reader.quiet()
		later.expect(t) // the server has kept neither
	})
}
