package broker

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"
)

func TestNoMatchingSubscribers(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		if _, err := b.Subscribe("#", func(Message) {}); err != nil { // an observer is no subscriber
			t.Fatal(err)
		}
		c := subscribed(t, b, "c", "a/+")
		c.send(pub("b", 1, 1, ""), pub("b", 2, 2, ""))
		c.expectAnswer(PUBACK, 1, codeNoSubscribers)
		c.expectAnswer(PUBREC, 2, codeNoSubscribers)
		c.send(&packets.Pubrel{PacketID: 2, Properties: &packets.Properties{}})
		c.expectAnswer(PUBCOMP, 2, 0)
		c.send(&packets.Pubrel{PacketID: 2, Properties: &packets.Properties{}})
		c.expectAnswer(PUBCOMP, 2, codeIDNotFound)
	})
}

// Exactly once from the client: what it sends again on another connection is not routed again.
func TestInboundQoS2(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		s := subscribed(t, b, "s", "a")
		c, _ := connectAs(t, b, "c")
		c.send(pub("a", 2, 9, "once"))
		c.expectAnswer(PUBREC, 9, 0)
		s.expectPublish("once", 2, false)
		b.Cut("c")
		c, _ = connectAs(t, b, "c")
		again := pub("a", 2, 9, "once")
		again.Duplicate = true
		c.send(again)
		c.expectAnswer(PUBREC, 9, 0)
		s.silent()
		if info, _ := b.Session("c"); info.Inbound != 1 {
			t.Errorf("%+v", info)
		}
		c.send(&packets.Pubrel{PacketID: 9, Properties: &packets.Properties{}})
		c.expectAnswer(PUBCOMP, 9, 0)
		c.send(pub("a", 2, 9, "another"))
		c.expectAnswer(PUBREC, 9, 0)
		s.expectPublish("another", 2, false)
	})
}

func TestPropertiesPassUnchanged(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		s := subscribed(t, b, "s", "a")
		p := pub("a", 1, 1, "héllo")
		p.Properties = &packets.Properties{
			PayloadFormat: ptr[byte](1), ContentType: "text/plain", ResponseTopic: "r", CorrelationData: []byte{0, 1}, MessageExpiry: ptr[uint32](100),
			User: []packets.User{{Key: "k", Value: "1"}, {Key: "a", Value: ""}, {Key: "k", Value: "2"}},
		}
		want := p.Properties.String()
		c, _ := connectAs(t, b, "c")
		c.send(p)
		c.expectAnswer(PUBACK, 1, 0)
		if got := s.expectPublish("héllo", 1, false).Properties.String(); got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	})
	// The same when the expiry stands in the middle of the others.
	bubble(t, Options{TopicAliasMaximum: 1}, func(t *testing.T, b *Broker) {
		s := subscribed(t, b, "s", "a")
		c, _ := connectAs(t, b, "c")
		c.raw(publishBytes(0, "a", "", "\x03\x00\x01x\x02\x00\x00\x00\x05\x26\x00\x01k\x00\x01v\x23\x00\x01\x08\x00\x01r"))
		p := s.expectPublish("x", 0, false).Properties
		if p.ContentType != "x" || *p.MessageExpiry != 5 || p.ResponseTopic != "r" || len(p.User) != 1 || p.User[0].Value != "v" || p.TopicAlias != nil {
			t.Errorf("%s", p)
		}
	})
}

func TestPayloadFormat(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		c := subscribed(t, b, "c", "a")
		for qos, answer := range []byte{0, PUBACK, PUBREC} {
			p := pub("a", byte(qos), 1, "\xff")
			p.Properties.PayloadFormat = ptr[byte](1)
			c.send(p)
			if qos > 0 {
				c.expectAnswer(answer, 1, codePayloadInvalid)
			}
		}
		c.silent() // to the subscriber that it is too
	})
}

