package settle_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/settlemq/settle"
)

// publishing calls Publish on a goroutine of its own.
func publishing(ctx context.Context, f *field, topic string, value any, options ...settle.MessageOption) chan error {
	result := make(chan error, 1)
	go func() { result <- f.Publish(ctx, topic, value, options...) }()
	synctest.Wait()
	return result
}

func TestPublishSendsWhatItWasGiven(t *testing.T) {
	in(t, func(t *testing.T) {
		f, main := up(t, nil, settle.Handle("a", newCalls().ack))
		err := f.Publish(t.Context(), "meters/42/usage", report{Meter: "42", KWh: 1.5}, settle.ExactlyOnce, settle.PartitionKey("42"),
			settle.Header("site", "north"), settle.Header("site", "south"), settle.MessageID("42-1"), settle.ResponseTopic("answers"),
			settle.CorrelationData([]byte{1, 2}), settle.Retain(), settle.Expiry(1500*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		got := main.published("meters/42/usage")
		if len(got) != 1 {
			t.Fatal(len(got))
		}
		p := got[0]
		if string(p.Payload) != `{"meter":"42","kwh":1.5}` || p.QoS != 2 || !p.Retain || p.Properties.ContentType != "application/json" ||
			p.Properties.ResponseTopic != "answers" || string(p.Properties.CorrelationData) != "\x01\x02" || *p.Properties.MessageExpiry != 2 {
			t.Errorf("sent %s", p)
		}
		want := []packets.User{{Key: "partition-key", Value: "42"}, {Key: "site", Value: "north"}, {Key: "site", Value: "south"}, {Key: "message-id", Value: "42-1"}}
		if !slices.Equal(p.Properties.User, want) {
			t.Errorf("user properties %v", p.Properties.User)
		}
		if err := f.Publish(t.Context(), "raw", []byte("raw")); err != nil {
			t.Fatal(err)
		}
		if p := main.published("raw")[0]; p.QoS != 1 || p.Properties.ContentType != "" || string(p.Payload) != "raw" {
			t.Errorf("sent %s", p)
		}
	})
}

func TestPublishErrorsTellWhatBecameOfTheMessage(t *testing.T) {
	soon := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.Background(), 3*time.Second)
	}
	for _, qos := range []settle.QoS{1, 2} {
		t.Run(fmt.Sprintf("qos %d", qos), func(t *testing.T) {
			in(t, func(t *testing.T) {
				f := prepare(t, nil, settle.Handle("a", newCalls().ack))
				f.refuseDials(errors.New("down"))
				if err := f.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := soon()
				defer cancel()
				if err := f.Publish(ctx, "t", nil, qos); !errors.Is(err, settle.ErrNotConnected) || errors.Is(err, settle.ErrUnconfirmed) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("without a connection: %v", err)
				}
				f.refuseDials(nil)
				main := f.main(false)

				main.set(func(h *hooks) { h.publish = func(*packets.Publish) (byte, bool) { return 0x87, true } })
				var refused *settle.ServerError
				if err := f.Publish(t.Context(), "t", nil, qos); !errors.As(err, &refused) || refused.Code != 0x87 || refused.Topic != "t" || errors.Is(err, settle.ErrUnconfirmed) {
					t.Errorf("refused: %v", err)
				}
				main.set(func(h *hooks) { h.publish = func(*packets.Publish) (byte, bool) { return 0x10, true } })
				if err := f.Publish(t.Context(), "t", nil, qos); err != nil {
					t.Errorf("no subscribers: %v", err)
				}
				main.set(func(h *hooks) { h.publish = func(*packets.Publish) (byte, bool) { return 0, false } })
				ctx, cancel = soon()
				defer cancel()
				if err := f.Publish(ctx, "t", nil, qos); !errors.Is(err, settle.ErrUnconfirmed) || errors.Is(err, settle.ErrNotConnected) {
					t.Errorf("no answer: %v", err)
				}
				// The session is lost with the answer.
				result := publishing(context.Background(), f, "t", nil, qos)
				main.cut()
				main = f.main(false)
				if err := <-result; !errors.Is(err, settle.ErrUnconfirmed) {
					t.Errorf("the session was lost: %v", err)
				}

				var encode *settle.EncodeError
				for name, err := range map[string]error{
					"no encoding": f.Publish(t.Context(), "t", make(chan int), qos),
					"wildcard":    f.Publish(t.Context(), "t/#", nil, qos),
					"our header":  f.Publish(t.Context(), "t", nil, settle.Header("settle-attempt", "1")),
					"encoding":    f.Publish(t.Context(), "t", 1, settle.Encoding("application/x-none")),
					"QoS 3":       f.Publish(t.Context(), "t", nil, settle.QoS(3)),
				} {
					if !errors.As(err, &encode) {
						t.Errorf("%s: %v", name, err)
					}
				}
				if n := len(main.published("t")); n != 0 {
					t.Errorf("%d were sent", n)
				}
			})
		})
	}
}

