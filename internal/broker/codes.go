package broker

import "fmt"

// Control packet types (2.1.2), as Packet.Type has them.
const (
	CONNECT     byte = 1
	CONNACK     byte = 2
	PUBLISH     byte = 3
	PUBACK      byte = 4
	PUBREC      byte = 5
	PUBREL      byte = 6
	PUBCOMP     byte = 7
	SUBSCRIBE   byte = 8
	SUBACK      byte = 9
	UNSUBSCRIBE byte = 10
	UNSUBACK    byte = 11
	PINGREQ     byte = 12
	PINGRESP    byte = 13
	DISCONNECT  byte = 14
	AUTH        byte = 15
)

var typeNames = [16]string{
	"reserved type 0", "CONNECT", "CONNACK", "PUBLISH", "PUBACK", "PUBREC", "PUBREL", "PUBCOMP",
	"SUBSCRIBE", "SUBACK", "UNSUBSCRIBE", "UNSUBACK", "PINGREQ", "PINGRESP", "DISCONNECT", "AUTH",
}

// TypeName returns the name that the standard gives a packet type.
func TypeName(t byte) string { return typeNames[t&15] }

// Reason codes (2.4) that this server gives.
const (
	codeSuccess             = 0x00
	codeWithWill            = 0x04
	codeNoSubscribers       = 0x10
	codeNoSubscription      = 0x11
	codeUnspecified         = 0x80
	codeMalformed           = 0x81
	codeProtocolError       = 0x82
	codeUnsupportedVersion  = 0x84
	codeBadAuthMethod       = 0x8C
	codeKeepAliveTimeout    = 0x8D
	codeTakenOver           = 0x8E
	codeFilterInvalid       = 0x8F
	codeTopicInvalid        = 0x90
	codeIDInUse             = 0x91
	codeIDNotFound          = 0x92
	codeReceiveMaximum      = 0x93
	codeTopicAliasInvalid   = 0x94
	codePacketTooLarge      = 0x95
	codeQuotaExceeded       = 0x97
	codeAdministrative      = 0x98
	codePayloadInvalid      = 0x99
	codeRetainNotSupported  = 0x9A
	codeQoSNotSupported     = 0x9B
	codeSharedNotSupported  = 0x9E
	codeSubIDNotSupported   = 0xA1
	codeWildcardUnsupported = 0xA2
)

// codeNames says in a wire log what a code of 0x80 or more means.
var codeNames = map[byte]string{
	codeUnspecified: "unspecified error", codeMalformed: "malformed packet", codeProtocolError: "protocol error",
	0x83: "implementation specific error", codeUnsupportedVersion: "unsupported protocol version",
	0x85: "client identifier not valid", 0x86: "bad user name or password", 0x87: "not authorized", 0x88: "server unavailable",
	0x89: "server busy", 0x8A: "banned", 0x8B: "server shutting down", codeBadAuthMethod: "bad authentication method",
	codeKeepAliveTimeout: "keep alive timeout", codeTakenOver: "session taken over", codeFilterInvalid: "topic filter invalid",
	codeTopicInvalid: "topic name invalid", codeIDInUse: "packet identifier in use", codeIDNotFound: "packet identifier not found",
	codeReceiveMaximum: "receive maximum exceeded", codeTopicAliasInvalid: "topic alias invalid", codePacketTooLarge: "packet too large",
	0x96: "message rate too high", codeQuotaExceeded: "quota exceeded", codeAdministrative: "administrative action",
	codePayloadInvalid: "payload format invalid", codeRetainNotSupported: "retain not supported", codeQoSNotSupported: "QoS not supported",
	0x9C: "use another server", 0x9D: "server moved", codeSharedNotSupported: "shared subscriptions not supported",
	0x9F: "connection rate exceeded", 0xA0: "maximum connect time", codeSubIDNotSupported: "subscription identifiers not supported",
	codeWildcardUnsupported: "wildcard subscriptions not supported",
}

// violation is what a client did against the standard, or against what CONNACK granted. It ends the connection.
type violation struct {
	code   byte
	reason string
}

func malformed(format string, args ...any) *violation {
	return &violation{code: codeMalformed, reason: fmt.Sprintf(format, args...)}
}

func forbidden(format string, args ...any) *violation {
	return &violation{code: codeProtocolError, reason: fmt.Sprintf(format, args...)}
}
