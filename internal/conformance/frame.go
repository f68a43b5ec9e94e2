package conformance

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/eclipse/paho.golang/packets"
)

// packet is what has come from the server, with its bytes: paho's packets keep one Subscription Identifier only.
type packet struct {
	*packets.ControlPacket

	raw []byte
}

// String is short, for failures.
func (p packet) String() string {
	switch c := p.Content.(type) {
	case *packets.Publish:
		return fmt.Sprintf("PUBLISH %d QoS %d DUP %t %q", c.PacketID, c.QoS, c.Duplicate, clip(c.Payload))
	case *packets.Disconnect:
		return fmt.Sprintf("DISCONNECT 0x%02X", c.ReasonCode)
	case *packets.Puback:
		return fmt.Sprintf("PUBACK %d 0x%02X", c.PacketID, c.ReasonCode)
	case *packets.Pubrec:
		return fmt.Sprintf("PUBREC %d 0x%02X", c.PacketID, c.ReasonCode)
	}
	return fmt.Sprintf("%s %d", p.PacketType(), p.PacketID())
}

// readFrame reads one packet.
func readFrame(in *bufio.Reader) ([]byte, error) {
	first, err := in.ReadByte()
	if err != nil {
		return nil, err
	}
	raw := []byte{first}
	size := 0
	for shift := 0; ; shift += 7 {
		b, err := in.ReadByte()
		if err != nil {
			return nil, err
		}
		if shift > 21 {
			return nil, fmt.Errorf("a Remaining Length of more than four bytes")
		}
		raw = append(raw, b)
		size |= int(b&0x7F) << shift
		if b < 0x80 {
			break
		}
	}
	head := len(raw)
	raw = append(raw, make([]byte, size)...)
	_, err = io.ReadFull(in, raw[head:])
	return raw, err
}

// subscriptionIDs are the Subscription Identifiers of a PUBLISH, in their order (3.3.2.3.8). The packet is one that paho could read.
func subscriptionIDs(raw []byte) (ids []int) {
	qos := raw[0] >> 1 & 3
	_, b := varint(raw[1:])
	b = b[2+int(binary.BigEndian.Uint16(b)):]
	if qos > 0 {
		b = b[2:]
	}
	size, b := varint(b)
	text := func(b []byte) []byte { return b[2+int(binary.BigEndian.Uint16(b)):] }
	for b = b[:size]; len(b) > 0; {
		id := b[0]
		b = b[1:]
		switch id {
		case packets.PropPayloadFormat:
			b = b[1:]
		case packets.PropMessageExpiry:
			b = b[4:]
		case packets.PropTopicAlias:
			b = b[2:]
		case packets.PropContentType, packets.PropResponseTopic, packets.PropCorrelationData:
			b = text(b)
		case packets.PropUser:
			b = text(text(b))
		case packets.PropSubscriptionIdentifier:
			var n int
			n, b = varint(b)
			ids = append(ids, n)
		default:
			return ids
		}
	}
	return ids
}

func varint(b []byte) (n int, rest []byte) {
	for i := range b {
		n |= int(b[i]&0x7F) << (7 * i)
		if b[i] < 0x80 {
			return n, b[i+1:]
		}
	}
	return n, nil
}

// frame is a packet of any bytes.
func frame(first byte, body ...byte) []byte {
	return append(appendVarint([]byte{first}, len(body)), body...)
}

func appendVarint(dst []byte, n int) []byte {
	for ; n >= 0x80; n >>= 7 {
		dst = append(dst, byte(n)|0x80)
	}
	return append(dst, byte(n))
}

// publishFrame is a PUBLISH of the payload "x" with its parts as given: flags, topic, identifier, properties.
func publishFrame(flags byte, topic, id, properties string) []byte {
	body := binary.BigEndian.AppendUint16(nil, uint16(len(topic)))
	body = append(append(body, topic...), id...)
	body = append(appendVarint(body, len(properties)), properties...)
	return frame(packets.PUBLISH<<4|flags, append(body, 'x')...)
}