func TestAPublishIsCarriedOverACut(t *testing.T) {
	in(t, func(t *testing.T) {
		f, main := up(t, nil, settle.Handle("a", newCalls().ack))
		main.set(func(h *hooks) { h.publish = func(*packets.Publish) (byte, bool) { return 0, false } })
		result := publishing(context.Background(), f, "t", []byte("x"))
		main.cut()
		main = f.main(true)
		if err := <-result; err != nil {
			t.Error(err)
		}
		if got := main.published("t"); len(got) != 1 || !got[0].Duplicate || string(got[0].Payload) != "x" {
			t.Errorf("sent again %v", got)
		}
	})
}

func TestPublishAfterStop(t *testing.T) {
	in(t, func(t *testing.T) {
		f, _ := up(t, nil, settle.Handle("a", newCalls().ack))
		if err := f.stop(); err != nil {
			t.Fatal(err)
		}
		if err := f.Publish(context.Background(), "t", nil); !errors.Is(err, settle.ErrNotConnected) {
			t.Errorf("Publish returned %v", err)
		}
	})
}

func TestReply(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		_, main := up(t, nil, settle.Handle("ask", func(ctx context.Context, r report) settle.Outcome {
			err := settle.Reply(ctx, report{Meter: r.Meter, KWh: 7}, settle.CorrelationData([]byte("forged")))
			c.note(fmt.Sprint(errors.Is(err, settle.ErrNoResponseTopic), " ", err == nil))
			return settle.OrRetry(err)
		}, settle.Backoff(settle.Constant(time.Hour))))
		p := publish("ask", 1, 1, `{"meter":"1"}`)
		p.Properties.ResponseTopic, p.Properties.CorrelationData = "answers/1", []byte("corr")
		main.send(p)
		main.expect(`PUBLISH answers/1 q1 {"meter":"1","kwh":7}`, "PUBACK 1")
		if got := main.published("answers/1")[0]; string(got.Properties.CorrelationData) != "corr" {
			t.Errorf("correlation data %q", got.Properties.CorrelationData)
		}
		main.send(publish("ask", 1, 2, `{}`))
		c.expect(t, "false true", "true false")
	})
}

func TestPublishOutsideADelivery(t *testing.T) {
	if err := settle.Publish(t.Context(), "t", nil); !errors.Is(err, settle.ErrNotConnected) {
		t.Errorf("Publish returned %v", err)
	}
	if err := settle.Reply(t.Context(), nil); !errors.Is(err, settle.ErrNoResponseTopic) {
		t.Errorf("Reply returned %v", err)
	}
}

// MQTT forbids wildcards in a response topic [MQTT-3.3.2-14]; Mosquitto passes them on. The message is handled, and a reply refused.
func TestReplyToWildcards(t *testing.T) {
	in(t, func(t *testing.T) {
		result := make(chan error, 1)
		_, main := up(t, nil, settle.Handle("ask", func(ctx context.Context, _ []byte) settle.Outcome {
			result <- settle.Reply(ctx, nil)
			return settle.Ack()
		}))
		p := publish("ask", 1, 1, "x")
		p.Properties.ResponseTopic = "answers/#"
		main.send(p)
		var encode *settle.EncodeError
		if err := <-result; !errors.As(err, &encode) {
			t.Errorf("Reply returned %v", err)
		}
		main.expect("PUBACK 1")
	})
}

func TestPublishFromABatchAndFromMiddleware(t *testing.T) {
	in(t, func(t *testing.T) {
		_, main := up(t, texts(nil), settle.HandleBatch("a", func(ctx context.Context, all []text) settle.Outcomes {
			for _, s := range all {
				if err := settle.Publish(ctx, "out", s); err != nil {
					return settle.Every(settle.Retry(err))
				}
			}
			return settle.Every(settle.Ack())
		}, settle.BatchSize(3), settle.With(func(next settle.Next) settle.Next {
			return func(ctx context.Context) settle.Outcomes {
				if err := settle.Publish(ctx, "audit", text("batch"), settle.AtMostOnce); err != nil {
					return settle.Every(settle.Retry(err))
				}
				return next(ctx)
			}
		})))
		main.send(numbered("a", 1, 1, 3)...)
		main.expect("PUBLISH audit q0 batch", "PUBLISH out q1 1", "PUBLISH out q1 2", "PUBLISH out q1 3", "PUBACK 1", "PUBACK 2", "PUBACK 3")
	})
}

// A stray publishes within its context, which has ended: it is told that nothing was sent, or perhaps.
func TestAPublishEndsWithItsHandlersContext(t *testing.T) {
	in(t, func(t *testing.T) {
		result := make(chan error, 1)
		_, main := up(t, nil, settle.Handle("a", func(ctx context.Context, _ []byte) settle.Outcome {
			result <- settle.Publish(ctx, "out", nil)
			return settle.Ack()
		}, settle.Timeout(time.Second)))
		main.set(func(h *hooks) { h.publish = func(*packets.Publish) (byte, bool) { return 0, false } })
		main.send(publish("a", 1, 1, "x"))
		if err := <-result; !errors.Is(err, settle.ErrUnconfirmed) || !errors.Is(err, settle.ErrHandlerTimeout) {
			t.Errorf("Publish returned %v", err)
		}
	})
}
