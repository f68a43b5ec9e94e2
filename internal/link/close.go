package link

import (
	"context"
	"errors"
	"fmt"

	"github.com/settlemq/settle/internal/wire"
)

// Close ends the link in good order: every acknowledgement that is due goes out, then DISCONNECT 0x00, then the write side
// is closed and what comes is read past until the server closes (DrainTimeout at most); then Run returns nil. A PUBLISH
// that arrives meanwhile goes nowhere: the server keeps it. sessionExpiry, if not nil, is a new Session Expiry Interval in
// seconds for the DISCONNECT: 0 ends the session (3.14.2.2.2).
//
// Without a connection Close returns nil at once, and Run will. Its error says that the server may not have seen the
// DISCONNECT: ctx ended, and the connection was dropped, or writing failed. It may be called more than once.
func (l *Link) Close(ctx context.Context, sessionExpiry *uint32) error {
	l.mu.Lock()
	if !l.closing {
		l.closing, l.expiry = true, sessionExpiry
	}
	e, cancel := l.epoch, l.cancel
	if !l.started {
		l.moveTo(Ended)
	}
	l.mu.Unlock()
	if cancel != nil {
		cancel(errClosed) // hangUp says farewell
	}
	if e == nil {
		return nil
	}
	select {
	case <-l.done:
	case <-ctx.Done():
		e.conn.abort(context.Cause(ctx))
		select {
		case <-e.conn.farewell:
			return nil // all that was due has been written; the server has not closed its side in time
		default:
			return fmt.Errorf("close: the connection was dropped: %w", context.Cause(ctx))
		}
	}
	select {
	case <-e.conn.farewell:
		return nil
	default:
		return fmt.Errorf("close: the DISCONNECT was not sent: %w", e.conn.why())
	}
}

// hangUp ends a connection because Run is to end: by Close in good order, by its context at once.
func (l *Link) hangUp(ctx context.Context, c *conn) {
	cause := context.Cause(ctx)
	if !errors.Is(cause, errClosed) {
		c.abort(cause)
		return
	}
	l.mu.Lock()
	l.moveTo(Draining)
	disconnect := wire.AppendDisconnect(nil, 0)
	if l.expiry != nil && (l.cfg.SessionExpiry != 0 || *l.expiry == 0) { // else a protocol error: see 3.14.2.2.2
		disconnect = wire.AppendDisconnectExpiry(nil, 0, *l.expiry)
	}
	l.mu.Unlock()
	patience := c.drainTimeout
	if c.epoch.Load() != 0 {
		patience = 0 // there may be much to acknowledge first: Close's context, and each write's deadline, bound it
	}
	c.part(disconnect, errClosed, patience)
}

// Reconnect drops the present connection, if there is one, and has the link dial again, with its backoff. A *wire.Error
// goes out as the DISCONNECT's reason code; any other reason ends the connection in good order. It never waits.
func (l *Link) Reconnect(reason error) {
	c := l.current.Load()
	if c == nil {
		return
	}
	var broken *wire.Error
	if errors.As(reason, &broken) {
		c.violated(reason)
		return
	}
	l.move(Draining)
	c.part(wire.AppendDisconnect(nil, 0), reason, c.drainTimeout)
}

// Drop drops the present connection, if there is one, without a DISCONNECT, as a network does; the link dials again. It is
// for tests.
func (l *Link) Drop(cause error) {
	if c := l.current.Load(); c != nil {
		c.abort(cause)
	}
}