func TestTopicAlias(t *testing.T) {
	bubble(t, Options{TopicAliasMaximum: 2}, func(t *testing.T, b *Broker) {
		s := subscribed(t, b, "s", "#")
		c, _ := connectAs(t, b, "c")
		send := func(topic string, alias uint16) {
			p := pub(topic, 0, 0, "x")
			p.Properties.TopicAlias = &alias
			c.send(p)
		}
		send("a", 1)
		send("", 1)
		send("b", 2)
		send("c", 1) // set anew
		send("", 1)
		for _, want := range []string{"a", "a", "b", "c", "c"} {
			if got := s.expectPublish("x", 0, false); got.Topic != want || got.Properties.TopicAlias != nil {
				t.Fatalf("%+v, want topic %q", got, want)
			}
		}
		b.Cut("c")
		c, _ = connectAs(t, b, "c")
		send("", 1) // an alias ends with its connection
		c.expectDisconnect(codeProtocolError)
	})
}

func TestMessageExpiry(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		publish := func(payload string, seconds uint32) {
			if _, err := b.Publish(Message{Topic: "a", QoS: 1, Payload: []byte(payload), Expiry: seconds, HasExpiry: true}); err != nil {
				t.Fatal(err)
			}
		}
		s, _ := connectAs(t, b, "s", receiveMaximum(1))
		s.subscribe(packets.SubOptions{Topic: "a", QoS: 1})
		publish("sent", 5)
		publish("short", 5)
		publish("long", 100)
		p := s.expectPublish("sent", 1, false)
		if *p.Properties.MessageExpiry != 5 {
			t.Fatalf("%d", *p.Properties.MessageExpiry)
		}
		pass(10 * time.Second)
		if info, _ := b.Session("s"); info.Queued != 1 || info.Dropped != 1 {
			t.Errorf("%+v", info)
		}
		b.Cut("s")
		// What was sent is sent again even though it has expired: a Packet Identifier cannot be taken back. The rest is counted down.
		s, _ = connectAs(t, b, "s", receiveMaximum(1))
		p = s.expectPublish("sent", 1, true)
		if *p.Properties.MessageExpiry != 0 {
			t.Errorf("%d seconds left", *p.Properties.MessageExpiry)
		}
		s.puback(p.PacketID)
		if p = s.expectPublish("long", 1, false); *p.Properties.MessageExpiry != 90 {
			t.Errorf("%d seconds left", *p.Properties.MessageExpiry)
		}
	})
}

func TestMaximumPacketSizeOfTheClient(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		s, _ := connectAs(t, b, "s", receiveMaximum(1), func(p *packets.Connect) { p.Properties.MaximumPacketSize = ptr[uint32](40) })
		s.subscribe(packets.SubOptions{Topic: "a", QoS: 1})
		fits := strings.Repeat("x", 40-8) // fixed header, topic, identifier, properties
		for _, payload := range []string{fits + "y", fits, "last"} {
			if _, err := b.Publish(Message{Topic: "a", QoS: 1, Payload: []byte(payload)}); err != nil {
				t.Fatal(err)
			}
		}
		s.puback(s.expectPublish(fits, 1, false).PacketID)
		s.expectPublish("last", 1, false)
		if info, _ := b.Session("s"); info.Dropped != 1 {
			t.Errorf("%+v", info)
		}
	})
	bubble(t, Options{}, func(t *testing.T, b *Broker) { // CONNACK fits, and a longer answer does not
		s, _ := connectAs(t, b, "s", func(p *packets.Connect) { p.Properties.MaximumPacketSize = ptr[uint32](10) })
		s.send(&packets.Subscribe{PacketID: 1, Properties: &packets.Properties{}, Subscriptions: slices.Repeat([]packets.SubOptions{{Topic: "a"}}, 6)})
		s.expectDisconnect(codePacketTooLarge)
	})
	for _, maximum := range []uint32{1, 9} { // not even CONNACK fits [MQTT-3.1.2-24]
		bubble(t, Options{}, func(t *testing.T, b *Broker) {
			c := dial(t, b)
			c.send(connecting("s", func(p *packets.Connect) { p.Properties.MaximumPacketSize = &maximum }))
			c.expectEnd()
			if got := b.Sessions(); len(got) > 0 {
				t.Errorf("it has left the sessions %q", got)
			}
		})
	}
}

