package conformance

import "github.com/eclipse/paho.golang/packets"

var windowChecks = []check{
	{"3.3.4", "TheServerKeepsToTheClientsReceiveMaximum", func(p *probe) {
		c := p.connect("c", receiveMaximum(3))
		c.subscribe(1, p.topic("a"))
		p.publish(p.topic("a"), 1, numbered(1, 8)...)
		first := c.expectAll(1, false, numbered(1, 3)...)
		c.silent()
		c.puback(first[0])
		c.expect("m4", 1, false)
		c.silent()
		c.puback(first[1:]...)
		c.expectAll(1, false, "m5", "m6")
		c.silent()
	}},
	{"4.6", "AnAcknowledgementOutOfOrderDoesNotOverrunTheWindow", func(p *probe) { // it is forbidden, so it may be the end, too
		c := p.connect("c", receiveMaximum(3))
		c.subscribe(1, p.topic("a"))
		p.publish(p.topic("a"), 1, numbered(1, 8)...)
		first := c.expectAll(1, false, numbered(1, 3)...)
		c.puback(first[2])
		c.send(&packets.Disconnect{Properties: &packets.Properties{}})
		if more := payloadsOf(c.end()); len(more) > 1 {
			p.failf("one PUBACK out of order was answered by %v", more)
		}
	}},
	{"3.3.4", "AtQoS2ASlotIsFreeAtPUBCOMP", func(p *probe) {
		c := p.connect("c", receiveMaximum(1))
		c.subscribe(2, p.topic("a"))
		p.publish(p.topic("a"), 2, "m1", "m2")
		m := c.expect("m1", 2, false)
		c.silent()
		c.pubrec(m)
		c.expectPubrel(m.PacketID)
		c.silent()
		c.pubcomp(m)
		c.expect("m2", 2, false)
	}},
	{"3.3.4", "AFullWindowDoesNotHoldBackQoS0", func(p *probe) {
		c := p.connect("c", receiveMaximum(1))
		c.subscribe(1, p.topic("a"))
		p.publish(p.topic("a"), 1, "m1", "m2")
		p.publish(p.topic("a"), 0, "q0")
		c.expect("m1", 1, false)
		c.expect("q0", 0, false)
		c.silent()
	}},
	{"4.9", "TheWindowHoldsOnAResumedSession", func(p *probe) {
		c := p.connect("c", lasting, receiveMaximum(5))
		c.subscribe(1, p.topic("a"))
		p.publish(p.topic("a"), 1, numbered(1, 9)...)
		c.expectAll(1, false, numbered(1, 5)...)
		c.cut()
		c = p.connect("c", lasting, receiveMaximum(5))
		again := c.expectAll(1, true, numbered(1, 5)...)
		c.silent()
		c.puback(again[:2]...)
		c.expectAll(1, false, "m6", "m7")
		c.silent()
	}},
	{"4.9", "ASmallerWindowHoldsOnAResumedSession", func(p *probe) {
		c := p.connect("c", lasting, receiveMaximum(5))
		c.subscribe(1, p.topic("a"))
		p.publish(p.topic("a"), 1, numbered(1, 6)...)
		c.expectAll(1, false, numbered(1, 5)...)
		c.cut()
		c = p.connect("c", lasting, receiveMaximum(2))
		again := c.expectAll(1, true, "m1", "m2")
		c.silent()
		c.puback(again...)
		again = c.expectAll(1, true, "m3", "m4")
		c.puback(again...)
		again = c.expectAll(1, true, "m5")
		c.puback(append(again, c.expect("m6", 1, false))...)
		c.silent()
	}},
	{"3.3.4", "TheServersReceiveMaximumIsEnforced", func(p *probe) {
		c := p.connect("c")
		most := c.ack.Properties.ReceiveMaximum
		if most == nil || *most > 1000 {
			p.doesNotApply("the server's Receive Maximum is too large to be tried")
		}
		p.connect("s").subscribe(1, p.topic("a"))
		for id := range *most {
			m := message(p.topic("a"), 2, "")
			m.PacketID = id + 1
			c.send(m)
			c.nextPubrec(id + 1)
		}
		c.silent()
		m := message(p.topic("a"), 2, "")
		m.PacketID = *most + 1
		c.send(m)
		c.expectRefusal(0x93)
	}},
	{"4.9", "PUBCOMPFreesTheServersReceiveMaximum", func(p *probe) {
		c := p.connect("c")
		s := p.connect("s")
		s.subscribe(0, p.topic("a"))
		for range 50 {
			c.publish(message(p.topic("a"), 2, "m"))
			c.publish(message(p.topic("a"), 1, "m"))
		}
		for range 100 {
			s.expect("m", 0, false)
		}
		s.silent()
	}},
	{"3.3.4", "QoS0IsNotCountedAgainstTheServersReceiveMaximum", func(p *probe) {
		c := p.connect("c")
		s := p.connect("s")
		s.subscribe(0, p.topic("a"))
		for range 50 {
			c.send(message(p.topic("a"), 0, "m"))
		}
		for range 50 {
			s.expect("m", 0, false)
		}
	}},
	{"2.2.1", "IdentifiersAreNotReusedWhileUnacknowledged", identifiersAreNotReused},
}

// More messages than there are identifiers pass while two are not acknowledged.
func identifiersAreNotReused(p *probe) {
	const count = 66_000
	c := p.connect("c", receiveMaximum(1000))
	c.subscribe(2, p.topic("a"))
	p.publish(p.topic("a"), 2, "released", "held") // at QoS 2, since PUBACKs have to be in order
	one, two := c.expect("released", 2, false), c.expect("held", 2, false)
	if one.PacketID == two.PacketID {
		p.failf("two messages have the identifier %d at once", one.PacketID)
	}
	c.pubrec(one)
	c.expectPubrel(one.PacketID) // the identifier is in use until PUBCOMP

	from := p.publisher()
	window := 20
	if most := from.ack.Properties.ReceiveMaximum; most != nil {
		window = min(window, int(*most))
	}
	for sent := 0; sent < count; sent += window {
		var batch []encoder
		for range window {
			if from.lastID++; from.lastID == 0 {
				from.lastID = 1
			}
			m := message(p.topic("a"), 1, "m")
			m.PacketID = from.lastID
			batch = append(batch, m)
		}
		from.send(batch...)
		var acks []encoder
		for range window {
			got := c.expect("m", 1, false)
			if got.PacketID == 0 || got.PacketID == one.PacketID || got.PacketID == two.PacketID {
				p.failf("identifier %d is used again after %d messages", got.PacketID, sent)
			}
			acks = append(acks, &packets.Puback{PacketID: got.PacketID, Properties: &packets.Properties{}})
		}
		c.send(acks...)
		for range window {
			next[*packets.Puback](from)
		}
	}
}
