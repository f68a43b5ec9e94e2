package settle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/settlemq/settle/internal/mutant"
)

// WaitReady returns nil once the app is connected and the server has granted every subscription, on the second connection too
// if there is one; it does not wait for that to last. Its error is the end of ctx, with what is missing, or of the app.
func (a *App) WaitReady(ctx context.Context) error {
	a.mu.Lock()
	fresh := a.phase == phaseNew
	a.mu.Unlock()
	if fresh {
		return errNotStarted
	}
	for _, in := range a.inbounds() {
		if err := in.link.WaitUp(ctx); err != nil {
			if ended := a.Err(); ended != nil {
				return ended
			}
			return errors.Join(err, a.Ready())
		}
	}
	return nil
}

// Ready says whether the app consumes: nil, or why not. It is meant for a readiness probe. It is about this moment; to
// wait, use [App.WaitReady].
func (a *App) Ready() error {
	a.mu.Lock()
	phase, err := a.phase, a.err
	a.mu.Unlock()
	switch {
	case err != nil:
		return err
	case phase == phaseNew:
		return errNotStarted
	case phase != phaseRunning:
		return ErrStopping
	}
	for _, in := range a.inbounds() {
		s := in.link.Status()
		if s.Granted {
			continue
		}
		err := fmt.Errorf("settle: the %s connection is %s%s", in.name, s.State, in.facts())
		if s.LastError != nil {
			err = fmt.Errorf("%w; last: %w", err, s.LastError)
		}
		return err
	}
	return nil
}

var errNotStarted = errors.New("settle: the app has not been started")

// Live says whether the app is worth keeping: nil, or why not. It is meant for a liveness probe: a lost connection is no
// reason to restart a process, since the app makes another, but an app that has ended by itself is, and so is a lane that
// waits for handlers which never return.
func (a *App) Live() error {
	if err := a.Err(); err != nil {
		return err
	}
	for _, rt := range a.routes {
		for _, l := range rt.lanes {
			if l.isHalted() {
				return fmt.Errorf("settle: route %q: %d handlers of lane %d ignore the end of their context, and the lane waits for them%s",
					rt.name, maxStrays, l.index, a.main.facts())
			}
		}
	}
	return nil
}

// facts tells of an inbound connection what a person asks first.
func (in *inbound) facts() string {
	ago := func(at int64) string {
		if at == 0 {
			return "never"
		}
		return (in.app.now() - time.Duration(at)).Round(time.Millisecond).String() + " ago"
	}
	s := fmt.Sprintf(" (last delivery %s, last acknowledgement %s", ago(in.received.Load()), ago(in.acknowledged.Load()))
	if oldest := in.oldest(); oldest > 0 {
		s += fmt.Sprintf(", oldest unacknowledged delivery %s old", oldest.Round(time.Millisecond))
	}
	return s + ")"
}

// oldest is the age of the delivery that has waited longest for its acknowledgement.
func (in *inbound) oldest() time.Duration {
	at, waits := in.window.OldestAt()
	if !waits {
		return 0
	}
	return in.app.now() - time.Duration(at)
}

// Stop ends the app in good order: it takes in nothing more, lets running handlers finish within ShutdownTimeout, ends their
// contexts with [ErrStopping] after that, waits until every copy and dead letter is confirmed, writes every acknowledgement
// that is due, and disconnects. It never unsubscribes: what was not handled stays with the server and comes back with the
// session, to this client id. What the server would not send again, at QoS 0 for instance, is handled first.
//
// It is bounded by ctx: where that ends before ShutdownTimeout, handlers are told so much earlier that they can return. Where something had not settled by then, it returns a *[DrainError]; what the server
// keeps comes back with the session all the same. Stop may be
// called from anywhere and more than once, from a handler too if ctx has an end: it cannot return before that handler does. All calls return
// the same.
func (a *App) Stop(ctx context.Context) error {
	a.mu.Lock()
	was := a.phase
	if was < phaseStopping {
		a.phase = phaseStopping
	}
	a.mu.Unlock()
	switch was {
	case phaseNew, phaseStarting:
		for _, in := range a.inbounds() {
			_ = in.link.Close(ctx, nil) // it was never run: whoever waits for it is told
		}
		a.finish(nil)
	case phaseRunning:
		a.finish(a.drain(ctx, nil))
	}
	select {
	case <-a.stopped:
	case <-ctx.Done():
		if !isClosed(a.stopped) { // another call's drain goes on
			return fmt.Errorf("settle: the app is still stopping: %w", context.Cause(ctx))
		}
	}
	return a.stopErr
}

func (a *App) finish(err error) {
	a.mu.Lock()
	a.phase = phaseEnded
	a.mu.Unlock()
	a.stopErr = err
	close(a.stopped)
	close(a.done)
}

