package settle_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/settlemq/settle"
)

// failing is a handler that notes attempt and payload and fails the first n attempts.
func failing(c *calls, n int) func(context.Context, []byte) settle.Outcome {
	return func(ctx context.Context, b []byte) settle.Outcome {
		attempt := settle.DeliveryFrom(ctx).Attempt()
		c.note(fmt.Sprintf("%s %d", b, attempt))
		if attempt <= n {
			return settle.Retry(errFails)
		}
		return settle.Ack()
	}
}

func TestD1_ADeadLetterThatFailsKeepsItsOriginal(t *testing.T) {
	for name, answer := range map[string]func() (byte, bool){
		"denied":         func() (byte, bool) { return packets.PubackNotAuthorized, true },
		"quota":          func() (byte, bool) { return packets.PubackQuotaExceeded, true },
		"no subscribers": func() (byte, bool) { return packets.PubackNoMatchingSubscribers, true }, // K2, D3
		"swallowed":      func() (byte, bool) { return 0, false },
	} {
		for _, qos := range []byte{1, 2} {
			t.Run(fmt.Sprintf("%s, qos %d", name, qos), func(t *testing.T) {
				in(t, func(t *testing.T) {
					f, main := up(t, nil, settle.Handle("a", func(context.Context, []byte) settle.Outcome { return settle.Reject(errFails) },
						settle.QoS(qos), settle.DeadLetterTo("dead")))
					main.set(func(h *hooks) { h.publish = func(*packets.Publish) (byte, bool) { return answer() } })
					main.send(publish("a", qos, 1, "x"))
					pass(2 * time.Minute)
					tries := main.took()
					if len(tries) < 4 || len(tries) > 20 {
						t.Errorf("%d tries in two minutes", len(tries))
					}
					for _, s := range tries {
						if s != "PUBLISH dead q1 x" {
							t.Errorf("sent %s", s)
						}
					}
					ids := map[string]bool{}
					for _, p := range main.published("dead") {
						ids[user(p, "settle-message-id")] = true
					}
					if len(ids) != 1 || ids[""] {
						t.Errorf("message ids %v", ids)
					}
					f.expectLogged("its original is held", `"level":"warn"`)
					f.expectValue("settle_window_unacked", 1)
					f.expectValue(`settle_dead_letters_total{result="confirmed",route="a"}`, 0)
					if name == "no subscribers" {
						f.expectValue(`settle_dead_letters_total{result="not_stored",route="a"}`, float64(len(tries)))
					}

					main.set(func(h *hooks) { h.publish = nil })
					pass(time.Minute)
					want := []string{"PUBLISH dead q1 x", "PUBACK 1"}
					if qos == 2 {
						want = []string{"PUBLISH dead q1 x", "PUBREC 1", "PUBCOMP 1"}
					}
					main.expect(want...)
					f.expectValue(`settle_dead_letters_total{result="confirmed",route="a"}`, 1)
				})
			})
		}
	}
}

func TestD1_AMissingAnswerHoldsUpNoOtherCopy(t *testing.T) {
	in(t, func(t *testing.T) {
		_, main := up(t, nil, settle.Handle("a", func(context.Context, []byte) settle.Outcome { return settle.Reject(errFails) }, settle.DeadLetterTo("dead")))
		main.set(func(h *hooks) {
			h.publish = func(c *packets.Publish) (byte, bool) { return 0, string(c.Payload) != "1" }
		})
		for i := range 5 {
			main.send(numbered("a", 1, i+1, 1)...)
		}
		main.expect("PUBLISH dead q1 1", "PUBLISH dead q1 2", "PUBLISH dead q1 3", "PUBLISH dead q1 4", "PUBLISH dead q1 5")
	})
}

