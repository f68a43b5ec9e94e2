package conformance

import (
	"fmt"
	"slices"
	"time"

	"github.com/eclipse/paho.golang/packets"
)

var publishChecks = []check{
	{"3.4.2.1", "PUBACKSays0x10WhereNobodySubscribes", func(p *probe) {
		c := p.connect("c")
		if code := c.publish(message(p.topic("nobody"), 1, "m")); code != 0x10 {
			p.failf("PUBACK 0x%02X, want 0x10", code)
		}
		c.subscribe(1, p.topic("somebody"))
		if code := c.publish(message(p.topic("somebody"), 1, "m")); code != 0 {
			p.failf("PUBACK 0x%02X with a subscriber, want 0x00", code)
		}
	}},
	{"3.4.2.1", "ASubscriberThatIsAwayIsOne", func(p *probe) {
		c := p.connect("c", lasting)
		c.subscribe(1, p.topic("a"))
		c.disconnect()
		if code := p.publisher().publish(message(p.topic("a"), 1, "m")); code != 0 {
			p.failf("PUBACK 0x%02X, want 0x00", code)
		}
	}},
	{"3.5.2.1", "PUBRECSays0x10WhereNobodySubscribes", func(p *probe) {
		if code := p.connect("c").publish(message(p.topic("nobody"), 2, "m")); code != 0x10 {
			p.failf("PUBREC 0x%02X, want 0x10", code)
		}
	}},
	{"4.6", "PUBACKsAndPUBRECsComeInOrder", func(p *probe) {
		c := p.connect("c")
		for _, qos := range []byte{1, 2} {
			var all []encoder
			first := c.lastID + 1
			for range 5 {
				m := message(p.topic("a"), qos, "m")
				m.PacketID = c.nextID()
				all = append(all, m)
			}
			c.send(all...)
			for id := first; id <= c.lastID; id++ {
				if qos == 1 {
					c.nextPuback(id)
				} else {
					c.nextPubrec(id)
				}
			}
		}
	}},
	{"4.6", "MessagesArriveInTheOrderOfTheirPublisher", func(p *probe) {
		c := p.connect("c")
		c.subscribe(2, p.topic("#"))
		for qos := range byte(3) {
			p.publish(p.topic(fmt.Sprint(qos)), qos, numbered(1, 50)...)
			c.complete(c.expectAll(qos, false, numbered(1, 50)...)...)
		}
		c.silent()
	}},
	{"3.8.4", "AMessageIsDeliveredAtTheLowerQoS", func(p *probe) {
		c := p.connect("c")
		for granted := range byte(3) {
			c.subscribe(granted, p.topic(fmt.Sprint(granted)))
			for qos := range byte(3) {
				p.publish(p.topic(fmt.Sprint(granted)), qos, "m")
				c.complete(c.expect("m", min(granted, qos), false))
			}
		}
	}},
	{"3.3.2.3", "PropertiesPassUnchanged", func(p *probe) {
		c := p.connect("c")
		c.subscribe(1, p.topic("a"))
		m := message(p.topic("a"), 1, "héllo")
		m.Properties = &packets.Properties{
			PayloadFormat: ptr[byte](1), ContentType: "text/plain", ResponseTopic: p.topic("r"), CorrelationData: []byte{0, 1, 0xFF},
			User: []packets.User{{Key: "k", Value: "1"}, {Key: "a", Value: ""}, {Key: "k", Value: "2"}},
		}
		want := m.Properties.String()
		p.publisher().publish(m)
		if got := c.expect("héllo", 1, false).Properties; got.String() != want || !slices.Equal(got.User, m.Properties.User) {
			p.failf("properties %s\nwant %s", got, want)
		}
	}},
	{"3.3.2.3.4", "TheServerUsesNoTopicAliasUnasked", func(p *probe) {
		c := p.connect("c")
		c.subscribe(1, p.topic("a"))
		p.publish(p.topic("a"), 1, numbered(1, 5)...)
		for _, m := range c.expectAll(1, false, numbered(1, 5)...) {
			if m.Topic != p.topic("a") || m.Properties.TopicAlias != nil {
				p.failf("topic %q, properties %v", m.Topic, m.Properties)
			}
		}
	}},
	{"3.3.1.1", "DUPIsNotPassedOn", func(p *probe) {
		c := p.connect("c")
		c.subscribe(1, p.topic("a"))
		m := message(p.topic("a"), 1, "m")
		m.Duplicate = true
		p.publisher().publish(m)
		c.expect("m", 1, false)
	}},
}

