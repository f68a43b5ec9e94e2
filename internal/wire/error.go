package wire

import "fmt"

// Reason codes (2.4) with which a client answers what breaks the protocol.
const (
	// CodeMalformed answers a packet that cannot be parsed (4.13.1).
	CodeMalformed byte = 0x81
	// CodeProtocol answers a packet that can be parsed and holds what the protocol forbids (4.13.1).
	CodeProtocol byte = 0x82
	// CodeTopicAlias answers a PUBLISH with a topic alias: we grant none (3.3.2.3.4).
	CodeTopicAlias byte = 0x94
	// CodeTooLarge answers a packet above [Limits].MaxControl.
	CodeTooLarge byte = 0x95
)

// Error is a violation of the protocol by the peer. The connection it was seen on is of no further use:
// answer it with a DISCONNECT that carries Code, and close it.
type Error struct {
	// Code is the reason code of that DISCONNECT (3.14.2.1).
	Code byte
	// Reason says which packet broke which rule. It never quotes what the packet holds.
	Reason string
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("mqtt: server broke the protocol: %s (reason code 0x%02X)", e.Reason, e.Code)
}

// malformed says that a packet of type t cannot be parsed.
func malformed(t Type, reason string) *Error {
	return &Error{Code: CodeMalformed, Reason: t.String() + " " + reason}
}

// forbidden says that a packet of type t holds what the protocol does not allow.
func forbidden(t Type, reason string) *Error {
	return &Error{Code: CodeProtocol, Reason: t.String() + " " + reason}
}
