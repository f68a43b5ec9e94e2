package broker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait; inside a bubble it is fake time.
const patience = time.Minute

// out is a packet on its way out.
type out interface {
	WriteTo(w io.Writer) (int64, error)
}

// bubble runs a test in a bubble, with a server that is closed at its end.
func bubble(t *testing.T, o Options, f func(t *testing.T, b *Broker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := New(o)
		defer b.Close()
		f(t, b)
	})
}

// client speaks to the server packet by packet.
type client struct {
	t *testing.T
	net.Conn
	read chan *packets.ControlPacket // closed at the end of the stream
}

// dial connects without a CONNECT. What the server sends is read at once, as a client must.
func dial(t *testing.T, b *Broker) *client {
	t.Helper()
	nc, err := b.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return newClient(t, nc)
}

func newClient(t *testing.T, nc net.Conn) *client {
	c := &client{t: t, Conn: nc, read: make(chan *packets.ControlPacket, 100_000)}
	go func() {
		defer close(c.read)
		for {
			cp, err := packets.ReadPacket(nc)
			if err != nil {
				return
			}
			c.read <- cp
		}
	}()
	t.Cleanup(func() { _ = nc.Close() })
	return c
}

func (c *client) send(packets ...out) {
	c.t.Helper()
	c.raw(encoded(packets...))
}

// raw sends bytes in one Write. An error is not the test's: a server that ends a connection reads no further.
func (c *client) raw(b []byte) {
	c.t.Helper()
	_ = c.SetWriteDeadline(time.Now().Add(patience))
	if _, err := c.Write(b); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		c.t.Fatalf("send: %v", err)
	}
}

func encoded(packets ...out) []byte {
	var b bytes.Buffer
	for _, p := range packets {
		_, _ = p.WriteTo(&b)
	}
	return b.Bytes()
}

// next returns the packet that comes next, nil at the end of the stream.
func (c *client) next() *packets.ControlPacket {
	c.t.Helper()
	select {
	case cp := <-c.read:
		return cp
	case <-time.After(patience):
		c.t.Fatalf("nothing has come within %s", patience)
		return nil
	}
}

// expect returns the packet that comes next, which must be a P.
func expect[P packets.Packet](c *client) P {
	c.t.Helper()
	cp := c.next()
	var p P
	if cp == nil {
		c.t.Fatalf("expected %T, and the connection has ended", p)
		return p
	}
	p, ok := cp.Content.(P)
	if !ok {
		c.t.Fatalf("expected %T, got %v", p, cp)
	}
	return p
}

func (c *client) expectEnd() {
	c.t.Helper()
	if cp := c.next(); cp != nil {
		c.t.Fatalf("expected the end of the connection, got %v", cp)
	}
}

// expectDisconnect wants DISCONNECT with a code, and the end.
func (c *client) expectDisconnect(code byte) {
	c.t.Helper()
	if d := expect[*packets.Disconnect](c); d.ReasonCode != code {
		c.t.Fatalf("DISCONNECT 0x%02X %q, want 0x%02X", d.ReasonCode, d.Properties.ReasonString, code)
	}
	c.expectEnd()
}

// silent wants nothing to come as long as nobody does anything.
func (c *client) silent() {
	c.t.Helper()
	synctest.Wait()
	select {
	case cp, ok := <-c.read:
		if !ok {
			c.t.Fatal("expected nothing, and the connection has ended")
		}
		c.t.Fatalf("expected nothing, got %v", cp)
	default:
	}
}

