package chaos

import (
	"slices"
	"time"
)

// take takes in one event.
func (a *auditor) take(e *event) {
	c := a.connection(e)
	switch e.kind {
	case eventConnected:
		kind := int(e.copy)
		n := int32(len(a.conns)) //nolint:gosec // not so many
		a.conns = append(a.conns, connection{life: a.life, before: a.last[kind], second: kind == 1, index: a.kinds[kind], present: e.flags&flagPresent != 0, at: e.at})
		a.byNumber[e.conn], a.last[kind] = n, n
		a.kinds[kind]++
	case eventBegun:
		a.begun(e)
	case eventReturned:
		a.ended(e)
	case eventLost, eventParted, eventShown, eventAcknowledged, eventPublished, eventConfirmed:
		if c == nil {
			return // it was refused, or never answered
		}
		switch e.kind {
		case eventLost:
			c.orderly = e.flags&flagOrderly != 0
		case eventParted:
			c.parted = true
		case eventShown:
			a.shown(e, c)
		case eventAcknowledged:
			a.acknowledged(e, c)
		case eventPublished:
			a.published(e)
		case eventConfirmed:
			a.confirmed(e)
		}
	}
}

func (a *auditor) connection(e *event) *connection {
	if i, known := a.byNumber[e.conn]; known && e.conn != 0 {
		return &a.conns[i]
	}
	return nil
}

func (a *auditor) story(k parcelKey) *story {
	if k.copy == 0 {
		return &a.parcels[k.unit]
	}
	s := a.copies[k]
	if s == nil {
		s = &story{}
		a.copies[k] = s
	}
	return s
}

func (a *auditor) group(k attemptKey) *group {
	if k.attempt == 1 {
		return &a.firsts[k.unit]
	}
	g := a.groups[k]
	if g == nil {
		g = &group{}
		a.groups[k] = g
	}
	return g
}

func (a *auditor) shown(e *event, c *connection) {
	if e.flags&flagFirst != 0 {
		c.lastRead = int32(len(c.order)) //nolint:gosec // a connection does not last so long
	}
	if e.flags&flagForeign != 0 {
		c.order = append(c.order, place{foreign: true})
		return
	}
	k := parcelKey{e.unit, e.copy}
	s := a.story(k)
	w := showing{conn: a.byNumber[e.conn], place: int32(len(c.order)), id: e.id} //nolint:gosec // as above
	c.order = append(c.order, place{parcelKey: k, dup: e.flags&flagDup != 0})
	if c.open++; !c.second {
		a.Unacked[a.stream.name] = max(a.Unacked[a.stream.name], c.open)
		a.busiest = c.open
	}
	if a.seen++; len(s.showings) == 0 {
		s.first = a.seen
	}
	a.fits(c, w, s)
	a.allow(s, attemptKey{e.unit, e.attempt}, w)
	s.showings = append(s.showings, w)
	if e.copy != 0 {
		s.stored = true
		a.stored[attemptKey{e.unit, e.attempt - 1}] = true // what has come back was stored, whatever was answered
	}
}

func (a *auditor) acknowledged(e *event, c *connection) {
	a.Acks++
	if e.flags&flagUnknown != 0 {
		a.AckUnknown++
		a.example("acknowledged on another connection: %s, process %d of %s, identifier %d", a.stream.name, a.life.number, a.life.consumer, e.id)
		return
	}
	s := a.story(parcelKey{e.unit, e.copy})
	i := len(s.showings) - 1
	for i >= 0 && (s.showings[i].conn != a.byNumber[e.conn] || s.showings[i].id != e.id) {
		i--
	}
	if i < 0 {
		return
	}
	w := &s.showings[i]
	if !a.mayAck(e, s, i) {
		a.AckTooEarly++
		a.example("acknowledged too early: %s attempt %d, process %d of %s; %s", a.describe(e.unit), e.attempt, a.life.number, a.life.consumer, a.history(e.unit))
	}
	if w.place+1 < c.turn {
		a.AckOutTurn++
		a.example("acknowledged out of turn: %s at place %d after place %d", a.describe(e.unit), w.place, c.turn-1)
	}
	c.turn = max(c.turn, w.place+1)
	w.acked, c.order[w.place].acked = true, true
	if c.open--; !c.second {
		a.busiest = c.open
	}
	g := a.group(attemptKey{e.unit, e.attempt})
	g.reasons = slices.DeleteFunc(g.reasons, func(r cause) bool { return r.conn == w.conn && r.place == w.place }) // joined, or proved old
}

