package wire

import "encoding/binary"

// CheckControl checks the structure of a frame that is not a PUBLISH: a type that a server may send, the
// flags, the lengths, the properties that belong to the packet, and reason codes that exist or at least
// say failure. It returns an [*Error] for anything else, and for a PUBLISH, which [ParsePublish] reads.
//
// Nothing that it lets through makes a decoder run past the end of the packet or take a packet for
// another. It does not know what was asked: whether a SUBACK answers a SUBSCRIBE, and with as many codes
// as that had filters, is for the caller to see.
func CheckControl(f Frame) error {
	if err := checkControl(f); err != nil {
		return err
	}
	return nil
}

func checkControl(f Frame) *Error {
	t, b, err := open(f)
	if err != nil {
		return err
	}
	switch t {
	case CONNACK:
		_, err = parseConnack(b)
	case PUBACK, PUBREC, PUBREL, PUBCOMP:
		_, _, err = parseAck(t, b)
	case SUBACK, UNSUBACK:
		err = checkGrants(t, b)
	case DISCONNECT:
		_, err = parseDisconnect(b)
	case AUTH:
		err = checkAuth(b)
	case PINGRESP:
		if len(b) > 0 {
			err = malformed(t, "is not empty")
		}
	}
	return err
}

// open returns the type of a packet that is not a PUBLISH and what follows its fixed header, having
// checked that a server may send the type and that its flags are right.
func open(f Frame) (Type, []byte, *Error) {
	b, ok := f.body()
	if !ok {
		return 0, nil, &Error{Code: CodeMalformed, Reason: "packet ends within its fixed header"}
	}
	t, flags := f.Type(), byte(0)
	switch t {
	case PUBREL:
		flags = 2
	case CONNACK, PUBACK, PUBREC, PUBCOMP, SUBACK, UNSUBACK, PINGRESP, DISCONNECT, AUTH:
	case 0: // 2.1.2
		return t, nil, malformed(t, "received, which does not exist")
	default:
		return t, nil, forbidden(t, "received where a server may not send it")
	}
	if f.Bytes[0]&0x0F != flags { // [MQTT-2.1.3-1]
		return t, nil, malformed(t, "has wrong flags")
	}
	return t, b, nil
}

// expect opens a packet that must be of type want.
func expect(want Type, f Frame) ([]byte, *Error) {
	t, b, err := open(f)
	if err == nil && t != want {
		err = forbidden(t, "received in place of "+want.String())
	}
	return b, err
}

// ParsePubrel reads a PUBREL (3.6) and checks all that [CheckControl] does. The code is 0x00, or 0x92 for
// a Packet Identifier that the server did not find. Errors are an [*Error].
func ParsePubrel(f Frame) (id uint16, code byte, err error) {
	b, wrong := expect(PUBREL, f)
	if wrong == nil {
		id, code, wrong = parseAck(PUBREL, b)
	}
	if wrong != nil {
		return 0, 0, wrong
	}
	return id, code, nil
}

// parseAck reads PUBACK, PUBREC, PUBREL or PUBCOMP (3.4 to 3.7): an identifier, then perhaps a reason
// code, then perhaps properties.
func parseAck(t Type, b []byte) (id uint16, code byte, err *Error) {
	if len(b) < 2 {
		return 0, 0, malformed(t, "ends within its Packet Identifier")
	}
	id, b = binary.BigEndian.Uint16(b), b[2:]
	if id == 0 {
		return 0, 0, malformed(t, "has Packet Identifier 0")
	}
	if len(b) == 0 {
		return id, 0, nil
	}
	code, b = b[0], b[1:]
	if !knownCode(t, code) {
		return 0, 0, forbidden(t, "has an unknown reason code")
	}
	if len(b) == 0 {
		return id, code, nil
	}
	return id, code, checkProperties(t, b)
}

// checkGrants checks SUBACK or UNSUBACK (3.9, 3.11): an identifier, properties, and at least one code.
func checkGrants(t Type, b []byte) *Error {
	if len(b) < 2 {
		return malformed(t, "ends within its Packet Identifier")
	}
	if b[0] == 0 && b[1] == 0 {
		return malformed(t, "has Packet Identifier 0")
	}
	properties, codes, err := propertyBlock(t, b[2:])
	if err != nil {
		return err
	}
	if err := walk(t, properties); err != nil {
		return err
	}
	if len(codes) == 0 {
		return forbidden(t, "has no reason code")
	}
	for _, code := range codes {
		if !knownCode(t, code) {
			return forbidden(t, "has an unknown reason code")
		}
	}
	return nil
}

// checkAuth checks AUTH (3.15), which may be empty.
func checkAuth(b []byte) *Error {
	if len(b) == 0 {
		return nil
	}
	code, b := b[0], b[1:]
	if !knownCode(AUTH, code) {
		return forbidden(AUTH, "has an unknown reason code")
	}
	if len(b) == 0 {
		return nil
	}
	return checkProperties(AUTH, b)
}

// checkProperties checks properties that end the packet.
func checkProperties(t Type, b []byte) *Error {
	properties, rest, err := propertyBlock(t, b)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return malformed(t, "goes on after its properties")
	}
	return walk(t, properties)
}

// walk holds all properties against their rules.
func walk(t Type, properties []byte) *Error {
	w := walker{packet: t, rest: properties}
	var p property
	for {
		if err := w.next(&p); err != nil || p.id == 0 {
			return err
		}
	}
}

// knownCode reports whether a reason code may stand in a packet (2.4). Codes from 0x80 all say failure,
// and one that a later standard or a vendor adds is understood as such. Below 0x80 an unknown code would
// be taken for success.
func knownCode(t Type, code byte) bool {
	if code == 0 || code >= 0x80 {
		return true
	}
	switch t {
	case PUBACK, PUBREC:
		return code == 0x10 // no matching subscribers
	case SUBACK:
		return code <= 2 // the granted QoS
	case UNSUBACK:
		return code == 0x11 // no subscription existed
	case AUTH:
		return code == 0x18 || code == 0x19 // continue, re-authenticate
	}
	return false
}
