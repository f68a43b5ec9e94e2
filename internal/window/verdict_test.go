package window

import (
	"fmt"
	"strings"
)

// kind is why a message may be handled twice: what DESIGN.md lists at the end of "Redelivery", and no more.
type kind uint8

const (
	none           kind = iota
	undocumented        // a fault
	unproved            // acknowledged, and something open or blocked behind it should have proved it
	acknowledgedUp      // acknowledged on the lost connection, with nothing open or blocked behind it
	cutEarly            // not shown by the epoch before, which was cut early
	expiry              // carries an expiry, or stood before a message that does
	killed              // its process was killed
	restoredServer      // an older state of the server came back
	full                // the server overran the window
	waited              // nothing proved it for five seconds
	again               // HandleAgain
	reused              // the server reused an expired message's identifier on a live connection
	kinds
)

func (k kind) String() string {
	return [...]string{
		"none", "undocumented", "unproved", "acknowledged with nothing behind", "cut early", "expiry", "killed", "restored",
		"overrun", "waited", "HandleAgain", "identifier reused after expiry",
	}[k]
}

// excuse says why m, which has just been shown again, may be handled again. It asks the world, not the window.
func (w *world) excuse(m *message) kind {
	switch {
	case m.expires:
		return expiry
	case w.everTainted:
		return reused
	case w.handleAgain && m.qos == 1, w.handleAgain && m.holding != 0 && m.shown < w.epoch:
		return again
	case m.process < w.process:
		return killed
	case m.restores < w.restores:
		return restoredServer
	case m.shown+1 < w.epoch:
		return cutEarly
	case m.shown == w.epoch || m.qos == 2 || m.holding == m.shown:
		return undocumented
	}
	for i := m.id + 1; i < len(w.messages); i++ {
		if o := &w.messages[i]; o.qos == 1 && !o.expires && o.shown+1 == w.epoch && o.holding == o.shown &&
			o.process == w.process && o.restores == w.restores {
			return unproved
		}
	}
	return acknowledgedUp
}

// quiet says that nothing will happen any more unless something happens to the connection.
func (w *world) quiet() bool {
	if w.connection != up || len(w.toClient)+len(w.toServer) > 0 || w.canSend() || w.win.Due() {
		return false
	}
	for _, l := range w.lanes {
		if len(l) > 0 {
			return false
		}
	}
	return true
}

// checkQuiet checks that nothing is left behind when all has been done.
func (w *world) checkQuiet() {
	if w.win.Parked() > 0 {
		if w.restores == 0 && !w.handleAgain {
			// An honest server has shown by now what has to be shown.
			for _, m := range w.messages {
				if m.expires {
					return
				}
			}
			w.fail("STALL: %d are parked until their time is over", w.win.Parked())
		}
		return
	}
	switch {
	case w.everTainted:
	case len(w.server.inflight)+len(w.server.queue) > 0:
		w.fail("STALL: in flight %v, queued %v", w.server.inflight, w.server.queue)
	case w.win.Unacknowledged() != 0 || w.win.live[1].len+w.win.live[2].len+len(w.win.pubcomps) != 0:
		w.fail("%d are left unacknowledged", w.win.Unacknowledged())
	case len(w.expect[1])+len(w.expect[2]) > 0:
		w.fail("never acknowledged: %v", w.expect)
	}
	strict := w.restores == 0 && w.losses == 0 && !w.handleAgain
	for _, m := range w.messages[:w.published] {
		strict = strict && !m.expires
		if !m.settled && !w.unread && !w.everTainted && (!m.excused || m.shown != 0 && m.process == w.process) {
			w.fail("LOSS: message %d was never handled", m.id)
		}
	}
	if !strict {
		return
	}
	if n := w.win.unseen[1].len + w.win.unseen[2].len; n > 0 {
		w.fail("%d are still thought to be in flight", n)
	}
	for id := uint16(1); id <= w.identifiers; id++ {
		if s := w.win.slot(id); s.memory != nothing && s.memory != acknowledged {
			w.fail("identifier %d is still remembered: %d", id, s.memory)
		}
	}
}

// check is run after every step.
func (w *world) check() error {
	if err := audit(w.win, w.identifiers); err != nil {
		w.fail("the ledger contradicts itself: %w", err)
	}
	if w.connection == up && w.serverMaximum <= w.receiveMaximum && w.tainted == 0 && w.win.Unacknowledged() > len(w.server.inflight) {
		w.fail("%d unacknowledged, where the server has %d", w.win.Unacknowledged(), len(w.server.inflight))
	}
	if w.quiet() {
		w.checkQuiet()
	}
	return w.err
}

// tally counts what was explored.
type tally struct {
	runs, steps, epochs, cuts, sessionsLost, restores, kills int
	lostAcks, lostFrames, cutParked                          int
	proved, released, stale                                  int
	arrivals                                                 [Repeated + 1]int
	duplicates                                               [kinds]int
	unhelped                                                 int // lost because an identifier was reused on a live connection after expiry
	unread                                                   int // lost because a restored server's CONNACK was never read
}

func (t *tally) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d runs, %d steps, %d epochs, %d cuts (with %d acknowledgements and %d frames on the wire, %d parked), "+
		"%d sessions lost, %d restores, %d kills\n", t.runs, t.steps, t.epochs, t.cuts, t.lostAcks, t.lostFrames, t.cutParked,
		t.sessionsLost, t.restores, t.kills)
	fmt.Fprintf(&b, "arrivals: %d fresh, %d adopted, %d parked, %d answered, %d repeated; %d parked were proved, %d waited in vain; %d stale settlements\n",
		t.arrivals[Fresh], t.arrivals[Adopted], t.arrivals[Parked], t.arrivals[Answered], t.arrivals[Repeated], t.proved, t.released, t.stale)
	b.WriteString("handled again:")
	for k := acknowledgedUp; k < kinds; k++ {
		fmt.Fprintf(&b, " %d %v;", t.duplicates[k], k)
	}
	fmt.Fprintf(&b, " beyond help: %d by reuse after expiry, %d by an unread CONNACK of a restored server", t.unhelped, t.unread)
	return b.String()
}
