package chaos

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/eclipse/paho.golang/packets"
)

// The headers of copies and dead letters that tell which they are; docs/guarantees.md has them all.
const (
	attemptHeader = "settle-attempt"
	copyHeader    = "settle-copy-id"
)

// tap dials for a consumer (settle.Config.Dial), and tells the journal which packets pass, where the kernel takes them: behind the proxy one could
// not see what a reset has swallowed.
type tap struct {
	journal *journal
	conns   atomic.Uint32
}

type tapped struct {
	*net.TCPConn
	journal *journal
	number  uint16

	// Guarded by the journal's lock.
	in, out splitter
	second  bool // it is that of the retry topic
	fresh   bool // nothing of the present Read has been told
	ended   bool
	shown   map[uint16]parcel // by Packet Identifier
}

// parcel is what is delivered: a message as it was published, or one of its retry copies.
type parcel struct {
	unit, copy uint32
	attempt    uint8 // that the handler will see
	foreign    bool  // a marker
}

func (t *tap) dial(ctx context.Context, server *url.URL) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", server.Host)
	if err != nil {
		return nil, err
	}
	return &tapped{
		TCPConn: conn.(*net.TCPConn),                                                       //nolint:forcetypeassert // what dialling tcp gives
		journal: t.journal, number: uint16(t.conns.Add(1)), shown: make(map[uint16]parcel), //nolint:gosec // a process does not live so long
	}, nil
}

func (c *tapped) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	c.journal.mu.Lock()
	defer c.journal.mu.Unlock()
	c.fresh = true
	c.in.split(p[:n], c.came)
	if err != nil {
		c.end(errors.Is(err, io.EOF))
	}
	c.journal.flush()
	return n, err
}

func (c *tapped) Write(p []byte) (int, error) {
	c.journal.mu.Lock()
	c.out.split(p, c.leaves)
	c.journal.flush()
	c.journal.mu.Unlock()
	n, err := c.TCPConn.Write(p)
	if err != nil {
		c.journal.mu.Lock()
		defer c.journal.mu.Unlock()
		c.end(false)
		c.journal.flush()
	}
	return n, err
}

func (c *tapped) Close() error {
	c.journal.mu.Lock()
	c.end(false)
	c.journal.flush()
	c.journal.mu.Unlock()
	return c.TCPConn.Close()
}

// end is called with the journal's lock held.
func (c *tapped) end(orderly bool) {
	if c.ended {
		return
	}
	c.ended = true
	e := event{kind: eventLost, conn: c.number}
	if orderly {
		e.flags = flagOrderly
	}
	c.journal.add(e)
}

// came is called with the journal's lock held, as leaves is.
func (c *tapped) came(frame []byte) {
	switch frame[0] >> 4 {
	case packets.CONNACK:
		body := bodyOf(frame)
		if body[1] != 0 {
			return
		}
		e := event{kind: eventConnected, conn: c.number, flags: body[0] & flagPresent}
		if c.second {
			e.copy = 1
		}
		c.journal.add(e)
	case packets.PUBLISH:
		id, p, ok := c.message(frame)
		if !ok {
			return
		}
		c.shown[id] = p
		e := event{kind: eventShown, conn: c.number, id: id, unit: p.unit, copy: p.copy, attempt: p.attempt, flags: frame[0] >> 3 & flagDup}
		if c.fresh {
			e.flags |= flagFirst
			c.fresh = false
		}
		if p.foreign {
			e.flags |= flagForeign
		}
		c.journal.add(e)
	case packets.PUBACK:
		body := bodyOf(frame)
		e := event{kind: eventConfirmed, conn: c.number, id: binary.BigEndian.Uint16(body)}
		if len(body) > 2 {
			e.code = body[2]
		}
		c.journal.add(e)
	}
}

