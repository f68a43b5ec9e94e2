package settle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Errors to test for with errors.Is. None of their texts carries a payload, a password or the userinfo of a URL.
var (
	// ErrNotConnected means that a publish was certainly never sent: its context ended while there was no
	// connection, or before its turn came under the server's Receive Maximum. To publish again makes no duplicate.
	ErrNotConnected = errors.New("settle: not connected: the message was not sent")

	// ErrUnconfirmed means that a publish was perhaps sent: its context ended, or the session was lost, before
	// the server's answer came. To publish again may make a duplicate; give it the same [MessageID] so that
	// consumers can tell.
	ErrUnconfirmed = errors.New("settle: the server has not confirmed the message: it may or may not have it")

	// ErrNoResponseTopic is returned by Reply when the delivery asks for no answer: it has no response topic.
	ErrNoResponseTopic = errors.New("settle: the delivery has no response topic")

	// ErrHandlerTimeout is the cause, by context.Cause, of a handler's context that ended because the
	// route's [Timeout] was over. [TimeoutError] matches it.
	ErrHandlerTimeout = errors.New("settle: the handler's time is up")

	// ErrStopping is the cause, by context.Cause, of a handler's context that ended because the app stops and
	// ShutdownTimeout is over. A Retry with this cause holds the delivery without spending an attempt: it
	// stays unacknowledged and the server sends it again with the session.
	ErrStopping = errors.New("settle: the app is stopping")

	// ErrClosed means that the app was started before, or has ended: an app runs once. Make another with [New].
	ErrClosed = errors.New("settle: the app has been started or has ended")
)

// ConfigError is one wrong setting. [New] reports all that it finds, joined: errors.As yields the first, and
// the joined error's Unwrap() []error yields each.
type ConfigError struct {
	// Field names the setting: a field of Config, such as "ClientID" or "Servers[1]", or a route's option, such
	// as `Routes[2] "usage": RetryTo`, with the route's index among those given to New and its name.
	Field string
	// Value is what was set, nil where nothing was or where it could not be printed. A server URL comes without its
	// userinfo.
	Value any
	// Reason says what is wrong, the limit where there is one, and what to do.
	Reason string
}

// Error returns field, value and reason in one line.
func (e *ConfigError) Error() string {
	switch v := e.Value.(type) {
	case nil:
		return fmt.Sprintf("settle: %s: %s", e.Field, e.Reason)
	case string:
		return fmt.Sprintf("settle: %s: %q: %s", e.Field, clip(v), e.Reason)
	default:
		return fmt.Sprintf("settle: %s: %v: %s", e.Field, v, e.Reason)
	}
}

// DecodeError means that a payload could not be made into the type of the route's handler. [OnDecodeFailure]
// decides about it; without it the delivery is rejected, its bytes untouched.
type DecodeError struct {
	Delivery    *Delivery // what was delivered, payload included
	ContentType string    // the content type that the delivery came with, "" if none
	Type        string    // the Go type that was wanted
	Err         error     // what the codec said. Its text may quote the payload: keep it out of logs
}

// Error names route, type and place, and never the payload nor the codec's own text, which may quote it.
func (e *DecodeError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "settle: route %q: a payload of %d bytes", e.Delivery.Route(), len(e.Delivery.Payload()))
	if e.ContentType != "" {
		fmt.Fprintf(&b, " (content type %q)", clip(e.ContentType))
	}
	fmt.Fprintf(&b, " does not decode as %s", e.Type)

	var (
		ours   decodeFault
		syntax *json.SyntaxError
		typ    *json.UnmarshalTypeError
	)
	switch {
	case errors.As(e.Err, &ours):
		b.WriteString(": " + string(ours))
	case errors.As(e.Err, &syntax):
		fmt.Fprintf(&b, ": no JSON at byte %d", syntax.Offset)
	case errors.As(e.Err, &typ):
		fmt.Fprintf(&b, ": another JSON type than wanted at byte %d", typ.Offset)
	}
	return b.String()
}

// Unwrap returns Err.
func (e *DecodeError) Unwrap() error { return e.Err }

// decodeFault is a reason for a DecodeError that this package found itself: its text quotes no payload.
type decodeFault string

func (f decodeFault) Error() string { return string(f) }

// OversizeError means that a payload was larger than Config.MaxPayload. It was read past and not kept: the
// delivery has everything but its payload. [OnOversize] decides about it; without it the delivery is rejected.
type OversizeError struct {
	Delivery *Delivery // without its payload
	Size     int       // bytes that the payload had
	Limit    int       // Config.MaxPayload, in bytes
}

