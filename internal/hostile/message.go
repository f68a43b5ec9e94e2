package hostile

import (
	"encoding/binary"
	"strings"
)

// message is what a PUBLISH says. Its properties are well-formed.
func message(p packet) *Message {
	m := &Message{QoS: p.first >> 1 & 3, Dup: p.first&8 != 0, Retain: p.first&1 != 0}
	for i := range p.fields {
		switch p.fields[i].Form {
		case Text:
			m.Topic = p.parts[i][2:]
		case Payload:
			m.Payload = []byte(p.parts[i])
		case Properties:
			m.read(p.parts[i])
		}
	}
	return m
}

func (m *Message) read(properties string) {
	for len(properties) > 0 {
		id := properties[0]
		rest := properties[1:]
		switch propertyByID(id).Form {
		case Flag:
			rest = rest[1:]
		case Uint16:
			rest = rest[2:]
		case Uint32:
			rest = rest[4:]
		case Varint:
			for rest[0] >= 0x80 {
				rest = rest[1:]
			}
			rest = rest[1:]
		case Pair:
			var name, value string
			name, rest = cut(rest)
			value, rest = cut(rest)
			m.User = append(m.User, [2]string{name, value})
		default:
			var value string
			value, rest = cut(rest)
			switch id {
			case propertyContentType:
				m.ContentType = value
			case propertyResponseTopic:
				m.ResponseTopic = value
			case propertyCorrelationData:
				m.CorrelationData = []byte(value)
			}
		}
		properties = rest
	}
}

func cut(s string) (value, rest string) {
	n := 2 + int(binary.BigEndian.Uint16([]byte(s)))
	return s[2:n], s[n:]
}

// Publication is a PUBLISH with user properties, names and values in turn.
func Publication(name, topic string, qos byte, payload string, user ...string) Case {
	p := sample(AllPackets[PUBLISH-1], topic, qos)
	var properties strings.Builder
	for i := 0; i+1 < len(user); i += 2 {
		properties.WriteString(string([]byte{PropertyUser}) + field(user[i]) + field(user[i+1]))
	}
	g := &generator{from: Server, topic: topic}
	return *g.add(p.with(len(p.parts)-1, payload).with(p.index(Properties), properties.String()), name, nil)
}