func TestD2_ACopyThatIsPublishedTwiceIsRecognised(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main, second := upBoth(t, nil, settle.Handle("a", failing(c, 1), settle.RetryTo("r"), settle.Backoff(settle.Constant(time.Minute))))
		main.set(func(h *hooks) { h.publish = func(*packets.Publish) (byte, bool) { return 0, false } })
		main.send(publish("a", 1, 1, "x"))
		pass(9 * time.Second)
		main.set(func(h *hooks) { h.publish = nil })
		pass(10 * time.Second)
		main.expect("PUBLISH r q1 x", "PUBLISH r q1 x", "PUBACK 1")
		copies := main.published("r")
		if id := user(copies[0], "settle-message-id"); id == "" || id != user(copies[1], "settle-message-id") {
			t.Error("the copies have different message ids")
		}
		// The server had both: one is handled, both are acknowledged.
		circle(main, second, 100, "r")
		second.send(comeBack(copies[0], 1), comeBack(copies[1], 2))
		second.expect("PUBACK 1") // its place is taken
		pass(2 * time.Minute)
		c.expect(t, "x 1", "x 2")
		if got := second.took(); len(got) == 0 || got[0] != "PUBACK 2" {
			t.Errorf("sent %q", got)
		}
		f.expectValue(`settle_retry_waiting{route="a"}`, 0)
		f.expectValue(`settle_inflight{route="a"}`, 0)
	})
}

func TestD2_ALateCopyOfOneThatIsHandledAlready(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main, second := upBoth(t, nil, settle.Handle("a", func(ctx context.Context, b []byte) settle.Outcome {
			if settle.DeliveryFrom(ctx).Attempt() > 1 {
				return c.wait(ctx, b)
			}
			return settle.Retry(errFails)
		}, settle.RetryTo("r"), settle.Backoff(settle.Constant(time.Second)), settle.Timeout(0)))
		main.send(publish("a", 1, 1, "x"))
		copied := main.published("r")[0]
		second.send(comeBack(copied, 1))
		pass(2 * time.Second)
		c.expect(t, "x")                 // it runs
		second.send(comeBack(copied, 2)) // and comes once more
		pass(5 * time.Second)
		c.expect(t, "x")
		c.release(settle.Ack())
		second.expect("PUBACK 1", "PUBACK 2")
		f.expectValue(`settle_inflight{route="a"}`, 0)
	})
}

func TestD3_TheRetryTopicIsSubscribedBeforeItsFirstUse(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main := up(t, nil, settle.Handle("a", failing(c, 1), settle.RetryTo("r")))
		main.send(publish("a", 1, 1, "x"))
		pass(time.Second)
		main.expect() // nothing is published, nothing acknowledged
		if err := f.Ready(); err == nil || !strings.Contains(err.Error(), "retry connection is ") {
			t.Errorf("ready without its second connection: %v", err)
		}
		second := f.next(true)
		if second.connect.ClientID != "svc-retry" {
			t.Errorf("client id %s", second.connect.ClientID)
		}
		var asked *packets.Subscribe
		second.set(func(h *hooks) { h.subscribe = func(s *packets.Subscribe) []byte { asked = s; return nil } })
		second.accept(false)
		pass(time.Second)
		main.expect()
		second.write(&packets.Suback{PacketID: asked.PacketID, Reasons: []byte{1}})
		main.expect("PUBLISH r q1 x", "PUBACK 1")
	})
}

func TestD4_CopiesGoToTheRetryTopicAlone(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		_, main, second := upBoth(t, nil, settle.Handle("a", failing(c, 3), settle.RetryTo("r"), settle.Backoff(settle.Constant(time.Second))))
		circle(main, second, 0, "r")
		main.send(publish("a", 1, 1, "x"))
		pass(time.Minute)
		c.expect(t, "x 1", "x 2", "x 3", "x 4")
		main.expect("PUBLISH r q1 x", "PUBACK 1", "PUBLISH r q1 x", "PUBLISH r q1 x")
		second.expect("PUBACK 1", "PUBACK 2", "PUBACK 3")
	})
}

