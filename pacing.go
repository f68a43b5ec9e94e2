package settle

import (
	"context"
	"time"
)

// Acknowledgements leave in order, so a copy that waits for an hour holds up those of all that are settled behind it, and, where
// the server allows few in flight, keeps the rest of the queue from coming at all. The one at the head of the window
// then goes to the end of its topic again. That costs a publish, so it is paced: finished copies pay for hops, one each, and
// otherwise there are few.
const (
	paceInterval = 250 * time.Millisecond
	fewBehind    = 8               // finished copies behind a waiting one that are no reason to hurry
	behindTime   = 2 * time.Second // how long a finished copy may wait for its acknowledgement
	stallTime    = time.Second     // how long nothing may arrive while copies are known to be on their way
	quietTime    = 30 * time.Second
	soon         = time.Second // a copy that is due so soon is let be
)

// pace is the goroutine that looks whether a hop is called for.
func (rs *returns) pace(ctx context.Context) {
	ticker := time.NewTicker(paceInterval)
	defer ticker.Stop()
	var behindSince time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		behind := rs.in.window.Behind()
		switch {
		case behind == 0:
			behindSince = time.Time{}
		case behindSince.IsZero():
			behindSince = time.Now()
		}
		rs.hopHeads(behind, behindSince)
	}
}

func (rs *returns) hopHeads(behind int, behindSince time.Time) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.idle == 0 || rs.app.stopping() || !rs.open && (len(rs.markers) == 0 || !rs.in.link.Up()) {
		return
	}
	now := time.Now()
	hops := 0
	switch quiet := now.Sub(rs.changed); {
	case behind > fewBehind:
		hops = max(1, min(rs.finishedSince, behind))
	case behind > 0 && now.Sub(behindSince) > behindTime:
		hops = 1
	case rs.idle < rs.in.window.Unacknowledged():
	case len(rs.out)+len(rs.markers) > 0 && quiet > stallTime, quiet > quietTime:
		hops = 1
	}
	if hops == 0 {
		return
	}
	rs.finishedSince = 0
	for _, e := range rs.in.window.Heads(hops) {
		a, ok := e.Owner.(*arrival)
		if !ok || a.copied == nil {
			return
		}
		w := rs.waiting[a.copied.copyID]
		if w == nil || w.a != a || w.state != copyWaiting || time.Until(w.due) < soon {
			return
		}
		rs.hop(w)
	}
}
