package chaos

import "slices"

// How the auditor explains that a handler is called again.
//
// A parcel that comes on a connection is either joined with what the process has of it, or is a delivery of its own, for which the handler is called.
// From the wire one can tell when it may be the latter. So each such showing is a reason to call, and each call uses one up; a call that finds none is a
// failure. A parcel is joined with the one before where the connection before had shown it, too, and it was not acknowledged there.

// allow notes the reason that a showing is to call the handler, if it is one.
func (a *auditor) allow(s *story, k attemptKey, w showing) {
	g := a.group(k)
	g.reasons = slices.DeleteFunc(g.reasons, func(r cause) bool { return r.life != a.life && r.life.consumer == a.life.consumer })
	if len(s.showings) == 0 {
		g.shown++
		why := firstCall
		if g.shown > 1 {
			why = FollowsAnother
		}
		a.give(g, s, why, w)
		return
	}
	last := s.showings[len(s.showings)-1]
	before, now := &a.conns[last.conn], &a.conns[w.conn]
	switch {
	case before.life != a.life:
		a.give(g, s, a.whyNextLife(s, last, before), w)
	case last.conn == w.conn:
		if s.published > 1 {
			a.give(g, s, CopySentTwice, w)
		}
	case !now.present:
		a.give(g, s, SessionLost, w)
	default:
		a.allowOnNext(s, g, w)
	}
}

func (a *auditor) give(g *group, s *story, why Reason, w showing) {
	g.reasons = append(g.reasons, cause{why: why, life: a.life, conn: w.conn, place: w.place, load: a.loadBefore(s, w)})
	s.chained = len(s.showings)
}

// loadBefore is how much was in work when the connection was lost that had shown a parcel last, surely.
func (a *auditor) loadBefore(s *story, w showing) (load int) {
	for _, earlier := range s.showings[min(s.chained, len(s.showings)):] {
		if c := &a.conns[earlier.conn]; earlier.conn != w.conn && c.life == a.life && (load == 0 || earlier.acked || earlier.place < c.lastRead) {
			load = c.open
		}
	}
	return load
}

// allowOnNext is allow for a parcel that an earlier connection of this process has shown.
func (a *auditor) allowOnNext(s *story, g *group, w showing) {
	chain := s.showings[s.chained:]
	seen, acked := chain[0], false // what was in the last Read of a connection was perhaps not seen
	for _, earlier := range chain {
		acked = acked || earlier.acked
		if earlier.acked || earlier.place < a.conns[earlier.conn].lastRead {
			seen = earlier
		}
	}
	now := &a.conns[w.conn]
	qos2 := a.stream.qos == 2 && !now.second
	switch {
	case s.published > 1: // there are two of it at the server, and the wire does not tell them apart
		a.give(g, s, CopySentTwice, w)
	case now.index > a.conns[seen.conn].index+1:
		a.give(g, s, EarlySecondCut, w)
	case acked && !qos2: // at QoS 2 what was answered by PUBREC is known until it is released
		a.give(g, s, AckOnLostWire, w)
	case now.misfit:
		a.give(g, s, Misfit, w)
	}
}

// fits notes whether a connection shows in their order what the one before it had left. If it does not, the session is not the one that the process
// knew, and nothing of it is joined any more.
func (a *auditor) fits(c *connection, w showing, s *story) {
	before := a.connBefore(w.conn)
	if before == nil || !c.present || c.misfit || !c.order[w.place].dup {
		return
	}
	for before.oldest < len(before.order) {
		if p := &before.order[before.oldest]; !p.acked && !p.foreign && !p.again {
			break
		}
		before.oldest++
	}
	var last *showing
	for i := len(s.showings) - 1; i >= 0 && last == nil; i-- {
		if &a.conns[s.showings[i].conn] == before {
			last = &s.showings[i]
		}
	}
	switch {
	case last == nil: // the one before did not show it: the server had sent it into the cut, or earlier
		c.misfit = before.oldest < int(before.lastRead)
	case !last.acked:
		c.misfit = int(last.place) != before.oldest && before.oldest < int(before.lastRead)
		before.order[last.place].again = true
	}
}