func TestD5_APoisonMessageEndsAfterMaxAttempts(t *testing.T) {
	for _, most := range []int{1, 2, 5, 0} {
		for _, retryTopic := range []bool{true, false} {
			for _, drop := range []bool{true, false} {
				if most == 0 && drop {
					continue // 10 is the default only with a dead-letter topic
				}
				t.Run(fmt.Sprintf("at most %d, retry topic %t, drop %t", most, retryTopic, drop), func(t *testing.T) {
					in(t, func(t *testing.T) {
						c := newCalls()
						options := []settle.RouteOption{settle.Backoff(settle.Constant(time.Second))}
						if most > 0 {
							options = append(options, settle.MaxAttempts(most))
						}
						if retryTopic {
							options = append(options, settle.RetryTo("r"))
						}
						if drop {
							options = append(options, settle.DropExhausted())
						} else {
							options = append(options, settle.DeadLetterTo("dead"))
						}
						f := begin(t, nil, settle.Handle("a", failing(c, 1000), options...))
						main := f.main(false)
						if retryTopic {
							circle(main, f.second(false), 0, "r")
							f.ready()
						}
						main.send(publish("a", 1, 1, "x"))
						pass(time.Minute)

						n := most
						if n == 0 {
							n = 10
						}
						var want []string
						for i := range n {
							want = append(want, fmt.Sprintf("x %d", i+1))
						}
						c.expect(t, want...)
						dead := main.published("dead")
						switch {
						case drop && len(dead) != 0, !drop && len(dead) != 1:
							t.Fatalf("%d dead letters", len(dead))
						case !drop:
							if got := user(dead[0], "settle-attempt"); got != strconv.Itoa(n) {
								t.Errorf("settle-attempt %s", got)
							}
							if got := user(dead[0], "settle-original-topic"); got != "a" {
								t.Errorf("settle-original-topic %s", got)
							}
						default:
							f.expectLogged("its attempts are used up")
						}
						f.expectValue("settle_window_unacked", 0)
						f.expectValue(`settle_inflight{route="a"}`, 0)
						retries := n
						if drop {
							retries--
							f.expectValue(`settle_settled_total{outcome="drop",route="a"}`, 1)
						}
						f.expectValue(`settle_settled_total{outcome="retry",route="a"}`, float64(retries))
					})
				})
			}
		}
	}
}

