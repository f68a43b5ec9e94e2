package link

import (
	"errors"
	"fmt"

	"github.com/settlemq/settle/internal/wire"
)

// Reason codes that this package names (2.4).
const (
	codeBadAuthMethod = 0x8C
	codeTakenOver     = 0x8E
	codeTooLarge      = 0x95
)

// errServerClosed says that the server closed the connection and gave no reason.
var errServerClosed = errors.New("the server closed the connection without a DISCONNECT")

// ConnectError is a CONNACK that refuses the connection.
type ConnectError struct {
	Code   byte
	Reason string // the server's Reason String; often empty
	Server string // URL without userinfo
}

// Error says which server refused and why.
func (e *ConnectError) Error() string {
	return fmt.Sprintf("%s refused the connection: %s", e.Server, describe(e.Code, e.Reason))
}

// DisconnectError is a DISCONNECT that the server sent.
type DisconnectError struct {
	Code   byte
	Reason string // the server's Reason String; often empty
}

// Error says why the server ended the connection.
func (e *DisconnectError) Error() string {
	if e.Code == codeTakenOver {
		return "the session was taken over (0x8E): another process uses this client identifier"
	}
	return "the server disconnected: " + describe(e.Code, e.Reason)
}

// SubscribeError is a subscription that the server did not grant as it was asked for.
type SubscribeError struct {
	Filter string
	Name   string // of the Subscription
	QoS    byte   // asked for
	Code   byte   // of the SUBACK: from 0x80 a refusal, below it the QoS that was granted
	Reason string // the server's Reason String; often empty
}

// Error names the filter, and what was wrong with its grant.
func (e *SubscribeError) Error() string {
	if e.Code < 0x80 {
		return fmt.Sprintf("subscription to %q (%s): granted QoS %d where QoS %d was asked for", e.Filter, e.Name, e.Code, e.QoS)
	}
	return fmt.Sprintf("subscription to %q (%s) refused: %s", e.Filter, e.Name, describe(e.Code, e.Reason))
}

func describe(code byte, reason string) string {
	const most = 200
	name, known := codeNames[code]
	if !known {
		name = "reason"
	}
	text := fmt.Sprintf("%s (0x%02X)", name, code)
	if reason == "" {
		return text
	}
	if len(reason) > most {
		reason = reason[:most]
	}
	return fmt.Sprintf("%s: %q", text, reason)
}

// class says what to do after an attempt or a connection has ended.
type class uint8

const (
	passing   class = iota // dial again, with the ordinary backoff
	fatal                  // the configuration is wrong: Run returns the error
	takenOver              // somebody else uses the client identifier: back off long, or the two evict each other for ever
	banned                 // somebody at the server wants us gone for now: back off long
	elsewhere              // this server has no use for us now: go on to the next at once, if there is one
)

// connackClasses sorts the codes of a CONNACK that are not merely passing. Fatal is what the same CONNECT will meet again
// at each attempt, because something in it, that is, in the configuration, is not what the server takes. Refused
// credentials and rights are passing: credentials are asked for again at each dial, and servers' lists change.
//
// A fatal code is passing for a link that was accepted before: then the configuration is good, and it is the server that
// has changed and may change back. A consumer that works must not be ended by a server's bad hour.
var connackClasses = map[byte]class{
	0x81: fatal,     // Malformed Packet: something we were configured with cannot be sent as it is
	0x82: fatal,     // Protocol Error: as 0x81
	0x84: fatal,     // Unsupported Protocol Version: the server speaks no MQTT 5
	0x85: fatal,     // Client Identifier not valid: its form, or a name that the server reserves
	0x88: elsewhere, // Server unavailable
	0x89: elsewhere, // Server busy
	0x8A: banned,    // Banned: an administrator has to lift it, and may
	0x8C: fatal,     // Bad authentication method: the server insists on enhanced authentication, which we have not
	0x90: fatal,     // Topic Name invalid: the will's
	0x95: fatal,     // Packet too large: the will's payload, or credentials of unusual size
	0x99: fatal,     // Payload format invalid: the will's
	0x9A: fatal,     // Retain not supported: the will's
	0x9B: fatal,     // QoS not supported: the will's
	0x9C: elsewhere, // Use another server: one that we were configured with; references are not followed
	0x9D: elsewhere, // Server moved: as 0x9C
}

// disconnectClasses sorts the codes of a server's DISCONNECT. None is fatal: it had accepted us.
var disconnectClasses = map[byte]class{
	0x89: elsewhere, // Server busy
	0x8B: elsewhere, // Server shutting down
	0x8E: takenOver, // Session taken over
	0x98: banned,    // Administrative action
	0x9C: elsewhere, // Use another server
	0x9D: elsewhere, // Server moved
}

// fatalError marks an error of the caller's own judgement, Config.Check's, as fatal.
type fatalError struct{ error }

func (e fatalError) Unwrap() error { return e.error }

// classify is the one place that sorts errors. accepted says that a server has accepted this link before.
func classify(err error, accepted bool) class {
	var (
		refused *ConnectError
		ended   *DisconnectError
		judged  fatalError
	)
	switch {
	case errors.As(err, &judged):
		return fatal
	case errors.As(err, &refused):
		if c := connackClasses[refused.Code]; c != fatal || !accepted {
			return c
		}
		return passing
	case errors.As(err, &ended):
		return disconnectClasses[ended.Code]
	}
	return passing
}

// isViolation reports whether the server broke the protocol: what it sent it will perhaps send again.
func isViolation(err error) bool {
	var broken *wire.Error
	return errors.As(err, &broken)
}

// codeNames are the standard's names of the failures (2.4).
var codeNames = map[byte]string{
	0x00: "normal disconnection",
	0x80: "unspecified error",
	0x81: "malformed packet",
	0x82: "protocol error",
	0x83: "implementation specific error",
	0x84: "unsupported protocol version",
	0x85: "client identifier not valid",
	0x86: "bad user name or password",
	0x87: "not authorized",
	0x88: "server unavailable",
	0x89: "server busy",
	0x8A: "banned",
	0x8B: "server shutting down",
	0x8C: "bad authentication method",
	0x8D: "keep alive timeout",
	0x8E: "session taken over",
	0x8F: "topic filter invalid",
	0x90: "topic name invalid",
	0x91: "packet identifier in use",
	0x92: "packet identifier not found",
	0x93: "receive maximum exceeded",
	0x94: "topic alias invalid",
	0x95: "packet too large",
	0x96: "message rate too high",
	0x97: "quota exceeded",
	0x98: "administrative action",
	0x99: "payload format invalid",
	0x9A: "retain not supported",
	0x9B: "QoS not supported",
	0x9C: "use another server",
	0x9D: "server moved",
	0x9E: "shared subscriptions not supported",
	0x9F: "connection rate exceeded",
	0xA0: "maximum connect time",
	0xA1: "subscription identifiers not supported",
	0xA2: "wildcard subscriptions not supported",
}
