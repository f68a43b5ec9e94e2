package testkit

import (
	"fmt"
	"strings"
	"time"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/internal/bridge"
)

// Settlement is what became of one attempt at one delivery: what the handler said, or the policy in its place, and what the app made
// of that.
type Settlement struct {
	Route     string // the route's name
	Topic     string // that the message was first published to, also on a retry copy
	MessageID string // the publisher's, else the one that the app minted
	Payload   []byte // as it came; not to be written to
	Body      any    // what it was decoded into; nil if it was not
	Outcome   settle.Outcome
	Attempt   int    // 1 at the first delivery
	Lane      int    // which of the route's lanes ran it, from 0
	SentTo    string // the retry topic or dead-letter topic on which the server has stored a copy; "" if on none

	// Acknowledged says that the server has been sent PUBACK or PUBREC for the delivery. A delivery at QoS 0 has none, and one that is held for
	// another attempt has none yet.
	Acknowledged bool

	At  time.Time // when it was settled
	Due time.Time // when the next attempt will be; zero if there is none

	// Delivery answers whatever else there is to ask: headers, QoS, DUP.
	Delivery *settle.Delivery
}

// String is one line for a person.
func (s Settlement) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: attempt %d at %q: %s", s.Route, s.Attempt, s.Topic, s.Outcome)
	if s.SentTo != "" {
		fmt.Fprintf(&b, ", sent to %q", s.SentTo)
	}
	if !s.Due.IsZero() {
		fmt.Fprintf(&b, ", due after %s", s.Due.Sub(s.At).Round(time.Millisecond))
	}
	switch {
	case s.Acknowledged:
		b.WriteString(", acknowledged")
	case s.Delivery.QoS() > settle.AtMostOnce:
		b.WriteString(", not acknowledged")
	}
	fmt.Fprintf(&b, ", lane %d, payload %q", s.Lane, clip(string(s.Payload), 48))
	return b.String()
}

// snapshot is the settlement as it is now.
func (r *record) snapshot() Settlement {
	s := r.Settlement
	s.Acknowledged, _ = bridge.Settle.Acknowledged(s.Delivery)
	return s
}

// complete says that there is nothing more to come: the delivery has been acknowledged, or it will not be before another attempt.
func (r *record) complete() bool {
	switch {
	case r.copyTo != "" && r.SentTo == "":
		return false
	case r.Delivery.QoS() == settle.AtMostOnce:
		return true
	case r.copyTo == "" && !r.Due.IsZero():
		return true // held
	}
	is, canBe := bridge.Settle.Acknowledged(r.Delivery)
	return is || !canBe // the session was lost
}
