package hostile_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/settlemq/settle/internal/broker"
	"github.com/settlemq/settle/internal/hostile"
)

// client is a client's end of a connection to the in-process server, written to in bytes. A goroutine reads it.
type client struct {
	net.Conn
	done chan struct{} // closed when the server has ended the connection

	mu     sync.Mutex
	frames [][]byte
	rest   []byte
	ended  bool
}

func dialled(t *testing.T, b *broker.Broker) *client {
	t.Helper()
	nc, err := b.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := &client{Conn: nc, done: make(chan struct{})}
	go c.read()
	return c
}

func (c *client) read() {
	defer close(c.done)
	buf := make([]byte, 4096)
	for {
		n, err := c.Read(buf)
		c.mu.Lock()
		c.rest = append(c.rest, buf[:n]...)
		for {
			frame, rest := split(c.rest)
			if frame == nil {
				break
			}
			c.frames, c.rest = append(c.frames, slices.Clone(frame)), rest
		}
		c.ended = err != nil
		c.mu.Unlock()
		if err != nil {
			_ = c.Close()
			return
		}
	}
}

// say sends bytes; a server that has gone is no failure.
func (c *client) say(b []byte) {
	_ = c.SetWriteDeadline(time.Now().Add(time.Minute))
	_, _ = c.Write(b)
	synctest.Wait()
}

// sayPackets sends what paho encodes.
func (c *client) sayPackets(out ...io.WriterTo) {
	var b bytes.Buffer
	for _, p := range out {
		_, _ = p.WriteTo(&b)
	}
	c.say(b.Bytes())
}

// heard takes what the server has sent, and whether it has ended the connection.
func (c *client) heard() (frames [][]byte, ended bool) {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	frames, c.frames = c.frames, nil
	return frames, c.ended
}

// clientPhases are where a client can be.
var clientPhases = []string{"instead of CONNECT", "connected, with deliveries open"}

// TestHostileClient sends everything that a client can say to the in-process server. Whatever it is, the server answers it as the
// standard says, has nothing left of that client afterwards, and serves another one all the time.
func TestHostileClient(t *testing.T) {
	var count tally
	t.Cleanup(func() { t.Logf("cases by packet and phase:\n%s", &count) })
	cases := hostile.Cases(hostile.Client, "a/b")
	for phase, name := range clientPhases {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			cases := some(cases, phase)
			synctest.Test(t, func(t *testing.T) {
				b := broker.New(broker.Options{})
				defer b.Close()
				good := dialled(t, b)
				good.sayPackets(connecting("good"), subscribing("good/#", 1))
				began := goroutines()
				for i := range cases {
					visit(t, b, phase, &cases[i])
					served(t, b, good, cases[i].Name)
					if t.Failed() {
						return
					}
				}
				if now := goroutines(); now != began {
					t.Errorf("%d goroutines, and there were %d", now, began)
				}
			})
			for i := range cases {
				count.add(cases[i].Packet.Name, name)
			}
		})
	}
}

func connecting(id string) *packets.Connect {
	hour := uint32(3600)
	return &packets.Connect{
		ProtocolName: "MQTT", ProtocolVersion: 5, ClientID: id, CleanStart: true, Properties: &packets.Properties{SessionExpiryInterval: &hour},
	}
}

func subscribing(filter string, qos byte) *packets.Subscribe {
	return &packets.Subscribe{PacketID: 60_000, Properties: &packets.Properties{}, Subscriptions: []packets.SubOptions{{Topic: filter, QoS: qos}}}
}

// served shows that another client is.
func served(t *testing.T, b *broker.Broker, good *client, name string) {
	t.Helper()
	good.heard()
	good.say([]byte{hostile.PUBLISH<<4 | 2, 12, 0, 6, 'g', 'o', 'o', 'd', '/', 'x', 0, 7, 0, '!'})
	frames, ended := good.heard()
	if ended || len(frames) != 2 {
		t.Fatalf("%s: the other client got %x, ended: %t", name, frames, ended)
	}
	for _, f := range frames {
		if f[0]>>4 == hostile.PUBLISH { // QoS 1, the identifier behind the topic
			good.say([]byte{hostile.PUBACK << 4, 2, f[10], f[11]})
		}
	}
	for _, id := range b.Sessions() {
		if info, _ := b.Session(id); id != "good" && info.Connected {
			t.Fatalf("%s: %q is still connected", name, id)
		}
	}
}

