package field_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/testkit"
)

type report struct {
	Meter string `json:"meter"`
}

// What cannot be decoded is rejected: a dead letter with its very bytes, and the next message is handled.
func TestF1_UndecodablePayloadsAreRejectedWithTheirBytes(t *testing.T) {
	for name, bad := range map[string]struct{ payload, contentType string }{
		"half a JSON":  {"{", ""},
		"not UTF-8":    {"\x80", ""},
		"another type": {`{"meter":7}`, ""},
		"content type": {`{"meter":"1"}`, "application/x-unknown"},
	} {
		for _, batch := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, batch %t", name, batch), func(t *testing.T) {
				in(t, func(t *testing.T) {
					c := newCalls()
					route := settle.Handle("a", func(_ context.Context, r report) settle.Outcome {
						c.note(r.Meter)
						return settle.Ack()
					}, settle.DeadLetterTo("dead"))
					if batch {
						route = settle.HandleBatch("a", func(ctx context.Context, all []report) settle.Outcomes {
							for i, r := range all {
								c.note(r.Meter)
								if got := string(settle.DeliveriesFrom(ctx)[i].Payload()); got != fmt.Sprintf(`{"meter":%q}`, r.Meter) {
									t.Errorf("element %d, %v, has the delivery of %s", i, r, got)
								}
							}
							return settle.Every(settle.Ack())
						}, settle.DeadLetterTo("dead"), settle.BatchSize(3))
					}
					s := begin(t, testkit.NewBroker(t), nil, route)
					s.Publish("a", report{"before"})
					options := []settle.MessageOption{}
					if bad.contentType != "" {
						options = append(options, settle.ContentType(bad.contentType))
					}
					s.Publish("a", []byte(bad.payload), options...)
					s.Publish("a", report{"after"})
					s.quiet()
					c.expect(t, "before", "after")
					got := s.Settled("a", 3)
					if got[1].Outcome.Kind() != settle.KindReject || got[1].SentTo != "dead" || !got[1].Acknowledged || got[1].Body != nil {
						t.Error(got[1])
					}
					letter := s.Published("dead", 1)[0]
					if string(letter.Payload()) != bad.payload || letter.ContentType() != bad.contentType {
						t.Errorf("the dead letter: %q, %q", letter.Payload(), letter.ContentType())
					}
					if why := header(letter, "settle-reason"); why == "" || strings.Contains(why, bad.payload) && len(bad.payload) > 1 {
						t.Errorf("settle-reason %q", why)
					}
					s.sent("PUBACK", pubacks(1, 3)...)
					s.expect(`settle_settled_total{outcome="reject",route="a"}`, 1)
				})
			})
		}
	}
}

// An empty payload is rejected, with a reason that says so, or it is the zero value where the route allows it.
func TestF2_AnEmptyPayload(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		t.Run(fmt.Sprintf("allowed %t", allowed), func(t *testing.T) {
			in(t, func(t *testing.T) {
				c := newCalls()
				options := []settle.RouteOption{settle.DeadLetterTo("dead")}
				if allowed {
					options = append(options, settle.AllowEmpty())
				}
				s := begin(t, testkit.NewBroker(t), nil,
					settle.Handle("a", func(_ context.Context, r report) settle.Outcome {
						c.note(fmt.Sprintf("%+v", r))
						return settle.Ack()
					}, options...),
					settle.Handle("raw", c.ack))
				s.publish("a", 1, "")
				s.publish("raw", 1, "")
				s.quiet()
				got := s.Settled("a", 1)[0]
				if allowed {
					c.expectAll(t, "{Meter:}", "")
					if got.Outcome.Kind() != settle.KindAck || !got.Acknowledged {
						t.Error(got)
					}
					return
				}
				c.expect(t, "")
				if got.Outcome.Kind() != settle.KindReject || got.SentTo != "dead" || !got.Acknowledged {
					t.Error(got)
				}
				if why := header(s.Published("dead", 1)[0], "settle-reason"); !strings.Contains(why, "empty") {
					t.Errorf("settle-reason %q", why)
				}
			})
		})
	}
}

