package broker

import (
	"encoding/binary"
	"math"
)

// appendVarint appends a Variable Byte Integer (1.5.5).
func appendVarint(dst []byte, n int) []byte {
	for n >= 0x80 {
		dst = append(dst, byte(n)|0x80)
		n >>= 7
	}
	return append(dst, byte(n))
}

func varintSize(n int) int {
	switch {
	case n < 1<<7:
		return 1
	case n < 1<<14:
		return 2
	case n < 1<<21:
		return 3
	}
	return 4
}

func appendText(dst []byte, s string) []byte {
	s = s[:min(len(s), math.MaxUint16)]
	return append(binary.BigEndian.AppendUint16(dst, uint16(len(s))), s...)
}

func appendBinary(dst, b []byte) []byte {
	b = b[:min(len(b), math.MaxUint16)]
	return append(binary.BigEndian.AppendUint16(dst, uint16(len(b))), b...)
}

// appendPacket appends a fixed header and a body.
func appendPacket(dst []byte, first byte, body []byte) []byte {
	return append(appendVarint(append(dst, first), len(body)), body...)
}

// appendAnswer appends a PUBACK, PUBREC, PUBREL or PUBCOMP, in its short form where it says nothing more.
func appendAnswer(dst []byte, packet byte, id uint16, code byte, reason string) []byte {
	first := packet << 4
	if packet == PUBREL {
		first |= 2
	}
	switch {
	case code == 0:
		return append(dst, first, 2, byte(id>>8), byte(id))
	case reason == "":
		return append(dst, first, 3, byte(id>>8), byte(id), code)
	}
	body := []byte{byte(id >> 8), byte(id), code}
	return appendPacket(dst, first, append(body, reasonProperties(reason)...))
}

// appendCodes appends a SUBACK or UNSUBACK.
func appendCodes(dst []byte, packet byte, id uint16, codes []byte, reason string) []byte {
	body := binary.BigEndian.AppendUint16(nil, id)
	body = append(body, reasonProperties(reason)...)
	return appendPacket(dst, packet<<4, append(body, codes...))
}

// appendDisconnect appends a DISCONNECT (3.14).
func appendDisconnect(dst []byte, code byte, reason string) []byte {
	if reason == "" {
		return append(dst, DISCONNECT<<4, 1, code)
	}
	return appendPacket(dst, DISCONNECT<<4, append([]byte{code}, reasonProperties(reason)...))
}

// reasonProperties is the properties with their length: a Reason String, or nothing.
func reasonProperties(reason string) []byte {
	if reason == "" {
		return []byte{0}
	}
	p := appendText([]byte{propReasonString}, reason)
	return append(appendVarint(nil, len(p)), p...)
}

// connack is a CONNACK (3.2). A field of zero is left out.
type connack struct {
	present        bool
	code           byte
	reason         string
	assignedID     string
	keepAlive      uint16
	sessionExpiry  *uint32
	receiveMaximum uint16
	maximumQoS     *byte
	maximumPacket  uint32
	aliasMaximum   uint16
	noRetain       bool
	noWildcards    bool
	noSubIDs       bool
	noShared       bool
}

func (c *connack) append(dst []byte) []byte {
	var p []byte
	number16 := func(id byte, n uint16) {
		if n != 0 {
			p = binary.BigEndian.AppendUint16(append(p, id), n)
		}
	}
	number16(propReceiveMaximum, c.receiveMaximum)
	number16(propServerKeepAlive, c.keepAlive)
	number16(propTopicAliasMaximum, c.aliasMaximum)
	if c.sessionExpiry != nil {
		p = binary.BigEndian.AppendUint32(append(p, propSessionExpiry), *c.sessionExpiry)
	}
	if c.maximumPacket != 0 {
		p = binary.BigEndian.AppendUint32(append(p, propMaximumPacketSize), c.maximumPacket)
	}
	if c.maximumQoS != nil && *c.maximumQoS < 2 {
		p = append(p, propMaximumQoS, *c.maximumQoS)
	}
	for _, missing := range []struct {
		id byte
		is bool
	}{
		{propRetainAvailable, c.noRetain},
		{propWildcardAvailable, c.noWildcards},
		{propSubIDAvailable, c.noSubIDs},
		{propSharedAvailable, c.noShared},
	} {
		if missing.is {
			p = append(p, missing.id, 0)
		}
	}
	if c.assignedID != "" {
		p = appendText(append(p, propAssignedClientID), c.assignedID)
	}
	if c.reason != "" {
		p = appendText(append(p, propReasonString), c.reason)
	}
	flags := byte(0)
	if c.present {
		flags = 1
	}
	body := appendVarint([]byte{flags, c.code}, len(p))
	return appendPacket(dst, CONNACK<<4, append(body, p...))
}
