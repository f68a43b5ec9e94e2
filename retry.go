package settle

import (
	"errors"
	"sync"
	"time"
)

// returns looks after retry copies from their publication until they have been handled. They come back over a second
// connection, whose window they wait in, unacknowledged, until they are due: so a wait takes no slot of the main window,
// and the server has the copy should we die.
//
//	admitted → out (published, on its way back) → waiting → started → settled
//	                                                 ↓ ↑
//	                                               hopping (published once more, behind the others)
//
// A copy that arrives while it waits already, under the same copy id, takes the earlier one's place. If it has been
// started, it is settled together with it.
type returns struct {
	app *App
	in  *inbound // nil where no route has a retry topic

	mu      sync.Mutex
	open    bool              // every retry topic is subscribed, and what was queued there before us has come
	markers map[string]marker // by retry topic: the marker that has not come back
	wasUp   bool
	slots   int // copies out that count against RetryBacklog
	out     map[string]*outCopy
	loose   []string // of out, those whose slot was given up, oldest first
	waiting map[string]*waitingCopy
	idle    int // of waiting, those neither started nor hopping

	markerWait    time.Duration // until markers are sent again
	losses        int           // how often the session was lost
	finishedSince int           // copies settled since the last hop: they pay for hops
	changed       time.Time     // when something last arrived or hopped

	due   timerSet[*waitingCopy]
	lapse timerSet[string]
}

// outCopy is a copy that has been published, or is being published, and has not arrived. It stays in memory, to be
// published again should its session be lost.
type outCopy struct {
	errand    *errand
	confirmed bool
	slot      bool
}

// waitingCopy is a copy that has arrived and is not settled.
type waitingCopy struct {
	id    string
	a     *arrival
	d     *Delivery
	due   time.Time
	state copyState
	twins []*arrival // the same copy, arrived after it was started
}

type copyState uint8

const (
	copyWaiting copyState = iota
	copyHopping
	copyStarted
)

const (
	// slotTime is how long a confirmed copy that does not come back counts against RetryBacklog. A server that drops it
	// must not stop retries for good.
	slotTime = 30 * time.Second
	// looseFactor bounds the copies that are remembered after that, in multiples of RetryBacklog.
	looseFactor = 8
	// markerTime is how long a marker may take at first, and maxMarkerTime in the end.
	markerTime    = 30 * time.Second
	maxMarkerTime = time.Hour
)

func newReturns(app *App) *returns {
	return &returns{
		app:     app,
		markers: make(map[string]marker),
		out:     make(map[string]*outCopy),
		waiting: make(map[string]*waitingCopy),
	}
}

// admit says whether a copy may be published now, and takes its slot. A copy that follows another, a hop or a next attempt, takes over that
// one's place on the server: it may exceed RetryBacklog, or copies that all fail would wait for one another.
func (rs *returns) admit(e *errand) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if !rs.open && !(e.follows() && rs.in.link.Up()) {
		return false // what follows needs no marker: the marker may be waiting for it to be acknowledged
	}
	if _, known := rs.out[e.copyID]; known {
		return true
	}
	limit := rs.app.config.RetryBacklog
	if e.follows() {
		limit += max(limit*4/5, 1)
	}
	if rs.slots >= limit {
		return false
	}
	rs.slots++
	rs.out[e.copyID] = &outCopy{errand: e, slot: true}
	return true
}

// follows says that the errand is about a copy that came back, and takes its place.
func (e *errand) follows() bool { return e.d.arrival.copied != nil }

// published says that a try was confirmed. The copy may have arrived already. It returns false where the session has been lost since
// the try began, when it had been lost so often: then the server has perhaps stored the copy in the session that is gone.
func (rs *returns) published(e *errand, losses int) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	c := rs.out[e.copyID]
	switch {
	case c == nil:
		return true
	case rs.losses != losses:
		return false
	}
	c.confirmed = true
	lapse := slotTime
	if left, expires := e.d.expiry(); expires {
		lapse = min(lapse, time.Duration(left)*time.Second)
	}
	rs.lapse.after(lapse, e.copyID, func() { rs.giveUpSlot(e.copyID) })
	return true
}

