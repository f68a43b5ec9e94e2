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
		"a runtime": func() { _ = []int{}[len(errFails.Error())] },
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
		f, main := up(t, nil, settle.Handle("a", func(ctx context.Context, _ []byte) settle.Outcome {
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

func TestTwoRoutesOnOneMessageRetryOnTheirOwn(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		note := func(name string, n int) func(context.Context, []byte) settle.Outcome {
			return func(ctx context.Context, _ []byte) settle.Outcome {
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
