package settle

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Retire is [App.Stop] for a client id that will not come back: it gives up every subscription, goes on until what the server has
// queued for this client is handled, retries included, and ends the sessions. Members of a shared group that leave without it
// leave a session that goes on taking its share. An app that has not been started is started, to handle what is left from before.
//
// It takes as long as the backlog takes, and copies that wait for their time. If ctx ends first, the app stops as
// it does by Stop, the sessions are kept, with all that is left in them, and the error says so: call it again from a new app of the same
// configuration, or let one Run.
func (a *App) Retire(ctx context.Context) error {
	if err := a.Start(ctx); err != nil && !errors.Is(err, ErrClosed) {
		return err
	}
	err := a.empty(ctx)
	if err != nil {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.config.ShutdownTimeout+stopMargin)
		defer cancel()
		return errors.Join(fmt.Errorf("settle: the sessions of %q are kept, since they are not empty: %w", a.config.ClientID, err), a.Stop(stop))
	}
	a.mu.Lock()
	running := a.phase == phaseRunning
	if running {
		a.phase = phaseStopping
	}
	a.mu.Unlock()
	if running {
		over := uint32(0)
		a.finish(a.drain(ctx, &over))
	}
	return a.Stop(ctx)
}

// quietTimeout is how long nothing may arrive before what the server had queued counts as delivered.
const quietTimeout = 2 * time.Second

// empty gives up the subscriptions and returns when nothing is left: first on the main connection, then on the second, where the
// retries of what came over the first may still be.
func (a *App) empty(ctx context.Context) error {
	for _, in := range a.inbounds() {
		if in == a.retry {
			if err := a.poll(ctx, a.returns.empty); err != nil {
				return err
			}
		}
		if err := in.link.Unsubscribe(ctx); err != nil {
			return err
		}
		if err := a.poll(ctx, in.quiet); err != nil {
			return err
		}
	}
	return nil
}

// quiet says that nothing is left to do of what came over this connection, and that nothing more seems to come.
func (in *inbound) quiet() bool {
	a := in.app
	last := max(time.Duration(in.received.Load()), time.Duration(in.acknowledged.Load()))
	return in.link.Status().Connected && a.now()-last >= quietTimeout && in.window.Unacknowledged() == 0 &&
		a.holds.set.len() == 0 && a.waiting() == 0 && a.couriers.pending.count() == 0
}

// poll returns when condition holds, or ctx or the app ends.
func (a *App) poll(ctx context.Context, condition func() bool) error {
	const interval = 50 * time.Millisecond
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for !condition() {
		select {
		case <-ticker.C:
		case <-a.done:
			return ErrClosed
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// empty says that no copy is on its way back or waits. A group's copy is waited for as long as it counts against RetryBacklog: another
// member may have got it.
func (rs *returns) empty() bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, c := range rs.out {
		if d := c.errand.d; d.route.group == "" && !d.arrival.HasExpiry {
			return false
		}
	}
	return rs.slots == 0 && len(rs.waiting) == 0 && len(rs.markers) == 0
}
