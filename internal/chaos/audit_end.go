package chaos

import (
	"fmt"
	"slices"
	"strings"
)

// close looks at what is left when all events have been taken in.
func (a *auditor) close() {
	for _, l := range a.page.letters {
		a.letters[l.unit]++
	}
	ackedBy := make([]bool, len(a.units))
	exhausted := make([]bool, len(a.units))
	for _, l := range a.lives {
		for i := range l.events {
			e := &l.events[i]
			switch {
			case e.kind == eventReturned && e.code == returnedAck:
				ackedBy[e.unit] = true
			case e.kind == eventReturned && (e.code == returnedReject || e.attempt >= maxAttempts), e.kind == eventBegun && e.attempt >= maxAttempts:
				exhausted[e.unit] = true
			}
		}
	}
	handled := make(map[uint32]int) // by message: sendings that were
	for n := range a.units {
		unit := uint32(n)
		u := &a.units[n]
		switch u.state {
		case accepted:
			a.Messages++
		case nowhere:
			a.Nowhere++
		}
		s := &a.parcels[n]
		f := fateOf(a.seed, a.stream, u.message)
		if u.state == accepted && !ackedBy[n] && a.letters[n] == 0 {
			a.Lost++
			a.example("lost: %s; %s", a.describe(unit), a.tell(s))
		}
		a.left(parcelKey{unit: unit}, s)
		if a.called[n] > 0 {
			handled[u.message]++
		}
		a.dead(unit, f, exhausted[n])
	}
	for _, times := range handled {
		a.TwiceBySend += times - 1
	}
	for k, s := range a.copies {
		if s.stored && s.published > 0 {
			a.Copies++
		}
		if s.stored && len(s.showings) == 0 {
			a.CopiesLost++
			a.example("a retry copy that was confirmed never came back: %s", a.describe(k.unit))
		}
		a.left(k, s)
	}
}

// left checks that a parcel was acknowledged where it was shown last, to each consumer that has seen it.
func (a *auditor) left(k parcelKey, s *story) {
	var last [2]string
	for _, w := range slices.Backward(s.showings) {
		consumer := a.conns[w.conn].life.consumer
		if consumer == last[0] || consumer == last[1] {
			continue
		}
		last[0], last[1] = consumer, last[0]
		if !w.acked {
			a.Left++
			a.example("never acknowledged: %s, copy %x; %s", a.describe(k.unit), k.copy, a.tell(s))
		}
	}
}

func (a *auditor) dead(unit uint32, f fate, exhausted bool) {
	n := a.letters[unit]
	if n > 0 {
		a.Dead++
	}
	switch {
	case n == 0 && f.dies() && (a.units[unit].state == accepted || a.called[unit] > 0):
		a.DeadMissing++
		a.example("no dead letter: %s; %s", a.describe(unit), a.tell(&a.parcels[unit]))
	case n > 0 && !exhausted:
		a.DeadWrong++
		a.example("a dead letter of what was not rejected: %s", a.describe(unit))
	case n > 1:
		a.DeadAgain += n - 1
		redelivered := 0
		for _, l := range a.page.letters {
			if l.unit == unit && l.again {
				redelivered++
			}
		}
		if n > a.sent[unit]+redelivered {
			a.DeadUnasked++
			a.example("%d dead letters of %d publishes: %s", n, a.sent[unit], a.describe(unit))
		}
	}
}

func (a *auditor) describe(unit uint32) string {
	u := &a.units[unit]
	return fmt.Sprintf("%s %d (message %d, %s)", a.stream.name, unit, u.message, fateOf(a.seed, a.stream, u.message))
}

// history is all that is known of a message, in the consumers' own words.
func (a *auditor) history(unit uint32) string {
	var b strings.Builder
	u := &a.units[unit]
	fmt.Fprintf(&b, "state %d at %d", u.state, u.at)
	for _, l := range a.lives {
		fmt.Fprintf(&b, "\n      %s process %d, ended by %q:", l.consumer, l.number, l.ended)
		for i := range l.events {
			e := &l.events[i]
			switch e.kind {
			case eventConnected, eventLost, eventParted, eventConfirmed:
				continue
			}
			if e.unit == unit {
				fmt.Fprintf(&b, "\n        %s", e)
			}
		}
	}
	return b.String()
}

// tell tells what the wire showed.
func (a *auditor) tell(s *story) string {
	var b strings.Builder
	b.WriteString("shown")
	for _, w := range s.showings {
		c := &a.conns[w.conn]
		kind, more := "main", ""
		if c.second {
			kind = "second"
		}
		if c.order[w.place].dup {
			more += ", DUP"
		}
		if w.acked {
			more += ", acknowledged"
		}
		fmt.Fprintf(&b, " [%s process %d, %s connection %d, place %d of %d, identifier %d%s]", c.life.consumer, c.life.number, kind, c.index, w.place, len(c.order), w.id, more)
	}
	return b.String()
}
