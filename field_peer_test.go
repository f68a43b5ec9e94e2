package settle_test

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/settlemq/settle/internal/broker"
	"github.com/settlemq/settle/internal/broker/brokertest"
)

// peer is the server's end of one connection. A goroutine reads it and writes down what comes; what a well-behaved server
// would answer at once is answered, unless the test has set something else.
type peer struct {
	*brokertest.Conn
	f       *field
	connect *packets.Connect
	done    chan struct{} // closed when nothing more comes

	sending sync.Mutex // one packet after the other

	mu            sync.Mutex
	came          []string
	all           []string // came, never cleared
	publishes     []*packets.Publish
	pings         int
	ended         bool
	sessionExpiry *uint32 // of DISCONNECT
	hooks         hooks
}

// hooks are what a test has the server do otherwise.
type hooks struct {
	subscribe func(*packets.Subscribe) []byte                 // reason codes; nil: no answer
	publish   func(*packets.Publish) (code byte, answer bool) // of PUBACK, or of PUBREC
	hold      chan struct{}                                   // publishes are answered when it is closed
	pubrec    func(id uint16) bool                            // whether PUBREL follows
	came      func(line string)
	deaf      bool // no PINGRESP
	stay      bool // does not close when the client has
}

func (p *peer) set(change func(*hooks)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.hooks)
}

func (p *peer) behaviour() hooks {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hooks
}

func (p *peer) note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	line := fmt.Sprintf(format, args...)
	p.came, p.all = append(p.came, line), append(p.all, line)
	if p.hooks.came != nil {
		p.hooks.came(line)
	}
}

// read is the peer's goroutine.
func (p *peer) read() {
	defer close(p.done)
	for {
		packet, err := p.Script.Next()
		if err != nil {
			p.mu.Lock()
			p.ended = true
			p.mu.Unlock()
			if !p.behaviour().stay {
				_ = p.Close()
			}
			return
		}
		cp, err := packet.Decode()
		if err != nil {
			p.f.t.Errorf("the app has sent what is no %s: %v", broker.TypeName(packet.Type), err)
			continue
		}
		p.take(cp)
	}
}

func (p *peer) take(cp *packets.ControlPacket) {
	h := p.behaviour()
	switch c := cp.Content.(type) {
	case *packets.Connect:
		p.connect = c
		p.f.arrivals[strings.HasSuffix(c.ClientID, "-retry")] <- p
	case *packets.Subscribe:
		for _, s := range c.Subscriptions {
			p.note("SUBSCRIBE %s q%d", s.Topic, s.QoS)
		}
		codes := make([]byte, 0, len(c.Subscriptions))
		for _, s := range c.Subscriptions {
			codes = append(codes, s.QoS)
		}
		if h.subscribe != nil {
			if codes = h.subscribe(c); codes == nil {
				return
			}
		}
		p.write(&packets.Suback{PacketID: c.PacketID, Reasons: codes})
	case *packets.Unsubscribe:
		p.note("UNSUBSCRIBE %s", strings.Join(c.Topics, " "))
		p.write(&packets.Unsuback{PacketID: c.PacketID, Reasons: make([]byte, len(c.Topics))})
	case *packets.Pingreq:
		p.mu.Lock()
		p.pings++
		p.mu.Unlock()
		if !h.deaf {
			p.write(&packets.Pingresp{})
		}
	case *packets.Publish:
		p.takePublish(c, h)
	case *packets.Puback:
		p.note("PUBACK %d%s", c.PacketID, coded(c.ReasonCode))
	case *packets.Pubrec:
		p.note("PUBREC %d%s", c.PacketID, coded(c.ReasonCode))
		if h.pubrec == nil || h.pubrec(c.PacketID) {
			p.write(&packets.Pubrel{PacketID: c.PacketID})
		}
	case *packets.Pubrel:
		p.write(&packets.Pubcomp{PacketID: c.PacketID})
	case *packets.Pubcomp:
		p.note("PUBCOMP %d%s", c.PacketID, coded(c.ReasonCode))
	case *packets.Disconnect:
		p.mu.Lock()
		p.sessionExpiry = c.Properties.SessionExpiryInterval
		p.mu.Unlock()
		p.note("DISCONNECT%s", coded(c.ReasonCode))
	default:
		p.note("%s", cp.PacketType())
	}
}

func (p *peer) takePublish(c *packets.Publish, h hooks) {
	p.mu.Lock()
	p.publishes = append(p.publishes, c)
	p.mu.Unlock()
	p.note("PUBLISH %s q%d %s", c.Topic, c.QoS, c.Payload)
	code, answer := byte(0), true
	if h.publish != nil {
		code, answer = h.publish(c)
	}
	if !answer {
		return
	}
	if h.hold != nil {
		go func() {
			<-h.hold
			p.answer(c, code)
		}()
		return
	}
	p.answer(c, code)
}