// mayAck says that what a delivery came to has been carried out.
func (a *auditor) mayAck(e *event, s *story, at int) bool {
	k := attemptKey{e.unit, e.attempt}
	switch {
	case a.stored[k], a.acks[k], a.stream.held() && a.acked[e.unit]:
		return true
	case e.copy != 0: // it came twice, or it was published again, behind the others
		return at < len(s.showings)-1 || s.confirmed > 1
	}
	return false
}

func (a *auditor) published(e *event) {
	k := attemptKey{e.unit, e.attempt}
	dead := e.flags&flagDead != 0
	a.asked[wireKey{e.conn, e.id}] = publishing{attemptKey: k, copy: e.copy, dead: dead}
	if !a.hasFailed(k, e, dead) {
		a.CopiesFalse++
		a.example("a copy or dead letter of what had not failed: %s attempt %d, process %d of %s", a.describe(e.unit), e.attempt, a.life.number, a.life.consumer)
	}
	if dead {
		a.sent[e.unit]++
		return
	}
	s := a.story(parcelKey{e.unit, e.copy})
	if s.published++; s.published == 1 && len(s.showings) == 0 {
		g := a.group(k)
		if g.copies++; g.copies > g.calls {
			a.CopiesFalse++
			a.example("%d retry copies after %d calls: %s attempt %d", g.copies, g.calls, a.describe(e.unit), e.attempt)
		}
	}
}

// slack is how much too early a handler's timeout may seem to be over: between what a handler tells and its return, the machine may do something else.
const slack = handlerTimeout / 3

// hasFailed says that an attempt has failed, or had no answer within its timeout. A copy that came back may be published again, as it is.
func (a *auditor) hasFailed(k attemptKey, e *event, dead bool) bool {
	if !dead && len(a.story(parcelKey{e.unit, e.copy}).showings) > 0 {
		return true // it goes behind the others
	}
	if a.failed[k] {
		return true
	}
	since, ran := a.running[k]
	return ran && timedOut(since, e.at)
}

// timedOut says that a call may have outlived its timeout.
func timedOut(since, now uint32) bool {
	return now-since >= uint32((handlerTimeout-slack)/(100*time.Microsecond))
}

func (a *auditor) confirmed(e *event) {
	w := wireKey{e.conn, e.id}
	p, known := a.asked[w]
	delete(a.asked, w)
	if !known || e.code >= 0x80 || e.code == 0x10 {
		return
	}
	a.stored[p.attemptKey] = true
	if p.dead && a.stream.held() {
		a.acked[p.unit] = true
	}
	if !p.dead {
		s := a.story(parcelKey{p.unit, p.copy})
		s.confirmed++
		s.stored = true
	}
}

func (a *auditor) begun(e *event) {
	a.Calls++
	k := attemptKey{e.unit, e.attempt}
	if e.attempt > 1 {
		a.Retries++
	}
	a.called[e.unit]++
	a.alone(k, e)
	g := a.group(k)
	g.calls++
	if g.calls == 1 && e.attempt == 1 && a.units[e.unit].state == accepted {
		a.share(a.busiest).Messages++
	}
	if c := a.why(g, k); c.why != firstCall {
		a.again(g, k, c)
	}
	a.running[k] = e.at
}

// alone checks that no other call of its key is running. A batch has several at once, and one that outlived its timeout may still be running.
func (a *auditor) alone(k attemptKey, e *event) {
	if a.stream.batch {
		return
	}
	key := keyOf(a.units[k.unit].message)
	before, known := a.busy[key]
	a.busy[key] = k
	if !known {
		return
	}
	if since, ran := a.running[before]; ran && !timedOut(since, e.at) {
		a.AtOnce++
		a.example("at once: %s attempt %d and %s attempt %d, process %d of %s", a.describe(before.unit), before.attempt, a.describe(k.unit), k.attempt, a.life.number, a.life.consumer)
	}
}

func (a *auditor) ended(e *event) {
	k := attemptKey{e.unit, e.attempt}
	since, ran := a.running[k]
	if e.code != returnedAck || ran && timedOut(since, e.at) {
		a.failed[k] = true
	}
	delete(a.running, k)
	if e.code == returnedAck {
		a.acks[k] = true
		a.acked[e.unit] = true
	}
}