// Error names route, size and limit.
func (e *OversizeError) Error() string {
	return fmt.Sprintf("settle: route %q: a payload of %d bytes exceeds MaxPayload, %d bytes", e.Delivery.Route(), e.Size, e.Limit)
}

// PanicError means that a handler, a middleware, a key function or a policy panicked, or called runtime.Goexit.
// [OnPanic] decides about it; without it the delivery is retried. The process and the lane live on.
type PanicError struct {
	Delivery *Delivery // whose handling panicked; of a batch, the one that the policy is asked about
	Value    any       // what was passed to panic; nil for runtime.Goexit. Its text may quote the payload: keep it out of logs
	Stack    []byte    // the stack of the panic, as runtime/debug.Stack gives it
}

// Error names the route and the Go type of the panic's value, never its text, which may quote the payload.
func (e *PanicError) Error() string {
	if e.Value == nil {
		return fmt.Sprintf("settle: route %q: the handler called runtime.Goexit", e.Delivery.Route())
	}
	return fmt.Sprintf("settle: route %q: the handler panicked with a value of type %T", e.Delivery.Route(), e.Value)
}

// Unwrap returns the panic's value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// TimeoutError means that a handler did not return within the route's [Timeout]. [OnTimeout] decides about it; without
// it the delivery is retried. The handler itself goes on until it minds its context; what it returns then is a
// counted no-op.
//
// errors.Is matches it with [ErrHandlerTimeout] and with context.DeadlineExceeded.
type TimeoutError struct {
	Delivery *Delivery     // whose handling took too long
	After    time.Duration // the route's Timeout
}

// Error names the route and its timeout.
func (e *TimeoutError) Error() string {
	return fmt.Sprintf("settle: route %q: the handler did not return within %s", e.Delivery.Route(), e.After)
}

// Is reports whether target is [ErrHandlerTimeout] or context.DeadlineExceeded.
func (e *TimeoutError) Is(target error) bool {
	return target == ErrHandlerTimeout || target == context.DeadlineExceeded
}

// ServerError means that the server refused a message: it answered PUBLISH with a reason code of 0x80 or more
// (MQTT 5 sections 3.4.2.1 and 3.5.2.1), or it announced limits that the message exceeds. The server does not have it.
type ServerError struct {
	Topic  string // where the message should have gone
	Code   byte   // the reason code, 0x80 or more
	Reason string // the server's Reason String, or our explanation; "" where there is none
}

// Error names topic, code and reason.
func (e *ServerError) Error() string {
	s := fmt.Sprintf("settle: the server refused the message to %q with reason code 0x%02X", clip(e.Topic), e.Code)
	if e.Reason != "" {
		s += ": " + clip(e.Reason)
	}
	return s
}

// EncodeError means that a message could not be made: its value has no encoding, its topic or one of its
// options is not allowed by MQTT. Nothing was sent, and nothing would be the next time.
type EncodeError struct {
	Topic string // where the message should have gone
	Type  string // the Go type of the value, "" where the value was not the trouble
	Err   error  // what the codec said, or what is wrong with the message. A codec's text may quote the value
}

// Error names topic, type and, where this package found it, the reason; a codec's own text, which may quote the value,
// is left to Unwrap.
func (e *EncodeError) Error() string {
	s := fmt.Sprintf("settle: the message to %q cannot be sent", clip(e.Topic))
	if e.Type != "" {
		s = fmt.Sprintf("settle: the message to %q: a %s cannot be encoded", clip(e.Topic), e.Type)
	}
	var ours messageFault
	if errors.As(e.Err, &ours) {
		s += ": " + string(ours)
	}
	return s
}

// Unwrap returns Err.
func (e *EncodeError) Unwrap() error { return e.Err }

// messageFault is a reason for an EncodeError that this package found itself: its text quotes no value.
type messageFault string

func (f messageFault) Error() string { return string(f) }

// DrainError means that Stop reached the end of its context, or of ShutdownTimeout, before everything was settled.
// Nothing is lost by it where the server keeps a session: what it counts comes again with the session.
type DrainError struct {
	Running     int   // deliveries whose handlers still ran
	Waiting     int   // deliveries that waited in lanes and whose handlers never started
	Held        int   // deliveries held for a retry
	Unconfirmed int   // copies, dead letters and other messages that the server had not confirmed
	Unsent      int   // deliveries settled whose acknowledgement had not been written
	Err         error // why the drain ended: the cause of its context
}

// Error gives the counts.
func (e *DrainError) Error() string {
	s := fmt.Sprintf("settle: stopped before all was settled: %d running, %d waiting, %d held, %d unconfirmed, %d acknowledgements unsent",
		e.Running, e.Waiting, e.Held, e.Unconfirmed, e.Unsent)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns Err.
func (e *DrainError) Unwrap() error { return e.Err }
