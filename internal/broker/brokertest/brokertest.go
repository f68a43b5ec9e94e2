// Package brokertest scripts the in-process server: a test says packet by packet what is expected and what is sent, for what no
// well-behaved server shows. It is [broker.Broker.Script] with the failures of a test, and works inside a testing/synctest
// bubble. Where a test fails, the wire log of its connections is printed.
//
// Nothing between the two ends has a buffer: Send returns when the client has read all of it, and a client's Write when the test has asked
// for all that it has.
//
//	server := brokertest.NewServer(t)
//	// … link.Config{Dial: server.Dial} …
//	c := server.Accept()
//	c.Handshake(false, 1)                                 // CONNECT, CONNACK, one SUBSCRIBE granted
//	c.Send(brokertest.Publish("a/b", 1, 7, "payload"))
//	ack := brokertest.Expect[*packets.Puback](c)
package brokertest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/settlemq/settle/internal/broker"
)

// Patience is how long Accept and the expectations wait before they fail the test. Inside a bubble it is fake time, and long
// enough for the backoff after a takeover.
const Patience = 2 * time.Minute

// Packet is one of the packets package's packets, on its way out.
type Packet interface {
	WriteTo(io.Writer) (int64, error)
}

// Server takes the dials of a client.
type Server struct {
	tb     testing.TB
	broker *broker.Broker
	dials  chan *Conn

	mu    sync.Mutex
	conns []*Conn
}

// NewServer returns a server that waits for dials.
func NewServer(tb testing.TB) *Server {
	tb.Helper()
	s := &Server{tb: tb, broker: broker.New(broker.Options{}), dials: make(chan *Conn)}
	tb.Cleanup(func() {
		if tb.Failed() {
			s.printWires()
		}
	})
	return s
}

func (s *Server) printWires() {
	s.mu.Lock()
	defer s.mu.Unlock()
	printed := make(map[string]bool)
	for _, c := range s.conns {
		if id := c.ClientID(); id != "" && !printed[id] {
			printed[id] = true
			s.tb.Logf("the wire of %q:\n%s", id, strings.Join(s.broker.WireLog(id), "\n"))
		}
	}
}

func (s *Server) conn(script *broker.Script, server *url.URL) *Conn {
	c := &Conn{Script: script, URL: server, tb: s.tb}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(s.conns, c)
	return c
}

// Pipe is a new connection: the client's end, which can close its write side alone, as TCP can, and the server's.
func (s *Server) Pipe(server *url.URL) (client net.Conn, c *Conn) {
	client, script := s.broker.Script()
	return client, s.conn(script, server)
}

// On is the server's end of a connection that somebody has accepted.
func (s *Server) On(nc net.Conn) *Conn {
	return s.conn(s.broker.ScriptOn(nc), nil)
}

// Dial hands the server's end of a new connection to whoever calls Accept, and waits for him.
func (s *Server) Dial(ctx context.Context, server *url.URL) (net.Conn, error) {
	client, c := s.Pipe(server)
	select {
	case s.dials <- c:
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
	*broker.Script
	URL *url.URL // that was dialled
	tb  testing.TB
}

// Next returns the packet that comes next.
func (c *Conn) Next() *packets.ControlPacket {
	c.tb.Helper()
	_ = c.SetReadDeadline(time.Now().Add(Patience))
	p, err := c.Script.Next()
	if err != nil {
		c.tb.Fatalf("expected a packet: %v", err)
	}
	cp, err := p.Decode()
	if err != nil {
		c.tb.Fatalf("%s: %v", broker.TypeName(p.Type), err)
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

// ExpectDisconnect returns the DISCONNECT that comes next.
func (c *Conn) ExpectDisconnect() Disconnect {
	c.tb.Helper()
	d := Expect[*packets.Disconnect](c)
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
	p, err := c.Script.Next()
	switch {
	case err == nil:
		c.tb.Fatalf("expected the end of the stream, got %s: %x", broker.TypeName(p.Type), p.Bytes)
	case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe):
		c.tb.Fatalf("expected the end of the stream: %v", err)
	}
}

// Send sends packets, each in a segment of its own.
func (c *Conn) Send(out ...Packet) {
	c.tb.Helper()
	for _, p := range out {
		c.SendRaw(Bytes(p))
	}
}

// SendRaw sends bytes in one Write, so that they are in one segment.
func (c *Conn) SendRaw(b []byte) {
	c.tb.Helper()
	_ = c.SetWriteDeadline(time.Now().Add(Patience))
	if err := c.Script.Send(b); err != nil {
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
