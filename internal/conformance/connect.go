package conformance

import (
	"time"

	"github.com/eclipse/paho.golang/packets"
)

var connectChecks = []check{
	{"3.1.0", "TheFirstPacketMustBeCONNECT", func(p *probe) {
		c := p.open()
		c.raw([]byte{packets.PINGREQ << 4, 0})
		for _, got := range c.end() {
			if got.Type == packets.PINGRESP {
				p.failf("PINGRESP to who has not connected")
			}
		}
	}},
	{"3.1.0", "ASecondCONNECTIsAProtocolError", func(p *probe) {
		c := p.connect("c", cleanStart)
		c.send(p.connecting("c", cleanStart))
		c.expectRefusal(0x82)
	}},
	{"3.1.3.1", "AnEmptyClientIdentifierIsAssignedOne", func(p *probe) {
		c := p.connect("", cleanStart, func(c *packets.Connect) { c.ClientID = "" })
		if c.ack.Properties.AssignedClientID == "" {
			p.failf("CONNACK assigns no Client Identifier")
		}
		d := p.connect("", cleanStart, func(c *packets.Connect) { c.ClientID = "" })
		if d.ack.Properties.AssignedClientID == c.ack.Properties.AssignedClientID {
			p.failf("two clients were assigned the same Client Identifier")
		}
		c.silent()
	}},
	{"3.1.4", "TakeoverEndsTheOldConnection", func(p *probe) {
		old := p.connect("c", lasting)
		renewed := p.connect("c", lasting)
		old.end()
		renewed.silent()
	}},
	{"3.1.4", "TakeoverSaysSo", func(p *probe) {
		old := p.connect("c", lasting)
		p.connect("c", lasting)
		old.expectRefusal(0x8E)
	}},
	{"3.1.4", "TakeoverKeepsTheSession", func(p *probe) {
		old := p.connect("c", lasting)
		old.subscribe(1, p.topic("a"))
		p.publish(p.topic("a"), 1, "m1", "m2")
		old.puback(old.expect("m1", 1, false))
		old.expect("m2", 1, false)
		old.silent() // so that the PUBACK has been read
		renewed := p.connect("c", lasting)
		renewed.wantPresent(true)
		renewed.expect("m2", 1, true)
		renewed.silent()
	}},
	{"4.12", "AnUnknownAuthenticationMethodIsRefused", func(p *probe) {
		c := p.open()
		c.send(p.connecting("c", cleanStart, func(c *packets.Connect) { c.Properties.AuthMethod = "none-such" }))
		if ack := next[*packets.Connack](c); ack.ReasonCode != 0x8C {
			p.failf("CONNACK 0x%02X, want 0x8C", ack.ReasonCode)
		}
		c.end()
	}},
	{"3.1.2.1", "AnUnknownProtocolVersionIsRefused", func(p *probe) {
		c := p.open()
		c.send(p.connecting("c", cleanStart, func(c *packets.Connect) { c.ProtocolVersion = 9 }))
		for _, got := range c.end() {
			if ack, ok := got.Content.(*packets.Connack); ok && ack.ReasonCode == 0 {
				p.failf("accepted")
			}
		}
	}},
}

// wantPresent judges Session Present.
func (c *peer) wantPresent(want bool) {
	if c.ack.SessionPresent != want {
		c.p.failf("Session Present %t, want %t", c.ack.SessionPresent, want)
	}
}

