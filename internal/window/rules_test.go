package window

import "testing"

// rules are the rules of DESIGN.md, "Redelivery" and "Rules that never bend", and the field reports that the window answers for.
var rules = []struct {
	name   string
	config Config
	run    func(l *ledger)
}{
	{name: "rule that never bends 2, arrival order by QoS", run: func(l *ledger) {
		l.fresh("a", q1(1, 'a'))
		l.fresh("b", q2(2, 'b'))
		l.fresh("c", q1(3, 'c'))
		l.fresh("d", q2(4, 'd'))
		l.settle("d", notDue)
		l.settle("c", notDue)
		l.acks("")
		l.settle("b", due)
		l.acks("R2 R4")
		l.settle("a", due)
		l.acks("A1 A3")
	}},
	{name: "rule that never bends 9, a lost session loses nothing that we have", run: func(l *ledger) {
		l.fresh("a", q1(1, 'a'))
		l.begin(false)
		// It is nobody's to acknowledge any more, and still its owner's to handle.
		l.settle("a", stale)
		l.acks("")
	}},
	{name: "redelivery 1, the whole frame but DUP", run: func(l *ledger) {
		l.fresh("a", q1(1, 'a'))
		l.fresh("b", q1(2, 'b'))
		l.begin(true)
		l.arrive("a'", resent(q1(1, 'a')), Adopted)
		l.fresh("b'", resent(q1(2, 'c'))) // the identifier alone proves nothing
		l.settle("a", due)
		l.acks("A1")
	}},
	{name: "redelivery 1, a running handler settles the new arrival", run: func(l *ledger) {
		l.fresh("a", q1(1, 'a'))
		l.w.End()
		l.begin(true)
		l.settle("a", notDue) // before it was shown: nothing to acknowledge it to
		l.acks("")
		l.arrive("a'", resent(q1(1, 'a')), Adopted)
		l.acks("A1")
	}},
	{name: "redelivery 2, parked ones are handled again before what comes after", run: func(l *ledger) {
		l.parked()
		l.arrive("c", resent(q1(3, 'c')), Fresh, "a'", "c")
	}},
	{name: "redelivery 3, an arrival erases what was known under its identifier", run: func(l *ledger) {
		l.fresh("a", q1(1, 'a'))
		l.settle("a", due)
		l.acks("A1")
		l.fresh("b", q1(1, 'b'))
		l.fresh("c", q1(2, 'c'))
		l.begin(true)
		l.fresh("x", resent(q1(1, 'a'))) // not parked: the memory of a went when b came
		l.is("b", "gone")
	}},
	{name: "redelivery 4, an expiry is never adopted", run: func(l *ledger) {
		l.fresh("a", expiring(q1(1, 'a')))
		l.begin(true)
		l.fresh("a'", resent(expiring(q1(1, 'a'))))
		l.settle("a", stale)
		l.settle("a'", due)
		l.acks("A1")
	}},
	{name: "redelivery 4, an expiry is never parked", run: func(l *ledger) {
		l.fresh("a", expiring(q1(1, 'a')))
		l.fresh("b", q1(2, 'b'))
		l.settle("a", due)
		l.acks("A1")
		l.begin(true)
		l.fresh("a'", resent(expiring(q1(1, 'a'))))
	}},
	{name: "redelivery 4, an expiry is not answered for", run: func(l *ledger) {
		l.fresh("a", expiring(q2(1, 'a')))
		l.settle("a", due)
		l.acks("R1")
		l.begin(true)
		l.fresh("a'", resent(expiring(q2(1, 'a'))))
	}},
	{name: "redelivery 4, an expiry proves nothing and refutes nothing", run: func(l *ledger) {
		l.fresh("a", expiring(q1(1, 'a')))
		l.fresh("b", q1(2, 'b'))
		l.begin(true)
		l.fresh("a'", resent(expiring(q1(1, 'a'))))
		l.arrive("b'", resent(q1(2, 'b')), Adopted)
	}},
	{name: "redelivery 4, what is left of an expired one proves nothing", run: func(l *ledger) {
		l.fresh("a", q1(1, 'a'))
		l.fresh("b", expiring(q1(2, 'b')))
		l.settle("a", due)
		l.acks("A1")
		l.begin(true)
		l.fresh("a'", resent(q1(1, 'a'))) // b is no reason to park it
	}},
	{name: "redelivery 4, one that is new says that the redelivery is over", run: func(l *ledger) {
		l.fresh("a", q1(1, 'a'))
		l.begin(true)
		l.fresh("b", expiring(q1(2, 'b')))
		l.fresh("a'", resent(q1(1, 'a')))
	}},
	{name: "redelivery 5, the first one is not the oldest", run: func(l *ledger) {
		l.fresh("a", q1(1, 'a'))
		l.fresh("b", q1(2, 'b'))
		l.fresh("c", q2(3, 'c'))
		l.begin(true)
		l.fresh("b'", resent(q1(2, 'b')))
		l.fresh("a'", resent(q1(1, 'a')))
		l.fresh("c'", resent(q2(3, 'c'))) // nothing is adopted, at either QoS
	}},
	{name: "redelivery 5, the first one is new", run: func(l *ledger) {
		l.fresh("a", q1(1, 'a'))
		l.begin(true)
		l.fresh("b", q1(2, 'b'))
		l.fresh("a'", resent(q1(1, 'a')))
	}},
	{name: "redelivery 5, the first one was acknowledged", run: func(l *ledger) {
		l.fresh("a", q1(1, 'a'))
		l.fresh("b", q1(2, 'b'))
		l.settle("a", due)
		l.acks("A1")
		l.begin(true)
		l.arrive("a'", resent(q1(1, 'a')), Parked)
		l.arrive("b'", resent(q1(2, 'b')), Adopted)
	}},
	{name: "redelivery 5, a later one is left out", run: func(l *ledger) {
		for i, name := range []string{"a", "b", "c"} {
			l.fresh(name, q1(uint16(i+1), 'a'))
		}
		l.begin(true)
		l.arrive("a'", resent(q1(1, 'a')), Adopted)
		l.fresh("c'", resent(q1(3, 'a'))) // b was sent before c, and was not acknowledged
	}},
	{name: "redelivery 5, PUBREL for what we have not acknowledged", run: func(l *ledger) {
		l.fresh("a", q1(1, 'a'))
		l.fresh("b", q1(2, 'a'))
		l.begin(true)
		l.w.Pubrel(1)
		l.acks("C1!")
		l.fresh("b'", resent(q1(2, 'a')))
	}},
	{name: "redelivery 5, what was acknowledged is remembered beyond what the window ever held", run: func(l *ledger) {
		// Handled as they came, so that the window never held two; and none of the PUBACKs arrived.
		for i, name := range []string{"a", "b", "c"} {
			l.fresh(name, q1(uint16(i+1), 'a'))
			l.settle(name, due)
			l.acks([]string{"A1", "A2", "A3"}[i])
		}
		l.fresh("d", q1(4, 'a'))
		l.begin(true)
		for i, name := range []string{"a'", "b'", "c'"} {
			l.arrive(name, resent(q1(uint16(i+1), 'a')), Parked)
		}
		l.arrive("d'", resent(q1(4, 'a')), Adopted)
		l.acks("A1 A2 A3")
	}},
	{name: "redelivery 6, what an epoch did not show is forgotten", run: func(l *ledger) {
		l.fresh("a", q1(1, 'a'))
		l.fresh("b", q1(2, 'b'))
		l.settle("a", due)
		l.acks("A1")
		l.begin(true) // cut before anything came
		l.begin(true)
		l.fresh("a'", resent(q1(1, 'a')))
		l.fresh("b'", resent(q1(2, 'b')))
	}},
	{name: "redelivery 7, PUBREC sent, across epochs", run: func(l *ledger) {
		l.fresh("a", q2(1, 'a'))
		l.settle("a", due)
		l.acks("R1")
		for _, name := range []string{"a1", "a2", "a3"} {
			l.begin(true)
			l.arrive(name, resent(q2(1, 'a')), Answered)
			l.acks("R1")
		}
		l.begin(true)
		l.w.Pubrel(1)
		l.acks("C1")
		l.fresh("b", resent(q2(1, 'a')))
	}},
	{name: "redelivery 7, another frame or DUP = 0 is a new message", run: func(l *ledger) {
		l.fresh("a", q2(1, 'a'))
		l.fresh("b", q2(2, 'b'))
		l.settle("a", due)
		l.settle("b", notDue) // a's is, and takes it along
		l.acks("R1 R2")
		l.fresh("c", resent(q2(1, 'c')))
		l.fresh("d", q2(2, 'b'))
	}},
	{name: "redelivery 7, forgotten when an epoch showed it by nothing", run: func(l *ledger) {
		l.fresh("a", q2(1, 'a'))
		l.settle("a", due)
		l.acks("R1")
		l.begin(true)
		l.begin(true)
		l.fresh("a'", resent(q2(1, 'a')))
	}},
	{name: "HandleAgain", config: Config{HandleAgain: true}, run: func(l *ledger) {
		l.fresh("a", q1(1, 'a'))
		l.fresh("b", q1(2, 'b'))
		l.fresh("c", q2(3, 'c'))
		l.settle("a", due)
		l.settle("c", due)
		l.acks("A1 R3")
		l.begin(true)
		l.fresh("x", resent(q2(4, 'x')))
		l.fresh("b'", resent(q1(2, 'b')))
		l.fresh("a'", resent(q1(1, 'a')))
		l.arrive("c'", resent(q2(3, 'c')), Answered) // exactly once needs no order
	}},
	{name: "A4 a late settlement hits no other message", run: func(l *ledger) {
		l.fresh("old", q1(1, 'a'))
		l.begin(false)
		l.fresh("new", q1(1, 'a'))
		l.settle("old", stale)
		l.acks("")
		l.settle("new", due)
		l.acks("A1")
	}},
	{name: "A5 acknowledged once on the new connection, and the next flows", config: Config{ReceiveMaximum: 1}, run: func(l *ledger) {
		l.fresh("a", q1(1, 'a'))
		l.w.End()
		l.settle("a", notDue)
		l.acks("")
		l.begin(true)
		l.arrive("a'", resent(q1(1, 'a')), Adopted)
		l.acks("A1")
		l.fresh("b", q1(1, 'b'))
		l.settle("b", due)
		l.acks("A1")
	}},
	{name: "B3 an overrun is taken in", config: Config{ReceiveMaximum: 1}, run: func(l *ledger) {
		l.fresh("a", q1(1, 'a'))
		if !l.w.Full() {
			l.t.Fatal("not full")
		}
		l.fresh("b", q1(2, 'b'))
		if n := l.w.Unacknowledged(); n != 2 {
			l.t.Fatalf("%d unacknowledged", n)
		}
	}},
	{name: "B8 repeated on a live connection, QoS 1", run: func(l *ledger) {
		l.fresh("a", q1(1, 'a'))
		l.arrive("a'", resent(q1(1, 'a')), Repeated)
		l.settle("a", due)
		l.acks("A1")
		l.arrive("a''", resent(q1(1, 'a')), Repeated)
		l.acks("")
		l.fresh("b", q1(1, 'a')) // DUP = 0: another one
	}},
	{name: "B8 repeated on a live connection, with an expiry", run: func(l *ledger) {
		l.fresh("a", expiring(q1(1, 'a')))
		l.arrive("a'", resent(expiring(q1(1, 'a'))), Repeated)
		l.settle("a", due)
		l.acks("A1")
		// A second PUBACK could meet another message under the identifier.
		l.arrive("a''", resent(expiring(q1(1, 'a'))), Repeated)
		l.acks("")
	}},
	{name: "B8 repeated on a live connection, QoS 2", run: func(l *ledger) {
		l.fresh("a", q2(1, 'a'))
		l.arrive("a'", resent(q2(1, 'a')), Repeated)
		l.settle("a", due)
		l.acks("R1")
		l.w.Pubrel(1)
		l.acks("C1")
	}},
	{name: "K4 what is settled leaves before the end, and nothing after", run: func(l *ledger) {
		l.fresh("a", q1(1, 'a'))
		l.fresh("b", q1(2, 'b'))
		l.fresh("c", q1(3, 'c'))
		l.settle("b", notDue)
		l.settle("a", due)
		if n := l.w.Settled(); n != 2 {
			l.t.Fatalf("%d settled, want 2", n)
		}
		l.acks("A1 A2")
		if n := l.w.Settled(); n != 0 {
			l.t.Fatalf("%d settled and not flushed", n)
		}
		l.w.End()
		l.settle("c", notDue)
		l.acks("")
	}},
	{name: "K5 four acknowledged and one runs", run: func(l *ledger) {
		names := []string{"1", "2", "3", "4", "5"}
		for i, name := range names {
			l.fresh(name, q1(uint16(i+1), 'a'))
		}
		l.settle("1", due)
		for _, name := range names[1:4] {
			l.settle(name, notDue) // the first takes them along
		}
		l.acks("A1 A2 A3 A4") // and Write fails
		l.begin(true)
		for i, name := range names[:4] {
			l.arrive(name+"'", resent(q1(uint16(i+1), 'a')), Parked)
		}
		l.arrive("5'", resent(q1(5, 'a')), Adopted)
		l.acks("A1 A2 A3 A4")
		l.settle("5", due)
		l.acks("A5")
	}},
	{name: "K11 the identifier was used again for the same bytes", run: func(l *ledger) {
		l.fresh("a", q1(1, 'a'))
		l.fresh("b", q1(2, 'b'))
		l.settle("a", due)
		l.acks("A1") // Write fails, and the server has it all the same; it sends x, which is lost
		l.begin(true)
		l.arrive("b'", resent(q1(2, 'b')), Adopted)
		l.fresh("x", resent(q1(1, 'a')))
		l.settle("b", due)
		l.settle("x", notDue)
		l.acks("A2 A1")
	}},
	{name: "K11 with nothing open", run: func(l *ledger) {
		l.fresh("a", q1(1, 'a'))
		l.settle("a", due)
		l.acks("A1")
		l.begin(true)
		l.fresh("x", resent(q1(1, 'a')))
	}},
	{name: "OldestAt", run: func(l *ledger) {
		if _, some := l.w.OldestAt(); some {
			l.t.Fatal("nothing is old")
		}
		l.fresh("a", q2(1, 'a'))
		l.fresh("b", q1(2, 'b'))
		if at, some := l.w.OldestAt(); at != 0 || !some {
			l.t.Fatal(at, some)
		}
		l.begin(true)
		if at, some := l.w.OldestAt(); at != 0 || !some {
			l.t.Fatal(at, some)
		}
		l.settle("a", notDue)
		l.arrive("a'", resent(q2(1, 'a')), Adopted)
		l.acks("R1")
		if at, some := l.w.OldestAt(); at != 1 || !some {
			l.t.Fatal(at, some)
		}
	}},
	{name: "OldestAt behind a newer head", run: func(l *ledger) {
		l.fresh("a", q1(1, 'a'))
		l.fresh("b", q1(2, 'b'))
		l.settle("a", due)
		l.acks("A1")
		l.begin(true)
		l.arrive("a'", resent(q1(1, 'a')), Parked)
		l.arrive("b'", resent(q1(2, 'b')), Adopted)
		if at, some := l.w.OldestAt(); at != 1 || !some { // b has waited since 1; a' came at 2
			l.t.Fatal(at, some)
		}
	}},
	{name: "Holds", run: func(l *ledger) {
		l.fresh("a", q1(1, 'a'))
		if !l.w.Holds(l.entries["a"]) {
			l.t.Fatal("not held")
		}
		l.begin(true)
		l.begin(true)
		if l.w.Holds(l.entries["a"]) {
			l.t.Fatal("held, and forgotten")
		}
	}},
	{name: "Behind and Heads", run: func(l *ledger) {
		l.fresh("a", q1(1, 'a'))
		l.fresh("b", q1(2, 'b'))
		l.fresh("c", q1(3, 'c'))
		l.fresh("d", q2(4, 'd'))
		l.settle("c", notDue)
		if n := l.w.Behind(); n != 1 {
			l.t.Fatalf("%d behind", n)
		}
		l.due(l.w.Heads(2), "a", "b")
		l.settle("a", due)
		if n := l.w.Behind(); n != 0 {
			l.t.Fatalf("%d behind what is due", n)
		}
		l.acks("A1")
		if n := l.w.Behind(); n != 1 {
			l.t.Fatalf("%d behind", n)
		}
		l.due(l.w.Heads(5), "b", "c")
	}},
}

func TestRules(t *testing.T) {
	for _, test := range rules {
		t.Run(test.name, func(t *testing.T) {
			l := newLedger(t, test.config)
			l.begin(false)
			test.run(l)
		})
	}
}
