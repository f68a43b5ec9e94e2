package testkit

import (
	"iter"
	"math"
	"time"

	"github.com/eclipse/paho.golang/paho"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/internal/broker"
)

// Message is what somebody has published: to the server, see [Kit.Published], or through a [Context]. Unlike a delivery it shows all
// headers, those of retry copies and dead letters included.
type Message struct{ m broker.Message }

// Topic is the topic that it was published to.
func (m Message) Topic() string { return m.m.Topic }

// Payload is the application message. Do not write to it.
func (m Message) Payload() []byte { return m.m.Payload }

// QoS is what the message was published with.
func (m Message) QoS() settle.QoS { return settle.QoS(m.m.QoS) }

// Retain says that the server was asked to keep it for subscribers to come (MQTT 5, 3.3.1.3).
func (m Message) Retain() bool { return m.m.Retain }

// ContentType is the publisher's Content Type (3.3.2.3.9), or empty.
func (m Message) ContentType() string { return m.m.ContentType }

// ResponseTopic is where the publisher wants an answer (3.3.2.3.5), or empty.
func (m Message) ResponseTopic() string { return m.m.ResponseTopic }

// CorrelationData is what an answer has to carry (3.3.2.3.6), or nil.
func (m Message) CorrelationData() []byte { return m.m.CorrelationData }

// Expiry is how long the server was told to keep it (3.3.2.3.3), and whether it was told.
func (m Message) Expiry() (time.Duration, bool) {
	return time.Duration(m.m.Expiry) * time.Second, m.m.HasExpiry
}

// At is when the server had it.
func (m Message) At() time.Time { return m.m.At }

// Header is the first user property of that name (3.3.2.3.7), and whether there is one.
func (m Message) Header(name string) (string, bool) {
	for _, p := range m.m.UserProperties {
		if p.Name == name {
			return p.Value, true
		}
	}
	return "", false
}

// Headers are the user properties, in order, repeated ones kept.
func (m Message) Headers() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, p := range m.m.UserProperties {
			if !yield(p.Name, p.Value) {
				return
			}
		}
	}
}

// fromPacket is the message of a PUBLISH that is on its way out.
func fromPacket(p *paho.Publish) broker.Message {
	m := broker.Message{Topic: p.Topic, Payload: p.Payload, QoS: p.QoS, Retain: p.Retain, At: time.Now()}
	if p.Properties == nil {
		return m
	}
	m.ContentType, m.ResponseTopic, m.CorrelationData = p.Properties.ContentType, p.Properties.ResponseTopic, p.Properties.CorrelationData
	if p.Properties.PayloadFormat != nil {
		m.PayloadFormat = *p.Properties.PayloadFormat
	}
	if p.Properties.MessageExpiry != nil {
		m.Expiry, m.HasExpiry = *p.Properties.MessageExpiry, true
	}
	for _, u := range p.Properties.User {
		m.UserProperties = append(m.UserProperties, broker.UserProperty{Name: u.Key, Value: u.Value})
	}
	return m
}

// clip shortens what would fill a screen.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + "…"
}

const forever = time.Duration(math.MaxInt64)
