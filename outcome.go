package settle

import (
	"fmt"
	"iter"
	"time"
)

// Kind is what an [Outcome] asks for. The zero Kind is invalid: see [KindInvalid].
type Kind uint8

const (
	// KindInvalid is the kind of the zero Outcome, which no constructor makes. A handler that returns
	// it has a bug; it is never taken for an acknowledgement: the runtime logs the route's name and
	// retries the delivery.
	KindInvalid Kind = iota
	// KindAck is made by [Ack].
	KindAck
	// KindDrop is made by [Drop].
	KindDrop
	// KindRetry is made by [Retry] and [RetryAfter].
	KindRetry
	// KindReject is made by [Reject].
	KindReject
)

// String returns "ack", "drop", "retry", "reject" or "invalid". The same words are the values of the
// outcome label of settle_settled_total.
func (k Kind) String() string {
	switch k {
	case KindAck:
		return "ack"
	case KindDrop:
		return "drop"
	case KindRetry:
		return "retry"
	case KindReject:
		return "reject"
	default:
		return "invalid"
	}
}

// Outcome is what a handler says about one delivery. The runtime carries it out, once: that is to
// settle the delivery.
//
// Make one with [Ack], [Drop], [Retry], [RetryAfter], [Reject] or [OrRetry]. The zero Outcome is a bug
// in the handler and is retried, never acknowledged. Outcomes are immutable values, safe to share
// between goroutines; they are not comparable, because two causes seldom are: compare [Outcome.Kind].
//
// At QoS 1 a delivery is acknowledged by PUBACK, at QoS 2 by PUBREC (and PUBCOMP for the PUBREL that
// answers it), always with reason code 0x00: MQTT has no negative acknowledgement, and no server
// sends a message again because of a reason code (MQTT 5 section 4.4). At QoS 0 nothing is ever sent.
// Acknowledgements leave in the order of arrival (section 4.6), so one may wait for those before it.
//
// Until a delivery is acknowledged the server has it, for as long as it keeps the session. A process that crashes, or loses its connection,
// between settlement and acknowledgement is sent the message again: handlers see each message at
// least once, and must expect to see one twice.
type Outcome struct {
	_       [0]func()
	kind    Kind
	delayed bool
	delay   time.Duration
	cause   error
}

// Ack says that the delivery was handled.
//
//   - Acknowledged: yes, in its turn. QoS 0: nothing to send.
//   - Attempts, delay: it is done; there is no other attempt.
//   - Where it ends: with the handler. The server forgets it.
//   - A crash before the acknowledgement is on the wire: the message comes again and is handled again.
func Ack() Outcome { return Outcome{kind: KindAck} }

// Drop says that the delivery is not wanted and that nobody need look at it again. The reason is
// logged; keep payloads and secrets out of it.
//
//   - Acknowledged: yes, exactly as for Ack. It is counted and logged as a drop.
//   - Attempts, delay: there is no other attempt.
//   - Where it ends: nowhere, not even on the dead-letter topic. Where somebody should look at it,
//     return [Reject].
//   - A crash before the acknowledgement is on the wire: the message comes again.
func Drop(reason string) Outcome {
	if reason == "" {
		return Outcome{kind: KindDrop}
	}
	return Outcome{kind: KindDrop, cause: dropReason(reason)}
}

// Retry says that the delivery failed for now and should be handled again when the route's [Backoff]
// for this attempt is over. The cause is logged and, on a retry copy, travels as "settle-reason".
//
// With a retry topic ([RetryTo]):
//
//   - The message is published to the retry topic at QoS 1 with its attempts counted in it, and when
//     the server has confirmed that it stored the copy, the original is acknowledged. Until then the
//     original is held and the publish is tried again. At QoS 0 there is no original to hold: a copy
//     that cannot be published is counted as lost.
//   - The copy comes back on the retry connection and waits there, unacknowledged, until it is due.
//     The wait takes no slot of the main window and survives a crash, on the server.
//   - A crash between the confirmation and the acknowledgement leaves both: the message is handled
//     twice, both times under one message id where its publisher gave it one.
//
// Without a retry topic:
//
//   - Nothing is sent. The delivery is held unacknowledged in memory and run again on its lane when
//     its backoff is over. The hold takes a slot of the window, and acknowledgements behind it wait
//     for it.
//   - Attempts are counted in memory: a crash, or a session that the server sends again to a new
//     process, starts them at 1. The message itself is not lost as long as the server keeps the session.
//   - At QoS 0 the delivery is run again from memory, within the bound of the QoS 0 queue, and is gone
//     when the process ends.
//
// The attempt that reaches [MaxAttempts] ends on the dead-letter topic at once, as [Reject] does.
// While the app stops, a Retry whose cause is [ErrStopping] holds the delivery and spends no attempt.
func Retry(cause error) Outcome { return Outcome{kind: KindRetry, cause: cause} }

// RetryAfter is [Retry], except that the delivery is due d from now, whatever the route's [Backoff]
// says. A d below zero counts as zero: due at once. The wait is measured by the clock of the process that
// waits, from the arrival of the copy, so clocks that disagree cannot stretch it beyond d.
//
// Acknowledged, attempts, where it ends, crash: all as for Retry.
func RetryAfter(d time.Duration, cause error) Outcome {
	return Outcome{kind: KindRetry, delayed: true, delay: max(d, 0), cause: cause}
}

