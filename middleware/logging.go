package middleware

import (
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"

	"github.com/settlemq/settle"
)

// Logging writes a line to log for every delivery, when its handler has returned: route, topic, message_id, attempt, redelivered where the
// server had sent it before, outcome, cause, retry_after where the handler said it, and took, the time spent inside this middleware. Payloads are never
// logged, but a cause is what the handler says: keep payloads out of it.
//
// Acks and Drops are logged at info level, Retries at warn, Rejects and the zero Outcome at error. A level that log does not have costs nothing.
//
// A batch has one line of its own, with its size and how many of each outcome, at the level of the worst, and then one for each delivery
// that was not acknowledged. A handler that returns after its timeout has a line at warn that says so: what it returned has no effect.
func Logging(log zerolog.Logger) settle.Middleware {
	return func(next settle.Next) settle.Next {
		return func(ctx context.Context) settle.Outcomes {
			began := time.Now()
			outcomes := next(ctx)
			took := time.Since(began)

			deliveries := settle.DeliveriesFrom(ctx)
			switch {
			case errors.Is(context.Cause(ctx), settle.ErrHandlerTimeout):
				event := log.Warn()
				about(event, settle.DeliveryFrom(ctx)).Int("deliveries", max(len(deliveries), 1)).Dur("took", took).Msg("returned after its timeout")
			case len(deliveries) <= 1:
				logOne(log, settle.DeliveryFrom(ctx), outcomes.At(0), took)
			default:
				logBatch(log, deliveries, outcomes, took)
			}
			return outcomes
		}
	}
}

func logOne(log zerolog.Logger, d *settle.Delivery, o settle.Outcome, took time.Duration) {
	if event := log.WithLevel(levelOf(o)); event.Enabled() { // else not even the fields are worth their making
		verdict(about(event, d), o).Dur("took", took).Msg("handled")
	}
}

func logBatch(log zerolog.Logger, deliveries []*settle.Delivery, outcomes settle.Outcomes, took time.Duration) {
	var counts [settle.KindReject + 1]int
	worst := zerolog.InfoLevel
	for i := range deliveries {
		o := outcomes.At(i)
		counts[o.Kind()]++
		worst = max(worst, levelOf(o))
	}
	event := log.WithLevel(worst).Str("route", deliveries[0].Route()).Int("batch", len(deliveries))
	for kind, n := range counts {
		if n > 0 {
			event.Int(settle.Kind(kind).String(), n)
		}
	}
	event.Dur("took", took).Msg("handled a batch")
	for i, d := range deliveries {
		if o := outcomes.At(i); o.Kind() != settle.KindAck {
			verdict(about(log.WithLevel(levelOf(o)), d), o).Msg("handled in a batch")
		}
	}
}

// levelOf is the level at which an outcome is worth knowing.
func levelOf(o settle.Outcome) zerolog.Level {
	switch o.Kind() {
	case settle.KindAck, settle.KindDrop:
		return zerolog.InfoLevel
	case settle.KindRetry:
		return zerolog.WarnLevel
	default:
		return zerolog.ErrorLevel
	}
}

// about says which delivery an event is about.
func about(event *zerolog.Event, d *settle.Delivery) *zerolog.Event {
	event.Str("route", d.Route()).Str("topic", d.Topic()).Str("message_id", clip(d.MessageID())).Int("attempt", d.Attempt())
	if d.Redelivered() {
		event.Bool("redelivered", true)
	}
	return event
}

// verdict says what the handler has said.
func verdict(event *zerolog.Event, o settle.Outcome) *zerolog.Event {
	event.Str("outcome", o.Kind().String())
	if delay, given := o.Delay(); given {
		event.Dur("retry_after", delay)
	}
	if cause := o.Cause(); cause != nil {
		event.Str("cause", clip(cause.Error()))
	}
	return event
}
