package testkit

import (
	"cmp"
	"slices"
	"time"

	"github.com/settlemq/settle/internal/bridge"
)

// Settled waits until a route has settled n attempts since the Kit began, and returns the first n of them, in the order in which they came up: from
// the server, or because they were due again. With one lane that is the order of settling. A route is named by its name or its topic
// filter; where several have that filter, it is all of them.
//
// It waits for their ends, too: for the acknowledgement of what will be acknowledged, and for the server's confirmation of copies and dead letters.
// A delivery that is held for another attempt is not waited for, nor is one whose acknowledgement must wait behind it. [Kit.Settlements] does
// not wait at all.
func (k *Kit) Settled(route string, n int) []Settlement {
	k.t.Helper()
	routes := k.routesOf(route)
	checked := 0
	if !k.await(func() bool {
		records := k.rec.of(routes, n)
		if len(records) < n {
			return false
		}
		return k.ends(records, &checked)
	}) {
		if got := len(k.rec.of(routes, n)); got < n {
			k.fail("not within %s: %d settlements of %q; there are %d", k.wait(), n, route, got)
		}
		k.fail("%q has settled %d, but not all of them were acknowledged within %s, or their copies stored", route, n, k.wait())
	}
	return k.rec.snapshots(k.rec.of(routes, n))
}

// Settlements is what a route has settled so far, in the same order, without any waiting. The route is named as for [Kit.Settled].
func (k *Kit) Settlements(route string) []Settlement {
	k.t.Helper()
	return k.rec.snapshots(k.rec.of(k.routesOf(route), -1))
}

// Batches waits until a route has been called with n batches since the Kit began and has settled all in them, and returns the first n, in the order
// in which they were assembled. It waits for the ends of their deliveries as [Kit.Settled] does.
func (k *Kit) Batches(route string, n int) [][]Settlement {
	k.t.Helper()
	routes := k.routesOf(route)
	var batches [][]*record
	if !k.await(func() bool {
		if batches = k.rec.batchesOf(routes, n); len(batches) < n {
			return false
		}
		checked := 0
		return k.ends(slices.Concat(batches...), &checked)
	}) {
		k.fail("not within %s: %d settled batches of %q; there are %d", k.wait(), n, route, len(batches))
	}
	out := make([][]Settlement, 0, n)
	for _, batch := range batches {
		out = append(out, k.rec.snapshots(batch))
	}
	return out
}

// Published waits until n messages have been published to topics that a filter matches since the Kit began, and returns the first n, in the
// server's order: by whomever, so retry copies, dead letters and what the test itself has published are among them.
func (k *Kit) Published(filter string, n int) []Message {
	k.t.Helper()
	var found []Message
	looked := 0
	if !k.await(func() bool {
		k.rec.mu.Lock()
		defer k.rec.mu.Unlock()
		for ; looked < len(k.rec.published) && len(found) < n; looked++ {
			if m := k.rec.published[looked]; matches(filter, m) {
				found = append(found, m)
			}
		}
		return len(found) == n
	}) {
		k.fail("not within %s: %d messages published to %q; there are %d", k.wait(), n, filter, len(found))
	}
	return found
}

// Quiet says whether the app comes to rest within d: connected, unless it has stopped, with nothing in its lanes, held or waiting, every copy stored and come
// back, to it or to another member of its group, everything acknowledged, and nothing for it in its sessions on the server. It returns as soon as that is so. What a test
// has published is then settled for good, and nothing more will come of it.
//
// A real server's queue cannot be seen: with [StartLive] the app has to stay at rest for a moment instead.
func (k *Kit) Quiet(d time.Duration) bool {
	var since time.Time // when it was first seen at rest
	still := restTime
	if k.Broker() == nil {
		still = liveRestTime
	}
	return k.Within(max(d, 1)).await(func() bool {
		if !k.quiet() {
			since = time.Time{}
			return false
		}
		if since.IsZero() {
			since = time.Now()
		}
		return time.Since(since) >= min(still, d/2)
	})
}

// What is between two places, just read and not yet counted, is seen by nobody. So a rest has to last.
const (
	restTime     = 2 * time.Millisecond
	liveRestTime = 200 * time.Millisecond
)

func (k *Kit) quiet() bool {
	s := bridge.Settle.State(k.app)
	if s.Unsettled+s.Unconfirmed+s.Unacknowledged > 0 || s.Due || s.Writing || !s.Ready && !s.Ended || !k.server.caughtUp() {
		return false
	}
	if slices.ContainsFunc(s.Connections, func(c bridge.Connection) bool { return !k.server.idle(c.ClientID, !s.Ended) }) {
		return false
	}
	// A group's copy that the server does not have for this app went to another member.
	return s.OnTheirWay == 0 || k.Broker() != nil && s.OnTheirWay == bridge.Settle.Elsewhere(k.app)
}

// ends says that nothing more is to come of records, or not before something else happens.
func (k *Kit) ends(records []*record, checked *int) bool {
	if !k.rec.complete(records, checked) {
		return k.atRest()
	}
	return !bridge.Settle.State(k.app).Writing && k.server.caughtUp()
}

// atRest says that nothing will be acknowledged before somebody else does something, or time has passed: a delivery is held, or
// a copy waits, and all else is done.
func (k *Kit) atRest() bool {
	s := bridge.Settle.State(k.app)
	switch {
	case s.Ended:
		return true
	case !s.Ready, s.Unsettled > s.Held+s.Waiting, s.Unconfirmed > 0, s.Due, s.Writing:
		return false
	}
	return s.Held > 0 && k.server.caughtUp()
}

// of are the first n settlements of some routes, in order; n < 0: all.
func (r *recorder) of(routes []string, n int) []*record {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := r.byRoute[routes[0]]
	if len(routes) > 1 {
		found = nil
		for _, s := range r.all {
			if slices.Contains(routes, s.Route) {
				found = append(found, s)
			}
		}
	}
	if n >= 0 {
		found = found[:min(n, len(found))]
	}
	return found
}

// complete says that nothing more is to come of records. checked counts those of which that is known.
func (r *recorder) complete(records []*record, checked *int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for *checked < len(records) && records[*checked].complete() {
		*checked++
	}
	return *checked == len(records)
}

func (r *recorder) snapshots(records []*record) []Settlement {
	records = slices.Clone(records)
	slices.SortStableFunc(records, func(a, b *record) int { return cmp.Compare(a.turn, b.turn) })
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Settlement, 0, len(records))
	for _, s := range records {
		out = append(out, s.snapshot())
	}
	return out
}

// batchesOf are the first n batches of some routes, as far as all in them is settled.
func (r *recorder) batchesOf(routes []string, n int) [][]*record {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found [][]*record
	for _, route := range routes {
		for _, batch := range r.batches[route] {
			records := make([]*record, 0, len(batch))
			for _, d := range batch {
				if s := r.inBatch[d]; s != nil {
					records = append(records, s)
				}
			}
			if len(found) == n || len(records) < len(batch) {
				return found
			}
			found = append(found, records)
		}
	}
	return found
}