// drain is Stop, step by step. sessionExpiry, if not nil, goes along with DISCONNECT.
func (a *App) drain(ctx context.Context, sessionExpiry *uint32) error {
	reason := errShutdownTimeout
	all := a.config.ShutdownTimeout + stopGrace + stopMargin
	if end, ends := ctx.Deadline(); ends && time.Until(end) < all {
		reason = context.DeadlineExceeded // the caller's, that is
	}
	ctx, cancel := context.WithTimeoutCause(ctx, all, reason)
	defer cancel()
	work, cancelWork := exceptFarewell(ctx, reason)
	defer cancelWork()
	drain := new(DrainError)
	for _, in := range a.inbounds() {
		in.drain()
	}
	for _, d := range a.holds.set.close() {
		d.route.holding(-1)
		switch {
		case d.arrival.QoS == 0 && !a.qos0.leave(d):
		case mustRun(d):
			d.route.enqueue(d)
		default:
			drain.Held++
		}
	}
	a.returns.due.close()
	close(a.intake)
	a.waitForSorters(work)
	close(a.stop)

	err := a.settleRunning(work)
	if err != nil {
		drain.Running, drain.Waiting = a.workers.count(), a.waiting()
	}
	a.couriers.stop()
	if e := a.couriers.pending.wait(work); e != nil {
		drain.Unconfirmed, err = a.couriers.pending.count(), errors.Join(err, e)
	}
	if mutant.UnsubscribeAtStop && a.main.link.Up() { // to leave nothing behind
		_ = a.main.link.Unsubscribe(work)
	}
	err = errors.Join(err, a.farewell(ctx, sessionExpiry, drain))
	a.cancelHandlers(ErrStopping)
	a.cancelRunning(ErrStopping)
	a.later.close()
	a.returns.lapse.close()
	a.flushTimer.Stop()
	err = errors.Join(err, a.background.wait(ctx))
	if err == nil {
		return nil
	}
	drain.Err = err
	return drain
}

// exceptFarewell ends before ctx does, by as much as it takes to write the acknowledgements that are due and to part from the server: a
// handler that never returns, or a copy that is never confirmed, must not cost those too.
func exceptFarewell(ctx context.Context, reason error) (context.Context, context.CancelFunc) {
	const most = 3 * time.Second
	end, _ := ctx.Deadline() // drain sets one
	return context.WithDeadlineCause(ctx, end.Add(-min(most, time.Until(end)/4)), reason)
}

// farewell closes the links, all at once: each waits for its server to have read everything.
func (a *App) farewell(ctx context.Context, sessionExpiry *uint32, drain *DrainError) error {
	end, _ := ctx.Deadline() // drain sets one
	const rest = 500 * time.Millisecond
	ctx, cancel := context.WithDeadline(ctx, end.Add(-min(rest, time.Until(end)/8)))
	defer cancel()
	results := make(chan error)
	for _, in := range a.inbounds() {
		go func() { results <- in.link.Close(ctx, sessionExpiry) }()
	}
	var err error
	for range a.inbounds() {
		err = errors.Join(err, <-results)
	}
	if err != nil {
		for _, in := range a.inbounds() {
			drain.Unsent += in.window.Settled()
		}
	}
	return err
}

// waitForSorters waits until every delivery is in a lane, whose own rule says whether it still runs. A key function that never
// returns must not cost the handlers their time.
func (a *App) waitForSorters(ctx context.Context) {
	const patience = time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_ = a.sorters.wait(ctx) // what they have not sorted by then is left to the session
}

// settleRunning waits until the lanes have finished. When ShutdownTimeout is over it tells the handlers.
func (a *App) settleRunning(ctx context.Context) error {
	patience := a.config.ShutdownTimeout
	if deadline, ok := ctx.Deadline(); ok { // leave time to tell the handlers, and for the farewell
		left := time.Until(deadline)
		patience = min(patience, left-min(stopGrace, left/4))
	}
	orderly, cancel := context.WithTimeoutCause(ctx, patience, ErrStopping)
	defer cancel()
	for a.workers.wait(orderly) == nil {
		if !a.resume() {
			return nil
		}
	}
	a.cancelHandlers(ErrStopping)
	grace, cancel := context.WithTimeoutCause(ctx, stopGrace, errShutdownTimeout)
	defer cancel()
	return a.workers.wait(grace)
}

// resume has the lanes go on that have ended too early: at a delivery that others which are settled stand behind.
func (a *App) resume() (resumed bool) {
	for _, in := range a.inbounds() {
		for _, e := range in.window.Blockers() {
			e.Owner.(*arrival).blocks.Store(true) //nolint:forcetypeassert // newArrival sets it
		}
	}
	for _, rt := range a.routes {
		for _, l := range rt.lanes {
			if l.has(runsAtStop) && !l.isHalted() {
				a.workers.Add(1)
				go l.work()
				resumed = true
			}
		}
	}
	return resumed
}

// stopGrace is what handlers get to return once they have been told that the time is up.
const stopGrace = 2 * time.Second

var errShutdownTimeout = errors.New("ShutdownTimeout is over")

// waiting is the number of deliveries whose handlers have not started.
func (a *App) waiting() int {
	n := 0
	for _, rt := range a.routes {
		for _, l := range rt.lanes {
			n += l.len()
		}
	}
	return n
}
