package conformance

import "github.com/eclipse/paho.golang/packets"

// nextID is a Packet Identifier that this connection has not used yet.
func (c *peer) nextID() uint16 {
	c.lastID++
	return c.lastID
}

// publish publishes, and returns the reason code once the exchange is over. It fails where it is 0x80 or more.
func (c *peer) publish(m *packets.Publish) (code byte) {
	if m.QoS > 0 {
		m.PacketID = c.nextID()
	}
	c.send(m)
	switch m.QoS {
	case 1:
		code = c.nextPuback(m.PacketID).ReasonCode
	case 2:
		if code = c.nextPubrec(m.PacketID).ReasonCode; code < 0x80 {
			c.send(&packets.Pubrel{PacketID: m.PacketID, Properties: &packets.Properties{}})
			c.expectPubcomp(m.PacketID, 0)
		}
	}
	if code >= 0x80 {
		c.p.failf("a PUBLISH to %q was refused with 0x%02X", m.Topic, code)
	}
	return code
}

func (c *peer) nextPuback(id uint16) *packets.Puback {
	got := next[*packets.Puback](c)
	if got.PacketID != id {
		c.p.failf("PUBACK for %d, want %d", got.PacketID, id)
	}
	return got
}

func (c *peer) nextPubrec(id uint16) *packets.Pubrec {
	got := next[*packets.Pubrec](c)
	if got.PacketID != id {
		c.p.failf("PUBREC for %d, want %d", got.PacketID, id)
	}
	return got
}

func (c *peer) expectPubcomp(id uint16, code byte) {
	if got := next[*packets.Pubcomp](c); got.PacketID != id || got.ReasonCode != code {
		c.p.failf("PUBCOMP for %d with 0x%02X, want %d with 0x%02X", got.PacketID, got.ReasonCode, id, code)
	}
}

func (c *peer) expectPubrel(id uint16) {
	if got := next[*packets.Pubrel](c); got.PacketID != id || got.ReasonCode != 0 {
		c.p.failf("PUBREL for %d with 0x%02X, want %d with 0x00", got.PacketID, got.ReasonCode, id)
	}
}

// The answers to a PUBLISH from the server.

func (c *peer) puback(all ...*packets.Publish) {
	for _, m := range all {
		c.send(&packets.Puback{PacketID: m.PacketID, Properties: &packets.Properties{}})
	}
}

func (c *peer) pubrec(m *packets.Publish) {
	c.send(&packets.Pubrec{PacketID: m.PacketID, Properties: &packets.Properties{}})
}

func (c *peer) pubcomp(m *packets.Publish) {
	c.send(&packets.Pubcomp{PacketID: m.PacketID, Properties: &packets.Properties{}})
}

// complete goes through the whole exchange of a PUBLISH from the server.
func (c *peer) complete(all ...*packets.Publish) {
	for _, m := range all {
		switch m.QoS {
		case 1:
			c.puback(m)
		case 2:
			c.pubrec(m)
			c.expectPubrel(m.PacketID)
			c.pubcomp(m)
		}
	}
}

// subscribe subscribes to filters, and must be granted what it asks for.
func (c *peer) subscribe(qos byte, filters ...string) {
	for _, f := range filters {
		c.subscribeWith(0, packets.SubOptions{Topic: f, QoS: qos})
	}
}

// subscribeWith subscribes with a Subscription Identifier, unless it is 0, and must be granted what it asks for.
func (c *peer) subscribeWith(subID int, all ...packets.SubOptions) {
	for i, code := range c.trySubscribe(subID, all...) {
		if code != all[i].QoS {
			c.p.failf("SUBACK 0x%02X for %q, want 0x%02X", code, all[i].Topic, all[i].QoS)
		}
	}
}

// trySubscribe subscribes, and returns the reason codes.
func (c *peer) trySubscribe(subID int, all ...packets.SubOptions) []byte {
	c.send(c.subscription(subID, all...))
	got := next[*packets.Suback](c)
	if got.PacketID != c.lastID || len(got.Reasons) != len(all) {
		c.p.failf("SUBACK for %d with codes % X, want one for %d with %d", got.PacketID, got.Reasons, c.lastID, len(all))
	}
	return got.Reasons
}

func (c *peer) subscription(subID int, all ...packets.SubOptions) *packets.Subscribe {
	s := &packets.Subscribe{PacketID: c.nextID(), Subscriptions: all, Properties: &packets.Properties{}}
	if subID != 0 {
		s.Properties.SubscriptionIdentifier = &subID
	}
	return s
}

// unsubscribe returns the reason codes.
func (c *peer) unsubscribe(filters ...string) []byte {
	c.send(&packets.Unsubscribe{PacketID: c.nextID(), Topics: filters, Properties: &packets.Properties{}})
	got := next[*packets.Unsuback](c)
	if got.PacketID != c.lastID || len(got.Reasons) != len(filters) {
		c.p.failf("UNSUBACK for %d with codes % X, want one for %d with %d", got.PacketID, got.Reasons, c.lastID, len(filters))
	}
	return got.Reasons
}