// expiring is a message that is good for so many seconds.
func expiring(topic string, payload string, seconds uint32) *packets.Publish {
	m := message(topic, 1, payload)
	m.Properties.MessageExpiry = &seconds
	return m
}

var expiryChecks = []check{
	{"3.3.2.3.3", "TheExpiryIsCountedDown", func(p *probe) {
		c := p.connect("c", lasting)
		c.subscribe(1, p.topic("a"))
		c.disconnect()
		p.publisher().publish(expiring(p.topic("a"), "m", 100))
		p.pass(2500 * time.Millisecond)
		c = p.connect("c", lasting)
		got := c.expect("m", 1, false).Properties.MessageExpiry
		if got == nil || *got < 95 || *got > 98 {
			p.failf("%s seconds are left of 100 after 2.5 s", show(got))
		}
	}},
	{"3.3.2.3.3", "AMessageThatIsSentAtOnceHasAllOfItsExpiry", func(p *probe) {
		c := p.connect("c")
		c.subscribe(1, p.topic("a"))
		p.publisher().publish(expiring(p.topic("a"), "m", 100))
		if got := c.expect("m", 1, false).Properties.MessageExpiry; got == nil || *got < 99 || *got > 100 {
			p.failf("%s seconds are left of 100", show(got))
		}
	}},
	{"3.3.2.3.3", "WhatHasExpiredIsNotSent", func(p *probe) {
		c := p.connect("c", lasting)
		c.subscribe(1, p.topic("a"))
		c.disconnect()
		p.publisher().publish(expiring(p.topic("a"), "short", 1))
		p.publish(p.topic("a"), 1, "long")
		p.pass(2500 * time.Millisecond)
		c = p.connect("c", lasting)
		c.expect("long", 1, false)
		c.silent()
	}},
	{"3.3.2.3.3", "WhatHasExpiredTakesNoSlot", func(p *probe) {
		c := p.connect("c", lasting, receiveMaximum(2))
		c.subscribe(1, p.topic("a"))
		p.publish(p.topic("a"), 1, "sent")
		sent := c.expect("sent", 1, false)
		for _, payload := range numbered(1, 10) {
			p.publisher().publish(expiring(p.topic("a"), payload, 1))
		}
		p.publish(p.topic("a"), 1, "last1", "last2")
		first := c.expect("m1", 1, false)
		p.pass(2500 * time.Millisecond)
		c.puback(sent, first)
		c.puback(c.expectAll(1, false, "last1", "last2")...)
		c.silent()
	}},
	{"3.3.2.3.3", "ExpiredMessagesDoNotStallAResumedSession", func(p *probe) {
		c := p.connect("c", lasting, receiveMaximum(2))
		c.subscribe(1, p.topic("a"))
		c.disconnect()
		for _, payload := range numbered(1, 10) {
			p.publisher().publish(expiring(p.topic("a"), payload, 1))
		}
		p.publish(p.topic("a"), 1, numbered(11, 15)...)
		p.pass(2500 * time.Millisecond)
		c = p.connect("c", lasting, receiveMaximum(2))
		for _, payload := range numbered(11, 15) {
			c.puback(c.expect(payload, 1, false))
		}
		c.silent()
	}},
	{"3.3.2.3.3", "ARetainedMessageExpires", func(p *probe) {
		m := expiring(p.topic("a"), "m", 1)
		m.Retain = true
		p.publisher().publish(m)
		p.pass(2500 * time.Millisecond)
		c := p.connect("c")
		c.subscribe(1, p.topic("a"))
		c.silent()
	}},
}

func show(n *uint32) string {
	if n == nil {
		return "no"
	}
	return fmt.Sprint(*n)
}
