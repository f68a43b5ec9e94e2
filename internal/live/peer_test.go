package live_test

import (
	"bufio"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/settlemq/settle/internal/mosquitto"
)

// peer is an MQTT client that has nothing of Settle in it: it publishes what apps consume, and receives what they publish. Messages that
// it receives are acknowledged at once.
type peer struct {
	t      testing.TB
	conn   net.Conn
	out    *bufio.Writer
	outMu  sync.Mutex // out
	ended  chan struct{}
	ids    chan uint16 // packet identifiers that are free
	answer chan *packets.ControlPacket

	mu      sync.Mutex
	codes   map[byte]int // of PUBACK and PUBCOMP, and of PUBREC where it ends the exchange
	pending int
	idle    chan struct{} // a value when pending falls to zero
	got     []*packets.Publish
}

// note is one message that a peer publishes.
type note struct {
	topic   string
	payload string
	qos     byte
	retain  bool
	key     string // partition-key
	props   packets.Properties
}

func newPeer(t testing.TB, s *mosquitto.Server) *peer {
	t.Helper()
	return dialPeer(t, s, packets.Connect{CleanStart: true})
}

// dialPeer connects with a CONNECT of the caller's, of which the constant parts are filled in.
func dialPeer(t testing.TB, s *mosquitto.Server, connect packets.Connect) *peer {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{
		t: t, conn: conn, out: bufio.NewWriterSize(conn, 64<<10), ended: make(chan struct{}), answer: make(chan *packets.ControlPacket, 8),
		codes: make(map[byte]int), idle: make(chan struct{}, 1),
	}
	connect.ProtocolName, connect.ProtocolVersion = "MQTT", 5
	if connect.Properties == nil {
		connect.Properties = &packets.Properties{}
	}
	window := uint16(1000)
	connect.Properties.ReceiveMaximum = &window
	in := bufio.NewReaderSize(conn, 64<<10)
	p.send(&packets.ControlPacket{FixedHeader: packets.FixedHeader{Type: packets.CONNECT}, Content: &connect})
	answer, err := packets.ReadPacket(in)
	if err != nil {
		t.Fatalf("a peer could not connect: %v; log:\n%s", err, s.Log())
	}
	ack, ok := answer.Content.(*packets.Connack)
	if !ok || ack.ReasonCode != 0 {
		t.Fatalf("a peer could not connect: %v", answer)
	}
	if most := ack.Properties.ReceiveMaximum; most != nil {
		window = min(window, *most)
	}
	p.ids = make(chan uint16, window)
	for id := range window {
		p.ids <- id + 1
	}
	go p.read(in)
	t.Cleanup(func() {
		_ = conn.Close()
		<-p.ended
	})
	return p
}

func (p *peer) send(packet *packets.ControlPacket) {
	p.outMu.Lock()
	defer p.outMu.Unlock()
	_, err := packet.WriteTo(p.out)
	if err == nil {
		err = p.out.Flush()
	}
	if err != nil {
		p.t.Errorf("a peer could not write: %v", err)
	}
}

func (p *peer) reply(kind byte, id uint16) {
	packet := packets.NewControlPacket(kind)
	switch c := packet.Content.(type) {
	case *packets.Puback:
		c.PacketID = id
	case *packets.Pubrec:
		c.PacketID = id
	case *packets.Pubrel:
		c.PacketID = id
	case *packets.Pubcomp:
		c.PacketID = id
	}
	p.outMu.Lock()
	defer p.outMu.Unlock()
	if _, err := packet.WriteTo(p.out); err == nil {
		_ = p.out.Flush() // fails where the test has closed the connection
	}
}

func (p *peer) read(in *bufio.Reader) {
	defer close(p.ended)
	for {
		packet, err := packets.ReadPacket(in)
		if err != nil {
			return
		}
		switch c := packet.Content.(type) {
		case *packets.Publish:
			p.mu.Lock()
			p.got = append(p.got, c)
			p.mu.Unlock()
			switch c.QoS {
			case 1:
				p.reply(packets.PUBACK, c.PacketID)
			case 2:
				p.reply(packets.PUBREC, c.PacketID)
			}
		case *packets.Pubrel:
			p.reply(packets.PUBCOMP, c.PacketID)
		case *packets.Puback:
			p.answered(c.PacketID, c.ReasonCode)
		case *packets.Pubcomp:
			p.answered(c.PacketID, c.ReasonCode)
		case *packets.Pubrec:
			if c.ReasonCode >= 0x80 {
				p.answered(c.PacketID, c.ReasonCode)
			} else {
				p.reply(packets.PUBREL, c.PacketID)
			}
		case *packets.Suback, *packets.Unsuback, *packets.Pingresp:
			p.answer <- packet
		}
	}
}

