package broker

import "net"

// wake has a connection's buffer written once the lock is released.
func (b *Broker) wake(c *conn) {
	if !c.woken && !c.writing && !c.closed {
		c.woken = true
		b.woken = append(b.woken, c)
	}
}

// answer puts an answer to the client into the buffer: fixed header, body and all, as encode appends it, without a reason where it
// is too large for the client or not wanted.
func (c *conn) answer(reason string, encode func(dst []byte, reason string) []byte) {
	if c.ending {
		return
	}
	if c.hideProblem {
		reason = ""
	}
	size := len(c.out)
	c.out = encode(c.out, reason)
	if reason != "" && len(c.out)-size > int(c.maximumPacket) {
		c.out = encode(c.out[:size], "")
	}
	c.answered(size)
}

// answered judges an answer that begins at size in the buffer.
func (c *conn) answered(size int) {
	switch {
	case len(c.out)-size > int(c.maximumPacket): // [MQTT-3.1.2-24]
		c.out = c.out[:size]
		c.end(codePacketTooLarge, "an answer is larger than the client's Maximum Packet Size")
	case c.answers > outLimit:
		c.cut("the client does not read what it is answered")
	default:
		c.answers += len(c.out) - size
		c.b.wake(c)
	}
}

// write is the goroutine that writes, for as long as there is something to write.
func (c *conn) write() {
	b := c.b
	defer b.wg.Done()
	b.mu.Lock()
	for !c.closed && len(c.out)+len(c.late) > 0 {
		batch, late, f := c.out, c.late, b.intercept
		c.out, c.spare, c.late = c.spare[:0], nil, nil
		c.answers = 0
		if s := c.session; s != nil {
			s.written = max(s.written, c.order)
			s.pump() // so that the next batch is ready when this one is written
		}
		var err error
		if f == nil {
			c.handOver(batch)
			b.unlock()
			_, err = c.nc.Write(batch)
		} else {
			clientID := c.clientID
			b.unlock()
			err = c.writeScreened(batch, f, clientID)
		}
		if err == nil && len(late) > 0 {
			err = c.writeLate(late)
		}
		b.mu.Lock()
		if cap(batch) <= 2*highWater {
			c.spare = batch[:0]
		}
		if err != nil {
			c.cut("it was lost")
		}
	}
	c.writing = false
	finished := c.ending && !c.closed
	b.unlock()
	if finished {
		c.hangUp()
	}
}

// hangUp closes a connection whose last packet was written. A client may still be sending: where the write side can be closed alone, it gets time to
// read to the end, because a socket closed with data unread is reset, and the DISCONNECT lost with it.
func (c *conn) hangUp() {
	half, ok := c.nc.(interface{ CloseWrite() error })
	ok = ok && half.CloseWrite() == nil
	c.b.mu.Lock()
	defer c.b.unlock()
	c.b.disarm(c.closing)
	if ok && !c.closed && !c.deaf {
		c.closing = c.b.arm(lingerPatience, c.close)
		return
	}
	c.close()
}

// handOver notes that packets are handed to Write.
func (c *conn) handOver(batch []byte) {
	for len(batch) > 0 {
		frame, rest, _, err := splitFrame(batch)
		if err != nil || frame == nil {
			return // an interceptor's own bytes
		}
		c.release(frame)
		c.log.add(c.b, ToClient, frame, "")
		batch = rest
	}
}

// writeScreened shows each packet to the interceptor and does as it says.
func (c *conn) writeScreened(batch []byte, f Interceptor, clientID string) error {
	for len(batch) > 0 {
		frame, rest, _, _ := splitFrame(batch)
		if frame == nil {
			break // cannot be: the batch is of our own making
		}
		batch = rest
		if err := c.writeOne(frame, f(clientID, ToClient, inspect(frame))); err != nil {
			return err
		}
	}
	return nil
}

func (c *conn) writeOne(frame []byte, v Verdict) error {
	b := c.b
	c.sleep(v.Hold)
	note := ""
	switch {
	case v.Drop:
		note = "dropped"
	case v.Replace != nil:
		frame, note = v.Replace, "replaced"
	}
	b.mu.Lock()
	switch {
	case v.Late > 0 && !v.Drop:
		c.postpone(append([]byte(nil), frame...), v)
		c.tampered = true
		b.unlock()
		return nil
	case !v.Drop:
		c.release(frame)
	}
	if !v.passes() {
		c.tampered = true
	}
	c.log.add(b, ToClient, frame, note)
	b.unlock()
	if !v.Drop {
		if _, err := c.nc.Write(frame); err != nil {
			return err
		}
	}
	if v.Send != nil {
		if err := c.writeLate([][]byte{v.Send}); err != nil {
			return err
		}
	}
	if v.Cut {
		return net.ErrClosed
	}
	return nil
}

// postpone puts a packet into the late ones after a while.
func (c *conn) postpone(frame []byte, v Verdict) {
	b := c.b
	if b.closed || c.closed {
		return
	}
	b.wg.Go(func() {
		c.sleep(v.Late)
		b.mu.Lock()
		defer b.unlock()
		if c.closed {
			return
		}
		c.late = append(c.late, frame)
		b.wake(c)
		c.afterwards(v)
	})
}

// writeLate writes packets that the interceptor has seen already, or has made.
func (c *conn) writeLate(packets [][]byte) error {
	for _, p := range packets {
		c.b.mu.Lock()
		c.handOver(p)
		c.b.unlock()
		if _, err := c.nc.Write(p); err != nil {
			return err
		}
	}
	return nil
}

// claim takes a Packet Identifier of the client into use, until its packet's last answer is handed to Write.
func (c *conn) claim(id uint16, quota bool) (free bool) {
	if c.inUse(id) {
		return false
	}
	if c.ids == nil {
		c.ids = make(map[uint16]uint64)
	}
	c.ids[id/64] |= 1 << (id % 64)
	if quota {
		c.unanswered++
	}
	return true
}

func (c *conn) inUse(id uint16) bool { return c.ids[id/64]&(1<<(id%64)) != 0 }

// release frees the identifier that a packet to the client is the last answer for.
func (c *conn) release(frame []byte) {
	p := frame[0] >> 4
	switch p {
	case PUBACK, PUBCOMP, PUBREC, SUBACK, UNSUBACK:
	default:
		return
	}
	body := frameBody(frame)
	if len(body) < 2 || p == PUBREC && (len(body) < 3 || body[2] < 0x80) {
		return
	}
	id := uint16(body[0])<<8 | uint16(body[1])
	if !c.inUse(id) {
		return
	}
	if c.ids[id/64] &^= 1 << (id % 64); c.ids[id/64] == 0 {
		delete(c.ids, id/64)
	}
	if p != SUBACK && p != UNSUBACK {
		c.unanswered--
	}
}
