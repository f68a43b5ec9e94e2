package conformance

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"slices"
	"time"

	"github.com/eclipse/paho.golang/packets"
)

// peer is one connection of a client to the server.
type peer struct {
	p      *probe
	conn   net.Conn
	ack    *packets.Connack
	in     chan packet
	closed chan struct{} // by this side
	ended  chan struct{} // the reader has
	held   []packet      // what has come and was not asked for yet
	lastID uint16
}

// connect connects with a Client Identifier of the check's own, and must be accepted.
func (p *probe) connect(id string, change ...func(*packets.Connect)) *peer {
	c := p.open()
	c.send(p.connecting(id, change...))
	if c.ack = next[*packets.Connack](c); c.ack.ReasonCode != 0 {
		p.failf("CONNACK 0x%02X, want 0x00", c.ack.ReasonCode)
	}
	return c
}

// connecting is a CONNECT without a keep-alive.
func (p *probe) connecting(id string, change ...func(*packets.Connect)) *packets.Connect {
	packet := &packets.Connect{ProtocolName: "MQTT", ProtocolVersion: 5, ClientID: p.prefix + "-" + id, Properties: &packets.Properties{ReceiveMaximum: ptr[uint16](1000)}}
	for _, f := range change {
		f(packet)
	}
	return packet
}

// open opens a connection and sends nothing. Everything that comes is read at once.
func (p *probe) open() *peer {
	conn, err := p.dial(p.ctx)
	if err != nil {
		p.failf("dial: %v", err)
	}
	c := &peer{p: p, conn: conn, in: make(chan packet, 4096), closed: make(chan struct{}), ended: make(chan struct{})}
	p.peers = append(p.peers, c)
	go c.read()
	return c
}

func (c *peer) read() {
	defer close(c.ended)
	defer close(c.in)
	in := bufio.NewReader(c.conn)
	for {
		raw, err := readFrame(in)
		if err != nil {
			return
		}
		decoded, err := packets.ReadPacket(bytes.NewReader(raw))
		if err != nil {
			return // as good as the end: whoever waits for the packet fails
		}
		select {
		case c.in <- packet{decoded, raw}:
		case <-c.closed:
			return
		}
	}
}

// close ends the connection, however it stands.
func (c *peer) close() {
	select {
	case <-c.closed:
	default:
		close(c.closed)
	}
	_ = c.conn.Close()
	<-c.ended
}

// cut ends the connection without DISCONNECT, and returns when the server has noticed.
func (c *peer) cut() {
	c.closeWrite()
	c.end()
}

// disconnect ends the connection by a DISCONNECT, and returns when the server has closed it.
func (c *peer) disconnect() {
	c.send(&packets.Disconnect{Properties: &packets.Properties{}})
	c.end()
}

func (c *peer) closeWrite() {
	half, ok := c.conn.(interface{ CloseWrite() error })
	if !ok {
		c.p.failf("the dialer's connections cannot be closed for writing alone")
		return
	}
	_ = half.CloseWrite() // fails where the server has closed already
}

// end reads to the end of the connection, which the server must close, and returns what came before.
func (c *peer) end() []packet {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		select {
		case got, more := <-c.in:
			if !more {
				c.close()
				all := c.held
				c.held = nil
				return all
			}
			c.held = append(c.held, got)
		case <-deadline.C:
			c.p.failf("the server has not closed the connection")
		}
	}
}

// encoder is a packet on its way out.
type encoder interface {
	WriteTo(w io.Writer) (int64, error)
}

// send sends packets in one write.
func (c *peer) send(all ...encoder) {
	var b bytes.Buffer
	for _, e := range all {
		if _, err := e.WriteTo(&b); err != nil {
			c.p.failf("a packet cannot be encoded: %v", err)
		}
	}
	c.raw(b.Bytes())
}

// raw sends any bytes. An error is not the check's: a server that ends a connection reads no further.
func (c *peer) raw(b []byte) {
	_ = c.conn.SetWriteDeadline(time.Now().Add(patience))
	_, _ = c.conn.Write(b)
}

// next returns the next packet of a type; those of other types wait to be asked for.
func next[P packets.Packet](c *peer) P {
	var want P
	for i, got := range c.held {
		if content, ok := got.Content.(P); ok {
			c.held = slices.Delete(c.held, i, i+1)
			return content
		}
	}
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		select {
		case got, more := <-c.in:
			if !more {
				c.p.failf("the connection has ended, want %T; before it came %v", want, c.held)
			}
			if content, ok := got.Content.(P); ok {
				return content
			}
			c.held = append(c.held, got)
		case <-deadline.C:
			c.p.failf("nothing has come, want %T; before came %v", want, c.held)
		}
	}
}

// nextRaw returns the next PUBLISH with its bytes.
func (c *peer) nextRaw() (*packets.Publish, []byte) {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		for i, got := range c.held {
			if content, ok := got.Content.(*packets.Publish); ok {
				c.held = slices.Delete(c.held, i, i+1)
				return content, got.raw
			}
		}
		select {
		case got, more := <-c.in:
			if !more {
				c.p.failf("the connection has ended, want PUBLISH; before it came %v", c.held)
			}
			c.held = append(c.held, got)
		case <-deadline.C:
			c.p.failf("nothing has come, want PUBLISH; before came %v", c.held)
		}
	}
}

// expect wants a PUBLISH of a payload next.
func (c *peer) expect(payload string, qos byte, dup bool) *packets.Publish {
	got := next[*packets.Publish](c)
	if string(got.Payload) != payload || got.QoS != qos || got.Duplicate != dup {
		c.p.failf("PUBLISH %q, QoS %d, DUP %t; want %q, QoS %d, DUP %t", clip(got.Payload), got.QoS, got.Duplicate, payload, qos, dup)
	}
	return got
}

// expectAll wants PUBLISHes of these payloads, in this order.
func (c *peer) expectAll(qos byte, dup bool, payloads ...string) []*packets.Publish {
	all := make([]*packets.Publish, 0, len(payloads))
	for _, payload := range payloads {
		all = append(all, c.expect(payload, qos, dup))
	}
	return all
}

// silent wants that nothing has come but what was asked for, and that nothing is on its way. What the server has for a connection
// it sends before a PINGRESP.
func (c *peer) silent() {
	if rest := c.rest(); len(rest) > 0 {
		c.p.failf("unexpected: %v", rest)
	}
}

// rest takes whatever has come and is on its way, but PINGRESP.
func (c *peer) rest() []packet {
	c.p.arrive()
	c.ping()
	rest := c.held
	c.held = nil
	return rest
}

func (c *peer) ping() {
	c.raw([]byte{packets.PINGREQ << 4, 0})
	next[*packets.Pingresp](c)
}

// payloadsOf are the payloads of the PUBLISHes among packets.
func payloadsOf(all []packet) []string {
	var out []string
	for _, got := range all {
		if content, ok := got.Content.(*packets.Publish); ok {
			out = append(out, string(content.Payload))
		}
	}
	return out
}

// expectRefusal wants DISCONNECT with one of some codes, and the end.
func (c *peer) expectRefusal(codes ...byte) {
	for _, got := range c.end() {
		if d, ok := got.Content.(*packets.Disconnect); ok {
			if !slices.Contains(codes, d.ReasonCode) {
				c.p.failf("DISCONNECT 0x%02X, want 0x%02X", d.ReasonCode, codes)
			}
			return
		}
	}
	c.p.failf("the connection was closed without DISCONNECT, want 0x%02X", codes)
}

func clip(payload []byte) []byte { return payload[:min(len(payload), 32)] }
