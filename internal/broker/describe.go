package broker

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// describe says in a line what a packet holds. head is its beginning, size its length. It takes any bytes.
func describe(head []byte, size int) string {
	if len(head) < 2 {
		return fmt.Sprintf("bytes %x", head)
	}
	packet := head[0] >> 4
	_, n := varint(head[1:])
	if n <= 0 || len(head) < 1+n {
		return fmt.Sprintf("%s %d bytes, not a packet", TypeName(packet), size)
	}
	d := describer{rest: head[1+n:], behind: size - len(head)}
	d.text.WriteString(TypeName(packet))
	switch packet {
	case CONNECT:
		d.connect()
	case CONNACK:
		flags := d.byte()
		d.put("session-present=%t", flags&1 != 0)
		d.code(d.byte())
		d.properties()
	case PUBLISH:
		d.publish(head[0])
	case PUBACK, PUBREC, PUBREL, PUBCOMP:
		d.put("id=%d", d.uint16())
		if len(d.rest) == 0 {
			d.code(0)
			break
		}
		d.code(d.byte())
		d.properties()
	case SUBSCRIBE, UNSUBSCRIBE:
		d.put("id=%d", d.uint16())
		d.properties()
		d.filters(packet == SUBSCRIBE)
	case SUBACK, UNSUBACK:
		d.put("id=%d", d.uint16())
		d.properties()
		for _, c := range d.rest {
			d.put("0x%02X", c)
		}
	case DISCONNECT, AUTH:
		if len(d.rest) == 0 {
			d.code(0)
			break
		}
		d.code(d.byte())
		d.properties()
	}
	if d.short {
		d.put("…")
	}
	d.put("%dB", size)
	return d.text.String()
}

// describer reads a packet from its front and writes about it. What is cut short reads as zeros.
type describer struct {
	text   strings.Builder
	rest   []byte
	behind int // bytes of the packet that are not in rest
	short  bool
}

func (d *describer) put(format string, args ...any) {
	d.text.WriteByte(' ')
	fmt.Fprintf(&d.text, format, args...)
}

func (d *describer) code(c byte) {
	if name := codeNames[c]; name != "" {
		d.put("0x%02X (%s)", c, name)
		return
	}
	d.put("0x%02X", c)
}

func (d *describer) fail() {
	d.rest, d.short = nil, true
}

func (d *describer) byte() byte {
	if len(d.rest) < 1 {
		d.fail()
		return 0
	}
	c := d.rest[0]
	d.rest = d.rest[1:]
	return c
}

func (d *describer) uint16() uint16 {
	if len(d.rest) < 2 {
		d.fail()
		return 0
	}
	n := binary.BigEndian.Uint16(d.rest)
	d.rest = d.rest[2:]
	return n
}

func (d *describer) field() []byte {
	data, rest, ok := field(d.rest)
	if !ok {
		d.fail()
		return nil
	}
	d.rest = rest
	return data
}

func (d *describer) properties() {
	if len(d.rest) == 0 {
		return
	}
	length, size := varint(d.rest)
	if size <= 0 {
		d.fail()
		return
	}
	d.rest = d.rest[size:]
	b := d.rest[:min(int(length), len(d.rest))]
	d.rest = d.rest[len(b):]
	for len(b) > 0 {
		p, rest, ok := splitProperty(b)
		if !ok {
			d.fail()
			return
		}
		b = rest
		switch r := &propertyRules[p.id]; r.form {
		case formText:
			d.put("%s=%q", r.name, p.data)
		case formBinary:
			if p.id == propAuthData {
				d.put("%s=(%dB)", r.name, len(p.data))
				continue
			}
			d.put("%s=%x", r.name, p.data[:min(len(p.data), 16)])
		case formPair:
			d.put("%s=%q:%q", r.name, p.data, p.value)
		default:
			d.put("%s=%d", r.name, p.number)
		}
	}
}

func (d *describer) connect() {
	d.field()
	version, flags := d.byte(), d.byte()
	keepAlive := d.uint16()
	var properties describer
	properties.rest = d.rest
	properties.properties()
	d.rest, d.short = properties.rest, properties.short
	d.put("client-id=%q clean-start=%t keep-alive=%d", d.field(), flags&2 != 0, keepAlive)
	if version != 5 {
		d.put("version=%d", version)
	}
	d.text.WriteString(properties.text.String())
	if flags&4 != 0 {
		d.properties()
		d.put("will=%q will-qos=%d will-retain=%t", d.field(), flags>>3&3, flags&0x20 != 0)
		d.field()
	}
	if flags&0x80 != 0 {
		d.field()
		d.put("user=(hidden)")
	}
	if flags&0x40 != 0 {
		d.put("password=(hidden)")
	}
}

func (d *describer) publish(first byte) {
	name := d.field()
	qos := first >> 1 & 3
	if qos > 0 {
		d.put("id=%d", d.uint16())
	}
	d.put("qos=%d dup=%d retain=%d topic=%q", qos, first>>3&1, first&1, name)
	d.properties()
	const shown = 24
	d.put("payload=%q", d.rest[:min(len(d.rest), shown)])
	if n := len(d.rest) + d.behind; n > shown {
		fmt.Fprintf(&d.text, "… (%dB)", n)
	}
}

func (d *describer) filters(options bool) {
	for len(d.rest) > 0 {
		d.put("%q", d.field())
		if options {
			o := d.byte()
			fmt.Fprintf(&d.text, "(qos=%d no-local=%d as-published=%d retain-handling=%d)", o&3, o>>2&1, o>>3&1, o>>4&3)
		}
	}
}
