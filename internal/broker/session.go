package broker

import (
	"math"
	"time"
)

// session is what the server keeps of a client from connection to connection (4.1). Guarded by the broker's lock. The package
// documentation has the states of its messages.
type session struct {
	b             *Broker
	clientID      string
	conn          *conn // nil while the client is away
	subscriptions map[string]*subscription
	shares        []*subscription      // the shared ones among them, in the order of subscribing
	queued        list                 // QoS 1 and 2
	queuedZero    list                 // QoS 0
	sent          list                 // in send order
	released      list                 // in the order of the PUBRECs
	byID          map[uint16]*outbound // sent and released
	inbound       map[uint16]struct{}  // QoS 2 identifiers between PUBREC and PUBREL
	resume        *outbound            // in sent: the next to be sent again on this connection
	lastOrder     uint64               // of the last message sent
	written       uint64               // the order of the last message handed to Write
	dropped       uint64
	expiry        uint32 // Session Expiry Interval in seconds
	lastID        uint16
	expires       *alarm
	will          *message
	willDelay     uint32
	willDue       *alarm
	mark          uint64 // of the message that is being routed, see route
	target        int
}

const never = 0xFFFFFFFF // Session Expiry Interval of a session that does not expire

// window is how many messages may be in flight on the session's connection.
func (s *session) window() int {
	n := int(s.conn.receiveMaximum)
	if limit := s.b.opts.MaxInflight; limit > 0 {
		n = min(n, limit)
	}
	return n
}

// writable tells whether there is a connection whose buffer takes another message.
func (s *session) writable() bool {
	return s.conn != nil && !s.conn.ending && len(s.conn.out) < highWater
}

// room tells whether a message could be sent at once.
func (s *session) room(qos byte) bool {
	if !s.writable() {
		return false
	}
	return qos == 0 && s.queuedZero.n == 0 || qos > 0 && s.queued.n == 0 && s.slot()
}

// slot tells whether another message may be in flight, behind all that is to be sent again. Released messages of earlier
// connections take no slot of the window, but they have their identifiers.
func (s *session) slot() bool {
	return s.resume == nil && s.conn.inflight < s.window() && len(s.byID) < math.MaxUint16
}

// enqueue takes a message in, and sends it if it can.
func (s *session) enqueue(o *outbound) {
	if o.qos == 0 {
		switch {
		case s.conn == nil || s.conn.ending: // not kept for who is away (3.1.2.11.2 leaves it to the server)
		case s.b.crowded(&s.queuedZero):
			s.dropped++
		default:
			s.queuedZero.pushBack(o)
			s.pump()
		}
		return
	}
	if s.b.crowded(&s.queued) {
		s.dropped += s.queued.expire(s.b.now())
	}
	if s.b.crowded(&s.queued) {
		s.dropped++
		if s.b.opts.QueuePolicy != DropOldest {
			return
		}
		s.queued.head.remove()
	}
	s.queued.pushBack(o)
	s.pump()
}

// pump sends what there is room for: first what an earlier connection had been sent, then what is queued, then what waits in
// the session's shared groups.
func (s *session) pump() {
	for s.resume != nil && s.writable() && s.conn.inflight < s.window() {
		o := s.resume
		s.resume = o.next
		s.transmit(o, o.order <= s.written)
	}
	for s.queuedZero.n > 0 && s.writable() {
		o := s.queuedZero.head
		o.remove()
		s.launch(o)
	}
	for s.queued.n > 0 && s.writable() && s.slot() {
		o := s.queued.head
		o.remove()
		s.launch(o)
	}
	for _, sub := range s.shares {
		s.draw(sub)
	}
}

// draw takes from a shared group what there is room for.
func (s *session) draw(sub *subscription) {
	for g := sub.group; g.queued.n > 0; {
		o := g.queued.head
		qos := min(o.msg.qos, sub.qos)
		if !s.room(qos) {
			return
		}
		o.remove()
		s.launch(o.meant(sub, qos))
	}
}