// Reject says that the delivery can never be handled, now or later, and that somebody should look at
// it. The cause is logged and travels with the dead letter as "settle-reason".
//
// With a dead-letter topic ([DeadLetterTo]):
//
//   - Acknowledged: once the server has confirmed, at QoS 1, that the dead letter is stored: its PUBACK
//     carries a reason code below 0x80 and not 0x10 (no matching subscribers). Until then the original is
//     held and the publish is tried again with backoff. At QoS 0 a dead letter that fails is counted as lost.
//   - Attempts, delay: there is no other attempt, and no delay.
//   - Where it ends: on the dead-letter topic, payload untouched, with reason, attempts, original topic
//     and route in its headers, and without an expiry.
//   - A crash between the confirmation and the acknowledgement: the message comes again, and may become a
//     second dead letter, under the same message id where its publisher gave it one.
//
// Without one, Reject does what [Drop] does: the delivery is acknowledged, counted and logged, and is
// gone. Such routes are named in a warning at start.
func Reject(cause error) Outcome { return Outcome{kind: KindReject, cause: cause} }

// OrRetry returns [Ack] if err is nil and [Retry](err) otherwise. It is the usual last line of a handler:
//
//	return settle.OrRetry(ledger.Post(ctx, usage))
func OrRetry(err error) Outcome {
	if err == nil {
		return Ack()
	}
	return Retry(err)
}

// Kind returns what the outcome asks for, [KindInvalid] for the zero Outcome.
func (o Outcome) Kind() Kind { return o.kind }

// Cause returns the error that [Retry], [RetryAfter] or [Reject] was given, or an error whose text is
// the reason given to [Drop]. It is nil for [Ack], and where none was given.
func (o Outcome) Cause() error { return o.cause }

// Delay returns the delay of a [RetryAfter] and true. For any other outcome it returns 0 and false: how long a
// [Retry] waits is the route's [Backoff] to say.
func (o Outcome) Delay() (time.Duration, bool) { return o.delay, o.delayed }

// String describes the outcome for logs: "ack", "drop: negative usage", "retry after 1m0s: ledger down". It
// prints the text of the cause, so it is as discreet as the handler's causes are.
func (o Outcome) String() string {
	s := o.kind.String()
	if o.delayed {
		s += " after " + o.delay.String()
	}
	if o.cause != nil {
		s += ": " + o.cause.Error()
	}
	return s
}

// dropReason makes an error of the reason of a Drop, so that every outcome has one kind of cause.
type dropReason string

func (r dropReason) Error() string { return string(r) }

// Outcomes is what a batch handler, or a middleware's [Next], says: one [Outcome] for each delivery of
// DeliveriesFrom(ctx), in that order. Make it with [Every] or [Each].
//
// The zero Outcomes holds no outcome; returned for a batch it is a wrong number of outcomes, and every
// delivery is retried. Outcomes is a value; it is safe to read from several goroutines.
type Outcomes struct {
	_    [0]func()
	all  Outcome   // what Every was given
	each []Outcome // what Each was given; nil for Every
	n    int       // how many outcomes it stands for
	same bool      // every outcome is all
}

// Every returns outcomes that say o for every delivery, however many there are. It does not allocate.
//
// A middleware that calls its Next always sees one outcome a delivery. What Every itself returned, before
// the runtime has counted the deliveries, reads as a single outcome.
func Every(o Outcome) Outcomes { return Outcomes{all: o, n: 1, same: true} }

// Each returns outcomes that say, for each delivery, what stands at its place in outcomes. The slice is
// kept, not copied.
//
// There must be as many outcomes as deliveries. If there are fewer, the deliveries beyond them are
// retried; if there are more, the surplus is ignored. Both are logged with the route's name: they are bugs.
func Each(outcomes ...Outcome) Outcomes { return Outcomes{each: outcomes, n: len(outcomes)} }

// one is the outcome of a single handler.
func one(o Outcome) Outcomes { return Every(o) }

// Len returns the number of outcomes.
func (o Outcomes) Len() int { return o.n }

// At returns the outcome of the i-th delivery, counted from 0. Where there is none, beyond either end, it is the
// zero Outcome.
func (o Outcomes) At(i int) Outcome {
	switch {
	case i < 0 || i >= o.n:
		return Outcome{}
	case o.same:
		return o.all
	case i < len(o.each):
		return o.each[i]
	default:
		return Outcome{}
	}
}

// All ranges over the outcomes with the index of the delivery that each belongs to.
func (o Outcomes) All() iter.Seq2[int, Outcome] {
	return func(yield func(int, Outcome) bool) {
		for i := range o.n {
			if !yield(i, o.At(i)) {
				return
			}
		}
	}
}

// resolve makes o stand for exactly n deliveries: Every is multiplied, Each is cut or filled up with the zero
// Outcome, which is retried. It does not allocate unless there is an error, which says what was wrong
// with the number.
func (o Outcomes) resolve(n int) (Outcomes, error) {
	switch {
	case o.same || o.n == n && len(o.each) == n:
		o.n = n
		return o, nil
	case len(o.each) < o.n:
		// Filled up by an earlier resolve, which has reported it.
		o.n = n
		return o, nil
	default:
		err := &countError{got: o.n, want: n}
		o.n = n
		if len(o.each) > n {
			o.each = o.each[:n:n]
		}
		return o, err
	}
}

// countError says that a handler or a middleware returned a wrong number of outcomes.
type countError struct{ got, want int }

func (e *countError) Error() string {
	if e.got < e.want {
		return fmt.Sprintf("settle: %d outcomes for %d deliveries: the deliveries beyond them are retried; return one outcome for each, or Every", e.got, e.want)
	}
	return fmt.Sprintf("settle: %d outcomes for %d deliveries: the surplus is ignored; return one outcome for each, or Every", e.got, e.want)
}