// arrivedAlready says that a try which was not confirmed has succeeded all the same: the copy has come back.
func (rs *returns) arrivedAlready(e *errand) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	_, out := rs.out[e.copyID]
	return e.kind != errandDead && !out
}

// cancel forgets a copy that will not be published after all.
func (rs *returns) cancel(e *errand) {
	rs.mu.Lock()
	rs.forget(e.copyID)
	rs.mu.Unlock()
	rs.app.couriers.pump()
}

func (rs *returns) forget(copyID string) *outCopy {
	c := rs.out[copyID]
	if c == nil {
		return nil
	}
	delete(rs.out, copyID)
	rs.lapse.cancel(copyID)
	if c.slot {
		rs.slots--
	}
	return c
}

func (rs *returns) giveUpSlot(copyID string) {
	rs.mu.Lock()
	var missing *Delivery
	if c := rs.out[copyID]; c != nil && c.slot {
		missing = c.errand.d
		c.slot = false
		rs.slots--
		rs.loose = append(rs.loose, copyID)
		for len(rs.loose) > looseFactor*rs.app.config.RetryBacklog {
			if oldest := rs.out[rs.loose[0]]; oldest != nil && !oldest.slot { // else it has come back, and gone out once more
				rs.forget(rs.loose[0])
			}
			rs.loose = rs.loose[1:]
		}
	}
	rs.mu.Unlock()
	if missing != nil {
		rs.app.log.Warn().Str("route", missing.route.name).Str("message_id", missing.MessageID()).
			Msg("a retry copy that the server confirmed has not come back yet; the server may have dropped it (its queue limits), or delivers nothing more at present")
	}
	rs.app.couriers.pump()
}

// deliver takes in what arrives on the second connection. Everything on a retry topic belongs here, whoever sent it.
func (rs *returns) deliver(a *arrival) {
	rs.mu.Lock()
	rs.changed = time.Now()
	rs.mu.Unlock()
	app := rs.app
	rt := app.retryRoutes[a.Publish.Topic]
	h := parseCopyHeaders(a)
	switch {
	case h == nil && rt == nil:
		app.unmatched(a)
	case h == nil:
		rs.in.dispatch(a, 1, rt)
	case h.marker != "":
		rs.markerCame(a.Publish.Topic, h)
		app.drop(a)
	case h.owner != app.config.ClientID && !rs.shared(rt, h):
		app.metrics.noRoute() // another replica's, which has it too
		app.drop(a)
	case rt == nil:
		rs.orphan(a, h)
	default:
		rs.copyCame(a, rt, h)
	}
}

// shared says that a copy which somebody else published may be for us: it is a group's. Of one for a topic that is no
// route's now, the route that it names tells.
func (rs *returns) shared(rt *route, h *copyHeaders) bool {
	if rt == nil {
		rt = rs.app.routesByName[h.route]
	}
	return rt == nil || rt.group != ""
}

// errOrphan is why a copy goes to the dead letters whose retry topic no route has any more.
var errOrphan = errors.New("the route has another retry topic now")

// orphan is a copy that an earlier release sent to a topic which is no route's now. It is not acknowledged away.
func (rs *returns) orphan(a *arrival, h *copyHeaders) {
	a.copied = h
	rt := rs.app.routesByName[h.route]
	told := "it goes to the dead letters of its route"
	lost := rt == nil || rt.deadLetterTo == ""
	if lost {
		told = "no dead-letter topic is known for it, so it is held until a route has the topic again, and acknowledgements behind it wait"
	}
	rs.app.spawn(func() {
		rs.app.log.Error().Str("topic", a.Publish.Topic).Str("route", h.route).Str("message_id", h.messageID).
			Msg("a retry copy came for a topic that is no route's retry topic; " + told)
	})
	if lost {
		return
	}
	d := &a.first
	d.init(a, rt, h.attempt)
	d.settled.Store(true)
	a.left.Store(1)
	rt.handling(1)
	rs.app.couriers.deadLetter(d, errOrphan)
}