func TestD7_APanicCostsOneAttempt(t *testing.T) {
	faults := map[string]func(){
		"an error":  func() { panic(errFails) },
		"a string":  func() { panic("secret payload") },
		"nil":       func() { panic(nil) }, //nolint:govet // it is the point
		"Goexit":    runtime.Goexit,
		"a runtime": func() { var m map[string]int; m["x"]++ },
	}
	for name, fault := range faults {
		for _, where := range []string{"handler", "middleware", "batch"} {
			t.Run(name+" in "+where, func(t *testing.T) {
				in(t, func(t *testing.T) {
					c := newCalls()
					var told error
					policy := settle.OnPanic(func(err error) settle.Outcome { told = err; return settle.Retry(err) })
					failOnce := func(ctx context.Context, b string) {
						d := settle.DeliveryFrom(ctx)
						c.note(fmt.Sprintf("%s %d", b, d.Attempt()))
						if b == "x" && d.Attempt() == 1 {
							fault()
						}
					}
					backoff := settle.Backoff(settle.Constant(time.Second))
					var route settle.Route
					switch where {
					case "handler":
						route = settle.Handle("a", func(ctx context.Context, b []byte) settle.Outcome {
							failOnce(ctx, string(b))
							return settle.Ack()
						}, policy, backoff)
					case "batch":
						route = settle.HandleBatch("a", func(ctx context.Context, b []text) settle.Outcomes {
							failOnce(ctx, string(b[0]))
							return settle.Every(settle.Ack())
						}, policy, backoff, settle.BatchSize(1))
					default:
						route = settle.Handle("a", func(context.Context, []byte) settle.Outcome { return settle.Ack() }, policy, backoff,
							settle.With(func(next settle.Next) settle.Next {
								return func(ctx context.Context) settle.Outcomes {
									failOnce(ctx, string(settle.DeliveryFrom(ctx).Payload()))
									return next(ctx)
								}
							}))
					}
					f, main := up(t, func(c *settle.Config) { c.Codecs = []settle.Codec{textCodec{}} }, route)
					main.send(publish("a", 1, 1, "x"), publish("a", 1, 2, "y"))
					c.expect(t, "x 1", "y 1")
					pass(2 * time.Second)
					c.expect(t, "x 1", "y 1", "x 2")
					main.expect("PUBACK 1", "PUBACK 2")
					var panicked *settle.PanicError
					if !errors.As(told, &panicked) || panicked.Delivery.Topic() != "a" || len(panicked.Stack) == 0 || (panicked.Value == nil) != (name == "Goexit") {
						t.Errorf("the policy was told %v", told)
					}
					if strings.Contains(f.log.String(), "secret") {
						t.Error("the panic's text is in the log")
					}
					if err := f.stop(); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

func TestD7_APolicyThatPanicsRetries(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main := up(t, nil, settle.Handle("a", func(ctx context.Context, b []byte) settle.Outcome {
			c.note(strconv.Itoa(settle.DeliveryFrom(ctx).Attempt()))
			if settle.DeliveryFrom(ctx).Attempt() == 1 {
				panic("handler")
			}
			return settle.Ack()
		}, settle.OnPanic(func(error) settle.Outcome { panic("policy") }), settle.Backoff(settle.Constant(time.Second))))
		main.send(publish("a", 1, 1, "x"))
		pass(2 * time.Second)
		main.expect("PUBACK 1")
		c.expect(t, "1", "2")
		f.expectLogged("policy for faults panicked")
	})
}

func TestD8_TheRetainFlagStaysOffCopies(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		_, main, second := upBoth(t, nil, settle.Handle("a", func(ctx context.Context, _ []byte) settle.Outcome {
			d := settle.DeliveryFrom(ctx)
			c.note(fmt.Sprintf("%d retained %t", d.Attempt(), d.Retained()))
			if d.Attempt() > 1 {
				return settle.Reject(errFails)
			}
			return settle.Retry(errFails)
		}, settle.RetryTo("r"), settle.DeadLetterTo("dead"), settle.Backoff(settle.Constant(time.Second))))
		circle(main, second, 0, "r")
		p := publish("a", 1, 1, "x")
		p.Retain = true
		main.send(p)
		pass(5 * time.Second)
		c.expect(t, "1 retained true", "2 retained true")
		for _, topic := range []string{"r", "dead"} {
			for _, p := range main.published(topic) {
				if p.Retain || user(p, "settle-retained") != "1" {
					t.Errorf("to %s: retain %t, header %q", topic, p.Retain, user(p, "settle-retained"))
				}
			}
		}
	})
}

func TestACopyKeepsTheMessage(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main, second := upBoth(t, nil, settle.Handle("a/+", func(ctx context.Context, b []byte) settle.Outcome {
			d := settle.DeliveryFrom(ctx)
			var headers []string
			for k, v := range d.Headers() {
				headers = append(headers, k+"="+v)
			}
			c.note(fmt.Sprint(d.Topic(), " ", string(b), " ", d.Attempt(), " ", headers, " ", d.ContentType(), " ", d.ResponseTopic(), " ", string(d.CorrelationData()), " ", d.Route(), " ", d.Level(1)))
			if d.Attempt() < 3 {
				return settle.RetryAfter(20*time.Second, errors.New("ledger\ndown"))
			}
			return settle.Reject(errFails)
		}, settle.Name("usage"), settle.RetryTo("r"), settle.DeadLetterTo("dead")))
		p := publish("a/b", 1, 1, "payload", "k", "1", "site", "north", "k", "2", "settle-attempt", "7", "settle-original-topic", "forged", "settle-unknown", "x", "k", "1", "message-id", "m-1")
		format, expiry := byte(1), uint32(100)
		p.Properties.PayloadFormat, p.Properties.MessageExpiry = &format, &expiry
		p.Properties.ContentType, p.Properties.ResponseTopic, p.Properties.CorrelationData = "text/x", "answers", []byte("corr")
		main.send(p)
		copied := main.published("r")
		if len(copied) != 1 {
			t.Fatalf("%d copies", len(copied))
		}
		at := time.Now()
		checkCopy := func(got *packets.Publish, attempt string, expiry uint32) {
			t.Helper()
			pr := got.Properties
			if string(got.Payload) != "payload" || got.QoS != 1 || got.Retain || *pr.PayloadFormat != 1 || pr.ContentType != "text/x" || pr.ResponseTopic != "answers" || string(pr.CorrelationData) != "corr" {
				t.Errorf("the copy is %s", got)
			}
			var own, others []string
			for _, u := range pr.User {
				if strings.HasPrefix(u.Key, "settle-") {
					own = append(own, u.Key+"="+u.Value)
				} else {
					others = append(others, u.Key+"="+u.Value)
				}
			}
			if fmt.Sprint(others) != "[k=1 site=north k=2 k=1 message-id=m-1]" {
				t.Errorf("user properties %q", others)
			}
			for _, want := range []string{"settle-message-id=m-1", "settle-attempt=" + attempt, "settle-original-topic=a/b", "settle-route=usage", "settle-owner=svc"} {
				if !slices.Contains(own, want) {
					t.Errorf("no %s in %q", want, own)
				}
			}
			if slices.Contains(own, "settle-unknown=x") || slices.Contains(own, "settle-attempt=7") || slices.Contains(own, "settle-original-topic=forged") {
				t.Errorf("a forged header is on the copy: %q", own)
			}
			if expiry > 0 && (pr.MessageExpiry == nil || *pr.MessageExpiry != expiry) || expiry == 0 && pr.MessageExpiry != nil {
				t.Errorf("expiry %v, want %d", pr.MessageExpiry, expiry)
			}
		}
		checkCopy(copied[0], "1", 100)
		if got := user(copied[0], "settle-reason"); got != "ledger down" {
			t.Errorf("settle-reason %q", got)
		}
		if got := user(copied[0], "settle-delay-ms"); got != "20000" {
			t.Errorf("settle-delay-ms %s", got)
		}
		if due, err := time.Parse(time.RFC3339, user(copied[0], "settle-not-before")); err != nil || due.Sub(at) < 19*time.Second || due.Sub(at) > 20*time.Second {
			t.Errorf("settle-not-before %v %v", due, err)
		}

		// It waits on the server for five seconds, and here for fifteen.
		pass(5 * time.Second)
		back := comeBack(copied[0], 1)
		left := uint32(95)
		properties := *back.Properties
		properties.MessageExpiry = &left
		back.Properties = &properties
		second.send(back)
		pass(14 * time.Second)
		if got := c.list(); len(got) != 1 {
			t.Fatalf("handled %q", got)
		}
		f.expectValue(`settle_retry_waiting{route="usage"}`, 1)
		pass(time.Second)
		copied = main.published("r")
		if len(copied) != 2 {
			t.Fatalf("%d copies", len(copied))
		}
		checkCopy(copied[1], "2", 80)
		if user(copied[0], "settle-copy-id") == user(copied[1], "settle-copy-id") {
			t.Error("two attempts have one copy id")
		}
		second.expect("PUBACK 1")
		second.send(comeBack(copied[1], 2))
		pass(21 * time.Second)
		dead := main.published("dead")
		if len(dead) != 1 {
			t.Fatalf("%d dead letters", len(dead))
		}
		checkCopy(dead[0], "3", 0)
		if user(dead[0], "settle-reason") != "it fails" {
			t.Errorf("settle-reason %q", user(dead[0], "settle-reason"))
		}
		line := "a/b payload %d [k=1 site=north k=2 k=1 message-id=m-1] text/x answers corr usage b"
		c.expect(t, fmt.Sprintf(line, 1), fmt.Sprintf(line, 2), fmt.Sprintf(line, 3))
	})
}

// Clocks may disagree: a copy's wait is bounded by what we asked for.
func TestACopysWaitIsBoundedByOurOwnDelay(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		_, _, second := upBoth(t, nil, settle.Handle("a", failing(c, 0), settle.RetryTo("r")))
		second.send(publish("r", 1, 1, "future", "settle-copy-id", "1", "settle-owner", "svc", "settle-attempt", "4", "settle-route", "a",
			"settle-not-before", time.Now().Add(time.Hour).Format(time.RFC3339), "settle-delay-ms", "2000"))
		second.send(publish("r", 1, 2, "past", "settle-copy-id", "2", "settle-owner", "svc", "settle-attempt", "x", "settle-route", "a",
			"settle-not-before", "nonsense", "settle-delay-ms", "-5"))
		c.expect(t, "past 2")
		pass(1900 * time.Millisecond)
		c.expect(t, "past 2")
		pass(200 * time.Millisecond)
		c.expect(t, "past 2", "future 5")
		second.expect("PUBACK 1", "PUBACK 2")
	})
}

