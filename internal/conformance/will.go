package conformance

import (
	"slices"
	"time"

	"github.com/eclipse/paho.golang/packets"
)

// mourner is a client that sees wills.
func (p *probe) mourner() *peer {
	c := p.connect("mourner")
	c.subscribe(1, p.topic("will"))
	return c
}

var willChecks = []check{
	{"3.1.2.5", "AConnectionThatIsLostPublishesTheWill", func(p *probe) {
		m := p.mourner()
		p.connect("c", p.will(0)).cut()
		m.expect("gone", 1, false)
		m.silent()
	}},
	{"3.1.2.5", "DISCONNECTDiscardsTheWill", func(p *probe) {
		m := p.mourner()
		p.connect("c", p.will(0)).disconnect()
		m.silent()
	}},
	{"3.14.2.1", "DISCONNECT0x04PublishesTheWill", func(p *probe) {
		m := p.mourner()
		c := p.connect("c", p.will(0))
		c.send(&packets.Disconnect{ReasonCode: 0x04, Properties: &packets.Properties{}})
		c.end()
		m.expect("gone", 1, false)
	}},
	{"3.1.2.5", "AConnectionThatTheServerEndsPublishesTheWill", func(p *probe) {
		m := p.mourner()
		c := p.connect("c", p.will(0))
		c.raw(publishFrame(6, "a", "\x00\x01", "")) // QoS 3
		c.end()
		m.expect("gone", 1, false)
	}},
	{"3.1.2.5", "ASilentConnectionPublishesTheWill", func(p *probe) {
		m := p.connect("mourner", lasting)
		m.subscribe(1, p.topic("will"))
		m.disconnect() // or it would be too silent itself
		c := p.connect("c", p.will(0), keepAlive(1))
		limit := 1
		if set := c.ack.Properties.ServerKeepAlive; set != nil {
			limit = int(*set)
		}
		c.endWithin(time.Duration(3*limit+5) * time.Second)
		m = p.connect("mourner", lasting)
		m.expect("gone", 1, false)
	}},
	{"3.1.3.2.2", "AWillWaitsForItsDelay", func(p *probe) {
		m := p.mourner()
		p.connect("c", lasting, p.will(3)).cut()
		p.pass(time.Second)
		m.silent()
		m.expect("gone", 1, false)
	}},
	{"3.1.3.2.2", "AClientThatComesBackInTimeHasNoWillPublished", func(p *probe) {
		m := p.mourner()
		p.connect("c", lasting, p.will(2)).cut()
		p.connect("c", lasting)
		p.pass(4 * time.Second)
		m.silent()
	}},
	{"3.1.3.2.2", "AWillIsPublishedWhenItsSessionEndsSooner", func(p *probe) {
		m := p.mourner()
		p.connect("c", session(1), p.will(3600)).cut()
		m.expect("gone", 1, false)
	}},
	{"3.1.3.2", "AWillKeepsItsProperties", func(p *probe) {
		m := p.mourner()
		p.connect("c", p.will(0), func(c *packets.Connect) {
			c.WillProperties.User = []packets.User{{Key: "k", Value: "1"}, {Key: "k", Value: "2"}}
		}).cut()
		got := m.expect("gone", 1, false).Properties // paho encodes no more of a will's than its delay and these
		if !slices.Equal(got.User, []packets.User{{Key: "k", Value: "1"}, {Key: "k", Value: "2"}}) {
			p.failf("%v", got)
		}
	}},
	{"3.1.2.7", "AWillCanBeRetained", func(p *probe) {
		p.connect("c", p.will(0), func(c *packets.Connect) { c.WillRetain = true }).cut()
		p.arrive()
		if got := p.mourner().expect("gone", 1, false); !got.Retain {
			p.failf("RETAIN is 0")
		}
	}},
}
