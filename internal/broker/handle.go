package broker

import (
	"time"

	"github.com/settlemq/settle/internal/topic"
)

// handle does what a packet of a connected client asks for. What the standard says of its fixed header is checked here.
func (c *conn) handle(frame []byte, v Verdict) *violation {
	packet, flags, body := frame[0]>>4, frame[0]&15, frameBody(frame)
	switch packet {
	case PUBLISH:
		return c.onPublish(flags, body, v)
	case PUBREL, SUBSCRIBE, UNSUBSCRIBE:
		if flags != 2 { // [MQTT-2.1.3-1]
			return malformed("%s has flags %04b", TypeName(packet), flags)
		}
	default:
		if flags != 0 {
			return malformed("%s has flags %04b", TypeName(packet), flags)
		}
	}
	switch packet {
	case CONNECT: // [MQTT-3.1.0-2]
		return forbidden("a second CONNECT")
	case AUTH:
		return &violation{code: codeBadAuthMethod, reason: "AUTH, and no authentication was agreed on"}
	case PUBACK, PUBREC, PUBREL, PUBCOMP, SUBSCRIBE, UNSUBSCRIBE, PINGREQ, DISCONNECT:
	default:
		return forbidden("%s is not for clients to send", TypeName(packet))
	}
	if v.Refuse != 0 && packet != SUBSCRIBE && packet != UNSUBSCRIBE {
		return &violation{code: v.Refuse, reason: "refused by an interceptor"}
	}
	switch packet {
	case SUBSCRIBE:
		return c.onSubscribe(body, v)
	case UNSUBSCRIBE:
		return c.onUnsubscribe(body, v)
	case PINGREQ:
		if len(body) > 0 {
			return malformed("PINGREQ has a body")
		}
		c.answer("", func(dst []byte, _ string) []byte { return append(dst, PINGRESP<<4, 0) })
		return nil
	case DISCONNECT:
		return c.onDisconnect(body)
	}
	return c.onAnswer(packet, body)
}

// onDisconnect is the end that the client wants (3.14.4).
func (c *conn) onDisconnect(body []byte) *violation {
	d, err := decodeDisconnect(body)
	if err != nil {
		return err
	}
	s := c.session
	if d.hasExpiry {
		if s.expiry == 0 && d.expiry != 0 { // [MQTT-3.14.2-2]
			return forbidden("DISCONNECT gives a session an expiry that CONNECT gave none")
		}
		if s.expiry = d.expiry; c.b.opts.SessionExpiryMaximum != nil {
			s.expiry = min(s.expiry, *c.b.opts.SessionExpiryMaximum)
		}
	}
	c.report("connection ended: the client sent DISCONNECT 0x%02X", d.code)
	s.detach(d.code != codeSuccess)
	c.close()
	return nil
}

// reply answers a packet of the client by a PUBACK, PUBREC, PUBREL or PUBCOMP.
func (c *conn) reply(packet byte, id uint16, code byte, reason string) {
	if c.ending {
		return
	}
	if code == codeSuccess { // the hot path
		size := len(c.out)
		c.out = appendAnswer(c.out, packet, id, 0, "")
		c.answered(size)
		return
	}
	c.answer(reason, func(dst []byte, reason string) []byte { return appendAnswer(dst, packet, id, code, reason) })
}

