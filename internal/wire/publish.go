package wire

import (
	"bytes"
	"encoding/binary"
	"iter"
	"math"
)

// Publish is an inbound PUBLISH (3.3): a view into its frame. Its strings and slices alias Frame.Bytes,
// are valid for as long as they are held, and must not be written to. Any number of goroutines may read it.
type Publish struct {
	// Frame is the packet itself. Frame.Oversize is not 0 where the payload was too large and is not here.
	Frame Frame
	// Topic is the Topic Name: not empty, well-formed, without wildcards.
	Topic string
	// Payload is the Application Message, nil where it was read past.
	Payload []byte
	// PacketID is the Packet Identifier, 0 at QoS 0 and never 0 otherwise.
	PacketID uint16
	// QoS is 0, 1 or 2.
	QoS byte
	// Dup and Retain are the flags of those names (3.3.1.1, 3.3.1.3).
	Dup, Retain bool
	// PayloadFormat is the Payload Format Indicator (3.3.2.3.2): 1 promises a payload of UTF-8, which is
	// not verified here. A value that the standard does not know counts as none: Mosquitto passes it on,
	// and to end the connection would bring the same message again.
	PayloadFormat    byte
	HasPayloadFormat bool
	// Expiry is what is left of the Message Expiry Interval, in seconds (3.3.2.3.3). Of a PUBLISH whose
	// properties were read past (Frame.Bare) nobody knows whether it expires; HasExpiry is then true and
	// Expiry as long as it can be, because a message that may expire must not pass for one that can't.
	Expiry    uint32
	HasExpiry bool
	// ContentType is empty where there is none.
	ContentType string
	// ResponseTopic is empty where there is none. It may hold wildcards, against [MQTT-3.3.2-14], since
	// Mosquitto passes those on too: whoever publishes to it must look.
	ResponseTopic string
	// CorrelationData is nil where there is none, and empty but not nil where it is there and empty.
	CorrelationData []byte

	properties []byte // validated
}

// ParsePublish reads the PUBLISH in f into p, all of whose fields it sets. It allocates nothing unless it
// returns an error, which is an [*Error]; p is then not to be used.
func ParsePublish(f Frame, p *Publish) error {
	b, ok := f.body()
	if !ok || f.Type() != PUBLISH {
		return malformed(PUBLISH, "expected and something else found")
	}
	first := f.Bytes[0]
	*p = Publish{
		Frame:  f,
		QoS:    first >> 1 & 3,
		Dup:    first&dupFlag != 0,
		Retain: first&1 != 0,
	}
	switch {
	case p.QoS == 3: // [MQTT-3.3.1-4]
		return malformed(PUBLISH, "has QoS 3")
	case p.QoS == 0 && p.Dup: // [MQTT-3.3.1-2]
		return forbidden(PUBLISH, "has DUP at QoS 0")
	}
	topic, b, ok := field(b)
	if !ok {
		return malformed(PUBLISH, "ends within its topic")
	}
	if !wellFormed(topic) { // [MQTT-1.5.4-1], [MQTT-1.5.4-2]
		return malformed(PUBLISH, "has a topic that is not well-formed UTF-8")
	}
	if bytes.IndexByte(topic, '#') >= 0 || bytes.IndexByte(topic, '+') >= 0 { // [MQTT-3.3.2-2]
		return forbidden(PUBLISH, "has a topic with wildcards")
	}
	p.Topic = text(topic)
	if p.QoS > 0 {
		if len(b) < 2 {
			return malformed(PUBLISH, "ends within its Packet Identifier")
		}
		p.PacketID, b = binary.BigEndian.Uint16(b), b[2:]
		if p.PacketID == 0 { // [MQTT-2.2.1-4]
			return malformed(PUBLISH, "has Packet Identifier 0")
		}
	}
	properties, payload, err := propertyBlock(PUBLISH, b)
	if err != nil {
		return err
	}
	if err := p.readProperties(properties); err != nil {
		return err
	}
	if len(topic) == 0 { // after the properties: with a topic alias this is another error
		return forbidden(PUBLISH, "has neither a topic nor a topic alias")
	}
	switch {
	case f.Oversize == 0:
		p.Payload = payload[:len(payload):len(payload)]
	case len(payload) > 0:
		return malformed(PUBLISH, "is oversize and holds a payload")
	case f.Bare:
		p.Expiry, p.HasExpiry = math.MaxUint32, true
	}
	return nil
}

// readProperties validates the properties and takes the single-valued ones.
func (p *Publish) readProperties(b []byte) *Error {
	p.properties = b
	w := walker{packet: PUBLISH, rest: b}
	var property property
	for {
		if err := w.next(&property); err != nil {
			return err
		}
		switch property.id {
		case 0:
			return nil
		case propPayloadFormat:
			if property.number <= 1 {
				p.PayloadFormat, p.HasPayloadFormat = byte(property.number), true
			}
		case propMessageExpiry:
			p.Expiry, p.HasExpiry = property.number, true
		case propContentType:
			p.ContentType = text(property.data)
		case propResponseTopic:
			p.ResponseTopic = text(property.data)
		case propCorrelationData:
			p.CorrelationData = property.data
		case propTopicAlias: // [MQTT-3.3.2-9]: above the Topic Alias Maximum, for we send none
			return &Error{Code: CodeTopicAlias, Reason: "PUBLISH has a topic alias, and none was granted"}
		}
	}
}

// SubscriptionIDs goes through the Subscription Identifiers in the order in which they stand (3.3.2.3.8).
// A server sends one for each subscription that matched and has one.
func (p *Publish) SubscriptionIDs() iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		var property property
		for rest := p.properties; len(rest) > 0; {
			rest, _ = split(rest, &property)
			if property.id == propSubscriptionID && !yield(property.number) {
				return
			}
		}
	}
}

// UserProperties goes through names and values of the User Properties in the order in which they stand,
// repeated ones included (3.3.2.3.7).
func (p *Publish) UserProperties() iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		var property property
		for rest := p.properties; len(rest) > 0; {
			rest, _ = split(rest, &property)
			if property.id == propUser && !yield(text(property.data), text(property.value)) {
				return
			}
		}
	}
}

// UserProperty returns the value of the first User Property of that name, and whether there is one.
func (p *Publish) UserProperty(name string) (string, bool) {
	var property property
	for rest := p.properties; len(rest) > 0; {
		rest, _ = split(rest, &property)
		if property.id == propUser && text(property.data) == name {
			return text(property.value), true
		}
	}
	return "", false
}
