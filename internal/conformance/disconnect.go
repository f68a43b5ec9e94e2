package conformance

import (
	"fmt"
	"slices"

	"github.com/eclipse/paho.golang/packets"
)

var disconnectChecks = []check{
	{"3.14.4", "TheServerClosesAfterDISCONNECT", func(p *probe) {
		c := p.connect("c")
		c.send(&packets.Disconnect{Properties: &packets.Properties{}})
		for _, got := range c.end() {
			p.failf("after DISCONNECT came %v", got)
		}
	}},
	{"3.14.4", "WhatIsPublishedBeforeDISCONNECTCounts", func(p *probe) {
		s := p.connect("s")
		s.subscribe(2, p.topic("a"))
		c := p.connect("c")
		one, two := message(p.topic("a"), 1, "q1"), message(p.topic("a"), 2, "q2")
		one.PacketID, two.PacketID = 1, 2
		c.send(message(p.topic("a"), 0, "q0"), one, two, &packets.Pubrel{PacketID: 2, Properties: &packets.Properties{}}, &packets.Disconnect{Properties: &packets.Properties{}})
		c.closeWrite()
		c.end()
		s.expect("q0", 0, false)
		s.expect("q1", 1, false)
		s.expect("q2", 2, false)
		s.silent()
	}},
	{"4.13", "EverythingBeforeDISCONNECTCountsWhileMessagesArrive", halfClose},
}

// halfClose stops as Settle does: the last acknowledgements and DISCONNECT in one write, then the write side closed, while the server goes
// on sending; then everything is read until the server has closed.
func halfClose(p *probe) {
	mourner := p.mourner()
	c := p.connect("c", lasting, p.will(0))
	c.subscribe(1, p.topic("a"))
	p.publish(p.topic("a"), 1, numbered(1, 100)...)
	all := c.expectAll(1, false, numbered(1, 100)...)

	const more = 200
	from := p.publisher()
	stream := make(chan struct{})
	go func() { // its answers are read below
		defer close(stream)
		for i := range more {
			m := message(p.topic("a"), 0, fmt.Sprint("s", i))
			from.send(m)
		}
	}()
	last := make([]encoder, 0, len(all)+1)
	for _, m := range all {
		last = append(last, &packets.Puback{PacketID: m.PacketID, Properties: &packets.Properties{}})
	}
	c.send(append(last, &packets.Disconnect{Properties: &packets.Properties{}})...)
	c.closeWrite()
	c.end()
	<-stream
	from.silent()
	mourner.silent()

	c = p.connect("c", lasting)
	c.wantPresent(true)
	for _, payload := range payloadsOf(c.rest()) {
		if slices.Contains(numbered(1, 100), payload) {
			p.failf("%q was acknowledged before DISCONNECT and has come again", payload)
		}
	}
}
