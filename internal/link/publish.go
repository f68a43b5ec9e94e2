package link

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
	"github.com/eclipse/paho.golang/paho/session"
)

var (
	// ErrNotSent says that a publish was certainly not sent. It comes with the reason: the end of the context, ErrEnded, or
	// a *LimitError.
	ErrNotSent = errors.New("not sent")
	// ErrUnconfirmed says that a publish was perhaps sent: its context ended before the server answered, or the server lost
	// the session, or the link ended.
	ErrUnconfirmed = errors.New("perhaps sent, and not confirmed")
)

// errNoTopic refuses what only a topic alias could name; none is used.
var errNoTopic = errors.New("the topic is empty")

// errSessionLost says that nobody will answer any more.
var errSessionLost = errors.New("the session is gone, and with it the server's answer")

// Answer is the server's answer to a publish.
type Answer struct {
	// Code is the reason code of PUBACK, of PUBREC where it is not 0x00, or of PUBCOMP. From 0x80 the message was refused;
	// 0x10 says that it matched no subscription. At QoS 0 it is 0x00: the server does not answer.
	Code byte
	// Reason is the server's Reason String, for people; often empty.
	Reason string
}

// The limits of a server that a publish can exceed, as CONNACK names them (3.2.2.3).
const (
	LimitQoS        = "server's Maximum QoS"
	LimitRetain     = "server's Retain Available"
	LimitPacketSize = "server's Maximum Packet Size"
)

// LimitError is a publish that the protocol or the server does not allow. It wraps ErrNotSent.
type LimitError struct {
	Topic string
	Limit string // which one, in the standard's words
	Value uint64 // what the publish has: the QoS, a size in bytes
	Most  uint64 // what is allowed
}

// Error names the topic, the limit and the value.
func (e *LimitError) Error() string {
	return fmt.Sprintf("publish to %q: %d exceeds the %s of %d", e.Topic, e.Value, e.Limit, e.Most)
}

// Unwrap returns ErrNotSent.
func (e *LimitError) Unwrap() error { return ErrNotSent }

// Publish sends a message and waits for the server's answer; at QoS 0 until it is handed to the writer. It waits while there
// is no connection, and while the server's Receive Maximum is used up. A refusal, code 0x80 and above, is an Answer and no
// error. A message that was sent when its connection was lost is sent again, with DUP, on the next one if the server still
// has the session.
//
// Errors are ErrNotSent and ErrUnconfirmed, with their reasons. After ErrUnconfirmed a QoS 1 message is not sent again; a
// QoS 2 message is carried to its end, for its identifier cannot be given up. p and its payload must not be changed
// afterwards.
func (l *Link) Publish(ctx context.Context, p *paho.Publish) (Answer, error) {
	if err := encodable(p); err != nil {
		return Answer{}, err
	}
	var last *epoch
	for {
		e, err := l.connected(ctx, last)
		if err == nil {
			err = e.conn.waitRoom(ctx)
		}
		if err != nil {
			return Answer{}, notSent(p, err)
		}
		if err := e.grant.allows(p); err != nil {
			return Answer{}, err
		}
		answer, again, err := l.publishOn(ctx, e, p)
		if !again {
			return answer, err
		}
		last = e
	}
}

