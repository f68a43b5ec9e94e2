package broker

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/settlemq/settle/internal/topic"
)

// message is an application message on its way through. It is shared by all whom it goes to, and never changed after it has
// been routed.
type message struct {
	topic     string
	payload   []byte
	body      []byte    // memory that payload and props lie in
	props     []byte    // encoded properties that are passed on as they are
	lifetime  uint32    // Message Expiry Interval in seconds, as it came
	expires   time.Time // on the broker's clock; zero for never
	arrived   time.Time // on the broker's clock
	publisher string    // Client Identifier, "" for the server itself
	qos       byte
	retain    bool
	hasExpiry bool
	utf8      bool // the payload is said to be UTF-8
	copied    bool // props do not lie in body any more
}

// take keeps a property of a PUBLISH or a will, and with it the memory that it lies in.
func (m *message) take(p property) *violation {
	switch p.id {
	case propMessageExpiry:
		m.lifetime, m.hasExpiry = p.number, true
		return nil
	case propResponseTopic:
		if len(p.data) == 0 || bytes.ContainsAny(p.data, "+#") { // [MQTT-4.7.3-1], [MQTT-3.3.2-14]
			return forbidden("the response topic is empty or has wildcards")
		}
	case propPayloadFormat:
		m.utf8 = p.number == 1
	}
	switch { // without a copy where they stand side by side, as they nearly always do
	case m.props == nil:
		m.props = p.raw
	case !m.copied && cap(m.props)-len(m.props) == cap(p.raw):
		m.props = m.props[:len(m.props)+len(p.raw)]
	default:
		m.props, m.copied = append(slices.Clip(m.props), p.raw...), true
	}
	return nil
}

// begin starts the time that the message lives.
func (m *message) begin(now time.Time) {
	m.arrived = now
	if m.hasExpiry {
		m.expires = now.Add(time.Duration(m.lifetime) * time.Second)
	}
}

func (m *message) expired(now time.Time) bool { return m.hasExpiry && !now.Before(m.expires) }

// remaining is what is left of the Message Expiry Interval, in seconds, rounded up. It is 0 of what expired after it was first sent.
func (m *message) remaining(now time.Time) uint32 {
	return uint32(max(0, m.expires.Sub(now)+time.Second-1) / time.Second)
}

// wellFormedPayload tells whether the payload is what it is said to be (3.3.2.3.2).
func (m *message) wellFormedPayload() bool { return !m.utf8 || utf8.Valid(m.payload) }

// size is about how much memory the message takes.
func (m *message) size() int { return len(m.topic) + len(m.props) + len(m.payload) }

// appendPublish appends a PUBLISH. Subscription Identifiers stand in the order of ids; id is left out at QoS 0.
func appendPublish(dst []byte, m *message, qos byte, dup, retain bool, id uint16, ids []uint32, now time.Time) []byte {
	first := PUBLISH<<4 | qos<<1
	if dup {
		first |= 8
	}
	if retain {
		first |= 1
	}
	properties := m.propertySize(ids)
	dst = appendVarint(append(dst, first), m.bodySize(qos, properties))
	dst = appendText(dst, m.topic)
	if qos > 0 {
		dst = binary.BigEndian.AppendUint16(dst, id)
	}
	dst = appendVarint(dst, properties)
	if m.hasExpiry {
		dst = binary.BigEndian.AppendUint32(append(dst, propMessageExpiry), m.remaining(now))
	}
	for _, n := range ids {
		dst = appendVarint(append(dst, propSubscriptionID), int(n))
	}
	dst = append(dst, m.props...)
	return append(dst, m.payload...)
}

func (m *message) propertySize(ids []uint32) int {
	n := len(m.props)
	if m.hasExpiry {
		n += 5
	}
	for _, id := range ids {
		n += 1 + varintSize(int(id))
	}
	return n
}

func (m *message) bodySize(qos byte, properties int) int {
	n := 2 + len(m.topic) + varintSize(properties) + properties + len(m.payload)
	if qos > 0 {
		n += 2
	}
	return n
}

// publishSize is how many bytes appendPublish appends.
func publishSize(m *message, qos byte, ids []uint32) int {
	n := m.bodySize(qos, m.propertySize(ids))
	return 1 + varintSize(n) + n
}

// UserProperty is a User Property (3.3.2.3.7).
type UserProperty struct{ Name, Value string }

// Message is an application message as programs in this process see it.
type Message struct {
	Topic           string
	Payload         []byte // not to be written to
	QoS             byte
	Retain          bool
	PayloadFormat   byte // 1 promises UTF-8
	ContentType     string
	ResponseTopic   string
	CorrelationData []byte
	UserProperties  []UserProperty
	// Expiry is the Message Expiry Interval in seconds, valid where HasExpiry is set.
	Expiry    uint32
	HasExpiry bool
	// ClientID is who published the message, "" for the server itself. Publish ignores it.
	ClientID string
	// At is when the server got the message. Publish ignores it.
	At time.Time
}

// export is the message as an observer sees it.
func (m *message) export() Message {
	out := Message{
		Topic: m.topic, Payload: m.payload, QoS: m.qos, Retain: m.retain,
		Expiry: m.lifetime, HasExpiry: m.hasExpiry, ClientID: m.publisher, At: m.arrived,
	}
	for b := m.props; len(b) > 0; {
		p, rest, ok := splitProperty(b)
		if !ok {
			break // cannot be: take kept what readProperties had read
		}
		switch b = rest; p.id {
		case propPayloadFormat:
			out.PayloadFormat = byte(p.number)
		case propContentType:
			out.ContentType = string(p.data)
		case propResponseTopic:
			out.ResponseTopic = string(p.data)
		case propCorrelationData:
			out.CorrelationData = bytes.Clone(p.data)
		case propUser:
			out.UserProperties = append(out.UserProperties, UserProperty{string(p.data), string(p.value)})
		}
	}
	return out
}

// encode is the message as the server keeps it.
func (m Message) encode() (*message, error) {
	if err := topic.ValidateTopic(m.Topic); err != nil {
		return nil, err
	}
	out := &message{
		topic: m.Topic, payload: bytes.Clone(m.Payload), qos: min(m.QoS, 2), retain: m.Retain,
		lifetime: m.Expiry, hasExpiry: m.HasExpiry, utf8: m.PayloadFormat == 1,
	}
	if m.PayloadFormat == 1 {
		out.props = append(out.props, propPayloadFormat, 1)
	}
	for _, text := range []struct {
		id    byte
		value string
	}{{propContentType, m.ContentType}, {propResponseTopic, m.ResponseTopic}} {
		if text.value != "" {
			out.props = appendText(append(out.props, text.id), strings.ToValidUTF8(text.value, "�"))
		}
	}
	if m.CorrelationData != nil {
		out.props = appendBinary(append(out.props, propCorrelationData), m.CorrelationData)
	}
	for _, u := range m.UserProperties {
		out.props = appendText(appendText(append(out.props, propUser), u.Name), u.Value)
	}
	return out, nil
}
