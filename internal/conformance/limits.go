package conformance

import (
	"strings"

	"github.com/eclipse/paho.golang/packets"
)

func maximumPacketSize(n uint32) func(*packets.Connect) {
	return func(c *packets.Connect) { c.Properties.MaximumPacketSize = &n }
}

var limitChecks = []check{
	{"3.1.2.11.4", "WhatIsTooLargeForAClientIsNotSent", func(p *probe) {
		c := p.connect("c", maximumPacketSize(200))
		c.subscribe(1, p.topic("a"))
		p.publish(p.topic("a"), 1, "m1", strings.Repeat("x", 300), "m2")
		c.expectAll(1, false, "m1", "m2")
		c.silent()
	}},
	{"3.1.2.11.4", "WhatIsTooLargeForAClientTakesNoSlot", func(p *probe) {
		c := p.connect("c", maximumPacketSize(200), receiveMaximum(2))
		c.subscribe(1, p.topic("a"))
		large := strings.Repeat("x", 300)
		p.publish(p.topic("a"), 1, large, large, large, "m1", "m2")
		c.expectAll(1, false, "m1", "m2")
		c.silent()
	}},
	{"3.2.2.3.6", "TheServersMaximumPacketSizeIsEnforced", func(p *probe) {
		c := p.connect("c")
		most := c.ack.Properties.MaximumPacketSize
		if most == nil || *most > 1<<20 {
			p.doesNotApply("the server's Maximum Packet Size is too large to be tried")
		}
		c.raw(publishOfSize(p.topic("a"), int(*most)))
		c.silent()
		c.raw(publishOfSize(p.topic("a"), int(*most)+100)) // some count without the fixed header
		c.expectRefusal(0x95)
	}},
	{"3.3.2.3.4", "ATopicAliasStandsForItsTopic", func(p *probe) {
		c := p.aliasing()
		s := p.connect("s")
		s.subscribe(1, p.topic("+"))
		for _, name := range []string{"a", "", "b", ""} {
			m := message(p.topic(name), 1, "m")
			if name == "" {
				m.Topic = ""
			}
			m.Properties.TopicAlias = ptr[uint16](1)
			c.publish(m)
		}
		for _, want := range []string{"a", "a", "b", "b"} {
			if got := s.expect("m", 1, false); got.Topic != p.topic(want) || got.Properties.TopicAlias != nil {
				p.failf("topic %q, properties %v; want topic %q", got.Topic, got.Properties, p.topic(want))
			}
		}
	}},
	{"3.3.2.3.4", "TopicAlias0IsRefused", func(p *probe) {
		c := p.aliasing()
		c.raw(publishFrame(0, "a", "", "\x23\x00\x00"))
		c.expectRefusal(0x94)
	}},
	{"3.3.2.3.4", "ATopicAliasAboveTheMaximumIsRefused", func(p *probe) {
		c := p.aliasing()
		n := *c.ack.Properties.TopicAliasMaximum + 1
		c.raw(publishFrame(0, "a", "", "\x23"+string([]byte{byte(n >> 8), byte(n)})))
		c.expectRefusal(0x94)
	}},
	{"3.3.2.3.4", "ATopicAliasThatStandsForNothingIsRefused", func(p *probe) {
		c := p.aliasing()
		c.raw(publishFrame(0, "", "", "\x23\x00\x01"))
		c.expectRefusal(0x82, 0x94)
	}},
	{"3.3.2.3.4", "ATopicAliasEndsWithItsConnection", func(p *probe) {
		c := p.aliasing()
		c.raw(publishFrame(0, p.topic("a"), "", "\x23\x00\x01"))
		c.silent()
		c.disconnect()
		c = p.aliasing()
		c.raw(publishFrame(0, "", "", "\x23\x00\x01"))
		c.expectRefusal(0x82, 0x94)
	}},
}

// publishOfSize is a PUBLISH at QoS 0 of so many bytes. The size is one that takes two bytes of Remaining Length, or three.
func publishOfSize(topic string, size int) []byte {
	for payload := size; ; payload-- {
		m := message(topic, 0, strings.Repeat("x", payload))
		var b strings.Builder
		if _, err := m.WriteTo(&b); err != nil {
			panic(err) // a strings.Builder has none
		}
		if b.Len() <= size {
			return []byte(b.String())
		}
	}
}

// aliasing connects a client that may use topic aliases.
func (p *probe) aliasing() *peer {
	c := p.connect("c", lasting)
	if most := c.ack.Properties.TopicAliasMaximum; most == nil || *most == 0 || *most == 65_535 {
		p.doesNotApply("the server takes no topic aliases, or any")
	}
	return c
}
