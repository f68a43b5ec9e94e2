package chaos

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/eclipse/paho.golang/packets"
)

// publisher sends the numbered messages of one stream in their order, straight to the server and over its restarts. A message counts as accepted with
// its PUBACK; at QoS 2 with its PUBCOMP, for Mosquitto drops what was not released when a publisher without a session leaves. What was not answered
// when the connection was lost is sent again, and so is what went nowhere: each sending has a number of its own.
type publisher struct {
	stream *stream
	addr   string
	book   *book
	may    func() int      // how many messages may be on their way to a handler besides
	stop   <-chan struct{} // closed when no new ones are to be sent

	next      uint32   // message
	again     []uint32 // messages to be sent again, before that
	nowhere   bool     // the last answer said that nobody subscribes
	repeats   int
	connected time.Time // last
}

const publisherWindow = 100

type sending struct {
	id            uint16
	message, unit uint32
}

// run publishes until it is stopped and everything that was sent has been accepted.
func (p *publisher) run() error {
	for p.connected = time.Now(); ; {
		open, err := p.converse()
		switch {
		case err == nil:
			return nil
		case time.Since(p.connected) > patience:
			return fmt.Errorf("publisher of %s: %w", p.stream.name, err)
		}
		back := make([]uint32, 0, len(open)+len(p.again))
		for _, s := range open {
			back = append(back, s.message)
		}
		p.again = append(back, p.again...)
		p.repeats += len(open)
		<-time.After(20 * time.Millisecond)
	}
}

// converse publishes on one connection. It returns what was not answered when the connection failed.
func (p *publisher) converse() (open []sending, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := connect(ctx, p.addr, "publisher-"+p.stream.name, false)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.conn.Close() }()
	p.connected = time.Now()
	id := uint16(0)
	for {
		if p.nowhere {
			p.nowhere = false
			<-time.After(20 * time.Millisecond)
		}
		n := min(publisherWindow-len(open), p.left(len(open)))
		for range n {
			id = id%60_000 + 1
			s := sending{id: id, message: p.take()}
			s.unit = p.book.send(p.stream, s.message)
			open = append(open, s)
			if err := c.send(p.packet(s)); err != nil {
				return open, err
			}
		}
		if len(open) == 0 {
			select {
			case <-p.stop:
				if len(p.again) == 0 {
					return nil, nil
				}
			case <-time.After(2 * time.Millisecond):
			}
			continue
		}
		if err := c.out.Flush(); err != nil {
			return open, err
		}
		_ = c.conn.SetDeadline(time.Now().Add(patience))
		for first := true; len(open) > 0 && (first || c.in.Buffered() > 0); first = false {
			if open, err = p.hear(c, open); err != nil {
				return open, err
			}
		}
	}
}

// left is how many messages may be sent now, with so many open.
func (p *publisher) left(open int) int {
	if len(p.again) > 0 {
		return len(p.again)
	}
	select {
	case <-p.stop:
		return 0
	default:
		return max(p.may()-open, 0)
	}
}

func (p *publisher) take() uint32 {
	if len(p.again) > 0 {
		m := p.again[0]
		p.again = p.again[1:]
		return m
	}
	p.next++
	return p.next - 1
}

func (p *publisher) packet(s sending) *packets.Publish {
	key := strconv.Itoa(int(keyOf(s.message)))
	return &packets.Publish{
		Topic: "load/" + p.stream.name + "/" + key, QoS: p.stream.qos, PacketID: s.id, Payload: payloadOf(s.unit, s.message),
		Properties: &packets.Properties{User: []packets.User{{Key: "partition-key", Value: key}}},
	}
}

// hear reads one packet.
func (p *publisher) hear(c *client, open []sending) ([]sending, error) {
	packet, err := packets.ReadPacket(c.in)
	if err != nil {
		return open, err
	}
	switch a := packet.Content.(type) {
	case *packets.Puback:
		return p.confirmed(open, a.PacketID, a.ReasonCode)
	case *packets.Pubcomp:
		return p.confirmed(open, a.PacketID, a.ReasonCode)
	case *packets.Pubrec:
		if a.ReasonCode >= 0x80 {
			return p.confirmed(open, a.PacketID, a.ReasonCode)
		}
		return open, c.send(&packets.Pubrel{PacketID: a.PacketID})
	}
	return open, nil
}

func (p *publisher) confirmed(open []sending, id uint16, code byte) ([]sending, error) {
	if len(open) == 0 || open[0].id != id {
		return open, fmt.Errorf("%s: an answer out of order", p.stream.name)
	}
	s := open[0]
	switch code {
	case 0:
		p.book.answer(p.stream, s.unit, accepted)
	case 0x10: // Mosquitto has forgotten a group's subscriptions over its restart, and no member has subscribed again
		p.book.answer(p.stream, s.unit, nowhere)
		p.again = append(p.again, s.message)
		p.nowhere = true
		p.repeats++
	default:
		return open, fmt.Errorf("%s: refused with reason code 0x%02X", p.stream.name, code)
	}
	return open[1:], nil
}
