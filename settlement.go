package settle

import (
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"
)

// settle carries an outcome out, once. It reports whether acknowledgements are due that somebody has to write.
//
//	ack, drop                                → acknowledge
//	reject, dead-letter topic                → publish there, confirmed → acknowledge
//	reject, none                             → as drop
//	retry, attempts used up                  → as reject; with DropExhausted as drop
//	retry, retry topic                       → publish there, confirmed → acknowledge
//	retry, none                              → held → run again when due
//	retry because the app stops              → held; the server sends it again to whoever comes next
func (d *Delivery) settle(o Outcome) (due bool) {
	if !d.settled.CompareAndSwap(false, true) {
		d.route.metrics.stale(1)
		return false
	}
	rt := d.route
	if o.kind == KindInvalid {
		rt.app.log.Error().Str("route", rt.name).Msg("a handler returned the zero Outcome, which says nothing; the delivery is retried")
		o = Retry(errZeroOutcome)
	}
	if o.cause != nil {
		o.cause = usable(o.cause)
	}
	if o.kind == KindRetry && rt.exhausted(d.attempt) && rt.deadLetterTo == "" && !rt.app.stops(o.cause) {
		// DropExhausted: its attempts are used up.
		o = Outcome{kind: KindDrop, cause: o.cause}
		rt.app.log.Warn().Str("route", rt.name).Int("attempts", d.attempt).Str("message_id", d.MessageID()).
			Msg("dropped: its attempts are used up")
	}
	rt.settled(d, o)
	if o.kind == KindRetry {
		return rt.retry(d, o)
	}
	rt.app.observed(d, o, time.Time{})
	if o.kind == KindReject {
		return rt.reject(d, o.cause)
	}
	return d.done()
}

var errZeroOutcome = errors.New("the handler returned the zero Outcome")

// settled counts and logs. An Ack is logged at debug level, whose events cost nothing unless somebody asks for them.
func (rt *route) settled(d *Delivery, o Outcome) {
	rt.metrics.settled(o.kind)
	var event *zerolog.Event
	switch o.kind {
	case KindAck:
		event = rt.app.log.Debug()
	case KindDrop:
		event = rt.app.log.Info()
	default:
		event = rt.app.log.Warn()
	}
	if !event.Enabled() {
		return
	}
	event.Str("route", rt.name).Str("outcome", o.kind.String()).Int("attempt", d.attempt).Str("message_id", d.MessageID())
	if o.cause != nil {
		event.Str("cause", reason(o.cause))
	}
	event.Msg("settled")
}

func (rt *route) reject(d *Delivery, cause error) (due bool) {
	if rt.deadLetterTo == "" {
		return d.done()
	}
	rt.app.couriers.deadLetter(d, cause)
	return false
}

func (rt *route) retry(d *Delivery, o Outcome) (due bool) {
	app := rt.app
	if app.stops(o.cause) {
		// No attempt is spent, and nothing is sent.
		app.observed(d, o, time.Time{})
		app.holds.keep(d)
		return false
	}
	if rt.exhausted(d.attempt) {
		app.observed(d, o, time.Time{})
		return rt.reject(d, o.cause)
	}
	delay, given := o.Delay()
	if !given {
		delay = rt.delay(d.attempt)
	}
	app.observed(d, o, time.Now().Add(delay))
	if rt.retryTo == "" || d.arrival.Frame.Oversize > 0 { // there is no payload here to copy
		app.holds.hold(d, delay)
		return false
	}
	app.couriers.retry(d, delay, o.cause)
	return false
}

// stops says that a handler failed because the app stops: the message did not fail.
func (a *App) stops(cause error) bool {
	return a.stopping() && errors.Is(cause, ErrStopping) || errors.Is(cause, context.Canceled) && a.handlers.Err() != nil
}

// done says that a route has settled its delivery. When all routes of an arrival have, it is acknowledged.
func (d *Delivery) done() (due bool) {
	a := d.arrival
	defer d.route.handling(-1) // last: until then the app has not finished
	if a.left.Add(-1) > 0 || a.in == nil {
		return false
	}
	if a.copied != nil {
		due = d.route.app.returns.finished(a)
	}
	return a.in.finish(a) || due
}

// again is the delivery's next attempt: a new Delivery, because whoever was called for the last one may still hold that.
func (d *Delivery) again(attempt int) *Delivery {
	next := new(Delivery)
	next.init(d.arrival, d.route, attempt)
	return next
}

var errUnusable = errors.New("the cause's own methods panicked: is it a nil pointer in an error?")

// usable is cause, unless its methods panic, as those of a nil pointer in an error do.
func usable(cause error) (result error) {
	defer func() {
		if recover() != nil {
			result = errUnusable
		}
	}()
	_ = cause.Error()
	_ = errors.Is(cause, ErrStopping) // unwraps it
	return cause
}

// reason is what may be logged of a cause, and sent along with a copy: one line, of bounded length, and nothing that
// quotes a payload. The errors of this package know what they may say.
func reason(cause error) string {
	if cause == nil {
		return ""
	}
	return clipTo(oneLine(cause.Error()), maxReason)
}

// maxReason is the longest reason that is logged or sent along, in bytes.
const maxReason = 512