var sessionChecks = []check{
	{"3.2.2.1.1", "SessionPresentSaysWhetherThereIsOne", func(p *probe) {
		c := p.connect("c", lasting)
		c.wantPresent(false)
		c.cut()
		c = p.connect("c", lasting)
		c.wantPresent(true)
		c.disconnect()
		p.connect("c", lasting).wantPresent(true)
	}},
	{"4.1", "ASessionKeepsItsSubscriptionsAndMessages", func(p *probe) {
		c := p.connect("c", lasting)
		c.subscribe(2, p.topic("a"))
		c.disconnect()
		p.publish(p.topic("a"), 1, "m1")
		p.publish(p.topic("a"), 2, "m2")
		p.publish(p.topic("a"), 1, "m3")
		c = p.connect("c", lasting)
		c.complete(c.expect("m1", 1, false), c.expect("m2", 2, false), c.expect("m3", 1, false))
		p.publish(p.topic("a"), 1, "m4")
		c.expect("m4", 1, false)
		c.silent()
	}},
	{"3.1.2.4", "CleanStartDiscardsTheSession", func(p *probe) {
		c := p.connect("c", lasting)
		c.subscribe(1, p.topic("a"))
		c.cut()
		p.publish(p.topic("a"), 1, "m1")
		c = p.connect("c", lasting, cleanStart)
		c.wantPresent(false)
		p.publish(p.topic("a"), 1, "m2")
		c.silent()
	}},
	{"3.1.2.11.2", "ASessionWithoutAnExpiryEndsWithItsConnection", func(p *probe) {
		c := p.connect("c")
		c.subscribe(1, p.topic("a"))
		c.cut()
		p.publish(p.topic("a"), 1, "m1")
		c = p.connect("c")
		c.wantPresent(false)
		c.silent()
	}},
	{"3.1.2.11.2", "ASessionExpires", func(p *probe) {
		c := p.connect("c", session(1))
		c.subscribe(1, p.topic("a"))
		c.cut()
		p.publish(p.topic("a"), 1, "m1")
		p.pass(3500 * time.Millisecond)
		c = p.connect("c", session(1))
		c.wantPresent(false)
		p.publish(p.topic("a"), 1, "m2")
		c.silent()
	}},
	{"3.1.2.11.2", "TheExpiryBeginsWithTheEndOfTheConnection", func(p *probe) {
		c := p.connect("c", session(2))
		p.pass(4 * time.Second)
		c.cut()
		p.connect("c", session(2)).wantPresent(true)
	}},
	{"3.1.2.11.2", "AnotherCONNECTChangesTheExpiry", func(p *probe) {
		p.connect("c", session(1)).cut()
		p.connect("c", lasting).cut()
		p.pass(3500 * time.Millisecond)
		p.connect("c", lasting).wantPresent(true)
	}},
	{"3.14.2.2.2", "DISCONNECTCanEndTheSession", func(p *probe) {
		c := p.connect("c", lasting)
		c.send(&packets.Disconnect{Properties: &packets.Properties{SessionExpiryInterval: ptr[uint32](0)}})
		c.end()
		p.connect("c", lasting).wantPresent(false)
	}},
	{"3.14.2.2.2", "DISCONNECTCannotMakeASession", func(p *probe) {
		c := p.connect("c")
		c.send(&packets.Disconnect{Properties: &packets.Properties{SessionExpiryInterval: ptr[uint32](60)}})
		c.end()
		p.connect("c").wantPresent(false)
	}},
	{"3.14.2.2.2", "DISCONNECTThatWouldMakeASessionIsAProtocolError", func(p *probe) {
		c := p.connect("c")
		c.send(&packets.Disconnect{Properties: &packets.Properties{SessionExpiryInterval: ptr[uint32](60)}})
		c.expectRefusal(0x82)
	}},
	{"3.3.1.2", "MessagesOfQoS0NeedNoSession", func(p *probe) { // to the contrary of what is queued: it may be lost, and must not be a failure
		c := p.connect("c", lasting)
		c.subscribe(1, p.topic("a"))
		c.cut()
		p.publish(p.topic("a"), 0, "q0")
		p.publish(p.topic("a"), 1, "q1")
		c = p.connect("c", lasting)
		got := next[*packets.Publish](c)
		if string(got.Payload) == "q0" {
			got = next[*packets.Publish](c)
		}
		if string(got.Payload) != "q1" {
			p.failf("PUBLISH %q", got.Payload)
		}
	}},
}

func keepAlive(seconds uint16) func(*packets.Connect) {
	return func(c *packets.Connect) { c.KeepAlive = seconds }
}

var keepAliveChecks = []check{
	{"3.12", "PINGREQIsAnswered", func(p *probe) {
		c := p.connect("c")
		c.silent() // asks for PINGRESP
		c.silent()
	}},
	{"3.2.2.3.14", "TheServerCanSetTheKeepAlive", func(p *probe) {
		c := p.connect("c", keepAlive(65_535))
		switch seconds := c.ack.Properties.ServerKeepAlive; {
		case seconds == nil:
			p.doesNotApply("the server leaves the Keep Alive to the client")
		case *seconds == 65_535:
			p.failf("Server Keep Alive %d", *seconds)
		}
	}},
	{"3.1.2.10", "ASilentConnectionIsEndedAfterOneAndAHalfTimesTheKeepAlive", func(p *probe) {
		c := p.connect("c", keepAlive(2))
		limit := 2 * time.Second
		if set := c.ack.Properties.ServerKeepAlive; set != nil {
			limit = time.Duration(*set) * time.Second
		}
		began := time.Now()
		c.endWithin(3*limit + 5*time.Second) // servers look now and then
		if after := time.Since(began); after < limit*3/2-50*time.Millisecond {
			p.failf("ended after %v with a Keep Alive of %v", after, limit)
		}
	}},
	{"3.1.2.10", "PINGREQKeepsAConnection", func(p *probe) {
		c := p.connect("c", keepAlive(1))
		for range 8 {
			p.pass(500 * time.Millisecond)
			c.ping()
		}
	}},
	{"3.1.2.10", "AnyPacketKeepsAConnection", func(p *probe) {
		c := p.connect("c", keepAlive(1))
		for range 8 {
			p.pass(500 * time.Millisecond)
			c.publish(message(p.topic("a"), 0, ""))
		}
		c.silent()
	}},
}

// endWithin wants the server to close the connection.
func (c *peer) endWithin(d time.Duration) {
	select {
	case <-c.ended:
	case <-time.After(d):
		c.p.failf("the connection has not ended within %v", d)
	}
}
