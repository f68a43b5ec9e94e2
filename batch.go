package settle

import (
	"context"
	"runtime/debug"
	"time"
)

// assemble makes a batch that begins with first. It closes at its size, when the route's linger is over since the
// lane took its first element, or when nothing more can come before something is acknowledged.
func (l *lane) assemble(first *Delivery) *run {
	app := l.route.app
	r := &run{lane: l, batch: make([]*Delivery, 1, l.route.batchSize)}
	r.batch[0] = first
	linger := lingering{after: l.route.linger}
	defer linger.stop()
	for {
		var only func(*Delivery) bool
		stopping := app.stopping()
		if stopping {
			only = runsAtStop
		}
		for len(r.batch) < l.route.batchSize {
			d := l.take(only)
			if d == nil {
				break
			}
			r.batch = append(r.batch, d)
		}
		if len(r.batch) == l.route.batchSize || stopping || l.route.linger <= 0 {
			break
		}
		l.flush() // the window may be full only of what this lane has settled and not written
		if app.windowFull(r) {
			break
		}
		select {
		case <-l.wake:
			continue
		case <-app.stop:
			continue
		case <-linger.over():
		}
		break
	}
	for _, d := range r.batch {
		d.lane = l.index
	}
	l.route.metrics.batch(len(r.batch))
	if o := app.observer; o != nil {
		o.Batch(r.batch)
	}
	return r
}

// lingering is a timer that is made when it is first waited for: most batches are full at once.
type lingering struct {
	after time.Duration
	timer *time.Timer
}

func (l *lingering) over() <-chan time.Time {
	if l.timer == nil {
		l.timer = time.NewTimer(l.after)
	}
	return l.timer.C
}

func (l *lingering) stop() {
	if l.timer != nil {
		l.timer.Stop()
	}
}

// windowFull says that the server may send none of the batch's kind until something is acknowledged. QoS 0 has no window.
func (a *App) windowFull(r *run) bool {
	for _, d := range r.batch {
		if d.arrival.QoS > 0 && d.arrival.in != nil {
			return d.arrival.in.window.Full()
		}
	}
	return false
}

// callMany decodes the payloads of a batch and calls the handler with those that could be. Every delivery gets its outcome: the
// handler's, or the policy's for what kept it from the handler.
func (rt *route) callMany(ctx context.Context, r *run) Outcomes {
	var (
		faults = make([]error, len(r.batch))
		view   = &decoded{deliveries: make([]*Delivery, 0, len(r.batch))}
	)
	for i, d := range r.batch {
		faults[i] = rt.oversize(d)
	}
	outcomes, err := rt.guardMany(ctx, r, view, faults)
	if err != nil {
		outcomes = Every(Outcome{})
	}
	if len(view.deliveries) == len(r.batch) && err == nil {
		return rt.checked(outcomes, len(r.batch))
	}
	outcomes = rt.checked(outcomes, len(view.deliveries))
	each := make([]Outcome, len(r.batch))
	handled := 0
	for i, d := range r.batch {
		switch {
		case faults[i] != nil:
			each[i] = rt.ask(rt.policyFor(faults[i]), faults[i])
		case err != nil:
			each[i] = rt.ask(rt.onPanic, &PanicError{Delivery: d, Value: err.Value, Stack: err.Stack})
		default:
			each[i] = outcomes.At(handled)
			handled++
		}
	}
	return Each(each...)
}

func (rt *route) guardMany(ctx context.Context, r *run, view *decoded, faults []error) (outcomes Outcomes, panicked *PanicError) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if v := recover(); v != nil { // else it is runtime.Goexit, which the lane sees
			panicked = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	outcomes = rt.many(ctx, r, view, faults)
	returned = true
	return outcomes, nil
}
