package conformance

import "github.com/eclipse/paho.golang/packets"

// keep has the server retain a message.
func (p *probe) keep(name, payload string) {
	m := message(p.topic(name), 1, payload)
	m.Retain = true
	p.publisher().publish(m)
	p.arrive()
}

// wantRetained wants a PUBLISH with or without RETAIN.
func (c *peer) wantRetained(payload string, retain bool) {
	if m := c.expect(payload, 1, false); m.Retain != retain {
		c.p.failf("%q has RETAIN %t, want %t", payload, m.Retain, retain)
	}
}

var retainedChecks = []check{
	{"3.3.1.3", "ANewSubscriptionGetsTheRetainedMessage", func(p *probe) {
		p.keep("a/1", "old")
		p.keep("a/1", "new")
		p.keep("a/2", "gone")
		p.keep("a/2", "")
		c := p.connect("c")
		c.subscribe(1, p.topic("a/+"))
		c.wantRetained("new", true)
		c.silent()
	}},
	{"3.3.1.3", "AMessageThatIsNotToBeRetainedLeavesTheRetainedOne", func(p *probe) {
		p.keep("a", "kept")
		p.publish(p.topic("a"), 1, "passing")
		c := p.connect("c")
		c.subscribe(1, p.topic("a"))
		c.wantRetained("kept", true)
		c.silent()
	}},
	{"3.8.3.1", "RetainHandling0SendsWithEverySubscription", func(p *probe) {
		p.keep("a", "kept")
		c := p.connect("c", lasting)
		for range 2 {
			c.subscribe(1, p.topic("a"))
			c.wantRetained("kept", true)
		}
		c.silent()
	}},
	{"3.8.3.1", "RetainHandling1SendsWithANewSubscriptionOnly", func(p *probe) {
		p.keep("a", "kept")
		c := p.connect("c", lasting)
		option := packets.SubOptions{Topic: p.topic("a"), QoS: 1, RetainHandling: 1}
		c.subscribeWith(0, option)
		c.puback(c.expect("kept", 1, false))
		c.subscribeWith(0, option)
		c.silent()
		c.cut()
		c = p.connect("c", lasting) // as Settle does on every connection
		c.subscribeWith(0, option)
		c.silent()
		c.unsubscribe(p.topic("a"))
		c.subscribeWith(0, option)
		c.wantRetained("kept", true)
	}},
	{"3.8.3.1", "RetainHandling2SendsNone", func(p *probe) {
		p.keep("a", "kept")
		c := p.connect("c")
		c.subscribeWith(0, packets.SubOptions{Topic: p.topic("a"), QoS: 1, RetainHandling: 2})
		c.silent()
	}},
	{"3.8.3.1", "WithoutRetainAsPublishedAMessageOnItsWayHasNoRETAIN", func(p *probe) {
		c := p.connect("c")
		c.subscribe(1, p.topic("a"))
		p.keep("a", "m")
		c.wantRetained("m", false)
	}},
	{"3.8.3.1", "WithRetainAsPublishedAMessageKeepsItsRETAIN", func(p *probe) {
		c := p.connect("c")
		c.subscribeWith(0, packets.SubOptions{Topic: p.topic("a"), QoS: 1, RetainAsPublished: true})
		p.keep("a", "m")
		c.wantRetained("m", true)
		p.publish(p.topic("a"), 1, "plain")
		c.wantRetained("plain", false)
	}},
	{"3.3.1.3", "AnEmptyRetainedMessageIsDeliveredToo", func(p *probe) {
		c := p.connect("c")
		c.subscribe(1, p.topic("a"))
		p.keep("a", "m")
		p.keep("a", "")
		c.expectAll(1, false, "m", "")
	}},
	{"4.8.2", "ASharedSubscriptionGetsNoRetainedMessages", func(p *probe) {
		p.keep("a", "kept")
		c := p.connect("c")
		c.subscribe(1, "$share/g/"+p.topic("a"))
		c.silent()
	}},
}