func (p *peer) answer(c *packets.Publish, code byte) {
	switch c.QoS {
	case 1:
		p.write(&packets.Puback{PacketID: c.PacketID, ReasonCode: code})
	case 2:
		p.write(&packets.Pubrec{PacketID: c.PacketID, ReasonCode: code})
	}
}

func coded(code byte) string {
	if code == 0 {
		return ""
	}
	return fmt.Sprintf(" 0x%02X", code)
}

// write sends packets. That the client has gone is no failure.
func (p *peer) write(out ...brokertest.Packet) {
	p.sending.Lock()
	defer p.sending.Unlock()
	for _, packet := range out {
		if err := p.Script.Send(brokertest.Bytes(packet)); err != nil {
			return
		}
	}
}

// send sends packets in one segment, and waits until all that comes of it has come.
func (p *peer) send(out ...brokertest.Packet) {
	p.f.t.Helper()
	p.sending.Lock()
	p.SendRaw(brokertest.Bytes(out...))
	_ = p.SetWriteDeadline(time.Time{}) // SendRaw's is for that write
	p.sending.Unlock()
	synctest.Wait()
}

// accept answers CONNECT, and waits until the subscriptions have been granted.
func (p *peer) accept(present bool) *peer {
	p.f.t.Helper()
	p.write(brokertest.Connack(present))
	synctest.Wait()
	return p
}

// cut ends the connection without a word.
func (p *peer) cut() {
	_ = p.Close()
	<-p.done
	synctest.Wait()
}

// took returns what has come since the last time, without SUBSCRIBE. What a busy lane had put off has left by then.
func (p *peer) took() []string {
	pass(2 * time.Millisecond)
	p.mu.Lock()
	defer p.mu.Unlock()
	came := p.came
	p.came = nil
	return slices.DeleteFunc(came, func(s string) bool { return strings.HasPrefix(s, "SUBSCRIBE") })
}

// expect compares what has come since the last time.
func (p *peer) expect(want ...string) {
	p.f.t.Helper()
	if got := p.took(); !slices.Equal(got, want) {
		p.f.t.Errorf("the server was sent %q, want %q", got, want)
	}
}

// published are all PUBLISHes that have come to a topic.
func (p *peer) published(topic string) []*packets.Publish {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []*packets.Publish
	for _, c := range p.publishes {
		if c.Topic == topic {
			found = append(found, c)
		}
	}
	return found
}

func (p *peer) history() []string {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.all)
}

func (p *peer) gone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

// publish is a PUBLISH from the server; id is left out at QoS 0.
func publish(topic string, qos byte, id uint16, payload string, users ...string) *packets.Publish {
	p := brokertest.Publish(topic, qos, id, payload)
	for i := 0; i+1 < len(users); i += 2 {
		p.Properties.User = append(p.Properties.User, packets.User{Key: users[i], Value: users[i+1]})
	}
	return p
}

// again is p as a server sends it again.
func again(p *packets.Publish) *packets.Publish {
	q := *p
	q.Duplicate = true
	return &q
}

// comeBack is a retry copy on its way from the server.
func comeBack(c *packets.Publish, id uint16) *packets.Publish {
	q := *c
	q.PacketID, q.Duplicate = id, false
	return &q
}

// user is the first user property of that name.
func user(p *packets.Publish, name string) string {
	for _, u := range p.Properties.User {
		if u.Key == name {
			return u.Value
		}
	}
	return ""
}

// circle has the server bring every retry copy back over the second connection at once, under the identifiers after last.
func circle(main, second *peer, last uint16, topics ...string) {
	var mu sync.Mutex
	id := last
	main.set(func(h *hooks) {
		h.publish = func(c *packets.Publish) (byte, bool) {
			if slices.Contains(topics, c.Topic) {
				mu.Lock()
				id++
				second.write(comeBack(c, id))
				mu.Unlock()
			}
			return 0, true
		}
	})
}

func (c *calls) note(s string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, s)
}

func (c *calls) expect(t *testing.T, want ...string) {
	t.Helper()
	if got := c.list(); !slices.Equal(got, want) {
		t.Errorf("handled %q, want %q", got, want)
	}
}

// raw is a packet that the packets package cannot encode.
type raw []byte

// WriteTo implements brokertest.Packet.
func (r raw) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(r)
	return int64(n), err
}
