// Package linktest scripts the server's side of a connection, for what no well-behaved server shows: a test says packet by
// packet what is expected and what is sent. It works over unbuffered pipes, also inside a testing/synctest bubble.
//
//	server := linktest.NewServer(t)
//	// … link.Config{Dial: server.Dial} …
//	c := server.Accept()
//	c.Handshake(false, 1)                                 // CONNECT, CONNACK, one SUBSCRIBE granted
//	c.Send(linktest.Publish("a/b", 1, 7, "payload"))
//	ack := linktest.Expect[*packets.Puback](c)
package linktest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
)

// Patience is how long Accept and the expectations wait before they fail the test. Inside a bubble it is fake time, and long
// enough for the backoff after a takeover.
const Patience = 2 * time.Minute

// Packet is one of the packets package's packets, on its way out.
type Packet interface {
	WriteTo(io.Writer) (int64, error)
}

// Server takes the dials of a link.
type Server struct {
	tb    testing.TB
	dials chan *Conn
}

// NewServer returns a server that waits for dials.
func NewServer(tb testing.TB) *Server {
	tb.Helper()
	return &Server{tb: tb, dials: make(chan *Conn)}
}

// Dial is for link.Config: it hands one end of a pipe to whoever calls Accept, and waits for him. The end that it returns
// can close its write side alone, as TCP can.
func (s *Server) Dial(ctx context.Context, server *url.URL) (net.Conn, error) {
	client, peer := Pipe()
	select {
	case s.dials <- &Conn{Conn: peer, URL: server, tb: s.tb}:
		return client, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Accept waits for the next dial.
func (s *Server) Accept() *Conn {
	s.tb.Helper()
	timer := time.NewTimer(Patience)
	defer timer.Stop()
	select {
	case c := <-s.dials:
		return c
	case <-timer.C:
		s.tb.Fatalf("nobody has dialled within %s", Patience)
		return nil
	}
}

// Conn is the server's end of one connection. Its methods are for one goroutine and fail the test where the peer does
// something else than expected.
type Conn struct {
	net.Conn
	URL *url.URL // that was dialled
	tb  testing.TB
}

// NewConn scripts a connection that somebody else has accepted.
func NewConn(tb testing.TB, c net.Conn) *Conn {
	tb.Helper()
	return &Conn{Conn: c, tb: tb}
}

// Next returns the packet that comes next.
func (c *Conn) Next() *packets.ControlPacket {
	c.tb.Helper()
	_ = c.SetReadDeadline(time.Now().Add(Patience))
	cp, err := packets.ReadPacket(c.Conn)
	if err != nil {
		c.tb.Fatalf("expected a packet: %v", err)
	}
	return cp
}

// Expect returns the packet that comes next, which must be a P: *packets.Connect, *packets.Publish and so on.
func Expect[P packets.Packet](c *Conn) P {
	c.tb.Helper()
	cp := c.Next()
	p, ok := cp.Content.(P)
	if !ok {
		c.tb.Fatalf("expected %T, got %s", p, cp.PacketType())
	}
	return p
}

// Disconnect is a client's DISCONNECT.
type Disconnect struct {
	Code             byte
	HasSessionExpiry bool
	SessionExpiry    uint32 // seconds
}

// ExpectDisconnect returns the DISCONNECT that comes next. It reads the empty form, which the packets package does not.
func (c *Conn) ExpectDisconnect() Disconnect {
	c.tb.Helper()
	_ = c.SetReadDeadline(time.Now().Add(Patience))
	head := make([]byte, 2)
	if _, err := io.ReadFull(c.Conn, head); err != nil {
		c.tb.Fatalf("expected DISCONNECT: %v", err)
	}
	if head[0] != packets.DISCONNECT<<4 || head[1] >= 128 {
		c.tb.Fatalf("expected DISCONNECT, got a packet that begins %x", head)
	}
	if head[1] == 0 {
		return Disconnect{}
	}
	cp, err := packets.ReadPacket(io.MultiReader(bytes.NewReader(head), c.Conn))
	if err != nil {
		c.tb.Fatalf("DISCONNECT: %v", err)
	}
	d, ok := cp.Content.(*packets.Disconnect)
	if !ok {
		c.tb.Fatalf("expected DISCONNECT, got %s", cp.PacketType())
	}
	out := Disconnect{Code: d.ReasonCode}
	if d.Properties.SessionExpiryInterval != nil {
		out.HasSessionExpiry, out.SessionExpiry = true, *d.Properties.SessionExpiryInterval
	}
	return out
}

// ExpectEOF says that the peer sends nothing more: it closes its write side, or the connection.
func (c *Conn) ExpectEOF() {
	c.tb.Helper()
	_ = c.SetReadDeadline(time.Now().Add(Patience))
	rest, err := io.ReadAll(c.Conn)
	if err != nil && !errors.Is(err, io.ErrClosedPipe) {
		c.tb.Fatalf("expected the end of the stream: %v", err)
	}
	if len(rest) > 0 {
		c.tb.Fatalf("expected the end of the stream, got %d bytes: %x", len(rest), rest)
	}
}

// Send sends packets.
func (c *Conn) Send(out ...Packet) {
	c.tb.Helper()
	_ = c.SetWriteDeadline(time.Now().Add(Patience))
	for _, p := range out {
		if _, err := p.WriteTo(c.Conn); err != nil {
			c.tb.Fatalf("send %T: %v", p, err)
		}
	}
}

// SendRaw sends bytes in one Write, so that they are in one segment.
func (c *Conn) SendRaw(b []byte) {
	c.tb.Helper()
	_ = c.SetWriteDeadline(time.Now().Add(Patience))
	if _, err := c.Write(b); err != nil {
		c.tb.Fatalf("send: %v", err)
	}
}

// Handshake takes CONNECT, accepts it with or without a session, and grants n SUBSCRIBEs as they ask.
func (c *Conn) Handshake(present bool, n int) *packets.Connect {
	c.tb.Helper()
	connect := Expect[*packets.Connect](c)
	c.Send(Connack(present))
	c.Grant(n)
	return connect
}

// Grant takes n SUBSCRIBEs and grants each filter the QoS that it asks for.
func (c *Conn) Grant(n int) []*packets.Subscribe {
	c.tb.Helper()
	asked := make([]*packets.Subscribe, n)
	for i := range asked {
		asked[i] = Expect[*packets.Subscribe](c)
		codes := make([]byte, len(asked[i].Subscriptions))
		for j, s := range asked[i].Subscriptions {
			codes[j] = s.QoS
		}
		c.Send(&packets.Suback{PacketID: asked[i].PacketID, Reasons: codes})
	}
	return asked
}

// Connack accepts a connection.
func Connack(present bool) *packets.Connack {
	return &packets.Connack{SessionPresent: present, Properties: &packets.Properties{}}
}

// Publish is a PUBLISH from the server; id is left out at QoS 0.
func Publish(topic string, qos byte, id uint16, payload string) *packets.Publish {
	return &packets.Publish{Topic: topic, QoS: qos, PacketID: id, Payload: []byte(payload), Properties: &packets.Properties{}}
}

// Bytes encodes packets one behind the other.
func Bytes(out ...Packet) []byte {
	var b bytes.Buffer
	for _, p := range out {
		_, _ = p.WriteTo(&b)
	}
	return b.Bytes()
}

// duplex is one end of a connection made of two unbuffered pipes, so that each direction can be closed alone.
type duplex struct{ in, out net.Conn }

// Pipe returns the two ends of an unbuffered connection. Each has a CloseWrite method.
func Pipe() (net.Conn, net.Conn) {
	aIn, bOut := net.Pipe()
	bIn, aOut := net.Pipe()
	return duplex{aIn, aOut}, duplex{bIn, bOut}
}

func (d duplex) Read(p []byte) (int, error)         { return d.in.Read(p) }
func (d duplex) Write(p []byte) (int, error)        { return d.out.Write(p) }
func (d duplex) CloseWrite() error                  { return d.out.Close() }
func (d duplex) Close() error                       { return errors.Join(d.in.Close(), d.out.Close()) }
func (d duplex) LocalAddr() net.Addr                { return d.in.LocalAddr() }
func (d duplex) RemoteAddr() net.Addr               { return d.in.RemoteAddr() }
func (d duplex) SetReadDeadline(t time.Time) error  { return d.in.SetReadDeadline(t) }
func (d duplex) SetWriteDeadline(t time.Time) error { return d.out.SetWriteDeadline(t) }
func (d duplex) SetDeadline(t time.Time) error {
	return errors.Join(d.SetReadDeadline(t), d.SetWriteDeadline(t))
}