func TestForgedHeadersOnTheMainConnectionAreIgnored(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main, _ := upBoth(t, nil, settle.Handle("a", func(ctx context.Context, b []byte) settle.Outcome {
			d := settle.DeliveryFrom(ctx)
			_, shown := d.Header("settle-attempt")
			c.note(fmt.Sprintf("%s %d %s %t %t", b, d.Attempt(), d.Topic(), shown, d.MessageID() == "forged"))
			return settle.Ack()
		}, settle.RetryTo("r"), settle.DeadLetterTo("dead"), settle.MaxAttempts(3)))
		main.send(publish("a", 1, 1, "x", "settle-attempt", "99", "settle-original-topic", "z", "settle-message-id", "forged", "settle-not-before", "2100-01-01T00:00:00Z"))
		c.expect(t, "x 1 a false false")
		main.expect("PUBACK 1")
		main.send(publish("a", 1, 2, "y", "settle-copy-id", "forged"))
		c.expect(t, "x 1 a false false", "y 1 a false false")
		main.expect("PUBACK 2")
		f.expectValue("settle_unmatched_total", 0)
	})
}

func TestK2_K9_WhatTheServerMustGrant(t *testing.T) {
	zero, none, one := uint32(0), byte(0), byte(1)
	for name, test := range map[string]struct {
		granted packets.Properties
		options []settle.RouteOption
		want    string
	}{
		"no session":      {packets.Properties{SessionExpiryInterval: &zero}, []settle.RouteOption{settle.RetryTo("r")}, "Session Expiry"},
		"no QoS 1":        {packets.Properties{MaximumQOS: &none}, []settle.RouteOption{settle.AtMostOnce, settle.RetryTo("r")}, "Maximum QoS"},
		"no QoS 1, dead":  {packets.Properties{MaximumQOS: &none}, []settle.RouteOption{settle.AtMostOnce, settle.DeadLetterTo("d")}, "Maximum QoS"},
		"no QoS 2":        {packets.Properties{MaximumQOS: &one}, []settle.RouteOption{settle.ExactlyOnce}, "Maximum QoS"},
		"no session, q 1": {packets.Properties{SessionExpiryInterval: &zero}, nil, "Session Expiry"},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				f := begin(t, nil, settle.Handle("a", newCalls().ack, append(test.options, settle.Name("bill"))...))
				main := f.next(false)
				main.write(&packets.Connack{Properties: &test.granted})
				select {
				case <-f.Done():
					if err := f.Err(); err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "bill") && test.want != "Session Expiry" {
						t.Errorf("the app ended with %v", err)
					}
				case <-time.After(time.Minute):
					t.Error("the app has not ended")
				}
				if f.Live() == nil || f.Ready() == nil {
					t.Errorf("live %v, ready %v", f.Live(), f.Ready())
				}
			})
		})
	}
}