// onAnswer is a PUBACK, PUBREC, PUBREL or PUBCOMP of the client. The package documentation has the states.
func (c *conn) onAnswer(packet byte, body []byte) *violation {
	a, err := decodeAnswer(packet, body)
	if err != nil {
		return err
	}
	s := c.session
	if packet == PUBREL {
		code := byte(codeIDNotFound)
		if _, known := s.inbound[a.id]; known {
			delete(s.inbound, a.id)
			code = codeSuccess
		}
		c.reply(PUBCOMP, a.id, code, "no PUBLISH with this Packet Identifier is known")
		return nil
	}
	o := s.byID[a.id]
	if packet == PUBCOMP {
		switch {
		case o != nil && o.in == &s.released:
			s.finish(o)
			s.pump()
		case o != nil && !c.tampered:
			return forbidden("PUBCOMP for a packet that no PUBREL was sent for")
		}
		return nil // it may answer a PUBREL of ours that told of an unknown identifier
	}
	if o != nil && packet == PUBREC && o.in == &s.released {
		c.reply(PUBREL, a.id, codeSuccess, "")
		return nil
	}
	if err := c.checkTurn(packet, a.id, o); err != nil {
		return err
	}
	if o == nil || (packet == PUBACK) != (o.qos == 1) {
		if packet == PUBREC && a.code < codeUnspecified {
			c.reply(PUBREL, a.id, codeIDNotFound, "no PUBLISH with this Packet Identifier is known")
		}
		return nil
	}
	c.turns[o.qos].answered = max(c.turns[o.qos].answered, o.turn)
	if packet == PUBACK || a.code >= codeUnspecified {
		s.finish(o)
		s.pump()
		return nil
	}
	o.remove()
	s.released.pushBack(o)
	c.reply(PUBREL, a.id, codeSuccess, "")
	return nil
}

// checkTurn holds a PUBACK or PUBREC against what was sent on this connection: one answer a PUBLISH, of its kind, in order
// [MQTT-4.6.0-2], [MQTT-4.6.0-3]. An unknown PUBREC has an answer of its own.
func (c *conn) checkTurn(packet byte, id uint16, o *outbound) *violation {
	if c.tampered {
		return nil
	}
	switch {
	case o == nil && packet == PUBREC:
		return nil
	case o == nil:
		return forbidden("PUBACK for Packet Identifier %d, which is not in use", id)
	case o.conn != c || o.order > c.session.written:
		return forbidden("%s for Packet Identifier %d, which was not sent on this connection", TypeName(packet), id)
	case (packet == PUBACK) != (o.qos == 1):
		return forbidden("%s for a PUBLISH of QoS %d", TypeName(packet), o.qos)
	case o.turn != c.turns[o.qos].answered+1:
		return forbidden("%s for Packet Identifier %d, out of order", TypeName(packet), id)
	}
	return nil
}

// onPublish is a message from the client (3.3.4).
func (c *conn) onPublish(flags byte, body []byte, v Verdict) *violation {
	p, err := decodePublish(flags, body)
	if err == nil {
		err = c.resolveAlias(&p)
	}
	if err != nil {
		return err
	}
	b, s, m := c.b, c.session, p.message
	switch {
	case m.qos > *b.opts.MaximumQoS: // [MQTT-3.2.2-11]
		return &violation{code: codeQoSNotSupported, reason: "PUBLISH is above the Maximum QoS"}
	case m.retain && b.opts.NoRetain: // [MQTT-3.2.2-14]
		return &violation{code: codeRetainNotSupported, reason: "PUBLISH is to be retained, and nothing can be"}
	}
	if m.qos > 0 {
		_, known := s.inbound[p.id]
		if c.unanswered >= int(b.opts.ReceiveMaximum) && !c.inUse(p.id) {
			return &violation{code: codeReceiveMaximum, reason: "more PUBLISHes are unanswered than the Receive Maximum allows"}
		}
		if !c.claim(p.id, true) && !known && !c.tampered {
			return forbidden("PUBLISH with Packet Identifier %d, which is in use", p.id)
		}
		if known && m.qos == 2 {
			code := byte(codeSuccess)
			if !p.dup {
				code = codeIDInUse
			}
			c.reply(PUBREC, p.id, code, "")
			return nil
		}
		if known {
			return forbidden("PUBLISH at QoS 1 with Packet Identifier %d, which a QoS 2 one has", p.id)
		}
	}
	code, reason := v.Refuse, "refused by an interceptor"
	if code == 0 {
		code, reason = c.deliver(m, b.now())
	}
	switch m.qos {
	case 1:
		c.reply(PUBACK, p.id, code, reason)
	case 2:
		if code < codeUnspecified {
			if s.inbound == nil {
				s.inbound = make(map[uint16]struct{})
			}
			s.inbound[p.id] = struct{}{}
		}
		c.reply(PUBREC, p.id, code, reason)
	}
	return nil
}

