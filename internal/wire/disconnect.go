package wire

// Disconnect is a server's DISCONNECT (3.14). Strings alias the frame.
type Disconnect struct {
	// Code is the Disconnect Reason Code, 0x00 where the packet is empty.
	Code byte
	// Reason is the server's Reason String, for people (3.14.2.2.3). Empty for none.
	Reason string
	// ServerReference names another server to use (4.11). Empty for none.
	ServerReference string
}

// ParseDisconnect reads a DISCONNECT and checks all that [CheckControl] does. Errors are an [*Error].
func ParseDisconnect(f Frame) (Disconnect, error) {
	b, err := expect(DISCONNECT, f)
	if err != nil {
		return Disconnect{}, err
	}
	d, err := parseDisconnect(b)
	if err != nil {
		return Disconnect{}, err
	}
	return d, nil
}

// parseDisconnect takes any reason code: whatever it says, the connection is over.
func parseDisconnect(b []byte) (Disconnect, *Error) {
	if len(b) == 0 {
		return Disconnect{}, nil
	}
	d := Disconnect{Code: b[0]}
	if len(b) == 1 {
		return d, nil
	}
	properties, rest, err := propertyBlock(DISCONNECT, b[1:])
	if err != nil {
		return Disconnect{}, err
	}
	if len(rest) > 0 {
		return Disconnect{}, malformed(DISCONNECT, "goes on after its properties")
	}
	w := walker{packet: DISCONNECT, rest: properties}
	var p property
	for {
		if err := w.next(&p); err != nil {
			return Disconnect{}, err
		}
		switch p.id {
		case 0:
			return d, nil
		case propSessionExpiry: // [MQTT-3.14.2-2]
			return Disconnect{}, forbidden(DISCONNECT, "has a Session Expiry Interval, which only a client sends")
		case propReasonString:
			d.Reason = text(p.data)
		case propServerReference:
			d.ServerReference = text(p.data)
		}
	}
}