func TestK7_AReplicasCopiesAreItsOwn(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, _, second := upBoth(t, nil, settle.Handle("a", failing(c, 0), settle.RetryTo("r")))
		second.send(publish("r", 1, 1, "theirs", "settle-copy-id", "1", "settle-owner", "other", "settle-attempt", "1", "settle-route", "a"))
		second.send(publish("r", 1, 2, "ours", "settle-copy-id", "2", "settle-owner", "svc", "settle-attempt", "1", "settle-route", "a"))
		second.send(publish("r", 1, 3, "a stranger's"))
		pass(time.Second)
		c.expect(t, "ours 2", "a stranger's 1")
		second.expect("PUBACK 1", "PUBACK 2", "PUBACK 3")
		f.expectValue("settle_unmatched_total", 1)
	})
}

func TestK7_InAGroupAnyMemberHandlesACopy(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		_, _, second := upBoth(t, nil, settle.Handle("a", failing(c, 0), settle.RetryTo("r"), settle.Shared("g")))
		if got := second.history(); !slices.Equal(got, []string{"SUBSCRIBE $share/g/r q1"}) {
			t.Errorf("subscribed with %q", got)
		}
		second.send(publish("r", 1, 1, "theirs", "settle-copy-id", "1", "settle-owner", "other", "settle-attempt", "1", "settle-route", "a"))
		c.expect(t, "theirs 2")
		second.expect("PUBACK 1")
	})
}

