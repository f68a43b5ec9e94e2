package broker

import (
	"fmt"
	"time"

	"github.com/settlemq/settle/internal/topic"
)

// handleFirst handles the first packet of a connection, which must be CONNECT [MQTT-3.1.0-1].
func (c *conn) handleFirst(frame []byte) {
	if frame[0] != CONNECT<<4 {
		c.b.logf("a connection began with %s and not with CONNECT", TypeName(frame[0]>>4))
		c.close()
		return
	}
	p, err := decodeConnect(append([]byte(nil), frameBody(frame)...))
	if err != nil {
		c.violate(err)
		return
	}
	c.identify(p)
	note, ok := c.screen(&frame)
	c.log.add(c.b, FromClient, frame, note)
	v := c.verdict
	c.verdict = Verdict{}
	if !ok || c.ending {
		return
	}
	if v.Refuse != 0 {
		c.refuse(v.Refuse, "refused by an interceptor")
	} else if code, reason := c.check(p); code != 0 {
		c.refuse(code, reason)
	} else if !c.ending {
		c.accept(p)
	}
	c.afterwards(v)
}

// identify gives the connection its Client Identifier and its log.
func (c *conn) identify(p *connect) {
	c.clientID = p.clientID
	if c.clientID == "" {
		c.b.assigned++
		c.clientID = fmt.Sprintf("assigned-%d", c.b.assigned)
	}
	c.log = c.b.logOf(c.clientID)
	c.log.say(c.b, "connection opened")
}

// check returns the code that a CONNECT is refused with, or 0. It releases the lock while the program decides.
func (c *conn) check(p *connect) (code byte, reason string) {
	b := c.b
	switch {
	case p.hasAuthMethod:
		return codeBadAuthMethod, "no authentication method is known here"
	case p.will != nil && topic.ValidateTopic(p.will.topic) != nil:
		return codeTopicInvalid, "the Will Topic is not a topic name"
	case p.will != nil && p.will.qos > *b.opts.MaximumQoS:
		return codeQoSNotSupported, "the Will QoS is above the Maximum QoS"
	case p.will != nil && p.will.retain && b.opts.NoRetain:
		return codeRetainNotSupported, "the will is to be retained, and nothing can be"
	case p.will != nil && !p.will.wellFormedPayload():
		return codePayloadInvalid, "the will is not the UTF-8 that it is said to be"
	case b.sessions[c.clientID] == nil && len(b.sessions) >= maxSessions:
		return codeQuotaExceeded, "there are too many sessions"
	}
	if authenticate := b.opts.Authenticate; authenticate != nil {
		clientID := c.clientID
		b.unlock()
		code = authenticate(clientID, p.username, p.password)
		b.mu.Lock()
	}
	return code, ""
}

// accept gives the connection its session and answers by CONNACK (3.1.4).
func (c *conn) accept(p *connect) {
	b := c.b
	s := b.sessions[c.clientID]
	if s != nil && s.conn != nil {
		s.conn.end(codeTakenOver, "another connection has this Client Identifier")
		s = b.sessions[c.clientID] // gone where it ended with its connection
	}
	if s != nil && p.cleanStart {
		b.endSession(s)
		s = nil
	}
	present := s != nil
	if s == nil {
		s = &session{b: b, clientID: c.clientID}
		b.sessions[c.clientID] = s
	}
	ack := connack{
		present: present, maximumPacket: b.opts.MaximumPacketSize, maximumQoS: b.opts.MaximumQoS,
		aliasMaximum: b.opts.TopicAliasMaximum, keepAlive: b.opts.ServerKeepAlive,
		noRetain: b.opts.NoRetain, noWildcards: b.opts.NoWildcards, noSubIDs: b.opts.NoSubscriptionIDs, noShared: b.opts.NoShared,
	}
	if b.opts.ReceiveMaximum < 65_535 {
		ack.receiveMaximum = b.opts.ReceiveMaximum
	}
	s.expiry = p.sessionExpiry
	if limit := b.opts.SessionExpiryMaximum; limit != nil && s.expiry > *limit {
		s.expiry = *limit
		ack.sessionExpiry = limit
	}
	if p.clientID == "" {
		ack.assignedID = c.clientID
	}
	seconds := p.keepAlive
	if b.opts.ServerKeepAlive != 0 {
		seconds = b.opts.ServerKeepAlive
	}
	c.out = ack.append(c.out)
	if len(c.out) > int(p.maximumPacket) { // [MQTT-3.1.2-24]
		c.report("connection ended: CONNACK is larger than the client's Maximum Packet Size")
		c.close()
		if !present {
			b.endSession(s)
		}
		return
	}
	c.connected, c.hideProblem = true, p.hideProblemInfo
	c.maximumPacket, c.receiveMaximum = p.maximumPacket, p.receiveMaximum
	c.keepAlive = time.Duration(seconds) * time.Second * 3 / 2
	c.lastRead = b.now()
	b.disarm(c.alarm)
	c.alarm = nil
	if c.keepAlive > 0 {
		c.watch()
	}
	b.wake(c)
	s.attach(c)
	s.will, s.willDelay = p.will, p.willDelay
	if s.will != nil {
		s.will.publisher = c.clientID
	}
	s.pump()
}
