package settle

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/settlemq/settle/internal/topic"
)

// Names of the user properties (MQTT 5 section 3.3.2.3.7) that have a meaning here. Names that begin with "settle-" are
// our own: [Header] refuses them, and they are believed on a retry topic alone.
const (
	// PartitionKeyHeader holds the key of a message, for [ByKey].
	PartitionKeyHeader = "partition-key"
	// MessageIDHeader holds the publisher's own identifier of a message, the same each time that it publishes it.
	MessageIDHeader = "message-id"
)

// MessageOption is an option of a publish: of App.Publish, [Publish] and [Reply], and of a [Publisher]. Its
// implementations are this package's; a [QoS] is one. An option that MQTT does not allow fails the publish with an
// *[EncodeError] before anything is sent.
type MessageOption interface{ applyMessage(*message) }

type messageOptionFunc func(*message)

func (f messageOptionFunc) applyMessage(m *message) { f(m) }

func (q QoS) applyMessage(m *message) { m.qos = q }

// PartitionKey sets the user property "partition-key". Consumers that use [ByKey] handle the messages of one key in
// order.
func PartitionKey(key string) MessageOption {
	return messageOptionFunc(func(m *message) { m.setUnique(PartitionKeyHeader, key) })
}

// MessageID sets the user property "message-id", by which consumers recognise a message that they were sent twice. Give
// the same one when the message is published again.
func MessageID(id string) MessageOption {
	return messageOptionFunc(func(m *message) { m.setUnique(MessageIDHeader, id) })
}

// Header adds a user property. Properties keep their order, and one name may come several times. Names that begin with
// "settle-" are refused.
func Header(name, value string) MessageOption {
	return messageOptionFunc(func(m *message) {
		switch {
		case name == "":
			m.fault("a header has no name")
		case len(name) >= len(headerPrefix) && strings.EqualFold(name[:len(headerPrefix)], headerPrefix):
			m.fault(fmt.Sprintf("the header %q is one of ours: names that begin with %q are reserved", clip(name), headerPrefix))
		default:
			m.add(name, value)
		}
	})
}

// ContentType sets the content type that is sent with the message (MQTT 5 section 3.3.2.3.9). Unless [Encoding] names
// another, the value is encoded by that content type's codec. Raw bytes go as they are. Defaults to that of the codec,
// and to none for raw bytes.
func ContentType(contentType string) MessageOption {
	return messageOptionFunc(func(m *message) { m.contentType = m.text("the content type", contentType) })
}

// ResponseTopic asks for an answer on a topic (MQTT 5 section 4.10), which cannot have wildcards. See [Reply].
func ResponseTopic(responseTopic string) MessageOption {
	return messageOptionFunc(func(m *message) {
		if err := topic.ValidateTopic(responseTopic); err != nil {
			m.fault("the response topic " + err.Error())
			return
		}
		m.responseTopic = responseTopic
	})
}

// CorrelationData sets the bytes that an answer carries back, at most 65,535 of them. They are copied.
func CorrelationData(data []byte) MessageOption {
	return messageOptionFunc(func(m *message) {
		if len(data) > math.MaxUint16 {
			m.fault(fmt.Sprintf("the correlation data has %d bytes: at most 65535 fit", len(data)))
			return
		}
		m.correlation = slices.Clone(data)
	})
}

// Retain asks the server to keep the message for those who subscribe to the topic later (MQTT 5 section 3.3.1.3). An
// empty payload clears what it kept.
func Retain() MessageOption { return messageOptionFunc(func(m *message) { m.retain = true }) }

// Expiry sets how long the server may keep the message before it drops it undelivered (MQTT 5 section 3.3.2.3.3): more
// than zero, at most 4,294,967,295 s, rounded up to whole seconds. Defaults to for ever.
//
// A message with an expiry may be dropped by the server between two connections, so a consumer cannot prove that a
// redelivery is one that it still holds, and may handle it twice.
func Expiry(d time.Duration) MessageOption {
	return messageOptionFunc(func(m *message) {
		s, ok := wholeSeconds(d)
		if d <= 0 || !ok {
			m.fault(fmt.Sprintf("an expiry of %s: it must be above zero and at most 4294967295 s", d))
			return
		}
		m.expiry, m.expires = s, true
	})
}

// userProperty is one user property. MQTT keeps their order and allows a name to repeat, so a map will not do.
type userProperty struct{ name, value string }

// message is a publish on its way out, before its value is encoded.
type message struct {
	topic         string
	qos           QoS
	retain        bool
	expires       bool
	expiry        uint32 // seconds, when expires
	contentType   string
	responseTopic string
	correlation   []byte
	user          []userProperty
	encoding      string
	encodingSet   bool
	attempt       int          // of a delivery that a test makes
	wrong         messageFault // the first thing that MQTT does not allow, "" if all is well
}

// newMessage lays the options over the defaults. The error is an *EncodeError that names the first thing that MQTT does
// not allow.
func newMessage(to string, options []MessageOption) (message, error) {
	m := message{topic: to, qos: AtLeastOnce}
	if err := topic.ValidateTopic(to); err != nil {
		m.fault("the topic " + err.Error())
	}
	for _, o := range options {
		if o == nil {
			m.fault("an option is nil: leave it out")
			continue
		}
		o.applyMessage(&m)
	}
	if m.qos > ExactlyOnce {
		m.fault(fmt.Sprintf("QoS(%d): there are AtMostOnce, AtLeastOnce and ExactlyOnce", byte(m.qos)))
	}
	if m.wrong != "" {
		return message{}, &EncodeError{Topic: to, Err: m.wrong}
	}
	return m, nil
}

// encode makes the payload of v. The content type returned is the one to send along, "" for none. The error is an
// *EncodeError.
func (m *message) encode(c *codecs, v any) (payload []byte, contentType string, err error) {
	encoding := m.encoding
	if !m.encodingSet {
		encoding = m.contentType
	}
	payload, contentType, err = encodeValue(c, encoding, v)
	if err != nil {
		return nil, "", &EncodeError{Topic: m.topic, Type: typeName(v), Err: err}
	}
	if m.contentType != "" {
		contentType = m.contentType
	}
	return payload, contentType, nil
}

func (m *message) fault(reason string) {
	if m.wrong == "" {
		m.wrong = messageFault(reason)
	}
}

func (m *message) add(name, value string) {
	name, value = m.text("a header's name", name), m.text("the header "+name, value)
	m.user = append(m.user, userProperty{name, value})
}

// setUnique sets a property that has one value: a later one takes the earlier one's place.
func (m *message) setUnique(name, value string) {
	m.user = slices.DeleteFunc(m.user, func(p userProperty) bool { return p.name == name })
	m.add(name, value)
}

// text checks a UTF-8 Encoded String (MQTT 5 section 1.5.4).
func (m *message) text(what, s string) string {
	if err := topic.ValidateString(s); err != nil {
		m.fault(clip(what) + " " + err.Error())
	}
	return s
}

// wholeSeconds is a duration as MQTT counts it, rounded up. It reports false if d is negative or does not fit.
func wholeSeconds(d time.Duration) (uint32, bool) {
	if d < 0 {
		return 0, false
	}
	s := d / time.Second
	if d%time.Second != 0 {
		s++
	}
	if s > math.MaxUint32 {
		return 0, false
	}
	return uint32(s), true
}
