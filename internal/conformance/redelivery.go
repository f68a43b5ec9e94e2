package conformance

import (
	"slices"
	"time"

	"github.com/eclipse/paho.golang/packets"
)

var redeliveryChecks = []check{
	{"4.6", "RedeliveryIsInSendOrderWithDUPBeforeWhatIsNew", func(p *probe) {
		c := p.connect("c", lasting, receiveMaximum(5))
		c.subscribe(1, p.topic("a"))
		p.publish(p.topic("a"), 1, numbered(1, 7)...)
		first := c.expectAll(1, false, numbered(1, 5)...)
		c.cut()
		p.publish(p.topic("a"), 1, "m8")
		for range 3 { // as often as the connection is lost
			c = p.connect("c", lasting, receiveMaximum(5))
			wantSameIdentifiers(p, first, c.expectAll(1, true, numbered(1, 5)...))
			c.cut()
		}
		c = p.connect("c", lasting, receiveMaximum(5))
		c.puback(c.expectAll(1, true, numbered(1, 5)...)...)
		c.puback(c.expectAll(1, false, numbered(6, 8)...)...)
		c.silent()
	}},
	{"4.4", "WhatIsAcknowledgedIsNotRedelivered", func(p *probe) {
		c := p.connect("c", lasting)
		c.subscribe(1, p.topic("a"))
		p.publish(p.topic("a"), 1, numbered(1, 5)...)
		first := c.expectAll(1, false, numbered(1, 5)...)
		c.puback(first[0], first[1])
		c.cut()
		c = p.connect("c", lasting)
		wantSameIdentifiers(p, first[2:], c.expectAll(1, true, numbered(3, 5)...))
		c.silent()
	}},
	{"4.4", "NothingIsRepeatedOnALiveConnection", func(p *probe) {
		c := p.connect("c", lasting)
		c.subscribe(2, p.topic("a"))
		p.publish(p.topic("a"), 1, "m1")
		p.publish(p.topic("a"), 2, "m2", "m3")
		c.expect("m1", 1, false)
		m := c.expect("m2", 2, false)
		c.expect("m3", 2, false)
		c.pubrec(m)
		c.expectPubrel(m.PacketID)
		for range 4 {
			p.pass(time.Second)
			c.silent()
		}
	}},
	{"4.6", "QoS1AndQoS2AreEachRedeliveredInOrder", func(p *probe) {
		c := p.connect("c", lasting)
		c.subscribe(2, p.topic("a"))
		for i, payload := range numbered(1, 6) {
			p.publish(p.topic("a"), byte(i%2+1), payload)
		}
		for i, payload := range numbered(1, 6) {
			c.expect(payload, byte(i%2+1), false)
		}
		c.cut()
		c = p.connect("c", lasting)
		var byQoS [3][]string
		for range 6 {
			m := next[*packets.Publish](c)
			if !m.Duplicate {
				p.failf("%q has DUP 0", m.Payload)
			}
			byQoS[m.QoS] = append(byQoS[m.QoS], string(m.Payload))
		}
		if !slices.Equal(byQoS[1], []string{"m1", "m3", "m5"}) || !slices.Equal(byQoS[2], []string{"m2", "m4", "m6"}) {
			p.failf("redelivered %v at QoS 1 and %v at QoS 2", byQoS[1], byQoS[2])
		}
		c.silent()
	}},
	{"4.6", "QoS1AndQoS2AreRedeliveredInOneOrder", func(p *probe) {
		c := p.connect("c", lasting)
		c.subscribe(2, p.topic("a"))
		for i, payload := range numbered(1, 4) {
			p.publish(p.topic("a"), byte(i%2+1), payload)
		}
		for i, payload := range numbered(1, 4) {
			c.expect(payload, byte(i%2+1), false)
		}
		c.cut()
		c = p.connect("c", lasting)
		for i, payload := range numbered(1, 4) {
			c.expect(payload, byte(i%2+1), true)
		}
	}},
	{"4.4", "RedeliveryIsTheSamePacketButForDUP", func(p *probe) {
		c := p.connect("c", lasting)
		c.subscribeWith(7, packets.SubOptions{Topic: p.topic("a"), QoS: 1})
		m := message(p.topic("a"), 1, "m")
		m.Properties.ContentType = "text/plain"
		m.Properties.User = []packets.User{{Key: "k", Value: "v"}}
		p.publisher().publish(m)
		_, first := c.nextRaw()
		c.cut()
		c = p.connect("c", lasting)
		_, second := c.nextRaw()
		first[0] |= 8
		if !slices.Equal(first, second) {
			p.failf("% x was sent again as % x", first, second)
		}
	}},
	{"3.4.2.1", "ARefusingPUBACKEndsTheExchange", func(p *probe) {
		c := p.connect("c", lasting, receiveMaximum(1))
		c.subscribe(1, p.topic("a"))
		p.publish(p.topic("a"), 1, "m1", "m2")
		m := c.expect("m1", 1, false)
		c.send(&packets.Puback{PacketID: m.PacketID, ReasonCode: 0x83, Properties: &packets.Properties{}})
		c.expect("m2", 1, false)
		c.cut()
		c = p.connect("c", lasting, receiveMaximum(1))
		c.expect("m2", 1, true)
		c.silent()
	}},
	{"4.1", "ADifferentSessionBeginsWithNothing", func(p *probe) {
		c := p.connect("c", lasting)
		c.subscribe(1, p.topic("a"))
		p.publish(p.topic("a"), 1, "m1")
		c.expect("m1", 1, false)
		c.cut()
		c = p.connect("c", lasting, cleanStart)
		c.wantPresent(false)
		c.silent()
		c.subscribe(1, p.topic("a"))
		c.silent()
	}},
	{"4.6", "SubscribingAgainDoesNotDisturbARedelivery", func(p *probe) { // as Settle does on every connection
		c := p.connect("c", lasting)
		c.subscribeWith(7, packets.SubOptions{Topic: p.topic("a"), QoS: 1, RetainHandling: 1})
		p.publish(p.topic("a"), 1, numbered(1, 3)...)
		c.expectAll(1, false, numbered(1, 3)...)
		c.cut()
		p.publish(p.topic("a"), 1, "m4")
		c = p.connect("c", lasting)
		c.subscribeWith(7, packets.SubOptions{Topic: p.topic("a"), QoS: 1, RetainHandling: 1})
		p.publish(p.topic("a"), 1, "m5")
		c.expectAll(1, true, numbered(1, 3)...)
		c.expectAll(1, false, "m4", "m5")
		c.silent()
	}},
}

func wantSameIdentifiers(p *probe, first, again []*packets.Publish) {
	for i := range first {
		if first[i].PacketID != again[i].PacketID {
			p.failf("%q came with identifier %d and again with %d", first[i].Payload, first[i].PacketID, again[i].PacketID)
		}
	}
}