// visit sends one case and judges the answer.
func visit(t *testing.T, b *broker.Broker, phase int, c *hostile.Case) {
	t.Helper()
	bad := dialled(t, b)
	defer func() { _ = bad.Close(); <-bad.done; synctest.Wait() }()
	if phase > 0 {
		bad.sayPackets(connecting("bad"), subscribing("bad/#", 2))
		for qos := range byte(3) {
			if _, err := b.Publish(broker.Message{Topic: "bad/x", QoS: qos, Payload: []byte("open")}); err != nil {
				t.Fatal(err)
			}
		}
		if frames, ended := bad.heard(); ended || len(frames) != 5 {
			t.Fatalf("%s: before it %x", c.Name, frames)
		}
	}
	const id = 4242
	if data := c.WithID(id); c.Split {
		for i := range data {
			bad.say(data[i : i+1])
		}
	} else {
		bad.say(data)
	}
	frames, ended := bad.heard()
	kind := c.Packet.Type
	taken := c.Legal() || c.Tolerable
	switch {
	case c.Unfinished:
		if ended && c.Legal() {
			t.Errorf("%s: ended, with %x", c.Name, frames)
		}
	case phase == 0 && kind != hostile.CONNECT: // [MQTT-3.1.0-1]; nothing is said to what is no MQTT
		if !ended || len(frames) > 0 {
			t.Errorf("%s: ended: %t, with %x", c.Name, ended, frames)
		}
	case phase == 0:
		judgeConnect(t, c, frames, ended)
	case ended && len(frames) == 0:
		if kind != hostile.DISCONNECT || !taken {
			t.Errorf("%s: ended without a word", c.Name)
		}
	case ended:
		last := frames[len(frames)-1]
		if last[0] != hostile.DISCONNECT<<4 || len(last) < 3 || !slices.Contains(clientWrongs(c), last[2]) {
			t.Errorf("%s: ended with %x, want DISCONNECT with one of %x", c.Name, frames, clientWrongs(c))
		}
	case !taken || kind == hostile.DISCONNECT || kind == hostile.AUTH || kind == hostile.CONNECT:
		t.Errorf("%s: taken, with %x", c.Name, frames)
	default:
		judgeAnswer(t, c, id, frames)
	}
}

// clientWrongs are the reason codes that may end the connection of a connected client.
func clientWrongs(c *hostile.Case) []byte {
	switch c.Packet.Type {
	case hostile.CONNECT: // [MQTT-3.1.0-2]
		return append(slices.Clone(c.Wrong), hostile.CodeProtocol)
	case hostile.AUTH:
		return append(slices.Clone(c.Wrong), hostile.CodeProtocol, hostile.CodeBadAuthMethod)
	case hostile.PUBACK, hostile.PUBREC, hostile.PUBCOMP: // for what was never sent: a server may mind
		return append(slices.Clone(c.Wrong), hostile.CodeProtocol)
	}
	return c.Wrong
}

// judgeConnect holds the answer to a CONNECT against what is due.
func judgeConnect(t *testing.T, c *hostile.Case, frames [][]byte, ended bool) {
	t.Helper()
	if ended && len(frames) == 0 { // allowed for whatever is no good MQTT 5 CONNECT (3.1.4)
		tooSmall := c.Property == hostile.PropertyMaximumPacketSize && c.Value == "\x00\x00\x00\x01" // for any CONNACK
		if c.Legal() && !tooSmall {
			t.Errorf("%s: ended without a word", c.Name)
		}
		return
	}
	if len(frames) != 1 || frames[0][0] != hostile.CONNACK<<4 || len(frames[0]) < 4 {
		t.Errorf("%s: %x, want CONNACK", c.Name, frames)
		return
	}
	code := frames[0][3]
	switch {
	case code == 0 && (ended || !c.Legal() && !c.Tolerable), code != 0 && (!ended || !slices.Contains(c.Wrong, code)):
		t.Errorf("%s: CONNACK 0x%02X, ended: %t; want one of %x", c.Name, code, ended, c.Wrong)
	}
	if c.Property == hostile.PropertyMaximumPacketSize && c.Legal() && len(frames[0]) > int(binary.BigEndian.Uint32([]byte(c.Value))) { // [MQTT-3.1.2-24]
		t.Errorf("%s: CONNACK of %d bytes", c.Name, len(frames[0]))
	}
}

// judgeAnswer holds the answer to a packet that was taken against what is due.
func judgeAnswer(t *testing.T, c *hostile.Case, id uint16, frames [][]byte) {
	t.Helper()
	var want byte
	switch c.Packet.Type {
	case hostile.PUBLISH:
		want = [3]byte{0, hostile.PUBACK, hostile.PUBREC}[c.Message.QoS]
	case hostile.PUBREC:
		if c.Code < 0x80 {
			want = hostile.PUBREL
		}
	case hostile.PUBREL:
		want = hostile.PUBCOMP
	case hostile.SUBSCRIBE:
		want = hostile.SUBACK
	case hostile.UNSUBSCRIBE:
		want = hostile.UNSUBACK
	case hostile.PINGREQ:
		want = hostile.PINGRESP
	}
	frames = slices.DeleteFunc(frames, func(f []byte) bool { return f[0]>>4 == hostile.PUBLISH }) // what "#" has brought
	switch {
	case want == 0 && len(frames) == 0:
	case want == 0 || len(frames) != 1 || frames[0][0]>>4 != want:
		t.Errorf("%s: answered with %x, want type %d", c.Name, frames, want)
	case want == hostile.PINGRESP:
	default:
		if got := binary.BigEndian.Uint16(frames[0][len(frames[0])-len(body(frames[0])):]); got != id {
			t.Errorf("%s: answered for identifier %d", c.Name, got)
		}
	}
}

// body is what stands behind the fixed header.
func body(frame []byte) []byte {
	_, size := binary.Uvarint(frame[1:])
	return frame[1+size:]
}
