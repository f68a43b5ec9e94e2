package link

import (
	"context"
	"fmt"

	"github.com/eclipse/paho.golang/paho"
)

// Unsubscribe gives up every subscription of the link, and those in Config.Unsubscribe, for good: later connections do not
// subscribe again, and count as up without. What the server has queued already still comes. It waits for a connection and
// for the server's answer, until ctx ends.
func (l *Link) Unsubscribe(ctx context.Context) error {
	l.mu.Lock()
	l.retiring = true
	l.mu.Unlock()
	var last *epoch
	for {
		e, err := l.connected(ctx, last)
		if err != nil {
			return err
		}
		err = l.unsubscribe(ctx, e)
		if err == nil || ctx.Err() != nil || !e.conn.isClosed() {
			return err
		}
		// The connection was lost meanwhile. The next one unsubscribes by itself, but what it was told is known here alone.
		last = e
	}
}

func (l *Link) isRetiring() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.retiring
}

func (l *Link) unsubscribe(ctx context.Context, e *epoch) error {
	filters := make([]string, 0, len(l.cfg.Subscriptions)+len(l.cfg.Unsubscribe))
	for _, s := range l.cfg.Subscriptions {
		filters = append(filters, s.Filter)
	}
	filters = append(filters, l.cfg.Unsubscribe...)
	answer, err := e.client.Unsubscribe(ctx, &paho.Unsubscribe{Topics: filters})
	switch {
	case err != nil && answer == nil:
		return fmt.Errorf("unsubscribe: %w", err)
	case len(answer.Reasons) != len(filters):
		return fmt.Errorf("unsubscribe: %d answers for %d filters", len(answer.Reasons), len(filters))
	}
	for i, code := range answer.Reasons {
		if code >= 0x80 {
			return fmt.Errorf("the server refused to give up the subscription to %q: %s", filters[i], describe(code, ""))
		}
	}
	return nil
}
