package broker

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"
)

// on returns an interceptor that gives a verdict on packets of one type in one direction.
func on(d Direction, packet byte, v Verdict) Interceptor {
	return func(_ string, direction Direction, p Packet) Verdict {
		if direction == d && p.Type == packet {
			return v
		}
		return Verdict{}
	}
}

func TestRefuse(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		s := subscribed(t, b, "s", "a")
		c, _ := connectAs(t, b, "c")
		b.SetInterceptor(on(FromClient, PUBLISH, Verdict{Refuse: 0x87}))
		c.send(pub("a", 1, 1, ""), pub("a", 2, 2, ""), pub("a", 0, 0, ""), pub("a", 2, 2, ""))
		c.expectAnswer(PUBACK, 1, 0x87)
		c.expectAnswer(PUBREC, 2, 0x87)
		c.expectAnswer(PUBREC, 2, 0x87) // over, so that the identifier is free again
		s.silent()
		b.SetInterceptor(on(FromClient, SUBSCRIBE, Verdict{Refuse: 0x87}))
		if codes := c.subscribe(packets.SubOptions{Topic: "x"}, packets.SubOptions{Topic: "y"}); !slices.Equal(codes, []byte{0x87, 0x87}) {
			t.Errorf("%x", codes)
		}
		b.SetInterceptor(on(FromClient, SUBSCRIBE, Verdict{Grant: ptr[byte](0)}))
		if codes := c.subscribe(packets.SubOptions{Topic: "x", QoS: 2}); !slices.Equal(codes, []byte{0}) {
			t.Errorf("%x", codes)
		}
		b.SetInterceptor(on(FromClient, UNSUBSCRIBE, Verdict{Refuse: 0x87}))
		c.send(&packets.Unsubscribe{PacketID: 3, Topics: []string{"x"}, Properties: &packets.Properties{}})
		if ack := expect[*packets.Unsuback](c); !slices.Equal(ack.Reasons, []byte{0x87}) {
			t.Errorf("%x", ack.Reasons)
		}
		b.SetInterceptor(on(FromClient, PINGREQ, Verdict{Refuse: 0x83}))
		c.send(&packets.Pingreq{})
		c.expectDisconnect(0x83)
		b.SetInterceptor(on(FromClient, CONNECT, Verdict{Refuse: 0x88}))
		c = dial(t, b)
		c.send(connecting("c"))
		if ack := expect[*packets.Connack](c); ack.ReasonCode != 0x88 {
			t.Errorf("0x%02X", ack.ReasonCode)
		}
		c.expectEnd()
	})
}

func TestWithholdAndLate(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		c, _ := connectAs(t, b, "c")
		b.SetInterceptor(on(ToClient, PUBACK, Verdict{Drop: true}))
		c.send(pub("a", 1, 1, ""))
		c.silent()
		b.SetInterceptor(on(ToClient, PUBACK, Verdict{Late: 11 * time.Second}))
		begin := time.Now()
		c.send(pub("a", 1, 2, ""), &packets.Pingreq{})
		expect[*packets.Pingresp](c) // passes it
		c.expectAnswer(PUBACK, 2, codeNoSubscribers)
		if got := time.Since(begin); got != 11*time.Second {
			t.Error(got)
		}
		b.SetInterceptor(on(ToClient, PUBACK, Verdict{Hold: time.Second}))
		c.send(pub("a", 1, 3, ""), &packets.Pingreq{})
		c.expectAnswer(PUBACK, 3, codeNoSubscribers)
		expect[*packets.Pingresp](c)
		if got := time.Since(begin); got != 12*time.Second {
			t.Error(got)
		}
		b.SetInterceptor(on(FromClient, PINGREQ, Verdict{Hold: time.Second}))
		c.send(&packets.Pingreq{})
		expect[*packets.Pingresp](c)
		if got := time.Since(begin); got != 13*time.Second {
			t.Error(got)
		}
	})
}

// The slot of a PUBLISH whose PUBACK was withheld is not free again.
func TestWithheldAcknowledgementsKeepTheirSlots(t *testing.T) {
	bubble(t, Options{ReceiveMaximum: 2}, func(t *testing.T, b *Broker) {
		c, _ := connectAs(t, b, "c")
		b.SetInterceptor(on(ToClient, PUBACK, Verdict{Drop: true}))
		c.send(pub("a", 1, 1, ""), pub("a", 1, 2, ""))
		c.silent()
		c.send(pub("a", 1, 3, ""))
		c.expectDisconnect(codeReceiveMaximum)
	})
}

func TestHalfOpen(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		c, _ := connectAs(t, b, "c", func(p *packets.Connect) { p.KeepAlive = 10 })
		b.SetInterceptor(func(string, Direction, Packet) Verdict { return Verdict{Drop: true} })
		for range 10 {
			c.send(&packets.Pingreq{})
			pass(2 * time.Second)
		}
		c.expectEnd() // the server has noticed by its own clock; its DISCONNECT was lost too
	})
}

