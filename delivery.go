package settle

import (
	"context"
	"iter"
	"strings"
	"sync/atomic"

	"github.com/settlemq/settle/internal/topic"
	"github.com/settlemq/settle/internal/window"
)

// arrival is one PUBLISH that the server sent: its place in the window, and how many routes have not settled
// it yet. It is acknowledged when all of them have.
type arrival struct {
	window.Entry
	in     *inbound // nil for a delivery that a test made
	left   atomic.Int32
	minted atomic.Pointer[string] // the message id, where the publisher gave none
	copied *copyHeaders           // what our headers say, if it is a retry copy of ours
	blocks atomic.Bool            // the app stops, and what is settled behind it cannot be acknowledged without it
	first  Delivery               // of the first route, and for most messages the only one
}

// size is what the arrival counts for in the bound on memory.
func (a *arrival) size() int64 { return int64(len(a.Frame.Bytes)) + arrivalOverhead }

// arrivalOverhead is what an arrival costs besides its frame, rounded up.
const arrivalOverhead = 1 << 10

// Delivery is one message on its way through one route: what the server sent, and which attempt this is. A
// handler gets it from its context with [DeliveryFrom].
//
// A Delivery stays valid for as long as anybody holds it; nothing in it is ever reused for another message. Its methods
// may be called from any goroutine. What they return belongs to the message: do not write to it. All of them may be called
// on a nil Delivery, which answers with zeros and attempt 1, so that a handler can be tested as the function that it is.
type Delivery struct {
	arrival *arrival
	route   *route
	attempt int
	lane    int // the lane that took it
	settled atomic.Bool
	run     run

	// Its place in a queue, which guards these.
	prev, next *Delivery
	queued     bool

	// At QoS 0, its place among those that wait, which qos0Bound guards.
	prev0, next0 *Delivery
	waits0       bool
	queue        *queue // where it waits; nil: it is held
}

func (d *Delivery) init(a *arrival, r *route, attempt int) {
	d.arrival, d.route, d.attempt = a, r, attempt
}

// Topic is the topic that the message was first published to, also on a retry copy.
func (d *Delivery) Topic() string {
	switch {
	case d == nil:
		return ""
	case d.arrival.copied != nil:
		return d.arrival.copied.topic
	}
	return d.arrival.Publish.Topic
}

// Level is the i-th level of Topic, counted from 0: Level(1) of "meters/42/usage" is "42". It is empty where the
// topic has no such level.
func (d *Delivery) Level(i int) string { return topic.Level(d.Topic(), i) }

// Payload is the application message, as it came. It is nil for a message that exceeded MaxPayload.
func (d *Delivery) Payload() []byte {
	if d == nil {
		return nil
	}
	return d.arrival.Publish.Payload
}

// QoS is the quality of service that the server delivered the message with: the lower of the publisher's and the
// subscription's. Retry copies come at least once.
func (d *Delivery) QoS() QoS {
	if d == nil {
		return AtMostOnce
	}
	return QoS(d.arrival.Publish.QoS)
}

// Redelivered is the DUP flag (MQTT 5, 3.3.1.1): the server has sent this PUBLISH before, perhaps to a process
// that is gone. A message without it may have been handled before all the same.
func (d *Delivery) Redelivered() bool { return d != nil && d.arrival.Dup }

// Retained says that the message was retained when the subscription was made (3.3.1.3), or that it was when it was first
// delivered, on a retry copy.
func (d *Delivery) Retained() bool {
	if d == nil {
		return false
	}
	if d.arrival.copied != nil {
		return d.arrival.copied.retained
	}
	return d.arrival.Retain
}

// Attempt is which try this is, 1 at the first delivery. With a retry topic it counts across processes; without one it
// counts in memory, and a message that a new process gets again begins at 1.
func (d *Delivery) Attempt() int {
	if d == nil {
		return 1
	}
	return d.attempt
}

// MessageID names the message for as long as it lives: the publisher's "message-id" user property, else an id that is minted
// here and kept by retry copies and dead letters. Only the publisher's own survives a redelivery by the server, so only that
// one is good for recognising a message that comes twice.
func (d *Delivery) MessageID() string {
	if d == nil {
		return ""
	}
	a := d.arrival
	if a.copied != nil && a.copied.messageID != "" {
		return a.copied.messageID
	}
	if id, ok := a.UserProperty(MessageIDHeader); ok && id != "" {
		return id
	}
	if id := a.minted.Load(); id != nil {
		return *id
	}
	id := newID()
	if !a.minted.CompareAndSwap(nil, &id) {
		id = *a.minted.Load()
	}
	return id
}

// ContentType is the publisher's Content Type (3.3.2.3.9), or empty.
func (d *Delivery) ContentType() string {
	if d == nil {
		return ""
	}
	return d.arrival.Publish.ContentType
}

// ResponseTopic is where the publisher wants an answer (3.3.2.3.5), or empty. [Reply] publishes there.
func (d *Delivery) ResponseTopic() string {
	if d == nil {
		return ""
	}
	return d.arrival.Publish.ResponseTopic
}

// CorrelationData is what an answer has to carry (3.3.2.3.6), or nil. [Reply] adds it.
func (d *Delivery) CorrelationData() []byte {
	if d == nil {
		return nil
	}
	return d.arrival.Publish.CorrelationData
}

// Header is the first user property of that name (3.3.2.3.7), and whether there is one. Headers that begin with
// "settle-" are the library's own and are not shown.
func (d *Delivery) Header(name string) (string, bool) {
	if d == nil || isOwnHeader(name) {
		return "", false
	}
	return d.arrival.UserProperty(name)
}

// Headers are the user properties, in order, repeated ones kept; without the library's own.
func (d *Delivery) Headers() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		if d == nil {
			return
		}
		for name, value := range d.arrival.UserProperties() {
			if !isOwnHeader(name) && !yield(name, value) {
				return
			}
		}
	}
}

// Route is the name of the route that got the message.
func (d *Delivery) Route() string {
	if d == nil || d.route == nil {
		return ""
	}
	return d.route.name
}

// headerPrefix is what the user properties that this library adds to retry copies and dead letters begin with.
const headerPrefix = "settle-"

func isOwnHeader(name string) bool { return strings.HasPrefix(name, headerPrefix) }

// DeliveryFrom is the delivery that a handler, or a middleware around one, is called for. In a batch it is the
// first; outside a delivery it is nil, whose methods answer with zeros.
func DeliveryFrom(ctx context.Context) *Delivery {
	if r := runFrom(ctx); r != nil {
		return r.delivery()
	}
	return nil
}

// DeliveriesFrom are the deliveries that a handler is called for. In a batch handler, the i-th belongs to the i-th
// element, whatever fell out in decoding; a middleware sees all. Outside a delivery it is nil. Do not change the slice.
func DeliveriesFrom(ctx context.Context) []*Delivery {
	if view, ok := ctx.Value(decodedKey{}).(*decoded); ok {
		return view.deliveries
	}
	if r := runFrom(ctx); r != nil {
		return r.all()
	}
	return nil
}
