package wire

// Connack is a CONNACK (3.2). What the server did not say has the value that the standard gives it then.
// Strings alias the frame.
type Connack struct {
	// SessionPresent is false whenever Code is not 0x00.
	SessionPresent bool
	// Code is the Connect Reason Code: 0x00, or a failure from 0x80.
	Code byte
	// SessionExpiry is the Session Expiry Interval in seconds that the server uses instead of the one
	// that it was asked for (3.2.2.3.2). Without it, HasSessionExpiry false, the latter holds.
	SessionExpiry    uint32
	HasSessionExpiry bool
	// ReceiveMaximum is how many publishes of QoS 1 and 2 the server takes at once. 65,535 where it said nothing.
	ReceiveMaximum uint16
	// MaximumQoS is the highest QoS the server takes: 2 where it said nothing.
	MaximumQoS byte
	// MaximumPacketSize is the largest packet the server takes, in bytes. 0: it set no limit.
	MaximumPacketSize uint32
	// TopicAliasMaximum is how many topic aliases the server takes. 0: none.
	TopicAliasMaximum uint16
	// ServerKeepAlive is the keep-alive in seconds that the server demands in place of the client's
	// (3.2.2.3.14), 0 for none at all. Without it, HasServerKeepAlive false, the client's holds.
	ServerKeepAlive    uint16
	HasServerKeepAlive bool
	// What the server can do; true where it said nothing.
	RetainAvailable, WildcardAvailable, SubscriptionIDAvailable, SharedAvailable bool
	// AssignedClientID is the Client Identifier that the server chose, empty where the client's own holds.
	AssignedClientID string
	// AuthMethod is the Authentication Method. HasAuthMethod is false where there is none; one that is there may be empty.
	AuthMethod    string
	HasAuthMethod bool
	// Reason is the server's Reason String, for people (3.2.2.3.9). Empty for none.
	Reason string
	// ServerReference names another server to use (4.11). Empty for none.
	ServerReference string
}

// ParseConnack reads a CONNACK and checks all that [CheckControl] does. Errors are an [*Error].
func ParseConnack(f Frame) (Connack, error) {
	b, err := expect(CONNACK, f)
	if err != nil {
		return Connack{}, err
	}
	c, err := parseConnack(b)
	if err != nil {
		return Connack{}, err
	}
	return c, nil
}

func parseConnack(b []byte) (Connack, *Error) {
	if len(b) == 2 { // as MQTT 3.1.1 has it
		return Connack{}, malformed(CONNACK, "has no properties: the server does not speak MQTT 5")
	}
	if len(b) < 2 {
		return Connack{}, malformed(CONNACK, "ends before its reason code")
	}
	flags, code := b[0], b[1]
	switch {
	case flags > 1: // [MQTT-3.2.2-1]
		return Connack{}, malformed(CONNACK, "has reserved flags")
	case !knownCode(CONNACK, code):
		return Connack{}, forbidden(CONNACK, "has an unknown reason code")
	case code != 0 && flags != 0: // [MQTT-3.2.2-6]
		return Connack{}, forbidden(CONNACK, "refuses and has Session Present")
	}
	properties, rest, err := propertyBlock(CONNACK, b[2:])
	if err != nil {
		return Connack{}, err
	}
	if len(rest) > 0 {
		return Connack{}, malformed(CONNACK, "goes on after its properties")
	}
	c := Connack{
		SessionPresent: flags == 1, Code: code, ReceiveMaximum: 65_535, MaximumQoS: 2,
		RetainAvailable: true, WildcardAvailable: true, SubscriptionIDAvailable: true, SharedAvailable: true,
	}
	w := walker{packet: CONNACK, rest: properties}
	var p property
	for {
		if err := w.next(&p); err != nil {
			return Connack{}, err
		}
		if p.id == 0 {
			return c, nil
		}
		c.set(p)
	}
}

// set takes over one property.
func (c *Connack) set(p property) {
	switch p.id {
	case propSessionExpiry:
		c.SessionExpiry, c.HasSessionExpiry = p.number, true
	case propReceiveMaximum:
		c.ReceiveMaximum = uint16(p.number)
	case propMaximumQoS:
		c.MaximumQoS = byte(p.number)
	case propMaximumPacketSize:
		c.MaximumPacketSize = p.number
	case propTopicAliasMaximum:
		c.TopicAliasMaximum = uint16(p.number)
	case propServerKeepAlive:
		c.ServerKeepAlive, c.HasServerKeepAlive = uint16(p.number), true
	case propRetainAvailable:
		c.RetainAvailable = p.number == 1
	case propWildcardAvailable:
		c.WildcardAvailable = p.number == 1
	case propSubIDAvailable:
		c.SubscriptionIDAvailable = p.number == 1
	case propSharedAvailable:
		c.SharedAvailable = p.number == 1
	case propAssignedClientID:
		c.AssignedClientID = text(p.data)
	case propAuthMethod:
		c.AuthMethod, c.HasAuthMethod = text(p.data), true
	case propReasonString:
		c.Reason = text(p.data)
	case propServerReference:
		c.ServerReference = text(p.data)
	}
}