func TestReplaceSendCut(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		s := subscribed(t, b, "s", "b")
		c, _ := connectAs(t, b, "c")
		b.SetInterceptor(on(FromClient, PUBLISH, Verdict{Replace: encoded(pub("b", 0, 0, "other")), Send: encoded(pub("sent", 0, 0, "")), Cut: true}))
		c.send(pub("a", 0, 0, "x"))
		s.expectPublish("other", 0, false)
		if p := expect[*packets.Publish](c); p.Topic != "sent" {
			t.Errorf("%+v", p)
		}
		c.expectEnd()
		b.SetInterceptor(on(ToClient, PUBLISH, Verdict{Replace: encoded(pub("b", 0, 0, "replaced")), Send: encoded(&packets.Disconnect{ReasonCode: 0x98}), Cut: true}))
		publishAs(t, b, "b", 0, 1, 1)
		s.expectPublish("replaced", 0, false)
		s.expectDisconnect(0x98)
		b.SetInterceptor(nil)
		c, _ = connectAs(t, b, "c")
		if !b.Send("c", encoded(&packets.Pingresp{})) || b.Send("nobody", nil) {
			t.Error("Send says otherwise")
		}
		expect[*packets.Pingresp](c)
		if !b.Disconnect("c", 0x8B) || b.Disconnect("c", 0x8B) || b.Cut("c") {
			t.Error("Disconnect or Cut say otherwise")
		}
		c.expectDisconnect(0x8B)
	})
}

func TestHoldClock(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		alive, _ := connectAs(t, b, "alive", func(p *packets.Connect) { p.KeepAlive = 10 })
		gone, _ := connectAs(t, b, "gone", expiry(60))
		_ = gone.Close()
		synctest.Wait()
		pass(5 * time.Second)
		release := b.HoldClock()
		b.HoldClock()()
		pass(time.Hour)
		alive.silent()
		if _, ok := b.Session("gone"); !ok {
			t.Error("expired while the clock stood")
		}
		release()
		release()
		begin := time.Now()
		alive.expectDisconnect(codeKeepAliveTimeout)
		if got := time.Since(begin); got != 10*time.Second {
			t.Errorf("keep-alive over after %s more, want 10 s", got)
		}
		pass(44 * time.Second)
		if _, ok := b.Session("gone"); !ok {
			t.Error("expired early")
		}
		pass(2 * time.Second)
		if _, ok := b.Session("gone"); ok {
			t.Error("not expired")
		}
	})
}

func TestWireLog(t *testing.T) {
	bubble(t, Options{WireLog: 12}, func(t *testing.T, b *Broker) {
		c, _ := connectAs(t, b, "c", withWill("w", 5), func(p *packets.Connect) {
			p.UsernameFlag, p.Username, p.PasswordFlag, p.Password = true, "user", true, []byte("secret")
		})
		c.subscribeID(7, packets.SubOptions{Topic: "a/+", QoS: 1, NoLocal: true})
		pass(1500 * time.Millisecond)
		m := Message{Topic: "a/b", QoS: 1, Payload: []byte(strings.Repeat("x", 1000)), UserProperties: []UserProperty{{"k", "v"}}, CorrelationData: []byte{1}, Expiry: 9, HasExpiry: true}
		_, _ = b.Publish(m)
		c.puback(expect[*packets.Publish](c).PacketID)
		c.send(pub("b", 2, 3, ""))
		c.expectAnswer(PUBREC, 3, codeNoSubscribers)
		c.raw([]byte{0xF0, 0})
		c.expectDisconnect(codeBadAuthMethod)
		synctest.Wait()
		want := []string{
			`    0.000s - connection opened`,
			`    0.000s > CONNECT client-id="c" clean-start=false keep-alive=0 session-expiry=3600 will-delay=5 will="w" will-qos=0 will-retain=false user=(hidden) password=(hidden) 50B`,
			`    0.000s < CONNACK session-present=false 0x00 maximum-packet-size=16777216 10B`,
			`    0.000s > SUBSCRIBE id=60000 subscription-id=7 "a/+"(qos=1 no-local=1 as-published=0 retain-handling=0) 13B`,
			`    0.000s < SUBACK id=60000 0x01 6B`,
			`    1.500s < PUBLISH id=1 qos=1 dup=0 retain=0 topic="a/b" message-expiry=9 subscription-id=7 correlation-data=01 user="k":"v" payload="xxxxxxxxxxxxxxxxxxxxxxxx"… (1000B) 1029B`,
			`    1.500s > PUBACK id=1 0x00 6B`,
			`    1.500s > PUBLISH id=3 qos=2 dup=0 retain=0 topic="b" payload="" 8B`,
			`    1.500s < PUBREC id=3 0x10 5B`,
			`    1.500s > AUTH 0x00 2B`,
			`    1.500s - connection ended: DISCONNECT 0x8C AUTH, and no authentication was agreed on`,
			`    1.500s < DISCONNECT 0x8C (bad authentication method) reason="AUTH, and no authentication was agreed on" 48B`,
		}
		got := b.WireLog("c")
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || got[i] != want[i] {
				t.Errorf("line %d:\n%s\nwant\n%s", i, slices.Concat(got, make([]string, len(want)))[i], slices.Concat(want, make([]string, len(got)))[i])
			}
		}
		connectAs(t, b, "c") // three lines more: the oldest go
		synctest.Wait()
		if got := b.WireLog("c"); len(got) != 12 || got[0] != want[3] {
			t.Errorf("%q", got)
		}
		if b.WireLog("nobody") != nil {
			t.Error("a log of nobody")
		}
	})
}
