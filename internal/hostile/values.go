package hostile

import (
	"encoding/binary"
	"strings"
)

// value is one value of a data type, encoded.
type value struct {
	name string
	raw  string
	// wrong has the reason codes of which one answers the value; empty where it is legal.
	wrong []byte
}

var (
	malformed = []byte{CodeMalformed}
	protocol  = []byte{CodeProtocol}
	// either is where the standard forbids something and does not say with which of the two it is answered.
	either = []byte{CodeMalformed, CodeProtocol}
)

// values are the odd and the wrong ones of a data type. What a form excludes by itself is here; what a property excludes is not.
func values(f Form) []value {
	switch f {
	case Byte:
		return []value{{name: "0", raw: "\x00"}, {name: "255", raw: "\xff"}}
	case Flag:
		return []value{
			{name: "0", raw: "\x00"},
			{name: "1", raw: "\x01"},
			{name: "2", raw: "\x02", wrong: protocol},
			{name: "255", raw: "\xff", wrong: protocol},
		}
	case Uint16:
		return []value{{name: "0", raw: "\x00\x00"}, {name: "1", raw: "\x00\x01"}, {name: "65535", raw: "\xff\xff"}}
	case Uint32:
		return []value{
			{name: "0", raw: "\x00\x00\x00\x00"},
			{name: "1", raw: "\x00\x00\x00\x01"},
			{name: "2^31", raw: "\x80\x00\x00\x00"},
			{name: "2^32-1", raw: "\xff\xff\xff\xff"},
		}
	case Varint:
		return varints
	case Text:
		return texts
	case Binary:
		return []value{
			{name: "empty", raw: field("")},
			{name: "zeros", raw: field("\x00\x00")},
			{name: "no UTF-8", raw: field("\xff\xfe\xed\xa0\x80")},
			{name: "65535 bytes", raw: field(strings.Repeat("\x00", 65535))},
		}
	case Pair:
		return pairs()
	default:
		return nil
	}
}

// varints are Variable Byte Integers at the ends of their lengths, and what is none (1.5.5).
var varints = []value{
	{name: "0", raw: "\x00"},
	{name: "1", raw: "\x01"},
	{name: "127", raw: "\x7f"},
	{name: "128", raw: "\x80\x01"},
	{name: "16383", raw: "\xff\x7f"},
	{name: "16384", raw: "\x80\x80\x01"},
	{name: "2097151", raw: "\xff\xff\x7f"},
	{name: "2097152", raw: "\x80\x80\x80\x01"},
	{name: "268435455", raw: "\xff\xff\xff\x7f"},
	{name: "1 in two bytes", raw: "\x81\x00", wrong: malformed},
	{name: "1 in three bytes", raw: "\x81\x80\x00", wrong: malformed},
	{name: "1 in four bytes", raw: "\x81\x80\x80\x00", wrong: malformed},
	{name: "five bytes", raw: "\xff\xff\xff\xff\x01", wrong: malformed},
}

// texts are UTF-8 Encoded Strings, and what is none (1.5.4).
var texts = []value{
	{name: "empty", raw: field("")},
	{name: "one letter", raw: field("a")},
	{name: "byte order mark", raw: field("\ufeffa")},
	{name: "control characters", raw: field("\x01\x1f\x7f\u0080\u009f")},
	{name: "non-characters", raw: field("\ufdd0\uffff\U0010ffff")},
	{name: "beyond the basic plane", raw: field("\U0001f4a5")},
	{name: "65535 bytes", raw: field(strings.Repeat("t", 65535))},
	{name: "U+0000 alone", raw: field("\x00"), wrong: malformed},
	{name: "U+0000 inside", raw: field("a\x00b"), wrong: malformed},
	{name: "U+0000 at the ninth byte", raw: field("12345678\x00"), wrong: malformed},
	{name: "no UTF-8", raw: field("\xff"), wrong: malformed},
	{name: "continuation alone", raw: field("a\x80"), wrong: malformed},
	{name: "sequence cut short", raw: field("a\xe2\x82"), wrong: malformed},
	{name: "U+0000 overlong", raw: field("\xc0\x80"), wrong: malformed},
	{name: "slash overlong", raw: field("\xe0\x80\xaf"), wrong: malformed},
	{name: "surrogate U+D800", raw: field("\xed\xa0\x80"), wrong: malformed},
	{name: "surrogate U+DFFF", raw: field("\xed\xbf\xbf"), wrong: malformed},
	{name: "surrogate pair", raw: field("\xed\xa0\xbd\xed\xb2\xa5"), wrong: malformed},
	{name: "beyond U+10FFFF", raw: field("\xf4\x90\x80\x80"), wrong: malformed},
}

// pairs have each text as their name and as their value.
func pairs() []value {
	out := []value{{name: "both empty", raw: field("") + field("")}}
	for _, v := range texts {
		out = append(out,
			value{name: "name " + v.name, raw: v.raw + field("v"), wrong: v.wrong},
			value{name: "value " + v.name, raw: field("n") + v.raw, wrong: v.wrong})
	}
	return out
}

// typical is a value that a property usually has.
func typical(p *Property) string {
	switch p.Form {
	case Flag:
		return "\x01"
	case Uint16:
		return "\x00\x1e"
	case Uint32:
		return "\x00\x01\x51\x80" // a day, or 84 KiB
	case Varint:
		return "\x80\x02"
	case Pair:
		return field("name") + field("value")
	default:
		return field("some/text")
	}
}

// field is bytes behind their length in two bytes.
func field(s string) string {
	return string(binary.BigEndian.AppendUint16(nil, uint16(len(s)))) + s //nolint:gosec // no longer than 65,535
}

// varint is a Variable Byte Integer in as many bytes as it needs.
func varint(n int) string {
	var b []byte
	for {
		digit := byte(n & 0x7F)
		if n >>= 7; n > 0 {
			b = append(b, digit|0x80)
			continue
		}
		return string(append(b, digit))
	}
}
