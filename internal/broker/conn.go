package broker

import (
	"errors"
	"io"
	"net"
	"time"
)

// conn is one network connection.
type conn struct {
	b  *Broker
	nc net.Conn

	// The reader's own.
	in      inbox
	need    int // the size of the packet that has come in part, or 0
	aliases map[uint16]string
	verdict Verdict // on the packet in hand

	// Guarded by the broker's lock.
	clientID       string
	session        *session                           // nil before CONNECT was accepted, and again when the session has left
	log            *wireLog                           // nil before CONNECT
	out            []byte                             // whole packets that the writer has not taken yet
	late           [][]byte                           // packets that an interceptor has made late, and that it does not see again
	spare          []byte                             // the writer's other buffer
	answers        int                                // bytes of out that are not PUBLISH
	inflight       int                                // PUBLISHes sent on this connection and not answered for good
	order          uint64                             // of the last PUBLISH put into out
	turns          [3]struct{ sent, answered uint64 } // by QoS: PUBLISHes, and their PUBACKs or PUBRECs, which keep their order
	ids            map[uint16]uint64                  // a bit for each Packet Identifier of the client whose packet has not been answered
	unanswered     int                                // PUBLISHes among them
	maximumPacket  uint32
	receiveMaximum uint16
	keepAlive      time.Duration // after which silence ends the connection; 0 for never
	lastRead       time.Time     // on the broker's clock
	alarm          *alarm        // CONNECT is due, or the keep-alive
	closing        *alarm
	gone           chan struct{} // closed with the connection
	connected      bool          // CONNACK 0x00 was sent
	hideProblem    bool          // the client wants no Reason Strings
	woken          bool          // stands in Broker.woken
	writing        bool          // a goroutine writes
	ending         bool          // nothing is put into out any more; what is there is written, then the connection closed
	closed         bool
	deaf           bool // the reader has ended
	tampered       bool // an interceptor has changed what passes, so that the client cannot be held to all that the standard says
}

// read is the connection's goroutine: it reads until the connection ends.
func (c *conn) read() {
	for {
		n, err := c.nc.Read(c.in.space(c.need))
		if !c.took(n, err) {
			return
		}
	}
}

// readPipe reads until there is nothing more to read for now. It is called again when there is.
func (c *conn) readPipe(nc *end) {
	for {
		n, some, err := nc.in.tryRead(&c.in, c.need)
		if !some || !c.took(n, err) {
			return
		}
	}
}

// took handles what one read has brought, and tells whether there can be more.
func (c *conn) took(n int, err error) bool {
	c.in.end += n
	if n > 0 {
		c.need = c.take()
	}
	if err != nil {
		c.lost(err)
	}
	return err == nil
}

// take handles the packets that have come, and returns the size of the one that has come in part.
func (c *conn) take() (need int) {
	b := c.b
	b.mu.Lock()
	defer b.unlock()
	for {
		if c.ending {
			c.in.start = c.in.end // read past, until the client closes
			return 0
		}
		frame, _, need, err := splitFrame(c.in.bytes())
		if err == nil && need > int(b.opts.MaximumPacketSize) {
			err = &violation{code: codePacketTooLarge, reason: "a packet is larger than the Maximum Packet Size"}
		}
		if err != nil {
			c.violate(err)
			continue
		}
		if frame == nil {
			return need
		}
		if c.session == nil {
			c.handleFirst(frame)
		} else {
			c.receive(frame)
		}
		c.in.start += len(frame)
	}
}

// receive handles a packet from a connected client, or what an interceptor makes of it.
func (c *conn) receive(frame []byte) {
	note, ok := c.screen(&frame)
	c.log.add(c.b, FromClient, frame, note)
	if !ok || c.session == nil {
		return
	}
	c.lastRead = c.b.now()
	v := c.verdict
	c.verdict = Verdict{}
	if err := c.handle(frame, v); err != nil {
		c.violate(err)
	}
	c.afterwards(v)
}

// afterwards does what a verdict wants done behind the packet.
func (c *conn) afterwards(v Verdict) {
	if v.Send != nil && !c.ending {
		c.late = append(c.late, v.Send)
		c.b.wake(c)
	}
	if v.Cut && !c.ending {
		c.leave("cut by an interceptor")
	}
}