func (p *peer) answered(id uint16, code byte) {
	p.mu.Lock()
	p.codes[code]++
	p.pending--
	if p.pending == 0 {
		select {
		case p.idle <- struct{}{}:
		default:
		}
	}
	p.mu.Unlock()
	p.ids <- id
}

// publish sends messages, in their order, and returns when the server has answered for all of those at QoS 1 and 2.
func (p *peer) publish(notes ...note) {
	p.t.Helper()
	deadline := time.NewTimer(2 * patience)
	defer deadline.Stop()
	for i := range notes {
		p.write(&notes[i])
	}
	p.flush()
	for {
		p.mu.Lock()
		pending := p.pending
		p.mu.Unlock()
		if pending == 0 {
			break
		}
		select {
		case <-p.idle:
		case <-p.ended:
			p.t.Fatalf("the peer's connection ended with %d publishes unanswered", pending)
		case <-deadline.C:
			p.t.Fatalf("%d publishes were not answered", pending)
		}
	}
	for code, n := range p.answers() {
		if code >= 0x80 {
			p.t.Fatalf("%d publishes were refused with reason code 0x%02X", n, code)
		}
	}
}

func (p *peer) write(n *note) {
	c := &packets.Publish{Topic: n.topic, Payload: []byte(n.payload), QoS: n.qos, Retain: n.retain, Properties: &n.props}
	if n.key != "" {
		n.props.User = append(n.props.User, packets.User{Key: "partition-key", Value: n.key})
	}
	if n.qos > 0 {
		select {
		case c.PacketID = <-p.ids:
		default: // what is in the buffer has to leave, or no identifier would come free
			p.flush()
			select {
			case c.PacketID = <-p.ids:
			case <-p.ended:
				p.t.Fatal("the peer's connection ended")
			}
		}
		p.mu.Lock()
		p.pending++
		p.mu.Unlock()
	}
	p.outMu.Lock()
	defer p.outMu.Unlock()
	if _, err := c.WriteTo(p.out); err != nil {
		p.t.Fatalf("a peer could not publish: %v", err)
	}
}

func (p *peer) flush() {
	p.outMu.Lock()
	defer p.outMu.Unlock()
	if err := p.out.Flush(); err != nil {
		p.t.Fatalf("a peer could not publish: %v", err)
	}
}

// answers are the reason codes that publishes were answered with.
func (p *peer) answers() map[byte]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.codes)
}

// subscribe asks for a filter, with a Subscription Identifier if it is not 0, and returns once it is granted.
func (p *peer) subscribe(filter string, qos byte, id int) {
	p.t.Helper()
	packet := packets.NewControlPacket(packets.SUBSCRIBE)
	c := packet.Content.(*packets.Subscribe)
	c.PacketID = 65_535 // beyond those of publishes
	c.Subscriptions = []packets.SubOptions{{Topic: filter, QoS: qos}}
	if id != 0 {
		c.Properties.SubscriptionIdentifier = &id
	}
	p.send(packet)
	answer := receive(p.t, p.answer, "SUBACK")
	ack, ok := answer.Content.(*packets.Suback)
	if !ok || !slices.Equal(ack.Reasons, []byte{qos}) {
		p.t.Fatalf("a peer's subscription to %q was not granted: %v", filter, answer)
	}
}

// received is what has come, in its order.
func (p *peer) received() []*packets.Publish {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.got)
}

// await returns the first n messages that the peer receives.
func (p *peer) await(n int) []*packets.Publish {
	p.t.Helper()
	await(p.t, fmt.Sprintf("%d messages for a peer", n), func() bool { return len(p.received()) >= n })
	return p.received()[:n]
}

// disconnect ends the connection in good order. The session is kept if it was asked to be.
func (p *peer) disconnect() {
	p.send(packets.NewControlPacket(packets.DISCONNECT))
	<-p.ended // the server closes
}

// session asks for a session that outlives its connection.
func session(clientID string) packets.Connect {
	hour := uint32(3600)
	return packets.Connect{ClientID: clientID, Properties: &packets.Properties{SessionExpiryInterval: &hour}}
}

// notes are n messages on one topic at QoS 1, with the payloads prefix-0, prefix-1, …
func notes(topic, prefix string, n int) []note {
	all := make([]note, n)
	for i := range all {
		all[i] = note{topic: topic, payload: fmt.Sprintf("%s-%d", prefix, i), qos: 1}
	}
	return all
}

func payloads(messages []*packets.Publish) []string {
	all := make([]string, len(messages))
	for i, m := range messages {
		all[i] = string(m.Payload)
	}
	return all
}

// property is the value of a user property of a message that a peer received, "" if there is none.
func property(m *packets.Publish, name string) string {
	for _, u := range m.Properties.User {
		if u.Key == name {
			return u.Value
		}
	}
	return ""
}