// publishOn tries one connection. again: it is gone, and certainly nothing was sent.
func (l *Link) publishOn(ctx context.Context, e *epoch, p *paho.Publish) (answer Answer, again bool, err error) {
	if p.QoS == 0 {
		// Not by paho, which ends the connection when it cannot write: one that says farewell has to be read to its end.
		_, err := p.Packet().WriteTo(e.conn)
		return Answer{}, err != nil, nil
	}

	place, err := l.out.acquire(ctx)
	switch {
	case errors.Is(err, session.ErrNoConnection):
		return Answer{}, true, nil
	case err != nil:
		return Answer{}, false, notSent(p, err)
	case place.on != e.out:
		l.out.cancel(place)
		return Answer{}, true, nil
	}
	l.sending.Lock()
	_, err = e.client.PublishWithOptions(context.WithValue(ctx, publicationKey{}, place), p,
		paho.PublishOptions{Method: paho.PublishMethod_AsyncSend})
	l.sending.Unlock()
	switch {
	case err == nil:
	case errors.Is(err, session.ErrNoConnection):
		return Answer{}, true, nil
	case errors.Is(err, paho.ErrNetworkErrorAfterStored):
		if l.out.withdraw(place) {
			return Answer{}, true, nil
		}
	default:
		l.out.cancel(place)
		return Answer{}, false, notSent(p, err)
	}

	select {
	case cp := <-place.answer:
		answer, err = place.read(cp)
	case <-ctx.Done():
		l.out.abandon(place)
		select {
		case cp := <-place.answer:
			answer, err = place.read(cp)
		default:
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		return Answer{}, false, fmt.Errorf("publish to %q: %w: %w", p.Topic, ErrUnconfirmed, err)
	}
	return answer, false, nil
}

// read is the answer in the packet that ended the exchange.
func (p *publication) read(cp packets.ControlPacket) (Answer, error) {
	answer := Answer{}
	var properties *packets.Properties
	switch r := cp.Content.(type) {
	case *packets.Puback:
		answer.Code, properties = r.ReasonCode, r.Properties
	case *packets.Pubrec: // refused
		answer.Code, properties = r.ReasonCode, r.Properties
	case *packets.Pubcomp:
		answer.Code, properties = r.ReasonCode, r.Properties
		// PUBREC has said that the server has the message. That it does not know the identifier of a PUBREL that was sent
		// again says only that the PUBCOMP for the first one was lost.
		if answer.Code == 0 || answer.Code == 0x92 && p.exchange.resent {
			answer.Code = p.exchange.rec
		}
	default:
		return Answer{}, errSessionLost
	}
	if properties != nil {
		answer.Reason = properties.ReasonString
	}
	return answer, nil
}

// connected waits for a connection other than last, which is gone.
func (l *Link) connected(ctx context.Context, last *epoch) (*epoch, error) {
	for {
		l.mu.Lock()
		e, state, changed, err := l.epoch, l.state, l.changed, l.err
		l.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case state == Ended:
			return nil, ended(err)
		case e != nil && e != last && state != Draining:
			return e, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func notSent(p *paho.Publish, err error) error {
	return fmt.Errorf("publish to %q: %w: %w", p.Topic, ErrNotSent, err)
}

// allows holds a publish against what CONNACK granted. paho keeps the server's Maximum Packet Size and does not enforce it.
func (g Grant) allows(p *paho.Publish) error {
	if p.QoS > g.MaximumQoS {
		return &LimitError{Topic: p.Topic, Limit: LimitQoS, Value: uint64(p.QoS), Most: uint64(g.MaximumQoS)}
	}
	if p.Retain && !g.RetainAvailable {
		return &LimitError{Topic: p.Topic, Limit: LimitRetain, Value: 1}
	}
	if g.MaximumPacketSize == 0 {
		return nil
	}
	if size := packetSize(p.Packet()); size > uint64(g.MaximumPacketSize) {
		return &LimitError{Topic: p.Topic, Limit: LimitPacketSize, Value: size, Most: uint64(g.MaximumPacketSize)}
	}
	return nil
}

// packetSize is the length of an encoded packet.
func packetSize(p packets.Packet) uint64 {
	remaining := uint64(0)
	for _, part := range p.Buffers() {
		remaining += uint64(len(part))
	}
	header := uint64(2)
	for n := remaining; n >= 128; n /= 128 {
		header++
	}
	return header + remaining
}

// encodable refuses what has no topic, and what paho would cut off in silence: strings and binary data of more than 65,535
// bytes (1.5.4, 1.5.6).
func encodable(p *paho.Publish) error {
	if p.Topic == "" {
		return notSent(p, errNoTopic)
	}
	check := func(limit string, length int) error {
		if length <= math.MaxUint16 {
			return nil
		}
		return &LimitError{Topic: p.Topic[:min(len(p.Topic), 100)], Limit: limit, Value: uint64(length), Most: math.MaxUint16}
	}
	err := check("length of a Topic Name", len(p.Topic))
	if props := p.Properties; props != nil {
		err = errors.Join(err,
			check("length of a Content Type", len(props.ContentType)),
			check("length of a Response Topic", len(props.ResponseTopic)),
			check("length of Correlation Data", len(props.CorrelationData)))
		for _, user := range props.User {
			err = errors.Join(err,
				check("length of a User Property's name", len(user.Key)),
				check("length of a User Property's value", len(user.Value)))
		}
	}
	return err
}
