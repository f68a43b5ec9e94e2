package chaos

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/eclipse/paho.golang/packets"
)

// morgue takes the dead letters, in a session that lasts.
type morgue struct {
	addr string
	book *book

	mu   sync.Mutex
	conn *client
	over bool
	done chan struct{}
}

// openMorgue returns when the subscription stands: dead letters go nowhere before.
func openMorgue(addr string, b *book) (*morgue, error) {
	m := &morgue{addr: addr, book: b, done: make(chan struct{})}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := connect(ctx, addr, "morgue", true)
	if err != nil {
		return nil, err
	}
	subscribe := &packets.Subscribe{PacketID: 1, Properties: &packets.Properties{}, Subscriptions: []packets.SubOptions{{Topic: deadTopic, QoS: 1}}}
	answer, err := c.ask(subscribe)
	if err != nil {
		return nil, err
	}
	if ack, ok := answer.Content.(*packets.Suback); !ok || ack.Reasons[0] != 1 {
		return nil, fmt.Errorf("the morgue's subscription was answered by %v", answer)
	}
	go m.run(c)
	return m, nil
}

func (m *morgue) run(c *client) {
	defer close(m.done)
	for m.hold(c) {
		for c != nil {
			c = m.converse(c)
		}
		<-time.After(20 * time.Millisecond)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		c, _ = connect(ctx, m.addr, "morgue", true) // while the server restarts it fails
		cancel()
	}
}

// hold makes a connection known to close, and reports whether there is any use for it.
func (m *morgue) hold(c *client) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over && c != nil {
		_ = c.conn.Close()
	}
	m.conn = c
	return !m.over
}

// converse takes one packet. It returns nil when the connection is at its end.
func (m *morgue) converse(c *client) *client {
	_ = c.conn.SetDeadline(time.Time{})
	packet, err := packets.ReadPacket(c.in)
	if err != nil {
		_ = c.conn.Close()
		return nil
	}
	p, ok := packet.Content.(*packets.Publish)
	if !ok {
		return c
	}
	m.receive(p)
	if err := c.send(&packets.Puback{PacketID: p.PacketID}); err == nil {
		err = c.out.Flush()
		if err == nil {
			return c
		}
	}
	_ = c.conn.Close()
	return nil
}

func (m *morgue) receive(p *packets.Publish) {
	unit, _, ok := numbersOf(p.Payload)
	l := letter{unit: unit, again: p.Duplicate}
	var s *stream
	for _, u := range p.Properties.User {
		switch u.Key {
		case "settle-route":
			s = streamOf(u.Value)
		case attemptHeader:
			if n, _, ok := number([]byte(u.Value + " ")); ok {
				l.attempt = uint8(n) //nolint:gosec // maxAttempts at the most
			}
		}
	}
	if !ok || s == nil {
		m.book.wonder(fmt.Sprintf("what came on %s is no dead letter: %.40q", deadTopic, p.Payload))
		return
	}
	m.book.letter(s, l)
}

func (m *morgue) close() {
	m.mu.Lock()
	m.over = true
	if m.conn != nil {
		_ = m.conn.conn.Close()
	}
	m.mu.Unlock()
	<-m.done
}
