package wire

import (
	"bytes"
	"encoding/binary"
	"unicode/utf8"
	"unsafe"
)

// Property identifiers (2.2.2.2) that are read or written by name.
const (
	propPayloadFormat     = 1
	propMessageExpiry     = 2
	propContentType       = 3
	propResponseTopic     = 8
	propCorrelationData   = 9
	propSubscriptionID    = 11
	propSessionExpiry     = 17
	propAssignedClientID  = 18
	propServerKeepAlive   = 19
	propAuthMethod        = 21
	propAuthData          = 22
	propServerReference   = 28
	propReasonString      = 31
	propReceiveMaximum    = 33
	propTopicAliasMaximum = 34
	propTopicAlias        = 35
	propMaximumQoS        = 36
	propRetainAvailable   = 37
	propUser              = 38
	propMaximumPacketSize = 39
	propWildcardAvailable = 40
	propSubIDAvailable    = 41
	propSharedAvailable   = 42
)

// form is how a property's value is encoded.
type form byte

const (
	formNone   form = iota // no property has this identifier
	formFlag               // one byte; every property of this form may be 0 or 1 only
	formUint16             // Two Byte Integer
	formUint32             // Four Byte Integer
	formVarint             // Variable Byte Integer
	formText               // UTF-8 Encoded String
	formBinary             // Binary Data
	formPair               // UTF-8 String Pair
)

// rule is what the standard says of one property, as far as a server may send it.
type rule struct {
	form    form
	nonzero bool   // 0 is a Protocol Error
	packets uint16 // a bit for each Type that may carry it
}

const (
	inPublish    = 1 << PUBLISH
	inConnack    = 1 << CONNACK
	inDisconnect = 1 << DISCONNECT
	inAuth       = 1 << AUTH
	inAnswers    = inConnack | 1<<PUBACK | 1<<PUBREC | 1<<PUBREL | 1<<PUBCOMP | 1<<SUBACK | 1<<UNSUBACK | inDisconnect | inAuth
)

// rules is table 2-4 without what clients alone send.
var rules = [...]rule{
	propPayloadFormat:     {form: formFlag, packets: inPublish},
	propMessageExpiry:     {form: formUint32, packets: inPublish},
	propContentType:       {form: formText, packets: inPublish},
	propResponseTopic:     {form: formText, packets: inPublish},
	propCorrelationData:   {form: formBinary, packets: inPublish},
	propSubscriptionID:    {form: formVarint, packets: inPublish, nonzero: true},
	propSessionExpiry:     {form: formUint32, packets: inConnack | inDisconnect},
	propAssignedClientID:  {form: formText, packets: inConnack},
	propServerKeepAlive:   {form: formUint16, packets: inConnack},
	propAuthMethod:        {form: formText, packets: inConnack | inAuth},
	propAuthData:          {form: formBinary, packets: inConnack | inAuth},
	26:                    {form: formText, packets: inConnack}, // Response Information
	propServerReference:   {form: formText, packets: inConnack | inDisconnect},
	propReasonString:      {form: formText, packets: inAnswers},
	propReceiveMaximum:    {form: formUint16, packets: inConnack, nonzero: true},
	propTopicAliasMaximum: {form: formUint16, packets: inConnack},
	propTopicAlias:        {form: formUint16, packets: inPublish},
	propMaximumQoS:        {form: formFlag, packets: inConnack},
	propRetainAvailable:   {form: formFlag, packets: inConnack},
	propUser:              {form: formPair, packets: inPublish | inAnswers},
	propMaximumPacketSize: {form: formUint32, packets: inConnack, nonzero: true},
	propWildcardAvailable: {form: formFlag, packets: inConnack},
	propSubIDAvailable:    {form: formFlag, packets: inConnack},
	propSharedAvailable:   {form: formFlag, packets: inConnack},
}

// repeatable is a bit for each property that one packet may carry more than once (2.2.2.2, 3.3.2.3.8).
const repeatable = 1<<propUser | 1<<propSubscriptionID

// property is one property. Which of its fields has the value follows from its form; the others may be
// left from the one before.
type property struct {
	id     byte
	number uint32 // flags and integers
	data   []byte // text, binary data, and the name of a pair
	value  []byte // the value of a pair
}

