package settle

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/eclipse/paho.golang/paho"

	"github.com/settlemq/settle/internal/link"
)

// Publisher publishes messages over the app's connection. [App] is one, and the fx [Module] provides one that routes may
// ask for. It may be used from any goroutine.
type Publisher interface {
	// Publish sends a message and waits until the server has it: for PUBACK at QoS 1, for PUBCOMP at QoS 2, for nothing at
	// QoS 0. See [App.Publish].
	Publish(ctx context.Context, topic string, value any, options ...MessageOption) error
}

var _ Publisher = (*App)(nil)

// Publish sends value to a topic, at QoS 1 unless an option says otherwise, and waits for the server's answer. The value is
// encoded by the codec of its content type, JSON by default; []byte goes as it is.
//
// While there is no connection it waits for one, until ctx ends; it never has more under way than the server's Receive
// Maximum allows (MQTT 5, 4.9). The reason code 0x10, no matching subscribers, is success: nobody asked for the message.
//
// The errors tell apart what became of the message:
//   - *[EncodeError]: it could not be made, and would not be the next time;
//   - *[ServerError]: the server refused it;
//   - [ErrNotConnected]: it was never sent;
//   - [ErrUnconfirmed]: it was perhaps sent, and to send it again may double it.
func (a *App) Publish(ctx context.Context, topic string, value any, options ...MessageOption) error {
	p, _, err := packetOf(&a.codecs, topic, value, options)
	if err != nil {
		return err
	}
	answer, err := a.outbound().Publish(ctx, p)
	return publishError(topic, answer, err)
}

// packetOf is the PUBLISH that a message is sent as; the number is a test's, see testDelivery.
func packetOf(c *codecs, topic string, value any, options []MessageOption) (*paho.Publish, int, error) {
	m, err := newMessage(topic, options)
	if err != nil {
		return nil, 0, err
	}
	payload, contentType, err := m.encode(c, value)
	if err != nil {
		return nil, 0, err
	}
	return m.packet(payload, contentType), m.attempt, nil
}

// packet is the PUBLISH that m is sent as.
func (m *message) packet(payload []byte, contentType string) *paho.Publish {
	p := &paho.Publish{
		Topic:   m.topic,
		QoS:     byte(m.qos),
		Retain:  m.retain,
		Payload: payload,
		Properties: &paho.PublishProperties{
			ContentType:     contentType,
			ResponseTopic:   m.responseTopic,
			CorrelationData: m.correlation,
		},
	}
	if m.expires {
		p.Properties.MessageExpiry = &m.expiry
	}
	for _, u := range m.user {
		p.Properties.User.Add(u.name, u.value)
	}
	return p
}

// publishError says what became of an ordinary publish.
func publishError(topic string, answer link.Answer, err error) error {
	var limit *link.LimitError
	switch {
	case err == nil && answer.Code < 0x80:
		return nil
	case err == nil:
		return &ServerError{Topic: topic, Code: answer.Code, Reason: answer.Reason}
	case errors.As(err, &limit):
		return &ServerError{Topic: topic, Code: limitCode(limit), Reason: limit.Error()}
	case errors.Is(err, link.ErrUnconfirmed):
		return fmt.Errorf("%w: the message to %q: %w", ErrUnconfirmed, clip(topic), err)
	default:
		return fmt.Errorf("%w: to %q: %w", ErrNotConnected, clip(topic), err)
	}
}

// limitCode is the reason code that the server would have answered with to a message beyond its limits.
func limitCode(limit *link.LimitError) byte {
	switch limit.Limit {
	case link.LimitQoS:
		return 0x9B // QoS not supported
	case link.LimitRetain:
		return 0x9A // Retain not supported
	default:
		return packetTooLarge
	}
}

// Publish sends a message from within a handler, over the app that called it. It is [App.Publish] for whoever has no App
// at hand. Outside a delivery it returns [ErrNotConnected].
func Publish(ctx context.Context, topic string, value any, options ...MessageOption) error {
	publisher := publisherFrom(ctx)
	if publisher == nil {
		return fmt.Errorf("%w: the context belongs to no delivery", ErrNotConnected)
	}
	return publisher.Publish(ctx, topic, value, options...)
}

// Reply answers the message that a handler is called for: it publishes to the message's response topic, with its correlation data (MQTT 5,
// 4.10), which options cannot change. Without a response topic it returns [ErrNoResponseTopic]; a response
// topic with wildcards, which MQTT forbids, is an *[EncodeError].
func Reply(ctx context.Context, value any, options ...MessageOption) error {
	d := DeliveryFrom(ctx)
	to := d.ResponseTopic()
	if to == "" {
		return ErrNoResponseTopic
	}
	if data := d.CorrelationData(); data != nil {
		options = append(options[:len(options):len(options)], CorrelationData(data))
	}
	return Publish(ctx, to, value, options...)
}

func publisherFrom(ctx context.Context) Publisher {
	switch r := runFrom(ctx); {
	case r == nil:
		return nil
	case r.lane == nil:
		return r.publisher // a test's
	default:
		return r.app()
	}
}

// newID is 128 random bits, in hexadecimal.
func newID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // it never fails
	return hex.EncodeToString(id[:])
}
