package settle

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"sync"

	"github.com/settlemq/settle/internal/broker"
)

var errDead = errors.New("the process is dead")

// tap is a connection of a process, seen from its end: it knows what the process has read and what it has tried to write, of which the
// server may know nothing. It can break after any byte.
type tap struct {
	net.Conn
	p *process

	mu      sync.Mutex
	in, out frames
	client  string // from CONNECT
	limits  []*limit
	shown   map[string]bool // messages, and ids of copies, that were read from it
	acked   []uint16        // identifiers that PUBACK was written for
	names   map[uint16]string
	session bool // CONNACK was read
	ended   bool
}

// limit is where a wire breaks.
type limit struct {
	out  bool
	left int
}

// severIf breaks the wire, if it is the client's, after more bytes in a direction.
func (w *tap) severIf(client string, out bool, after int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.client == client {
		w.limits = append(w.limits, &limit{out, after})
	}
}

// spare takes back that the wire is to break.
func (w *tap) spare() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.limits = nil
}

// allow is how many of n bytes may pass, and whether the wire breaks after them.
func (w *tap) allow(out bool, n int) (allowed int, breaks bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	allowed = n
	for _, l := range w.limits {
		if l.out == out {
			allowed = min(allowed, l.left)
		}
	}
	for _, l := range w.limits {
		if l.out == out {
			l.left -= allowed
			breaks = breaks || l.left == 0
		}
	}
	return allowed, breaks
}

func (w *tap) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	n, breaks := w.allow(false, n)
	if breaks {
		_ = w.Conn.Close()
		err = net.ErrClosed
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.in.feed(b[:n], w.read)
	return n, err
}

func (w *tap) Write(b []byte) (int, error) {
	if w.p.isDead() {
		return 0, errDead
	}
	allowed, breaks := w.allow(true, len(b))
	w.mu.Lock()
	w.out.feed(b, w.wrote) // what does not arrive was written too, as far as the process can know
	w.mu.Unlock()
	n, err := w.Conn.Write(b[:allowed])
	if breaks {
		_ = w.Conn.Close()
		if err == nil && n < len(b) {
			err = net.ErrClosed
		}
	}
	if err != nil {
		w.end()
	}
	return n, err
}

func (w *tap) CloseWrite() error {
	return w.Conn.(interface{ CloseWrite() error }).CloseWrite()
}

func (w *tap) Close() error {
	err := w.Conn.Close()
	w.end()
	return err
}

// end tells the account, once, what the connection leaves behind.
func (w *tap) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		w.ended = true
		w.p.forget(w)
		w.p.w.account.ended(w)
	}
}

// read is called for each packet that the process has read.
func (w *tap) read(frame []byte) {
	switch frame[0] >> 4 {
	case broker.CONNACK:
		w.session = true
	case broker.PUBACK:
		w.p.w.account.answered(w.client, binary.BigEndian.Uint16(frame[2:]))
	case broker.PUBLISH:
		m, ok := readPublish(frame)
		if !ok {
			return
		}
		name := m.name()
		w.shown[name] = true
		w.names[m.id] = name
		w.p.w.account.received(w.p, w.client, m)
	}
}

// wrote is called for each packet that the process has tried to write.
func (w *tap) wrote(frame []byte) {
	_, size := binary.Uvarint(frame[1:])
	body := frame[1+size:]
	switch frame[0] >> 4 {
	case broker.CONNECT:
		properties, n := binary.Uvarint(body[10:])
		id := body[10+n+int(properties):]
		w.client = string(id[2 : 2+binary.BigEndian.Uint16(id)])
		w.p.know(w)
	case broker.PUBACK:
		w.acked = append(w.acked, binary.BigEndian.Uint16(body))
	}
}

// frames finds the packets in a stream.
type frames struct{ rest []byte }

func (f *frames) feed(b []byte, each func(frame []byte)) {
	f.rest = append(f.rest, b...)
	for len(f.rest) > 1 {
		length, size := binary.Uvarint(f.rest[1:]) // the same as a Variable Byte Integer
		if size <= 0 || len(f.rest) < 1+size+int(length) {
			break
		}
		each(f.rest[:1+size+int(length)])
		f.rest = f.rest[1+size+int(length):]
	}
}

// sighting is a PUBLISH as the account needs it.
type sighting struct {
	topic   string
	id      uint16
	payload string
	copyID  string // of a retry copy
	route   string // of a copy or a dead letter
}

// name is what tells it from others: the payload, or for a copy its id.
func (m sighting) name() string {
	if m.copyID != "" {
		return m.copyID
	}
	return m.payload
}

func readPublish(frame []byte) (m sighting, ok bool) {
	_, size := binary.Uvarint(frame[1:])
	b := frame[1+size:]
	n := 2 + int(binary.BigEndian.Uint16(b))
	m.topic, b = string(b[2:n]), b[n:]
	if frame[0]&6 != 0 {
		m.id, b = binary.BigEndian.Uint16(b), b[2:]
	}
	length, size := binary.Uvarint(b)
	properties := b[size : size+int(length)]
	m.payload = string(b[size+int(length):])
	if bytes.Contains(properties, []byte(headerMarker)) {
		return m, false
	}
	m.route = headerIn(properties, headerRoute)
	if strings.HasPrefix(m.topic, "retry/") {
		m.copyID = headerIn(properties, headerCopyID)
	}
	return m, true
}

// headerIn finds one of our headers, none of which stands in a value of another.
func headerIn(properties []byte, name string) string {
	_, value, found := bytes.Cut(properties, append(binary.BigEndian.AppendUint16(nil, uint16(len(name))), name...))
	if !found {
		return ""
	}
	return string(value[2 : 2+binary.BigEndian.Uint16(value)])
}