// launch sends a message for the first time, unless it has expired or is too large for the client [MQTT-3.1.2-25].
func (s *session) launch(o *outbound) {
	if o.msg.expired(s.b.now()) || publishSize(o.msg, o.qos, o.ids) > int(s.conn.maximumPacket) {
		s.dropped++
		return
	}
	if o.qos > 0 {
		o.id = s.nextID()
		s.lastOrder++
		o.order = s.lastOrder
		s.sent.pushBack(o)
		if s.byID == nil {
			s.byID = make(map[uint16]*outbound)
		}
		s.byID[o.id] = o
	}
	s.transmit(o, false)
}

// transmit puts a PUBLISH into the connection's buffer.
func (s *session) transmit(o *outbound, dup bool) {
	c := s.conn
	if o.qos > 0 {
		c.inflight++
		c.turns[o.qos].sent++
		o.conn, o.turn, c.order = c, c.turns[o.qos].sent, o.order
	}
	c.out = appendPublish(c.out, o.msg, o.qos, dup, o.retain, o.id, o.ids, s.b.now())
	s.b.wake(c)
}

// nextID returns a Packet Identifier that is not in use. There is one: see slot.
func (s *session) nextID() uint16 {
	for {
		if s.lastID++; s.lastID == 0 {
			s.lastID = 1
		}
		if _, used := s.byID[s.lastID]; !used {
			return s.lastID
		}
	}
}

// finish forgets a message that has been answered for good.
func (s *session) finish(o *outbound) {
	o.remove()
	delete(s.byID, o.id)
	s.settleWindow(o)
}

func (s *session) settleWindow(o *outbound) {
	if o.conn != nil && o.conn == s.conn {
		o.conn.inflight--
	}
	o.conn = nil
}

// attach gives the session a connection, and sends it PUBREL for what was released.
func (s *session) attach(c *conn) {
	s.conn, c.session = c, s
	s.b.disarm(s.expires)
	s.expires = nil
	s.b.disarm(s.willDue)
	s.willDue = nil
	for o := s.released.head; o != nil; o = o.next {
		c.out = appendAnswer(c.out, PUBREL, o.id, 0, "")
		s.b.wake(c)
	}
	s.resume = s.sent.head
}

// detach takes the connection from the session, which then waits for another, or ends.
func (s *session) detach(withWill bool) {
	c := s.conn
	s.conn, c.session = nil, nil
	s.resume = nil
	for s.queuedZero.n > 0 {
		s.queuedZero.head.remove()
	}
	s.handBack(func(o *outbound) bool { return o.order > s.written })
	if !withWill {
		s.will = nil
	}
	b := s.b
	switch s.expiry {
	case 0:
		b.endSession(s)
		return
	case never:
	default:
		s.expires = b.arm(time.Duration(s.expiry)*time.Second, func() { b.endSession(s) })
	}
	if s.will == nil {
		return
	}
	if s.willDelay == 0 {
		s.publishWill()
		return
	}
	s.willDue = b.arm(time.Duration(s.willDelay)*time.Second, s.publishWill)
}

func (s *session) publishWill() {
	m := s.will
	s.will = nil
	if m == nil {
		return
	}
	m.begin(s.b.now())
	s.b.route(m)
}

// handBack gives messages of shared groups that are sent and not answered, and that pick names, back to the front of their
// groups' queues, in order.
func (s *session) handBack(pick func(*outbound) bool) {
	var last *outbound
	for o := s.sent.tail; o != nil; o = last {
		last = o.prev
		if o.group == nil || !pick(o) {
			continue
		}
		s.finish(o)
		g := o.group
		*o = outbound{msg: o.msg, group: g, qos: o.msg.qos, retain: o.retain}
		g.queued.pushFront(o)
		s.b.stale = append(s.b.stale, g)
	}
}

// endSession ends a session: will, subscriptions, and what it holds for others [MQTT-3.1.2-23].
func (b *Broker) endSession(s *session) {
	delete(b.sessions, s.clientID)
	b.disarm(s.expires)
	b.disarm(s.willDue)
	for _, sub := range s.subscriptions {
		b.unsubscribe(sub)
	}
	s.handBack(func(o *outbound) bool { return o.qos == 1 || o.order > s.written })
	s.publishWill()
}
