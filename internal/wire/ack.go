package wire

import "encoding/binary"

// AppendPuback appends PUBACK 0x00 for id to dst, in the form of four bytes (3.4.2.1).
func AppendPuback(dst []byte, id uint16) []byte {
	return append(dst, byte(PUBACK)<<4, 2, byte(id>>8), byte(id))
}

// AppendPubrec appends PUBREC 0x00 for id to dst, in the form of four bytes (3.5.2.1).
func AppendPubrec(dst []byte, id uint16) []byte {
	return append(dst, byte(PUBREC)<<4, 2, byte(id>>8), byte(id))
}

// AppendPubcomp appends PUBCOMP for id to dst (3.7.2.1). The code is 0x00, or 0x92 for a Packet
// Identifier that was not found.
func AppendPubcomp(dst []byte, id uint16, code byte) []byte {
	if code == 0 {
		return append(dst, byte(PUBCOMP)<<4, 2, byte(id>>8), byte(id))
	}
	return append(dst, byte(PUBCOMP)<<4, 3, byte(id>>8), byte(id), code)
}

// AppendPingreq appends PINGREQ to dst (3.12).
func AppendPingreq(dst []byte) []byte { return append(dst, 0xC0, 0) }

// AppendDisconnect appends DISCONNECT with a reason code to dst (3.14). 0x00 takes the form of two bytes.
func AppendDisconnect(dst []byte, code byte) []byte {
	if code == 0 {
		return append(dst, byte(DISCONNECT)<<4, 0)
	}
	return append(dst, byte(DISCONNECT)<<4, 1, code)
}

// AppendDisconnectExpiry appends DISCONNECT with a reason code and a new Session Expiry Interval in
// seconds to dst (3.14.2.2.2). An interval of 0 ends the session with the connection.
func AppendDisconnectExpiry(dst []byte, code byte, sessionExpiry uint32) []byte {
	dst = append(dst, byte(DISCONNECT)<<4, 7, code, 5, propSessionExpiry)
	return binary.BigEndian.AppendUint32(dst, sessionExpiry)
}
