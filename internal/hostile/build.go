package hostile

import (
	"encoding/binary"
	"strings"
)

// AnyID is the Packet Identifier in all that is made here. Whoever sends a Case puts another in its place: see [Case.WithID].
const AnyID uint16 = 0x7A5A

// packet is a control packet in parts, any of which can be replaced before it is encoded.
type packet struct {
	def    *Packet
	first  byte
	fields []Field
	parts  []string // encoded, as many of the fields as there are; of properties without their length
}

// sample is the packet as it is usually sent. topic and qos are those of a PUBLISH.
func sample(def *Packet, topic string, qos byte) packet {
	p := packet{def: def, first: def.Type<<4 | def.Flags}
	if def.Type == PUBLISH {
		p.first |= qos << 1
	}
	for i := range def.Fields {
		f := def.Fields[i]
		if f.Form == PacketID && def.Type == PUBLISH && qos == 0 {
			continue
		}
		part := f.Sample
		switch f.Form {
		case PacketID:
			part = string(binary.BigEndian.AppendUint16(nil, AnyID))
		case Text:
			if def.Type == PUBLISH {
				part = field(topic)
			}
		}
		p.fields = append(p.fields, f)
		p.parts = append(p.parts, part)
	}
	return p
}

// with is a copy with another part.
func (p packet) with(i int, part string) packet {
	p.parts = append([]string(nil), p.parts...)
	p.parts[i] = part
	return p
}

// index is where the first field of a form stands, -1 where there is none.
func (p packet) index(f Form) int {
	for i := range p.fields {
		if p.fields[i].Form == f {
			return i
		}
	}
	return -1
}

// place is whose properties a field has.
func (p packet) place(i int) byte {
	if place := p.fields[i].Place; place != 0 {
		return place
	}
	return p.def.Type
}

// body is what stands behind the fixed header.
func (p packet) body() string {
	var s strings.Builder
	for i := range p.parts {
		s.WriteString(p.encoded(i))
	}
	return s.String()
}

func (p packet) encoded(i int) string {
	if p.fields[i].Form == Properties {
		return varint(len(p.parts[i])) + p.parts[i]
	}
	return p.parts[i]
}

// start is where a part begins in the body.
func (p packet) start(i int) int {
	n := 0
	for j := range i {
		n += len(p.encoded(j))
	}
	return n
}

// bytes is the whole packet.
func (p packet) bytes() []byte { return frame(p.first, p.body()) }

// frame is a packet with the shortest Remaining Length.
func frame(first byte, body string) []byte {
	return []byte(string([]byte{first}) + varint(len(body)) + body)
}

// idAt is where the Packet Identifier stands in the whole packet, 0 where there is none.
func (p packet) idAt() int {
	i := p.index(PacketID)
	if i < 0 {
		return 0
	}
	return len(p.bytes()) - len(p.body()) + p.start(i)
}