func TestQueuePolicies(t *testing.T) {
	for _, c := range []struct {
		policy QueuePolicy
		want   []string
		last   byte // the answer to the fourth message
	}{
		{DropNewest, []string{"m1", "m2", "m3"}, 0},
		{DropOldest, []string{"m1", "m3", "m4"}, 0},
		{RefusePublish, []string{"m1", "m2", "m3"}, codeQuotaExceeded},
	} {
		for filter, o := range map[string]Options{"a": {QueueLimit: 2}, "$share/g/a": {QueueLimit: 2}, "+": {QueueBytes: 6}, "$share/g/+": {QueueBytes: 6}} {
			o.QueuePolicy = c.policy
			bubble(t, o, func(t *testing.T, b *Broker) {
				s, _ := connectAs(t, b, "s", receiveMaximum(1))
				s.subscribe(packets.SubOptions{Topic: filter, QoS: 1})
				p, _ := connectAs(t, b, "p")
				for i := range uint16(4) {
					p.send(pub("a", 1, i+1, fmt.Sprint("m", i+1)))
					want := byte(0)
					if i == 3 {
						want = c.last
					}
					p.expectAnswer(PUBACK, i+1, want)
				}
				for _, want := range c.want {
					s.puback(s.expectPublish(want, 1, false).PacketID)
				}
				s.silent()
			})
		}
	}
}

func TestMaxInflight(t *testing.T) {
	bubble(t, Options{MaxInflight: 2}, func(t *testing.T, b *Broker) {
		s := subscribed(t, b, "s", "a")
		publishAs(t, b, "a", 1, 1, 3)
		first := s.expectPublish("m1", 1, false)
		s.expectPublish("m2", 1, false)
		publishAs(t, b, "a", 0, 4, 4)
		s.expectPublish("m4", 0, false) // QoS 0 is not held back by a full window
		s.silent()
		s.puback(first.PacketID)
		s.expectPublish("m3", 1, false)
	})
}

func TestQoS0IsNotKeptForWhoIsAway(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		s := subscribed(t, b, "s", "a")
		b.Cut("s")
		s.expectEnd()
		publishAs(t, b, "a", 0, 1, 1)
		publishAs(t, b, "a", 1, 2, 2)
		s, _ = connectAs(t, b, "s")
		s.expectPublish("m2", 1, false)
		s.silent()
	})
}

// The states of an outbound QoS 2 message, over a lost connection in each of them.
func TestOutboundQoS2(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		reconnect := func() *client {
			b.Cut("s")
			c, _ := connectAs(t, b, "s")
			return c
		}
		s := subscribed(t, b, "s", "a")
		publishAs(t, b, "a", 2, 1, 3)
		var ids []uint16
		for _, m := range []string{"m1", "m2", "m3"} {
			ids = append(ids, s.expectPublish(m, 2, false).PacketID)
		}
		pubrec := func(id uint16, code byte) {
			s.send(&packets.Pubrec{PacketID: id, ReasonCode: code, Properties: &packets.Properties{}})
		}
		pubcomp := func(id uint16) { s.send(&packets.Pubcomp{PacketID: id, Properties: &packets.Properties{}}) }
		pubrec(ids[0], 0)
		s.expectAnswer(PUBREL, ids[0], 0)
		s = reconnect()
		s.expectAnswer(PUBREL, ids[0], 0)
		s.expectPublish("m2", 2, true)
		s.expectPublish("m3", 2, true)
		pubcomp(ids[0])
		pubrec(ids[1], 0)
		s.expectAnswer(PUBREL, ids[1], 0)
		pubrec(ids[2], 0x80) // refused: over
		synctest.Wait()
		if info, _ := b.Session("s"); info.Inflight != 1 {
			t.Errorf("%+v", info)
		}
		s = reconnect()
		s.expectAnswer(PUBREL, ids[1], 0)
		pubcomp(ids[1])
		s.silent()
		pubrec(77, 0) // unknown
		s.expectAnswer(PUBREL, 77, codeIDNotFound)
		pubcomp(77)
		s.silent()
	})
}

