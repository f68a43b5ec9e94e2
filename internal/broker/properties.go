package broker

import (
	"bytes"
	"encoding/binary"
	"unicode/utf8"
)

// Property identifiers (2.2.2.2).
const (
	propPayloadFormat       = 1
	propMessageExpiry       = 2
	propContentType         = 3
	propResponseTopic       = 8
	propCorrelationData     = 9
	propSubscriptionID      = 11
	propSessionExpiry       = 17
	propAssignedClientID    = 18
	propServerKeepAlive     = 19
	propAuthMethod          = 21
	propAuthData            = 22
	propRequestProblemInfo  = 23
	propWillDelay           = 24
	propRequestResponseInfo = 25
	propReasonString        = 31
	propReceiveMaximum      = 33
	propTopicAliasMaximum   = 34
	propTopicAlias          = 35
	propMaximumQoS          = 36
	propRetainAvailable     = 37
	propUser                = 38
	propMaximumPacketSize   = 39
	propWildcardAvailable   = 40
	propSubIDAvailable      = 41
	propSharedAvailable     = 42
)

// form is how a property's value is encoded.
type form byte

const (
	formNone form = iota // no property has this identifier
	formByte
	formUint16
	formUint32
	formVarint
	formText
	formBinary
	formPair
)

// will stands for the Will Properties among the packet types, since they have a set of their own (3.1.3.2).
const will = 0

const (
	inWill    = 1 << will
	inConnect = 1 << 1
	inPublish = 1 << 3
	inReasons = 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<14 | 1<<15 // PUBACK, PUBREC, PUBREL, PUBCOMP, DISCONNECT, AUTH
)

// propertyRule says of a property how it looks, and what the standard says about it in packets from a client.
type propertyRule struct {
	name    string
	form    form
	flag    bool   // 0 or 1
	nonzero bool   // 0 is a Protocol Error
	packets uint16 // a bit for each packet type in which a client may send it
}

// propertyRules is table 2-4 as far as it concerns clients; what servers alone send has no packets.
var propertyRules = [...]propertyRule{
	propPayloadFormat:       {name: "payload-format", form: formByte, flag: true, packets: inPublish | inWill},
	propMessageExpiry:       {name: "message-expiry", form: formUint32, packets: inPublish | inWill},
	propContentType:         {name: "content-type", form: formText, packets: inPublish | inWill},
	propResponseTopic:       {name: "response-topic", form: formText, packets: inPublish | inWill},
	propCorrelationData:     {name: "correlation-data", form: formBinary, packets: inPublish | inWill},
	propSubscriptionID:      {name: "subscription-id", form: formVarint, nonzero: true, packets: inPublish | 1<<8},
	propSessionExpiry:       {name: "session-expiry", form: formUint32, packets: inConnect | 1<<14},
	propAssignedClientID:    {name: "assigned-client-id", form: formText},
	propServerKeepAlive:     {name: "server-keep-alive", form: formUint16},
	propAuthMethod:          {name: "auth-method", form: formText, packets: inConnect | 1<<15},
	propAuthData:            {name: "auth-data", form: formBinary, packets: inConnect | 1<<15},
	propRequestProblemInfo:  {name: "request-problem-info", form: formByte, flag: true, packets: inConnect},
	propWillDelay:           {name: "will-delay", form: formUint32, packets: inWill},
	propRequestResponseInfo: {name: "request-response-info", form: formByte, flag: true, packets: inConnect},
	26:                      {name: "response-info", form: formText},
	28:                      {name: "server-reference", form: formText},
	propReasonString:        {name: "reason", form: formText, packets: inReasons},
	propReceiveMaximum:      {name: "receive-maximum", form: formUint16, nonzero: true, packets: inConnect},
	propTopicAliasMaximum:   {name: "topic-alias-maximum", form: formUint16, packets: inConnect},
	propTopicAlias:          {name: "topic-alias", form: formUint16, packets: inPublish},
	propMaximumQoS:          {name: "maximum-qos", form: formByte, flag: true},
	propRetainAvailable:     {name: "retain-available", form: formByte, flag: true},
	propUser:                {name: "user", form: formPair, packets: inWill | inConnect | inPublish | inReasons | 1<<8 | 1<<10},
	propMaximumPacketSize:   {name: "maximum-packet-size", form: formUint32, nonzero: true, packets: inConnect},
	propWildcardAvailable:   {name: "wildcard-available", form: formByte, flag: true},
	propSubIDAvailable:      {name: "subscription-id-available", form: formByte, flag: true},
	propSharedAvailable:     {name: "shared-available", form: formByte, flag: true},
}