// connecting is a CONNECT with a session of an hour.
func connecting(id string, change ...func(*packets.Connect)) *packets.Connect {
	p := &packets.Connect{
		ProtocolName: "MQTT", ProtocolVersion: 5, ClientID: id,
		Properties: &packets.Properties{SessionExpiryInterval: ptr[uint32](3600)},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func ptr[T any](v T) *T { return &v }

func cleanStart(p *packets.Connect) { p.CleanStart = true }

func expiry(seconds uint32) func(*packets.Connect) {
	return func(p *packets.Connect) { p.Properties.SessionExpiryInterval = &seconds }
}

func receiveMaximum(n uint16) func(*packets.Connect) {
	return func(p *packets.Connect) { p.Properties.ReceiveMaximum = &n }
}

// connectAs connects, and returns the client and its CONNACK, which accepts it.
func connectAs(t *testing.T, b *Broker, id string, change ...func(*packets.Connect)) (*client, *packets.Connack) {
	t.Helper()
	c := dial(t, b)
	c.send(connecting(id, change...))
	ack := expect[*packets.Connack](c)
	if ack.ReasonCode != 0 {
		t.Fatalf("CONNACK 0x%02X %q", ack.ReasonCode, ack.Properties.ReasonString)
	}
	return c, ack
}

// subscribed connects and subscribes to filters at QoS 2.
func subscribed(t *testing.T, b *Broker, id string, filters ...string) *client {
	t.Helper()
	c, _ := connectAs(t, b, id)
	for _, f := range filters {
		c.subscribe(packets.SubOptions{Topic: f, QoS: 2})
	}
	return c
}

// subscribe subscribes with a Packet Identifier of its own and returns the codes.
func (c *client) subscribe(filters ...packets.SubOptions) []byte {
	c.t.Helper()
	return c.subscribeID(0, filters...)
}

func (c *client) subscribeID(subID int, filters ...packets.SubOptions) []byte {
	c.t.Helper()
	p := &packets.Subscribe{PacketID: 60_000, Subscriptions: filters, Properties: &packets.Properties{}}
	if subID != 0 {
		p.Properties.SubscriptionIdentifier = &subID
	}
	c.send(p)
	return expect[*packets.Suback](c).Reasons
}

// pub is a PUBLISH; id is left out at QoS 0.
func pub(topic string, qos byte, id uint16, payload string) *packets.Publish {
	return &packets.Publish{Topic: topic, QoS: qos, PacketID: id, Payload: []byte(payload), Properties: &packets.Properties{}}
}

// expectPublish wants a PUBLISH of a payload.
func (c *client) expectPublish(payload string, qos byte, dup bool) *packets.Publish {
	c.t.Helper()
	p := expect[*packets.Publish](c)
	if string(p.Payload) != payload || p.QoS != qos || p.Duplicate != dup {
		c.t.Fatalf("PUBLISH %q, QoS %d, DUP %t; want %q, %d, %t", p.Payload, p.QoS, p.Duplicate, payload, qos, dup)
	}
	return p
}

// expectID wants an answer with an identifier and a code.
func (c *client) expectAnswer(packet byte, id uint16, code byte) {
	c.t.Helper()
	cp := c.next()
	if cp == nil {
		c.t.Fatalf("expected %s, and the connection has ended", TypeName(packet))
	}
	got := byte(0)
	switch p := cp.Content.(type) {
	case *packets.Puback:
		got = p.ReasonCode
	case *packets.Pubrec:
		got = p.ReasonCode
	case *packets.Pubrel:
		got = p.ReasonCode
	case *packets.Pubcomp:
		got = p.ReasonCode
	}
	if cp.Type != packet || cp.PacketID() != id || got != code {
		c.t.Fatalf("%s %d 0x%02X, want %s %d 0x%02X", cp.PacketType(), cp.PacketID(), got, TypeName(packet), id, code)
	}
}

func (c *client) puback(ids ...uint16) {
	c.t.Helper()
	for _, id := range ids {
		c.send(&packets.Puback{PacketID: id, Properties: &packets.Properties{}})
	}
}

// publishAs has the server publish messages m1, m2 … to a topic.
func publishAs(t *testing.T, b *Broker, topic string, qos byte, from, to int) {
	t.Helper()
	for i := from; i <= to; i++ {
		if _, err := b.Publish(Message{Topic: topic, QoS: qos, Payload: fmt.Append(nil, "m", i)}); err != nil {
			t.Fatal(err)
		}
	}
}

// pass lets time go by.
func pass(d time.Duration) { <-time.After(d) }
