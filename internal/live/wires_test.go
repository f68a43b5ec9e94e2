package live_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/eclipse/paho.golang/packets"
)

// wires dials for an app (settle.Config.Dial) and sees every packet that passes, so that a test can tell what was said and not only what came of it.
// It can also take the network away from one of an app's two connections.
type wires struct {
	// on is called with every whole packet, in the order of each direction; outgoing ones before they are written. It must not block.
	on func(c *wire, outgoing bool, packet frame)

	mu      sync.Mutex
	conns   []*wire
	refused map[string]bool // by client identifier
}

// frame is a whole packet, as on the wire.
type frame []byte

func (f frame) kind() byte { return f[0] >> 4 }

// body is what follows the fixed header.
func (f frame) body() []byte {
	_, n := binary.Uvarint(f[1:])
	return f[1+n:]
}

// acknowledged is the packet identifier of a PUBACK, a PUBREC, a PUBREL or a PUBCOMP.
func (f frame) acknowledged() uint16 { return binary.BigEndian.Uint16(f.body()) }

// publish takes a PUBLISH apart. The identifier is 0 at QoS 0.
func (f frame) publish() (topic string, id uint16, dup bool, payload []byte) {
	b := f.body()
	n := int(binary.BigEndian.Uint16(b))
	topic, b = string(b[2:2+n]), b[2+n:]
	if f[0]&0x06 != 0 {
		id, b = binary.BigEndian.Uint16(b), b[2:]
	}
	properties, n := binary.Uvarint(b)
	return topic, id, f[0]&0x08 != 0, b[n+int(properties):]
}

// decode is the packet as paho understands it.
func (f frame) decode(t testing.TB) any {
	t.Helper()
	packet, err := packets.ReadPacket(&byteReader{f})
	if err != nil {
		t.Fatalf("a packet of type %d does not decode: %v", f.kind(), err)
	}
	return packet.Content
}

type byteReader struct{ rest []byte }

func (r *byteReader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// wire is one connection of an app.
type wire struct {
	*net.TCPConn
	all      *wires
	index    int
	in, out  splitter
	clientID string // known once CONNECT is written
	reads    int    // calls of Read; for on alone

	ghost chan struct{} // closed when the network was taken away
	awake chan struct{} // closed when the app may notice
	once  [2]sync.Once
}

func (w *wires) dial(ctx context.Context, server *url.URL) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", server.Host)
	if err != nil {
		return nil, err //nolint:wrapcheck // it is as if nobody stood between
	}
	c := &wire{TCPConn: conn.(*net.TCPConn), all: w, ghost: make(chan struct{}), awake: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	c.index = len(w.conns)
	w.conns = append(w.conns, c)
	return c, nil
}

// vanish takes the network away from a client identifier: the server sees its connection end, and the app sees nothing, until appear.
func (w *wires) vanish(clientID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refused == nil {
		w.refused = make(map[string]bool)
	}
	w.refused[clientID] = true
	for _, c := range w.conns {
		if c.clientID == clientID {
			c.once[0].Do(func() { close(c.ghost) })
			_ = c.TCPConn.Close()
		}
	}
}

// appear ends vanish.
func (w *wires) appear(clientID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.refused, clientID)
	for _, c := range w.conns {
		if c.clientID == clientID && c.isGhost() {
			c.once[1].Do(func() { close(c.awake) })
		}
	}
}

func (c *wire) isGhost() bool {
	select {
	case <-c.ghost:
		return true
	default:
		return false
	}
}

var errRefused = errors.New("the test refuses this connection")

func (c *wire) Write(p []byte) (int, error) {
	refused := false
	c.out.split(p, func(f frame) {
		if f.kind() == packets.CONNECT {
			refused = c.connects(f)
		}
		if c.all.on != nil {
			c.all.on(c, true, f)
		}
	})
	if refused {
		_ = c.TCPConn.Close()
		return 0, errRefused
	}
	n, err := c.TCPConn.Write(p)
	if err != nil && c.isGhost() {
		return len(p), nil
	}
	return n, err //nolint:wrapcheck // it is as if nobody stood between
}

// connects takes the client identifier from a CONNECT, and reports whether it is refused.
func (c *wire) connects(f frame) bool {
	packet, err := packets.ReadPacket(&byteReader{f})
	if err != nil {
		return false
	}
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.clientID = packet.Content.(*packets.Connect).ClientID
	return c.all.refused[c.clientID]
}

func (c *wire) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	if c.isGhost() {
		<-c.awake
		return 0, io.EOF
	}
	c.reads++
	c.in.split(p[:n], func(f frame) {
		if c.all.on != nil {
			c.all.on(c, false, f)
		}
	})
	return n, err //nolint:wrapcheck // it is as if nobody stood between
}

func (c *wire) CloseWrite() error {
	if c.isGhost() {
		c.once[1].Do(func() { close(c.awake) })
	}
	return c.TCPConn.CloseWrite() //nolint:wrapcheck // it is as if nobody stood between
}

func (c *wire) Close() error {
	c.once[1].Do(func() { close(c.awake) })
	return c.TCPConn.Close() //nolint:wrapcheck // it is as if nobody stood between
}

// splitter cuts a stream into packets.
type splitter struct{ rest []byte }

func (s *splitter) split(p []byte, each func(frame)) {
	data := p
	if len(s.rest) > 0 {
		s.rest = append(s.rest, p...)
		data = s.rest
	}
	for len(data) >= 2 {
		length, n := binary.Uvarint(data[1:min(len(data), 5)])
		size := 1 + n + int(length)
		if n <= 0 || size > len(data) {
			break
		}
		each(data[:size])
		data = data[size:]
	}
	s.rest = append(s.rest[:0], data...)
}
