package conformance

import (
	"bytes"
	"slices"

	"github.com/eclipse/paho.golang/packets"
)

var subscribeChecks = []check{
	{"3.9.3", "SUBACKHasACodeForEachFilter", func(p *probe) {
		c := p.connect("c")
		c.subscribeWith(0,
			packets.SubOptions{Topic: p.topic("a"), QoS: 2}, packets.SubOptions{Topic: p.topic("b")}, packets.SubOptions{Topic: p.topic("c"), QoS: 1})
	}},
	{"3.8.4", "ASecondSubscriptionToAFilterReplacesTheFirst", func(p *probe) {
		c := p.connect("c")
		c.subscribeWith(1, packets.SubOptions{Topic: p.topic("a"), QoS: 2})
		c.subscribeWith(2, packets.SubOptions{Topic: p.topic("a"), QoS: 1})
		p.publish(p.topic("a"), 2, "m")
		m, raw := c.nextRaw()
		if got := subscriptionIDs(raw); m.QoS != 1 || !slices.Equal(got, []int{2}) {
			p.failf("QoS %d with identifiers %v, want 1 with [2]", m.QoS, got)
		}
		c.silent()
	}},
	{"3.8.4", "ASubscriptionIsReplacedOnAResumedSession", func(p *probe) {
		c := p.connect("c", lasting)
		c.subscribeWith(1, packets.SubOptions{Topic: p.topic("a"), QoS: 1})
		c.disconnect()
		c = p.connect("c", lasting)
		c.subscribeWith(2, packets.SubOptions{Topic: p.topic("a"), QoS: 1})
		p.publish(p.topic("a"), 1, "m")
		if _, raw := c.nextRaw(); !slices.Equal(subscriptionIDs(raw), []int{2}) {
			p.failf("identifiers %v, want [2]", subscriptionIDs(raw))
		}
		c.silent()
	}},
	{"3.3.2.3.8", "ASubscriptionIdentifierComesWithItsMessages", func(p *probe) {
		c := p.connect("c", lasting)
		c.subscribeWith(268_435_455, packets.SubOptions{Topic: p.topic("a/+"), QoS: 1})
		c.subscribe(1, p.topic("b"))
		p.publish(p.topic("a/x"), 1, "m")
		p.publish(p.topic("b"), 1, "m")
		if _, raw := c.nextRaw(); !slices.Equal(subscriptionIDs(raw), []int{268_435_455}) {
			p.failf("identifiers %v, want [268435455]", subscriptionIDs(raw))
		}
		if _, raw := c.nextRaw(); len(subscriptionIDs(raw)) > 0 {
			p.failf("identifiers %v of a subscription without", subscriptionIDs(raw))
		}
		c.cut()
		c = p.connect("c", lasting)
		if _, raw := c.nextRaw(); !slices.Equal(subscriptionIDs(raw), []int{268_435_455}) {
			p.failf("identifiers %v on redelivery", subscriptionIDs(raw))
		}
	}},
	{"3.3.4", "OverlappingFiltersShowEachIdentifierOnce", func(p *probe) { // in one PUBLISH or in one each
		c := p.connect("c")
		for i, f := range []string{"a/#", "a/+", "+/b", "a/b"} {
			c.subscribeWith(i+1, packets.SubOptions{Topic: p.topic(f), QoS: 1})
		}
		c.subscribeWith(9, packets.SubOptions{Topic: p.topic("c"), QoS: 1})
		p.publish(p.topic("a/b"), 1, "m")
		wantIdentifiers(c, 1, 2, 3, 4)
	}},
	{"3.3.4", "AnIdentifierOfSeveralFiltersIsNotLost", func(p *probe) {
		c := p.connect("c")
		c.subscribeWith(5, packets.SubOptions{Topic: p.topic("a/#"), QoS: 1}, packets.SubOptions{Topic: p.topic("a/+"), QoS: 1})
		p.publish(p.topic("a/b"), 1, "m")
		got := identifiers(c)
		if slices.Sort(got); !slices.Equal(slices.Compact(got), []int{5}) {
			p.failf("identifiers %v, want 5", got)
		}
	}},
	{"3.3.4", "OverlappingFiltersHaveTheHighestQoS", func(p *probe) {
		c := p.connect("c")
		c.subscribeWith(1, packets.SubOptions{Topic: p.topic("a/#")})
		c.subscribeWith(2, packets.SubOptions{Topic: p.topic("a/+"), QoS: 2})
		c.subscribeWith(3, packets.SubOptions{Topic: p.topic("a/b"), QoS: 1})
		p.publish(p.topic("a/b"), 2, "m")
		c.p.arrive()
		highest, seen := byte(0), 0
		for _, got := range c.rest() {
			if m, ok := got.Content.(*packets.Publish); ok {
				highest, seen = max(highest, m.QoS), seen+1
			}
		}
		if seen == 0 || highest != 2 {
			p.failf("%d PUBLISHes, at QoS %d at the most, want 2", seen, highest)
		}
	}},
	{"3.8.3.1", "NoLocalKeepsOnesOwnMessagesAway", func(p *probe) {
		c := p.connect("c", lasting)
		c.subscribeWith(0, packets.SubOptions{Topic: p.topic("a"), QoS: 1, NoLocal: true})
		c.publish(message(p.topic("a"), 1, "own"))
		p.publish(p.topic("a"), 1, "other")
		c.puback(c.expect("other", 1, false))
		c.silent()
		c.disconnect()
		c = p.connect("c", lasting) // it is the client that is meant, not the connection
		c.publish(message(p.topic("a"), 1, "own"))
		c.silent()
	}},
	{"3.8.3.1", "WithoutNoLocalOnesOwnMessagesCome", func(p *probe) {
		c := p.connect("c")
		c.subscribe(1, p.topic("a"))
		c.publish(message(p.topic("a"), 1, "own"))
		c.expect("own", 1, false)
	}},
	{"3.8.3.1", "NoLocalOfOneFilterDoesNotBindAnother", func(p *probe) {
		c := p.connect("c")
		c.subscribeWith(1, packets.SubOptions{Topic: p.topic("a/#"), QoS: 1, NoLocal: true})
		c.subscribeWith(2, packets.SubOptions{Topic: p.topic("a/+"), QoS: 1})
		c.publish(message(p.topic("a/b"), 1, "own"))
		wantIdentifiers(c, 2)
	}},
	{"3.8.3.1", "NoLocalOnASharedSubscriptionIsAProtocolError", func(p *probe) {
		c := p.connect("c")
		c.send(c.subscription(0, packets.SubOptions{Topic: "$share/g/" + p.topic("a"), NoLocal: true}))
		c.expectRefusal(0x82)
	}},
	{"3.10.4", "UNSUBSCRIBEEndsASubscription", func(p *probe) {
		c := p.connect("c", lasting)
		c.subscribe(1, p.topic("a"), p.topic("b"))
		if codes := c.unsubscribe(p.topic("a")); codes[0] != 0 {
			p.failf("UNSUBACK 0x%02X, want 0x00", codes[0])
		}
		p.publish(p.topic("a"), 1, "m1")
		p.publish(p.topic("b"), 1, "m2")
		c.puback(c.expect("m2", 1, false))
		c.silent()
		c.disconnect()
		p.publish(p.topic("a"), 1, "m3")
		c = p.connect("c", lasting)
		c.silent()
	}},
	{"3.11.3", "UNSUBACKSays0x11WhereThereWasNoSubscription", func(p *probe) {
		c := p.connect("c")
		c.subscribe(1, p.topic("a"))
		if codes := c.unsubscribe(p.topic("a"), p.topic("b")); !bytes.Equal(codes, []byte{0, 0x11}) {
			p.failf("UNSUBACK % X, want 00 11", codes)
		}
	}},
	{"3.10.4", "UNSUBSCRIBELeavesWhatWasSent", func(p *probe) {
		c := p.connect("c", lasting)
		c.subscribe(2, p.topic("a"))
		p.publish(p.topic("a"), 1, "m1")
		p.publish(p.topic("a"), 2, "m2")
		c.expect("m1", 1, false)
		c.expect("m2", 2, false)
		c.unsubscribe(p.topic("a"))
		c.cut()
		c = p.connect("c", lasting)
		c.complete(c.expect("m1", 1, true), c.expect("m2", 2, true))
		c.silent()
	}},
}

// identifiers are the Subscription Identifiers of all PUBLISHes that come.
func identifiers(c *peer) []int {
	var got []int
	for _, one := range c.rest() {
		if one.Type == packets.PUBLISH {
			got = append(got, subscriptionIDs(one.raw)...)
		}
	}
	return got
}

// wantIdentifiers wants PUBLISHes with these identifiers, each once.
func wantIdentifiers(c *peer, want ...int) {
	got := identifiers(c)
	if slices.Sort(got); !slices.Equal(got, want) {
		c.p.failf("identifiers %v, want %v", got, want)
	}
}