// deliver routes a message and returns the reason code for its publisher.
func (c *conn) deliver(m *message, now time.Time) (code byte, reason string) {
	if !m.wellFormedPayload() {
		return codePayloadInvalid, "the payload is not the UTF-8 that it is said to be"
	}
	m.publisher = c.clientID
	m.begin(now)
	switch matched, refused := c.b.route(m); {
	case refused:
		return codeQuotaExceeded, "a queue that the message belongs in is full"
	case matched == 0:
		return codeNoSubscribers, ""
	}
	return codeSuccess, ""
}

// resolveAlias gives a PUBLISH the topic that its alias stands for, or the alias its topic (3.3.2.3.4).
func (c *conn) resolveAlias(p *publish) *violation {
	if !p.aliased {
		if p.message.topic == "" {
			return forbidden("PUBLISH has neither a topic nor a topic alias")
		}
		return nil
	}
	if p.alias == 0 || p.alias > c.b.opts.TopicAliasMaximum { // [MQTT-3.3.2-8], [MQTT-3.3.2-9]
		return &violation{code: codeTopicAliasInvalid, reason: "PUBLISH has a topic alias that is 0 or above the Topic Alias Maximum"}
	}
	if p.message.topic == "" {
		name, known := c.aliases[p.alias]
		if !known {
			return forbidden("PUBLISH has the topic alias %d, which stands for nothing", p.alias)
		}
		p.message.topic = name
		return nil
	}
	if c.aliases == nil {
		c.aliases = make(map[uint16]string)
	}
	c.aliases[p.alias] = p.message.topic
	return nil
}

func (c *conn) onSubscribe(body []byte, v Verdict) *violation {
	p, err := decodeSubscribe(body)
	if err != nil {
		return err
	}
	b, s := c.b, c.session
	if p.subID != 0 && b.opts.NoSubscriptionIDs { // 3.2.2.3.12
		return &violation{code: codeSubIDNotSupported, reason: "SUBSCRIBE has a Subscription Identifier, and none are available"}
	}
	free := c.claim(p.id, false)
	codes := make([]byte, len(p.filters))
	var retained []*subscription
	for i, f := range p.filters {
		if v.Grant != nil {
			f.qos = min(f.qos, *v.Grant)
		}
		f.qos = min(f.qos, *b.opts.MaximumQoS)
		switch {
		case !free:
			codes[i] = codeIDInUse
		case v.Refuse != 0:
			codes[i] = v.Refuse
		default:
			codes[i] = s.refusal(f)
		}
		if codes[i] != 0 {
			continue
		}
		codes[i] = f.qos
		sub, isNew := b.subscribe(s, f, p.subID)
		if !f.shared() && (f.retainHandling == 0 || f.retainHandling == 1 && isNew) {
			retained = append(retained, sub)
		}
	}
	c.answer("", func(dst []byte, reason string) []byte { return appendCodes(dst, SUBACK, p.id, codes, reason) })
	for _, sub := range retained {
		b.sendRetained(sub)
	}
	return nil
}

// refusal is the code that a filter is refused with, or 0.
func (s *session) refusal(f filter) byte {
	switch o := &s.b.opts; {
	case f.code != 0:
		return f.code
	case f.shared() && o.NoShared:
		return codeSharedNotSupported
	case topic.HasWildcard(f.topicFilter) && o.NoWildcards:
		return codeWildcardUnsupported
	case len(s.subscriptions) >= maxSubscriptions && s.subscriptions[f.filter] == nil:
		return codeQuotaExceeded
	}
	return 0
}

func (c *conn) onUnsubscribe(body []byte, v Verdict) *violation {
	p, err := decodeUnsubscribe(body)
	if err != nil {
		return err
	}
	free := c.claim(p.id, false)
	codes := make([]byte, len(p.filters))
	for i, f := range p.filters {
		sub := c.session.subscriptions[f.filter]
		switch {
		case !free:
			codes[i] = codeIDInUse
		case v.Refuse != 0:
			codes[i] = v.Refuse
		case f.code != 0:
			codes[i] = f.code
		case sub == nil:
			codes[i] = codeNoSubscription
		default:
			c.b.unsubscribe(sub)
		}
	}
	c.answer("", func(dst []byte, reason string) []byte { return appendCodes(dst, UNSUBACK, p.id, codes, reason) })
	return nil
}
