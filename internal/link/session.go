package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho/log"
	"github.com/eclipse/paho.golang/paho/session"

	"github.com/settlemq/settle/internal/wire"
)

// attach returns the session manager for one connection. violated is told when the server breaks the protocol; it must
// not block.
func (o *outbound) attach(violated func(error)) *attached {
	return &attached{out: o, violated: violated}
}

// attached is the outbound half as one connection's paho.Client sees it. What a client still calls after its connection
// has been replaced has no effect: paho tells a session of a loss from a goroutine of its own, when it gets round to it.
type attached struct {
	out      *outbound
	conn     io.Writer // set by ConAckReceived
	violated func(error)
}

var _ session.SessionManager = (*attached)(nil)

// ConAckReceived makes this the current connection and sends again, in order, what the server has not answered; or, with
// Session Present = 0, tells those who wait that it is gone (4.4). It only appends to the connection's pending bytes.
func (a *attached) ConAckReceived(conn io.Writer, _ *packets.Connect, ca *packets.Connack) error {
	o := a.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return session.ErrNoConnection
	}
	o.detach()
	a.conn = conn
	o.current, o.used, o.maximum = a, 0, 65535
	if ca.Properties != nil && ca.Properties.ReceiveMaximum != nil {
		o.maximum = int(*ca.Properties.ReceiveMaximum)
	}
	if !ca.SessionPresent {
		o.forget()
		return nil
	}
	again := make([]*exchange, 0, len(o.exchanges))
	for _, e := range o.exchanges {
		again = append(again, e)
	}
	slices.SortFunc(again, func(x, y *exchange) int { return cmp.Compare(x.seq, y.seq) })
	for _, e := range again {
		if e.kind == packets.PUBLISH {
			o.resends = append(o.resends, e)
			continue
		}
		// PUBRELs don't count against the Receive Maximum (4.9), but a server that holds the message counts it, so no new
		// PUBLISH goes out in its place.
		o.take(e)
		e.resent = true
		o.send(&packets.Pubrel{PacketID: e.id})
	}
	o.pump()
	return nil
}

// ConnectionLost ends this connection: whoever waits for its quota, a SUBACK or an UNSUBACK is told.
func (a *attached) ConnectionLost(*packets.Disconnect) error {
	a.out.mu.Lock()
	defer a.out.mu.Unlock()
	if a.out.current == a {
		a.out.detach()
	}
	return nil
}

// AddToSession gives the packet an identifier and remembers it until it is answered. A PUBLISH waits for quota first,
// unless its context carries a publication, which has it.
func (a *attached) AddToSession(ctx context.Context, packet session.Packet, resp chan<- packets.ControlPacket) error {
	o := a.out
	e := &exchange{kind: packet.Type(), answer: resp}
	p, promised := ctx.Value(publicationKey{}).(*publication)
	if e.kind == packets.PUBLISH {
		pub, ok := packet.(*packets.Publish)
		if !ok {
			return fmt.Errorf("a PUBLISH of type %T cannot be sent again", packet)
		}
		e.packet, e.qos = pub, pub.QoS
		if !promised {
			var err error
			if p, err = o.acquire(ctx); err != nil {
				return err
			}
		} else {
			e.answer = p.answer
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.current != a || (p != nil && p.on != a) {
		o.release(p)
		return session.ErrNoConnection
	}
	id, ok := o.freeID()
	if !ok {
		o.release(p)
		return session.ErrPacketIdentifiersExhausted
	}
	e.id = id
	packet.SetIdentifier(id)
	if p != nil {
		e.on = a // the promise becomes the exchange's
		p.exchange = e
	}
	o.lastSeq++
	e.seq = o.lastSeq
	o.exchanges[id] = e
	return nil
}

// PacketReceived takes the server's answers. What it has to send it appends to the connection; it never blocks. The
// error is for tests: paho ignores it, so violated is told too.
func (a *attached) PacketReceived(cp *packets.ControlPacket, _ chan<- *packets.Publish) error {
	err := a.received(cp)
	var broken *wire.Error
	if errors.As(err, &broken) {
		a.violated(broken)
	}
	return err
}

func (a *attached) received(cp *packets.ControlPacket) error {
	o := a.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.current != a {
		return session.ErrNoConnection
	}
	e := o.exchanges[cp.PacketID()]
	switch cp.Type {
	case packets.SUBACK:
		return o.answered(e, cp, packets.SUBSCRIBE, 0)
	case packets.UNSUBACK:
		return o.answered(e, cp, packets.UNSUBSCRIBE, 0)
	case packets.PUBACK:
		return o.answered(e, cp, packets.PUBLISH, 1)
	case packets.PUBCOMP:
		return o.answered(e, cp, packets.PUBREL, 2)
	case packets.PUBREC:
		return o.recorded(e, cp)
	default:
		return fmt.Errorf("%s is not the outbound half's", cp.PacketType())
	}
}

// answered ends an exchange, if it is of the kind that the packet answers. An unknown identifier is let pass: the
// exchange may have been given up.
func (o *outbound) answered(e *exchange, cp *packets.ControlPacket, kind, qos byte) error {
	switch {
	case e == nil:
		return nil
	case e.kind != kind || e.qos != qos:
		return &wire.Error{Code: 0x82, Reason: cp.PacketType() + " for a packet that it does not answer"}
	}
	o.end(e, *cp)
	return nil
}

// recorded takes a PUBREC: from here on the server has the message, and only PUBREL is sent again (4.3.3).
func (o *outbound) recorded(e *exchange, cp *packets.ControlPacket) error {
	rec, _ := cp.Content.(*packets.Pubrec)
	switch {
	case rec == nil:
		return errors.New("PUBREC without content")
	case e == nil:
		if rec.ReasonCode < 0x80 { // else there is nothing to release
			o.send(&packets.Pubrel{PacketID: rec.PacketID, ReasonCode: 0x92}) // Packet Identifier not found
		}
		return nil
	case e.qos != 2:
		return &wire.Error{Code: 0x82, Reason: "PUBREC for a packet that it does not answer"}
	case e.kind == packets.PUBREL:
	case rec.ReasonCode >= 0x80:
		o.end(e, *cp)
		return nil
	default:
		o.lastSeq++
		e.kind, e.rec, e.packet, e.seq = packets.PUBREL, rec.ReasonCode, nil, o.lastSeq
	}
	o.send(&packets.Pubrel{PacketID: e.id})
	return nil
}

// Ack belongs to the inbound half.
func (a *attached) Ack(*packets.Publish) error { return errors.New("the inbound half is not paho's") }

// Close is part of paho's interface; paho calls it only on sessions of its own making.
func (a *attached) Close() error { return a.ConnectionLost(nil) }

// SetErrorLogger does nothing: paho's logs quote payloads.
func (a *attached) SetErrorLogger(log.Logger) {}

// SetDebugLogger does nothing: paho's logs quote payloads.
func (a *attached) SetDebugLogger(log.Logger) {}
