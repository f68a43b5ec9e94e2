package broker

import (
	"bytes"
	"encoding/binary"
	"time"

	"github.com/eclipse/paho.golang/packets"
)

// Direction is the way a packet goes.
type Direction byte

// The two ways.
const (
	FromClient Direction = '>'
	ToClient   Direction = '<'
)

// Packet is a control packet on its way, as an [Interceptor] sees it: what tells it apart, and all of its bytes. Of a
// packet that the standard does not allow, the fields are what could be read.
type Packet struct {
	Type    byte     // PUBLISH and so on
	ID      uint16   // Packet Identifier; 0 where there is none
	QoS     byte     // of a PUBLISH
	Dup     bool     // of a PUBLISH
	Retain  bool     // of a PUBLISH
	Topic   string   // of a PUBLISH
	Payload []byte   // of a PUBLISH
	Filters []string // of a SUBSCRIBE or UNSUBSCRIBE, "$share/…" included
	Code    byte     // the reason code of CONNACK, PUBACK, PUBREC, PUBREL, PUBCOMP, DISCONNECT, AUTH
	Bytes   []byte   // the whole packet; not to be kept or written to
}

// Decode reads the packet by paho's packets package, for whatever else there is to know. It also reads the empty form of
// DISCONNECT (3.14.2.1), which that package does not.
func (p Packet) Decode() (*packets.ControlPacket, error) {
	if p.Type == DISCONNECT && len(p.Bytes) == 2 {
		return packets.NewControlPacket(packets.DISCONNECT), nil
	}
	return packets.ReadPacket(bytes.NewReader(p.Bytes))
}

// Interceptor looks at each packet before the server handles it, or before it is sent, and says what becomes of it. It is
// called with no lock held, from the goroutines of all connections, and may wait: its connection's direction waits with it.
// The zero Verdict lets the packet pass.
type Interceptor func(clientID string, direction Direction, p Packet) Verdict

// Verdict is what becomes of a packet. Its fields combine: the packet waits, then it is refused, replaced, dropped or passed, then
// bytes are sent, then the connection is cut.
type Verdict struct {
	// Hold makes the packet, and all behind it in its direction, wait.
	Hold time.Duration
	// Late makes a packet to the client wait while those behind it pass. For one from the client it is the same as Hold.
	Late time.Duration
	// Drop loses the packet without a trace, as a broken network would. Everything dropped in both directions is a half-open
	// connection; an acknowledgement dropped is one withheld.
	Drop bool
	// Refuse, if not 0, answers a packet from the client with this reason code, and does nothing else with it: PUBLISH, by PUBACK
	// or PUBREC (at QoS 0 it vanishes); SUBSCRIBE and UNSUBSCRIBE, for each filter; CONNECT, by CONNACK; others by DISCONNECT.
	Refuse byte
	// Grant, if not nil, is the highest QoS that a SUBSCRIBE is granted.
	Grant *byte
	// Replace, if not nil, stands in for the packet: handled as if the client had sent it, or sent as it is. It has no
	// effect on a CONNECT, which is decoded before it is shown.
	Replace []byte
	// Send is sent to the client after the packet's own answer, or after the packet, as it is.
	Send []byte
	// Cut ends the connection without DISCONNECT, after what is to be sent.
	Cut bool
}

func (v Verdict) passes() bool {
	return v.Hold == 0 && v.Late == 0 && !v.Drop && v.Refuse == 0 && v.Grant == nil && v.Replace == nil && v.Send == nil && !v.Cut
}

// SetInterceptor has f look at every packet from now on. Nil takes it away.
func (b *Broker) SetInterceptor(f Interceptor) {
	b.mu.Lock()
	defer b.unlock()
	b.intercept = f
}

// inspect makes a Packet of a frame's bytes, as far as they go.
func inspect(frame []byte) Packet {
	p := Packet{Type: frame[0] >> 4, Bytes: frame}
	_, size := varint(frame[1:])
	if size <= 0 || len(frame) < 1+size {
		return p
	}
	b := frame[1+size:]
	switch p.Type {
	case PUBLISH:
		inspectPublish(&p, frame[0], b)
	case PUBACK, PUBREC, PUBREL, PUBCOMP:
		inspectID(&p, b)
		if len(b) > 2 {
			p.Code = b[2]
		}
	case SUBSCRIBE, UNSUBSCRIBE:
		b = skipProperties(inspectID(&p, b))
		for len(b) > 0 {
			name, rest, ok := field(b)
			if p.Type == SUBSCRIBE {
				ok = ok && len(rest) > 0
			}
			if !ok {
				break
			}
			if p.Filters = append(p.Filters, string(name)); p.Type == SUBSCRIBE {
				rest = rest[1:]
			}
			b = rest
		}
	case SUBACK, UNSUBACK:
		inspectID(&p, b)
	case CONNACK:
		if len(b) > 1 {
			p.Code = b[1]
		}
	case DISCONNECT, AUTH:
		if len(b) > 0 {
			p.Code = b[0]
		}
	}
	return p
}

func inspectID(p *Packet, b []byte) (rest []byte) {
	if len(b) < 2 {
		return nil
	}
	p.ID = binary.BigEndian.Uint16(b)
	return b[2:]
}

func inspectPublish(p *Packet, first byte, b []byte) {
	p.QoS, p.Dup, p.Retain = first>>1&3, first&8 != 0, first&1 != 0
	name, b, ok := field(b)
	if !ok {
		return
	}
	p.Topic = string(name)
	if p.QoS > 0 {
		b = inspectID(p, b)
	}
	p.Payload = skipProperties(b)
}

// skipProperties returns what stands behind the properties at the start of b.
func skipProperties(b []byte) []byte {
	length, size := varint(b)
	if size <= 0 || int(length) > len(b)-size {
		return nil
	}
	return b[size+int(length):]
}