func TestK10_CopiesUnderAnOldTopicAreNotAcknowledgedAway(t *testing.T) {
	old := func(id uint16, route string) *packets.Publish {
		return publish("old/retry", 1, id, "x", "settle-copy-id", "1", "settle-owner", "svc", "settle-attempt", "2", "settle-route", route, "settle-original-topic", "a", "settle-message-id", "m")
	}
	t.Run("dead letters", func(t *testing.T) {
		in(t, func(t *testing.T) {
			c := newCalls()
			f := begin(t, nil, settle.Handle("a", c.ack, settle.RetryTo("new/retry"), settle.DeadLetterTo("dead")))
			main, second := f.main(true), f.next(true)
			second.accept(true)
			main.set(func(h *hooks) { h.publish = nil })
			second.send(old(1, "a"))
			main.took()
			second.expect("PUBACK 1")
			dead := main.published("dead")
			if len(dead) != 1 || user(dead[0], "settle-attempt") != "2" || user(dead[0], "settle-message-id") != "m" || user(dead[0], "settle-original-topic") != "a" {
				t.Fatalf("dead letters %v", dead)
			}
			f.expectLogged("no route's retry topic")
			c.expect(t)
		})
	})
	t.Run("held", func(t *testing.T) {
		in(t, func(t *testing.T) {
			c := newCalls()
			f := begin(t, nil, settle.Handle("a", c.ack, settle.RetryTo("new/retry")))
			_, second := f.main(true), f.second(true)
			second.send(old(1, "a"), old(2, "gone"))
			pass(time.Hour)
			second.expect()
			f.expectLogged("it is held")
			c.expect(t)
		})
	})
}

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
			settle.Backoff(byPayloadless{time.Hour})))
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
			for _, p := range main.published("r") {
				queue = append(queue, p)
			}
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

// byPayloadless is a policy of the user's own.
type byPayloadless struct{ d time.Duration }

func (b byPayloadless) Delay(int) time.Duration { return b.d }