// whyNextLife explains a parcel that comes again in another process.
func (a *auditor) whyNextLife(s *story, last showing, c *connection) Reason {
	l := c.life
	switch {
	case l.consumer != a.life.consumer:
		if s.published > 1 {
			return CopySentTwice
		}
		return Unexplained
	case l.ended != Terminate:
		return ProcessKilled
	case l.unclean, !c.parted, !c.orderly, c.at >= l.told:
		return ProcessStopped
	case last.acked && a.stream.qos == 2 && !c.second:
		return ServerRepeated
	case last.acked:
		return Unexplained
	}
	for _, w := range s.showings[s.chained:] {
		if w.acked {
			return ProcessStopped // on a connection before, and it was still undecided what it was
		}
	}
	for _, p := range c.order[:last.place] {
		if !p.acked {
			return ProcessStopped // acknowledgements leave in their turn
		}
	}
	for i := range l.events {
		if e := &l.events[i]; e.kind == eventReturned && e.unit == c.order[last.place].unit && e.code == returnedAck {
			return Unexplained
		}
	}
	return ProcessStopped
}

// why uses up a reason.
func (a *auditor) why(g *group, k attemptKey) cause {
	if a.stream.held() && k.attempt > 1 { // it fails again, in memory
		before := attemptKey{k.unit, k.attempt - 1}
		if _, runs := a.running[before]; runs || a.failed[before] {
			return cause{}
		}
		return cause{why: Unexplained}
	}
	i := slices.IndexFunc(g.reasons, func(r cause) bool { return r.life == a.life })
	if i < 0 {
		return cause{why: Unexplained}
	}
	c := g.reasons[i]
	g.reasons = slices.Delete(g.reasons, i, i+1)
	switch {
	case g.calls == 1: // in the life before it was not handled
		return cause{}
	case c.why == firstCall && a.story(a.conns[c.conn].order[c.place].parcelKey).published > 1: // it came to two members of a group
		c.why = CopySentTwice
	case c.why == firstCall && g.shown > 1: // the other copy was first
		c.why = FollowsAnother
	case c.why == firstCall: // it was called before it was shown
		c.why = Unexplained
	case c.why == AckOnLostWire && a.provedOld(c):
		c.why = AckWithWorkBehind
	}
	return c
}

// provedOld says that a parcel which had been acknowledged on the connection before was handled again although the process could tell what it was: what
// had stood behind it there, unacknowledged, had come again behind it.
func (a *auditor) provedOld(why cause) bool {
	now := &a.conns[why.conn]
	before := a.connBefore(why.conn)
	if before == nil {
		return false
	}
	at := make(map[parcelKey]int, len(before.order))
	for i, p := range before.order {
		at[p.parcelKey] = i
	}
	m := now.order[why.place]
	mine, known := at[m.parcelKey]
	if !known {
		return false
	}
	// What was in the last Read was perhaps not seen, or not yet.
	for i := int(why.place); i < int(now.lastRead) && i < receiveMaximum-1; i++ {
		p := now.order[i]
		if p.foreign {
			return false // a marker expires, so it is a new one always
		}
		then, known := at[p.parcelKey]
		if !p.dup || !known {
			return false
		}
		if w := before.order[then]; then > mine && then < int(before.lastRead) && !w.acked {
			return true
		}
	}
	return false
}

// connBefore is the connection before one, or nil.
func (a *auditor) connBefore(conn int32) *connection {
	if before := a.conns[conn].before; before >= 0 {
		return &a.conns[before]
	}
	return nil
}

// again counts a call that was not the first.
func (a *auditor) again(g *group, k attemptKey, c cause) {
	a.Twice[c.why]++
	if c.why.byCut() {
		load := 0
		if k.attempt == 1 {
			load = c.load
		}
		s := a.share(load)
		s.add(c.why)
		if s == &a.FullLoad {
			a.example("handled again at full load, %s: %s, call %d, process %d of %s; %s\n      %s", c.why, a.describe(k.unit), g.calls,
				a.life.number, a.life.consumer, a.tell(&a.parcels[k.unit]), a.history(k.unit))
		}
	}
	const format = "handled again, %s: %s attempt %d, call %d, process %d of %s; %s\n      %s"
	if (c.why == Unexplained || c.why == AckWithWorkBehind) && a.wants(format) {
		a.example(format, c.why, a.describe(k.unit), k.attempt, g.calls,
			a.life.number, a.life.consumer, a.tell(&a.parcels[k.unit]), a.history(k.unit))
	}
}