// screen shows a packet to the interceptor, if there is one, with the lock released, and waits as it says. It tells whether the
// packet is to be handled; its verdict is then in c.verdict.
func (c *conn) screen(frame *[]byte) (note string, ok bool) {
	b := c.b
	f := b.intercept
	if f == nil {
		return "", true
	}
	clientID := c.clientID
	b.unlock()
	p := inspect(*frame)
	v := f(clientID, FromClient, p)
	c.sleep(v.Hold + v.Late)
	b.mu.Lock()
	c.verdict = v
	if !v.passes() {
		c.tampered = true
	}
	switch {
	case v.Drop:
		c.afterwards(v)
		return "dropped", false
	case v.Replace != nil:
		replaced, rest, _, err := splitFrame(v.Replace)
		if err != nil || replaced == nil || len(rest) > 0 {
			c.b.logf("%s: an interceptor's Replace is not one whole packet", clientID)
			return "replaced by no packet", false
		}
		*frame = replaced
		return "replaced", true
	}
	return "", true
}

// sleep waits, with no lock held, unless the connection ends.
func (c *conn) sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-c.gone:
	}
}

// lost ends a connection that the client has ended, or the network.
func (c *conn) lost(err error) {
	b := c.b
	b.mu.Lock()
	defer b.unlock()
	c.deaf = true
	if c.ending && (c.woken || c.writing) && errors.Is(err, io.EOF) {
		return // the client has closed its write side, and may still read why this one ends
	}
	why := "the client closed it without DISCONNECT"
	if !errors.Is(err, io.EOF) {
		why = "it was lost"
	}
	c.cut(why)
}

// cut ends the connection at once, without DISCONNECT. What was not handed to Write is not written.
func (c *conn) cut(why string) {
	if s := c.session; s != nil {
		c.report("connection ended: %s", why)
		s.detach(true)
	}
	c.close()
}

// violate ends a connection whose client broke a rule.
func (c *conn) violate(err *violation) {
	switch {
	case c.connected:
		c.end(err.code, err.reason)
	case err == errNotMQTT, c.in.bytes()[0] != CONNECT<<4: // CONNACK answers CONNECT alone
		c.close()
	default:
		c.refuse(err.code, err.reason)
	}
}

// refuse answers CONNECT by CONNACK with an error, and ends the connection.
func (c *conn) refuse(code byte, reason string) {
	c.b.logf("%q: CONNECT refused: 0x%02X %s", c.clientID, code, reason)
	ack := connack{code: code, reason: reason}
	c.out = ack.append(c.out)
	c.finish()
}

// end sends DISCONNECT behind all that is to be written already, and ends the connection. The session leaves at once.
func (c *conn) end(code byte, reason string) {
	if c.ending {
		return
	}
	c.report("connection ended: DISCONNECT 0x%02X %s", code, reason)
	size := len(c.out)
	if c.out = appendDisconnect(c.out, code, reason); len(c.out)-size > int(c.maximumPacket) {
		c.out = appendDisconnect(c.out[:size], code, "") // [MQTT-3.14.2-3]
	}
	c.part()
}

// leave ends the connection without DISCONNECT, behind all that is to be written already.
func (c *conn) leave(why string) {
	c.report("connection ended: %s", why)
	c.part()
}

// part has the session leave a connection whose buffer is still to be written.
func (c *conn) part() {
	if s := c.session; s != nil {
		s.written = max(s.written, c.order)
		s.detach(true)
	}
	c.finish()
}

// finish has the writer write what is there and then close, and does not wait for ever for a client that does not read.
func (c *conn) finish() {
	if c.closed {
		return
	}
	c.ending = true
	c.closing = c.b.arm(closePatience, c.close)
	c.b.wake(c)
}

// close closes the connection; the session has left it.
func (c *conn) close() {
	if c.closed {
		return
	}
	c.ending, c.closed = true, true
	close(c.gone)
	delete(c.b.conns, c)
	c.b.disarm(c.alarm)
	c.b.disarm(c.closing)
	c.b.toClose = append(c.b.toClose, c.nc)
}

func (c *conn) report(format string, args ...any) {
	c.log.say(c.b, format, args...)
	c.b.logf("%q: "+format, append([]any{c.clientID}, args...)...)
}

// watch ends the connection when the client has been silent for one and a half times the Keep Alive [MQTT-3.1.2-22].
func (c *conn) watch() {
	left := c.keepAlive - c.b.now().Sub(c.lastRead)
	if left > 0 {
		c.alarm = c.b.arm(left, c.watch)
		return
	}
	c.end(codeKeepAliveTimeout, "nothing was received for one and a half times the Keep Alive")
}