func TestK14_AnotherServicesCopiesAreNoOriginals(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main, second := upBoth(t, nil, settle.Handle("meters/+/usage", failing(c, 1), settle.RetryTo("meters/retry/usage"), settle.Backoff(settle.Constant(time.Second))))
		if got := main.history(); !slices.Equal(got, []string{"SUBSCRIBE meters/+/usage q1"}) {
			t.Errorf("subscribed with %q", got)
		}
		main.send(publish("meters/other-retry/usage", 1, 1, "theirs", "settle-copy-id", "1", "settle-owner", "other", "settle-attempt", "1", "settle-route", "x",
			"settle-original-topic", "meters/1/usage"))
		main.send(publish("meters/retry/usage", 1, 2, "ours, by another publisher"))
		c.expect(t)
		main.expect("PUBACK 1", "PUBACK 2")
		f.expectValue("settle_unmatched_total", 2)

		circle(main, second, 0, "meters/retry/usage")
		main.send(publish("meters/7/usage", 1, 3, "x"))
		pass(5 * time.Second)
		c.expect(t, "x 1", "x 2")
		if got := main.published("meters/retry/usage"); len(got) != 1 {
			t.Error("copies go out over the main connection, so that they do not fill its queue")
		}
		// What the program publishes goes out over the other, or No Local would keep it from us.
		go func() { _ = f.Publish(context.Background(), "meters/7/usage", []byte("own")) }()
		synctest.Wait()
		if len(second.published("meters/7/usage")) != 1 || len(main.published("meters/7/usage")) != 0 {
			t.Error("the program's own message does not go out over the second connection")
		}
	})
}

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

func TestACopyBeyondTheServersMaximumPacketSize(t *testing.T) {
	for _, dead := range []bool{true, false} {
		t.Run(fmt.Sprintf("dead letters %t", dead), func(t *testing.T) {
			in(t, func(t *testing.T) {
				options := []settle.RouteOption{settle.RetryTo("r")}
				if dead {
					options = append(options, settle.DeadLetterTo("dead"))
				}
				f := begin(t, nil, settle.Handle("a", failing(newCalls(), 100), options...))
				main := f.next(false)
				limit := uint32(1000)
				main.write(&packets.Connack{Properties: &packets.Properties{MaximumPacketSize: &limit}})
				f.second(false)
				f.ready()
				main.send(publish("a", 1, 1, strings.Repeat("x", 2000)))
				pass(time.Minute)
				letters := main.published("dead")
				switch {
				case !dead:
					main.expect()
					f.expectValue("settle_window_unacked", 1)
				case len(letters) != 1 || len(letters[0].Payload) != 0 || !strings.Contains(user(letters[0], "settle-stub"), "2000 bytes"):
					t.Errorf("dead letters %v", letters)
				default:
					main.expect("PUBLISH dead q1 ", "PUBACK 1")
				}
			})
		})
	}
}

func TestQoS0CopiesThatFailAreCountedAsLost(t *testing.T) {
	in(t, func(t *testing.T) {
		f, main, _ := upBoth(t, nil, settle.Handle("a", failing(newCalls(), 100), settle.AtMostOnce, settle.RetryTo("r")))
		main.set(func(h *hooks) { h.publish = func(*packets.Publish) (byte, bool) { return 0x87, true } })
		main.send(publish("a", 0, 0, "x"))
		pass(time.Minute)
		main.expect("PUBLISH r q1 x")
		f.expectValue(`settle_retry_copies_total{result="refused",route="a"}`, 1)
		f.expectValue(`settle_inflight{route="a"}`, 0)
		f.expectLogged("it is lost")
	})
}

func TestTwoRoutesOnOneMessageRetryOnTheirOwn(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		note := func(name string, n int) func(context.Context, []byte) settle.Outcome {
			return func(ctx context.Context, b []byte) settle.Outcome {
				attempt := settle.DeliveryFrom(ctx).Attempt()
				c.note(fmt.Sprintf("%s %d", name, attempt))
				if attempt <= n {
					return settle.Retry(errFails)
				}
				return settle.Ack()
			}
		}
		f, main := up(t, nil,
			settle.Handle("a", note("good", 0), settle.Name("good")),
			settle.Handle("a", note("bad", 2), settle.Name("bad"), settle.Backoff(settle.Constant(time.Second))))
		if got := main.history(); !slices.Equal(got, []string{"SUBSCRIBE a q1"}) {
			t.Errorf("subscribed with %q", got)
		}
		main.send(publish("a", 1, 1, "x"))
		main.expect()
		pass(3 * time.Second)
		main.expect("PUBACK 1")
		c.expectAll(t, "good 1", "bad 1", "bad 2", "bad 3")
		f.expectValue(`settle_inflight{route="good"}`, 0)
	})
}