// property is one property. Which field has the value follows from its form.
type property struct {
	id     byte
	number uint32
	data   []byte // text, binary data, the name of a pair
	value  []byte // the value of a pair
	raw    []byte // all of it, identifier included
}

// splitProperty takes the first property off b, which is not empty. It looks at lengths only.
func splitProperty(b []byte) (p property, rest []byte, ok bool) {
	p.id = b[0]
	if int(p.id) >= len(propertyRules) {
		return p, nil, false
	}
	rest = b[1:]
	switch propertyRules[p.id].form {
	case formByte:
		if len(rest) < 1 {
			return p, nil, false
		}
		p.number, rest = uint32(rest[0]), rest[1:]
	case formUint16:
		if len(rest) < 2 {
			return p, nil, false
		}
		p.number, rest = uint32(binary.BigEndian.Uint16(rest)), rest[2:]
	case formUint32:
		if len(rest) < 4 {
			return p, nil, false
		}
		p.number, rest = binary.BigEndian.Uint32(rest), rest[4:]
	case formVarint:
		n, size := varint(rest)
		if size <= 0 {
			return p, nil, false
		}
		p.number, rest = n, rest[size:]
	case formText, formBinary:
		if p.data, rest, ok = field(rest); !ok {
			return p, nil, false
		}
	case formPair:
		if p.data, rest, ok = field(rest); !ok {
			return p, nil, false
		}
		if p.value, rest, ok = field(rest); !ok {
			return p, nil, false
		}
	default:
		return p, nil, false
	}
	p.raw = b[:len(b)-len(rest)]
	return p, rest, true
}

// readProperties takes the properties of a packet and their length off b, holds each against its rule, and yields it.
func readProperties(packet byte, b []byte, yield func(property) *violation) (rest []byte, err *violation) {
	length, size := varint(b)
	if size <= 0 {
		return nil, malformed("%s has a bad property length", packetName(packet))
	}
	if int(length) > len(b)-size {
		return nil, malformed("%s ends within its properties", packetName(packet))
	}
	b, rest = b[size:size+int(length)], b[size+int(length):]
	for seen := uint64(0); len(b) > 0; {
		p, after, ok := splitProperty(b)
		if !ok {
			return nil, malformed("%s has a property that is unknown or cut short", packetName(packet))
		}
		b = after
		r := &propertyRules[p.id]
		switch {
		case r.packets&(1<<packet) == 0:
			return nil, malformed("%s has the property %s, which does not belong there", packetName(packet), r.name)
		case seen&(1<<p.id) != 0 && p.id != propUser:
			return nil, forbidden("%s has the property %s twice", packetName(packet), r.name)
		case r.flag && p.number > 1:
			return nil, forbidden("%s has the property %s that is neither 0 nor 1", packetName(packet), r.name)
		case r.nonzero && p.number == 0:
			return nil, forbidden("%s has the property %s of 0", packetName(packet), r.name)
		case r.form == formText && !wellFormed(p.data), r.form == formPair && !(wellFormed(p.data) && wellFormed(p.value)):
			return nil, malformed("%s has the property %s that is not well-formed UTF-8", packetName(packet), r.name)
		}
		seen |= 1 << p.id
		if err := yield(p); err != nil {
			return nil, err
		}
	}
	return rest, nil
}

func packetName(packet byte) string {
	if packet == will {
		return "the Will of CONNECT"
	}
	return TypeName(packet)
}

// field takes bytes that their length in two bytes precedes off b (1.5.4, 1.5.6).
func field(b []byte) (data, rest []byte, ok bool) {
	if len(b) < 2 {
		return nil, nil, false
	}
	end := 2 + int(binary.BigEndian.Uint16(b))
	if len(b) < end {
		return nil, nil, false
	}
	return b[2:end], b[end:], true
}

// varint decodes the Variable Byte Integer at the start of b (1.5.5) and returns its value and its size in bytes. Size 0
// means that b ends within it, and -1 that it is malformed: longer than four bytes, or than its value needs [MQTT-1.5.5-1].
func varint(b []byte) (value uint32, size int) {
	for i := range min(len(b), 4) {
		c := b[i]
		value |= uint32(c&0x7F) << (7 * i)
		if c < 0x80 {
			if c == 0 && i > 0 {
				return 0, -1
			}
			return value, i + 1
		}
	}
	if len(b) >= 4 {
		return 0, -1
	}
	return 0, 0
}

// wellFormed tells whether b may stand in a UTF-8 Encoded String (1.5.4).
func wellFormed(b []byte) bool { return utf8.Valid(b) && bytes.IndexByte(b, 0) < 0 }