func (rs *returns) copyCame(a *arrival, rt *route, h *copyHeaders) {
	a.copied = h
	d := &a.first
	d.init(a, rt, h.attempt+1)
	a.left.Store(1)
	rt.handling(1)

	rs.mu.Lock()
	due := time.Now().Add(h.wait())
	if c := rs.forget(h.copyID); c != nil {
		due = c.errand.due // we know better than the headers: this is our own clock
		rs.app.spawn(rs.app.couriers.pump)
	}
	w := rs.waiting[h.copyID]
	if w == nil {
		w = &waitingCopy{id: h.copyID, a: a, d: d, due: due}
		rs.waiting[h.copyID] = w
		rs.idle++
		rt.metrics.waiting(1)
		rt.metrics.delivered(QoS(a.QoS), a.Dup)
		rs.schedule(w)
		rs.mu.Unlock()
		return
	}
	var earlier *arrival
	if w.state == copyStarted {
		w.twins = append(w.twins, a)
	} else {
		earlier = w.a
		w.a, w.d = a, d
		if w.state == copyHopping {
			w.state = copyWaiting
			rs.idle++
			rs.schedule(w)
		}
	}
	rs.mu.Unlock()
	if earlier != nil {
		rt.handling(-1)
		earlier.in.finish(earlier)
	}
}

// schedule starts a copy when it is due.
func (rs *returns) schedule(w *waitingCopy) {
	rs.due.cancel(w)
	rs.due.after(max(time.Until(w.due), 0), w, func() { rs.start(w) })
}

func (rs *returns) start(w *waitingCopy) {
	rs.mu.Lock()
	if w.state != copyWaiting {
		rs.mu.Unlock()
		return // it is being published again, and comes back due at once
	}
	w.state = copyStarted
	rs.idle--
	d := w.d
	rs.mu.Unlock()
	d.route.metrics.waiting(-1)
	d.route.enqueue(d)
}

// finished says that a copy has been settled. It reports whether acknowledgements are due: those of the same copy that came meanwhile.
func (rs *returns) finished(a *arrival) (due bool) {
	rs.mu.Lock()
	w := rs.waiting[a.copied.copyID]
	if w == nil || w.a != a {
		rs.mu.Unlock()
		return false
	}
	delete(rs.waiting, w.id)
	rs.finishedSince++
	rs.mu.Unlock()
	for _, twin := range w.twins {
		w.d.route.handling(-1)
		due = twin.in.finish(twin) || due
	}
	return due
}

// sessionLost says that the server has forgotten the second session. What was on its way and what waits is the only one
// there is: all of it is published again.
func (rs *returns) sessionLost() {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.losses++
	rs.loose = nil
	for _, c := range rs.out {
		rs.again(c)
	}
	for _, w := range rs.waiting {
		if w.state == copyWaiting {
			rs.hop(w)
		}
	}
}

// again publishes a confirmed copy once more: the server has lost it. rs.mu is held.
func (rs *returns) again(c *outCopy) {
	if !c.confirmed {
		return
	}
	c.confirmed = false
	rs.lapse.cancel(c.errand.copyID)
	if !c.slot { // given up; it will be in the server's queue again
		c.slot = true
		rs.slots++
	}
	again := *c.errand
	again.again, again.confirmed = true, func() {}
	c.errand = &again
	rs.app.spawn(func() { rs.app.couriers.accept(&again) })
}

// lost is how often the session was lost.
func (rs *returns) lost() int {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.losses
}

// hop publishes a copy once more, at the end of its topic, and gives up its place. rs.mu is held.
func (rs *returns) hop(w *waitingCopy) {
	w.state = copyHopping
	rs.idle--
	rs.changed = time.Now()
	d := w.d
	rs.app.spawn(func() { rs.app.couriers.hop(d, w.id, w.due, func() { rs.hopped(w, d) }) })
}

// hopped says that the hop was confirmed. Unless the copy has come back already, the place that it had is free now.
func (rs *returns) hopped(w *waitingCopy, d *Delivery) {
	rs.mu.Lock()
	if w.d != d || w.state != copyHopping {
		rs.mu.Unlock()
		return
	}
	delete(rs.waiting, w.id)
	rs.due.cancel(w)
	rs.mu.Unlock()
	d.route.metrics.waiting(-1)
	d.route.handling(-1)
	if d.arrival.in.finish(d.arrival) {
		rs.app.flushAcks()
	}
}