// A server discards in silence what exceeds a Maximum Packet Size that it was told. So it is told none, and what is too large is judged here: it takes
// no slot of the window, and its headers reach the dead letters.
func TestF4_OversizeIsJudgedHere(t *testing.T) {
	for _, qos := range []settle.QoS{0, 1, 2} {
		t.Run("qos "+qos.String(), func(t *testing.T) {
			in(t, func(t *testing.T) {
				const n = 5
				c := newCalls()
				var told error
				s := begin(t, testkit.NewBroker(t), func(c *settle.Config) { c.ReceiveMaximum, c.MaxPayload = 2, 1000 },
					settle.Handle("a", c.ack, settle.ExactlyOnce, settle.DeadLetterTo("dead"),
						settle.OnOversize(func(err error) settle.Outcome { told = err; return settle.Reject(err) })))
				if got := s.wire("svc", "> CONNECT")[0]; strings.Contains(got, "maximum-packet-size") {
					t.Errorf("advertised: %s", got)
				}
				for range n {
					s.Publish("a", []byte(strings.Repeat("x", 5000)), qos, settle.Header("site", "north"))
				}
				s.publish("a", qos, "small")
				s.quiet()
				c.expect(t, "small")
				var oversize *settle.OversizeError
				if !errors.As(told, &oversize) || oversize.Size != 5000 || oversize.Limit != 1000 {
					t.Errorf("the policy was told %v", told)
				}
				for _, letter := range s.Published("dead", n) {
					if len(letter.Payload()) > 0 || header(letter, "site") != "north" || !strings.Contains(header(letter, "settle-stub"), "5000 bytes") {
						t.Errorf("%+v", letter)
					}
				}
				s.expect("settle_window_unacked", 0)
			})
		})
	}
}

// User properties may be repeated, and have an order. The handler sees them so, and so does a retry.
func TestF5_RepeatedUserPropertiesKeepTheirOrder(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		s := begin(t, testkit.NewBroker(t), nil, settle.Handle("a", func(ctx context.Context, _ []byte) settle.Outcome {
			d := settle.DeliveryFrom(ctx)
			for k, v := range d.Headers() {
				c.note(k + "=" + v)
			}
			if d.Attempt() == 1 {
				return settle.Retry(errFails)
			}
			return settle.Ack()
		}, settle.RetryTo("r"), settle.Backoff(settle.Constant(time.Second))))
		s.Publish("a", nil, settle.Header("k", "2"), settle.Header("a", ""), settle.Header("k", "1"), settle.Header("k", "2"))
		s.quiet()
		once := []string{"k=2", "a=", "k=1", "k=2"}
		c.expect(t, append(once, once...)...)
		var copied []string
		for k, v := range s.Published("r", 1)[0].Headers() {
			if !strings.HasPrefix(k, "settle-") {
				copied = append(copied, k+"="+v)
			}
		}
		if !slices.Equal(copied, once) {
			t.Errorf("the copy has %q", copied)
		}
	})
}

// A topic alias that was never defined, and what else a server must not send: the connection ends with the reason, no handler runs, and
// the next connection consumes.
func TestF7_ViolationsEndTheConnectionAndNoHandlerRuns(t *testing.T) {
	one := uint16(1)
	publish := func(topic string, id uint16, alias *uint16) []byte {
		return encoded(t, &packets.Publish{Topic: topic, QoS: 1, PacketID: id, Payload: []byte("bad"), Properties: &packets.Properties{TopicAlias: alias}})
	}
	for name, test := range map[string]struct {
		bytes []byte
		code  string
	}{
		"an unknown alias":     {publish("", 1, &one), "0x94"},
		"a topic alias":        {publish("a", 1, &one), "0x94"},
		"an empty topic":       {publish("", 1, nil), "0x82"},
		"identifier 0":         {publish("a", 0, nil), "0x81"},
		"QoS 3":                {[]byte{0x36, 6, 0, 1, 'a', 0, 1, 0}, "0x81"},
		"a length of 5 bytes":  {[]byte{0x30, 0xFF, 0xFF, 0xFF, 0xFF, 0x01}, "0x81"},
		"properties cut short": {[]byte{0x32, 6, 0, 1, 'a', 0, 1, 99}, "0x81"},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				c := newCalls()
				b := testkit.NewBroker(t)
				s := begin(t, b, nil, settle.Handle("#", c.ack))
				b.Send("svc", test.bytes)
				s.Until("the app connects again", func() bool { return s.value(`settle_connections_total{result="accepted"}`) == 2 })
				if got := s.wire("svc", "> DISCONNECT"); len(got) != 1 || !strings.HasPrefix(got[0], "> DISCONNECT "+test.code) {
					t.Errorf("sent %q, want %s", got, test.code)
				}
				c.expect(t)
				s.sent("PUB")
				s.publish("a", 1, "good")
				s.quiet()
				c.expect(t, "good")
			})
		})
	}
}