// Acknowledgements are held to the order of their PUBLISHes, to their kind and to their connection.
func TestAcknowledgementsAreHeldToTheirTurn(t *testing.T) {
	puback := func(id uint16) out { return &packets.Puback{PacketID: id, Properties: &packets.Properties{}} }
	pubrec := func(id uint16) out { return &packets.Pubrec{PacketID: id, Properties: &packets.Properties{}} }
	pubcomp := func(id uint16) out { return &packets.Pubcomp{PacketID: id, Properties: &packets.Properties{}} }
	for _, c := range []struct {
		name string
		acks func(q1, q2 []uint16) []out
		ok   bool
	}{
		{"in order, each of its QoS", func(q1, q2 []uint16) []out {
			return []out{pubrec(q2[0]), puback(q1[0]), puback(q1[1]), pubrec(q2[1]), pubcomp(q2[1]), pubcomp(q2[0])}
		}, true},
		{"PUBACK out of order", func(q1, _ []uint16) []out { return []out{puback(q1[1])} }, false},
		{"PUBREC out of order", func(_, q2 []uint16) []out { return []out{pubrec(q2[1])} }, false},
		{"PUBACK twice", func(q1, _ []uint16) []out { return []out{puback(q1[0]), puback(q1[0])} }, false},
		{"PUBACK for QoS 2", func(_, q2 []uint16) []out { return []out{puback(q2[0])} }, false},
		{"PUBREC for QoS 1", func(q1, _ []uint16) []out { return []out{pubrec(q1[0])} }, false},
		{"PUBCOMP before PUBREC", func(_, q2 []uint16) []out { return []out{pubcomp(q2[0])} }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, b *Broker) {
				s := subscribed(t, b, "s", "a")
				var q1, q2 []uint16
				for range 2 {
					publishAs(t, b, "a", 1, 1, 1)
					q1 = append(q1, s.expectPublish("m1", 1, false).PacketID)
					publishAs(t, b, "a", 2, 1, 1)
					q2 = append(q2, s.expectPublish("m1", 2, false).PacketID)
				}
				s.send(c.acks(q1, q2)...)
				if !c.ok {
					s.expectDisconnect(codeProtocolError)
					return
				}
				for range 2 {
					expect[*packets.Pubrel](s)
				}
				s.silent()
				if info, _ := b.Session("s"); info.Inflight != 0 {
					t.Errorf("%+v", info)
				}
			})
		})
	}
	bubble(t, Options{}, func(t *testing.T, b *Broker) { // from another connection
		s, _ := connectAs(t, b, "s", receiveMaximum(2))
		s.subscribe(packets.SubOptions{Topic: "a", QoS: 1})
		publishAs(t, b, "a", 1, 1, 2)
		s.expectPublish("m1", 1, false)
		second := s.expectPublish("m2", 1, false)
		b.Cut("s")
		s, _ = connectAs(t, b, "s", receiveMaximum(1))
		s.expectPublish("m1", 1, true)
		s.puback(second.PacketID)
		s.expectDisconnect(codeProtocolError)
	})
}

// What stood in the write buffer and was never written is no second sending.
func TestNeverWrittenIsNoDuplicate(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		nc, err := b.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = nc.Close() }()
		_, _ = nc.Write(encoded(connecting("s"), &packets.Subscribe{
			PacketID: 1, Properties: &packets.Properties{}, Subscriptions: []packets.SubOptions{{Topic: "a", QoS: 1}},
		}))
		for range 2 { // CONNACK and SUBACK, so that the writer is idle
			if _, err := packets.ReadPacket(nc); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		publishAs(t, b, "a", 1, 1, 1)
		synctest.Wait() // m1 is with Write, which waits
		publishAs(t, b, "a", 1, 2, 2)
		b.Cut("s")
		s, _ := connectAs(t, b, "s")
		s.expectPublish("m1", 1, true)
		s.expectPublish("m2", 1, false)
	})
}

func TestPacketIdentifiersGoRound(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		s := subscribed(t, b, "s", "a")
		publishAs(t, b, "a", 2, 1, 1)
		if id := s.expectPublish("m1", 2, false).PacketID; id != 1 { // never answered, so that it stays in use
			t.Fatalf("identifier %d", id)
		}
		b.sessions["s"].lastID = 65_533
		for _, want := range []uint16{65_534, 65_535, 2, 3} {
			publishAs(t, b, "a", 1, 1, 1)
			if id := expect[*packets.Publish](s).PacketID; id != want {
				t.Fatalf("identifier %d, want %d", id, want)
			}
			s.puback(want)
		}
	})
}