// split takes the first property off b, which is not empty, into p, whose fields it sets as far as the
// form uses them. It looks at lengths only; ok is false where the identifier is unknown or the value is
// cut short.
func split(b []byte, p *property) (rest []byte, ok bool) {
	p.id = b[0]
	if int(p.id) >= len(rules) {
		return nil, false
	}
	b = b[1:]
	switch rules[p.id].form {
	case formFlag:
		if len(b) < 1 {
			return nil, false
		}
		p.number = uint32(b[0])
		return b[1:], true
	case formUint16:
		if len(b) < 2 {
			return nil, false
		}
		p.number = uint32(binary.BigEndian.Uint16(b))
		return b[2:], true
	case formUint32:
		if len(b) < 4 {
			return nil, false
		}
		p.number = binary.BigEndian.Uint32(b)
		return b[4:], true
	case formVarint:
		number, size := varint(b)
		if size <= 0 {
			return nil, false
		}
		p.number = uint32(number)
		return b[size:], true
	case formText, formBinary:
		p.data, rest, ok = field(b)
		return rest, ok
	case formPair:
		if p.data, rest, ok = field(b); ok {
			p.value, rest, ok = field(rest)
		}
		return rest, ok
	}
	return nil, false
}

// field takes bytes that their length in two bytes precedes off b (1.5.4, 1.5.6). What it returns has no
// spare capacity, so that an append to it cannot write into the frame.
func field(b []byte) (data, rest []byte, ok bool) {
	if len(b) < 2 {
		return nil, nil, false
	}
	end := 2 + int(binary.BigEndian.Uint16(b))
	if len(b) < end {
		return nil, nil, false
	}
	return b[2:end:end], b[end:], true
}

// propertyBlock takes the properties and their length off b (2.2.2.1).
func propertyBlock(t Type, b []byte) (properties, rest []byte, err *Error) {
	length, size := varint(b)
	if size <= 0 {
		return nil, nil, malformed(t, "has a bad property length")
	}
	if length > len(b)-size {
		return nil, nil, malformed(t, "ends within its properties")
	}
	return b[size : size+length], b[size+length:], nil
}

// walker goes through the properties of one packet and holds each against its rule.
type walker struct {
	packet Type
	rest   []byte
	seen   uint64 // a bit for each identifier
}

// next reads the next property into p, whose id is 0 after the last one.
func (w *walker) next(p *property) *Error {
	if len(w.rest) == 0 {
		p.id = 0
		return nil
	}
	rest, ok := split(w.rest, p)
	if !ok {
		return malformed(w.packet, "has a property that is unknown or cut short")
	}
	w.rest = rest
	r, bit := &rules[p.id], uint64(1)<<p.id
	switch {
	case r.packets&(1<<w.packet) == 0:
		return malformed(w.packet, "has a property that does not belong there")
	case w.seen&bit&^repeatable != 0:
		return forbidden(w.packet, "has a property twice")
	case r.form == formFlag && p.number > 1 && p.id != propPayloadFormat: // see Publish.PayloadFormat
		return forbidden(w.packet, "has a property that must be 0 or 1 and is neither")
	case r.nonzero && p.number == 0:
		return forbidden(w.packet, "has a property of 0 that must not be 0")
	case r.form == formText && !wellFormed(p.data), r.form == formPair && !(wellFormed(p.data) && wellFormed(p.value)):
		return malformed(w.packet, "has a property that is not well-formed UTF-8")
	}
	w.seen |= bit
	return nil
}

// wellFormed reports whether b may stand in a UTF-8 Encoded String: valid UTF-8, which surrogates are
// not, without U+0000 (1.5.4). Control characters and non-characters SHOULD NOT be there, and may.
//
// Nearly all that is asked is short and ASCII, so that is looked at in one pass, eight bytes at a time.
func wellFormed(b []byte) bool {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	rest := b
	for len(rest) >= 8 {
		// A top bit is not ASCII; without one, taking 1 from each byte sets a top bit where one was 0.
		if w := binary.LittleEndian.Uint64(rest); (w|(w-ones))&tops != 0 {
			return wellFormedUnicode(b)
		}
		rest = rest[8:]
	}
	for _, c := range rest {
		if c-1 >= 0x7F {
			return wellFormedUnicode(b)
		}
	}
	return true
}

func wellFormedUnicode(b []byte) bool { return utf8.Valid(b) && bytes.IndexByte(b, 0) < 0 }

// text turns bytes of a frame into a string without copying them. This is sound because the bytes of a
// frame are never written again: the Scanner cuts frames out of memory that it does not use twice.
func text(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b)) //nolint:gosec // the bytes of a frame are never written again
}
