package conformance

import (
	"slices"

	"github.com/eclipse/paho.golang/packets"
)

// member connects a member of the group "g".
func (p *probe) member(id string, qos byte, change ...func(*packets.Connect)) *peer {
	c := p.connect(id, change...)
	c.subscribe(qos, p.group())
	return c
}

func (p *probe) group() string { return "$share/" + p.prefix + "/" + p.topic("a") }

// wantTogether wants that messages have come to some members, each of them once.
func wantTogether(p *probe, want []string, members ...*peer) {
	var got []string
	for _, c := range members {
		got = append(got, payloadsOf(c.rest())...)
	}
	want = slices.Sorted(slices.Values(want))
	if slices.Sort(got); !slices.Equal(got, want) {
		p.failf("the members have got %v together, want %v", got, want)
	}
}

var sharedChecks = []check{
	{"4.8.2", "AMessageGoesToOneMember", func(p *probe) {
		c, d := p.member("c", 1), p.member("d", 1)
		p.publish(p.topic("a"), 1, numbered(1, 50)...)
		wantTogether(p, numbered(1, 50), c, d)
	}},
	{"4.8.2", "AMessageGoesToEveryGroupAndToEveryOtherSubscriber", func(p *probe) {
		c, d, e := p.member("c", 1), p.connect("d"), p.connect("e")
		d.subscribe(1, "$share/"+p.prefix+"-other/"+p.topic("+"))
		e.subscribe(1, p.topic("a"))
		p.publish(p.topic("a"), 1, numbered(1, 5)...)
		for _, x := range []*peer{c, d, e} {
			x.expectAll(1, false, numbered(1, 5)...)
			x.silent()
		}
	}},
	{"4.8.2", "AMemberGetsItsMessagesInOrder", func(p *probe) {
		c := p.member("c", 2)
		p.publish(p.topic("a"), 2, numbered(1, 20)...)
		c.complete(c.expectAll(2, false, numbered(1, 20)...)...)
		c.silent()
	}},
	{"4.8.2", "ASharedSubscriptionHasItsIdentifier", func(p *probe) {
		c := p.connect("c")
		c.subscribeWith(7, packets.SubOptions{Topic: p.group(), QoS: 1})
		p.publish(p.topic("a"), 1, "m")
		wantIdentifiers(c, 7)
	}},
	{"4.8.2", "ASessionKeepsItsSharedSubscription", func(p *probe) {
		c := p.member("c", 1, lasting)
		c.disconnect()
		c = p.connect("c", lasting)
		p.publish(p.topic("a"), 1, "m")
		c.expect("m", 1, false)
	}},
	{"4.8.2", "WhatComesWhileTheOnlyMemberIsAwayWaits", func(p *probe) {
		p.member("c", 1, lasting).disconnect()
		p.publish(p.topic("a"), 1, numbered(1, 5)...)
		c := p.connect("c", lasting)
		c.expectAll(1, false, numbered(1, 5)...)
		c.silent()
	}},
	{"4.8.2", "AMemberThatIsAwayIsPassedOver", func(p *probe) {
		p.member("c", 1, lasting).disconnect()
		d := p.member("d", 1)
		p.publish(p.topic("a"), 1, numbered(1, 10)...)
		wantTogether(p, numbered(1, 10), d)
	}},
	{"4.8.2", "AMemberWithAFullWindowIsPassedOver", func(p *probe) {
		c, d := p.member("c", 1, receiveMaximum(1)), p.member("d", 1)
		p.publish(p.topic("a"), 1, numbered(1, 10)...)
		wantTogether(p, numbered(1, 10), c, d)
	}},
	{"4.8.2", "WhatAMemberHadIsRedeliveredToItWhenItComesBack", func(p *probe) { // or to another, meanwhile
		c := p.member("c", 1, lasting)
		p.publish(p.topic("a"), 1, numbered(1, 4)...)
		c.expectAll(1, false, numbered(1, 4)...)
		c.cut()
		c = p.connect("c", lasting)
		c.expectAll(1, true, numbered(1, 4)...)
		c.silent()
	}},
	{"4.8.2", "WhatAMemberHadGoesToAnotherWhenItsSessionEnds", func(p *probe) {
		c := p.member("c", 1)
		p.publish(p.topic("a"), 1, numbered(1, 4)...)
		all := c.expectAll(1, false, numbered(1, 4)...)
		c.puback(all[0])
		c.silent()
		d := p.member("d", 1)
		c.cut()
		wantTogether(p, numbered(2, 4), d)
	}},
	{"4.8.2", "WhatWaitedForAMemberGoesToAnotherWhenItsSessionEnds", func(p *probe) {
		c := p.member("c", 1, receiveMaximum(1))
		p.publish(p.topic("a"), 1, numbered(1, 4)...)
		c.expect("m1", 1, false)
		d := p.member("d", 1)
		c.cut()
		wantTogether(p, numbered(1, 4), d)
	}},
	{"4.8.2", "AMessageOfQoS2ThatWasSentGoesToNoOtherMember", func(p *probe) {
		c := p.member("c", 2)
		p.publish(p.topic("a"), 2, "m1")
		c.pubrec(c.expect("m1", 2, false))
		d := p.member("d", 2)
		c.cut()
		d.silent()
	}},
	{"4.8.2", "AMemberThatUnsubscribesGetsNothingMore", func(p *probe) {
		c, d := p.member("c", 1), p.member("d", 1)
		if codes := c.unsubscribe(p.group()); codes[0] != 0 {
			p.failf("UNSUBACK 0x%02X, want 0x00", codes[0])
		}
		p.publish(p.topic("a"), 1, numbered(1, 10)...)
		wantTogether(p, numbered(1, 10), d)
		c.silent()
	}},
}
