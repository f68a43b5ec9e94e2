package settle_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/internal/broker/brokertest"
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
								c.note(u.Meter)
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
					if len(dead) != 1 || !bytes.Equal(dead[0].Payload, p.Payload) || dead[0].Properties.ContentType != p.Properties.ContentType {
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
	alias := brokertest.Bytes(publish("", 1, 1, "x"))
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
		"an unknown alias":     {brokertest.Bytes(unknown), "DISCONNECT 0x94"},
		"a topic alias":        {brokertest.Bytes(aliased), "DISCONNECT 0x94"},
		"a wildcard":           {brokertest.Bytes(publish("a/#", 1, 1, "x")), "DISCONNECT 0x"},
		"QoS 3":                {[]byte{0x36, 6, 0, 1, 'a', 0, 1, 0}, "DISCONNECT 0x81"},
		"identifier 0":         {brokertest.Bytes(publish("a", 1, 0, "x")), "DISCONNECT 0x8"},
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