func (c *tapped) leaves(frame []byte) {
	switch frame[0] >> 4 {
	case packets.CONNECT:
		if packet, err := packets.ReadPacket(bytes.NewReader(frame)); err == nil {
			c.second = strings.HasSuffix(packet.Content.(*packets.Connect).ClientID, "-retry") //nolint:forcetypeassert // it is one
		}
	case packets.DISCONNECT:
		c.journal.add(event{kind: eventParted, conn: c.number})
	case packets.PUBACK, packets.PUBREC:
		id := binary.BigEndian.Uint16(bodyOf(frame))
		p, known := c.shown[id]
		if p.foreign {
			return
		}
		e := event{kind: eventAcknowledged, conn: c.number, id: id, unit: p.unit, copy: p.copy, attempt: p.attempt}
		if !known {
			e.flags = flagUnknown
		}
		c.journal.add(e)
	case packets.PUBLISH:
		topic, id, properties, payload := takeApart(frame)
		unit, _, ok := numbersOf(payload)
		if !ok {
			return // a marker
		}
		e := event{kind: eventPublished, conn: c.number, id: id, unit: unit}
		e.attempt, e.copy = copyOf(properties)
		if string(topic) == deadTopic {
			e.flags = flagDead
		}
		c.journal.add(e)
	}
}

// message tells what an inbound PUBLISH brings.
func (c *tapped) message(frame []byte) (id uint16, p parcel, ok bool) {
	if frame[0]&6 == 0 {
		return 0, p, false
	}
	_, id, properties, payload := takeApart(frame)
	p.unit, _, ok = numbersOf(payload)
	switch {
	case !ok:
		return id, parcel{foreign: true}, true
	case c.second:
		p.attempt, p.copy = copyOf(properties)
	}
	p.attempt++
	return id, p, true
}

func bodyOf(frame []byte) []byte {
	_, n := binary.Uvarint(frame[1:])
	return frame[1+n:]
}

// takeApart takes a PUBLISH at QoS 1 or 2 apart.
func takeApart(frame []byte) (topic []byte, id uint16, properties, payload []byte) {
	b := bodyOf(frame)
	n := 2 + int(binary.BigEndian.Uint16(b))
	topic, b = b[2:n], b[n:]
	id, b = binary.BigEndian.Uint16(b), b[2:]
	length, n := binary.Uvarint(b)
	end := n + int(length) //nolint:gosec // a length that the server or the app has sent
	return topic, id, b[n:end], b[end:]
}

// copyOf reads the attempts that have been made, and the digest of the copy's id, which is never 0.
func copyOf(properties []byte) (attempts uint8, id uint32) {
	if text, ok := property(properties, attemptHeader); ok {
		n, _ := strconv.ParseUint(string(text), 10, 8)
		attempts = uint8(n)
	}
	if text, ok := property(properties, copyHeader); ok {
		h := fnv.New32a()
		_, _ = h.Write(text)
		id = max(h.Sum32(), 1)
	}
	return attempts, id
}

// property finds a user property whose name occurs nowhere else.
func property(properties []byte, name string) (value []byte, ok bool) {
	i := bytes.Index(properties, []byte(name))
	if i < 0 || len(properties) < i+len(name)+2 {
		return nil, false
	}
	rest := properties[i+len(name):]
	n := int(binary.BigEndian.Uint16(rest))
	if len(rest) < 2+n {
		return nil, false
	}
	return rest[2 : 2+n], true
}

// splitter cuts a stream into packets.
type splitter struct{ rest []byte }

func (s *splitter) split(p []byte, each func([]byte)) {
	data := p
	if len(s.rest) > 0 {
		s.rest = append(s.rest, p...)
		data = s.rest
	}
	for len(data) >= 2 {
		length, n := binary.Uvarint(data[1:min(len(data), 5)])
		if n <= 0 || 1+n+int(length) > len(data) { //nolint:gosec // four bytes at the most
			break
		}
		size := 1 + n + int(length) //nolint:gosec // as above
		each(data[:size])
		data = data[size:]
	}
	s.rest = append(s.rest[:0], data...)
}
