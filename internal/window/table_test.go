package window

import "testing"

// transitions has every line of the table in doc.go.
var transitions = []struct {
	name string
	run  func(l *ledger)
}{
	{"Arrive, nothing known", func(l *ledger) {
		l.fresh("a", q1(1, 'a'))
		l.is("a", "open live")
		l.fresh("b", q2(2, 'a'))
		l.is("b", "open live")
	}},
	{"Arrive with DUP, nothing known", func(l *ledger) {
		l.fresh("a", resent(q1(1, 'a')))
		l.fresh("b", resent(q2(2, 'a')))
	}},
	{"Arrive, same as an open one", func(l *ledger) {
		l.fresh("a", q1(1, 'a'))
		l.begin(true)
		l.is("a", "open unseen")
		l.arrive("a'", resent(q1(1, 'a')), Adopted)
		l.is("a", "open live")
		l.is("a'", "gone")
		l.settle("a", due)
		l.acks("A1")
	}},
	{"Arrive, same as a settled one", func(l *ledger) {
		l.fresh("a", q2(1, 'a'))
		l.w.End()
		l.settle("a", notDue)
		l.begin(true)
		l.is("a", "settled unseen")
		l.arrive("a'", resent(q2(1, 'a')), Adopted)
		l.is("a", "settled live")
		l.acks("R1")
	}},
	{"Arrive, same as one acknowledged before", func(l *ledger) {
		l.parked()
		l.is("a'", "parked live")
		l.acks("")
	}},
	{"Arrive, same as one acknowledged before, nothing unseen", func(l *ledger) {
		l.fresh("a", q1(1, 'a'))
		l.settle("a", due)
		l.acks("A1")
		l.begin(true)
		l.fresh("a'", resent(q1(1, 'a')))
		l.is("a'", "open live")
	}},
	{"Arrive, same as one whose PUBREC is out", func(l *ledger) {
		l.fresh("a", q2(1, 'a'))
		l.settle("a", due)
		l.acks("R1")
		l.begin(true)
		l.arrive("a'", resent(q2(1, 'a')), Answered)
		l.is("a'", "answered live")
		l.acks("R1")
		l.is("a'", "gone")
		l.w.Pubrel(1)
		l.acks("C1")
	}},
	{"Arrive, same as one whose PUBREC is out, on one connection", func(l *ledger) {
		l.fresh("a", q2(1, 'a'))
		l.settle("a", due)
		l.acks("R1")
		l.arrive("a'", resent(q2(1, 'a')), Answered)
		l.acks("R1")
	}},
	{"Arrive, repeated while open", func(l *ledger) {
		l.fresh("a", q1(1, 'a'))
		l.arrive("a'", resent(q1(1, 'a')), Repeated)
		l.is("a", "open live")
	}},
	{"Arrive, repeated while settled", func(l *ledger) {
		l.fresh("a", q1(1, 'a'))
		l.fresh("b", q1(2, 'a'))
		l.settle("b", notDue)
		l.arrive("b'", resent(q1(2, 'a')), Repeated)
		l.is("b", "settled live")
	}},
	{"Arrive, repeated while parked", func(l *ledger) {
		l.parked()
		l.arrive("a''", resent(q1(1, 'a')), Repeated)
		l.is("a'", "parked live")
	}},
	{"Arrive, repeated after acknowledgement", func(l *ledger) {
		l.fresh("a", q1(1, 'a'))
		l.settle("a", due)
		l.acks("A1")
		l.arrive("a'", resent(q1(1, 'a')), Repeated)
		l.acks("")
	}},
	{"Arrive, another message over an open one", func(l *ledger) {
		l.fresh("a", q1(1, 'a'))
		l.fresh("b", q1(1, 'b'))
		l.is("a", "gone")
		l.settle("a", stale)
		l.settle("b", due)
		l.acks("A1")
	}},
	{"Arrive, the same bytes without DUP over an open one", func(l *ledger) {
		l.fresh("a", q1(1, 'a'))
		l.begin(true)
		l.fresh("b", q1(1, 'a'))
		l.is("a", "gone")
		l.is("b", "open live")
	}},
	{"Arrive, another QoS over an open one", func(l *ledger) {
		l.fresh("a", q1(1, 'a'))
		l.begin(true)
		l.fresh("b", resent(q2(1, 'a')))
		l.is("a", "gone")
		l.settle("b", due)
		l.acks("R1")
	}},
	{"Arrive, another message over a parked one", func(l *ledger) {
		l.parked()
		l.arrive("c", q1(1, 'c'), Fresh, "a'", "c") // it may have been new: it is handled
		l.is("a'", "gone")
	}},
	{"parked to settled: an unseen one is adopted", func(l *ledger) {
		l.parked()
		l.arrive("b'", resent(q1(2, 'a')), Adopted)
		l.is("a'", "settled live")
		l.acks("A1")
		l.settle("b", due)
		l.acks("A2")
	}},
	{"parked to open: DUP = 0", func(l *ledger) {
		l.parked()
		l.arrive("c", q1(3, 'a'), Fresh, "a'", "c")
		l.is("a'", "open live")
	}},
	{"parked to open: a frame that matches nothing", func(l *ledger) {
		l.parked()
		l.arrive("c", resent(q1(3, 'a')), Fresh, "a'", "c")
	}},
	{"parked to open: nothing unseen left", func(l *ledger) {
		l.parked()
		l.arrive("b'", q1(2, 'a'), Fresh, "a'", "b'")
		l.is("b", "gone")
	}},
	{"parked beyond Receive Maximum: the server exceeds it", func(l *ledger) {
		l.w = New(Config{ReceiveMaximum: 1})
		l.begin(false)
		for id, name := range []string{"a", "b", "c"} {
			l.fresh(name, q1(uint16(id+1), 'a'))
		}
		l.settle("a", due)
		l.settle("b", notDue)
		l.acks("A1 A2")
		l.begin(true)
		l.arrive("a'", resent(q1(1, 'a')), Parked)
		l.arrive("b'", resent(q1(2, 'a')), Parked)
		l.arrive("c'", resent(q1(3, 'a')), Adopted) // so a' and b' are what was acknowledged
		l.acks("A1 A2")
	}},
	{"parked to open: 5 s", func(l *ledger) {
		l.parked()
		l.due(l.w.ReleaseParked(l.epoch-1, nil))
		l.is("a'", "parked live")
		l.due(l.w.ReleaseParked(l.epoch, nil), "a'")
		l.is("a'", "open live")
		l.due(l.w.ReleaseParked(l.epoch, nil))
	}},
	{"5 s after the end", func(l *ledger) {
		l.parked()
		l.w.End()
		l.due(l.w.ReleaseParked(l.epoch, nil))
	}},
	{"Settle, in order", func(l *ledger) {
		l.fresh("a", q1(1, 'a'))
		l.fresh("b", q1(2, 'a'))
		l.settle("b", notDue)
		l.is("b", "settled live")
		l.acks("")
		l.settle("a", due)
		l.settle("a", stale)
		l.acks("A1 A2")
		l.is("a", "gone")
		l.settle("a", stale)
	}},
	{"Settle, a QoS does not wait for the other", func(l *ledger) {
		l.fresh("a", q1(1, 'a'))
		l.fresh("b", q2(2, 'a'))
		l.settle("b", due)
		l.acks("R2")
	}},
	{"TakeAcks, another epoch", func(l *ledger) {
		l.fresh("a", q1(1, 'a'))
		l.settle("a", due)
		if b := l.w.TakeAcks(l.epoch-1, nil); len(b) > 0 {
			l.t.Fatal("acknowledged on another connection")
		}
		l.w.End()
		l.acks("")
		l.is("a", "settled live")
	}},
	{"Pubrel, after PUBREC", func(l *ledger) {
		l.fresh("a", q2(1, 'a'))
		l.settle("a", due)
		l.acks("R1")
		l.w.Pubrel(1)
		l.acks("C1")
		l.w.Pubrel(1)
		l.acks("C1!")
	}},
	{"Pubrel, of an earlier process", func(l *ledger) {
		l.w.Pubrel(7)
		l.acks("C7!")
	}},
	{"Pubrel, over an open one", func(l *ledger) {
		l.fresh("a", q2(1, 'a'))
		l.w.Pubrel(1)
		l.is("a", "gone")
		l.settle("a", stale)
		l.acks("C1!")
	}},
	{"Pubrel, cut before PUBCOMP", func(l *ledger) {
		l.fresh("a", q2(1, 'a'))
		l.settle("a", due)
		l.acks("R1")
		l.w.Pubrel(1)
		l.begin(true)
		l.acks("")
		l.w.Pubrel(1)
		l.acks("C1!")
	}},
	{"PUBCOMP before PUBREC under one identifier", func(l *ledger) {
		l.w.Pubrel(1)
		l.fresh("a", q2(1, 'a'))
		l.settle("a", due)
		l.acks("C1! R1")
	}},
	{"Begin, live to unseen to gone", func(l *ledger) {
		l.fresh("a", q1(1, 'a'))
		l.begin(true)
		l.is("a", "open unseen")
		l.begin(true)
		l.is("a", "gone")
		l.settle("a", stale)
	}},
	{"Begin, session unknown", func(l *ledger) {
		l.fresh("a", q1(1, 'a'))
		l.fresh("b", q2(2, 'a'))
		l.settle("b", due)
		l.acks("R2")
		l.begin(false)
		l.is("a", "gone")
		l.w.Pubrel(2)
		l.acks("C2!")
		l.fresh("a'", resent(q1(1, 'a')))
		l.fresh("b'", resent(q2(2, 'a')))
	}},
	{"Begin, parked to acknowledged", func(l *ledger) {
		l.parked()
		l.begin(true)
		l.is("a'", "gone")
		l.is("b", "gone") // it was unseen for a whole epoch
		l.fresh("a''", resent(q1(1, 'a')))
	}},
	{"Begin, parked to acknowledged and parked again", func(l *ledger) {
		l.fresh("a", q1(1, 'a'))
		l.fresh("b", q1(2, 'a'))
		l.fresh("c", q1(3, 'a'))
		l.settle("a", due)
		l.acks("A1")
		l.begin(true)
		l.arrive("a'", resent(q1(1, 'a')), Parked)
		l.arrive("b'", resent(q1(2, 'a')), Adopted)
		l.settle("b", notDue)
		l.acks("A1 A2") // and the write fails
		l.arrive("c'", resent(q1(3, 'a')), Adopted)
		l.begin(true)
		l.arrive("a''", resent(q1(1, 'a')), Parked)
		l.arrive("b''", resent(q1(2, 'a')), Parked)
		l.arrive("c''", resent(q1(3, 'a')), Adopted)
		l.acks("A1 A2")
	}},
	{"Begin, answered to PUBREC is out", func(l *ledger) {
		l.fresh("a", q2(1, 'a'))
		l.fresh("b", q2(2, 'a'))
		l.settle("a", due)
		l.acks("R1")
		l.arrive("a'", resent(q2(1, 'a')), Answered) // behind b, which was sent after it
		l.begin(true)
		l.is("a'", "gone")
		l.arrive("a''", resent(q2(1, 'a')), Answered)
		l.arrive("b'", resent(q2(2, 'a')), Adopted)
		l.acks("R1")
	}},
	{"Begin, epochs need not be consecutive", func(l *ledger) {
		l.fresh("a", q1(1, 'a'))
		l.fresh("b", q1(2, 'a'))
		l.settle("a", due)
		l.acks("A1")
		l.epoch += 5
		l.begin(true)
		l.arrive("a'", resent(q1(1, 'a')), Parked)
		l.arrive("b'", resent(q1(2, 'a')), Adopted)
		l.acks("A1")
	}},
}

func TestTransitions(t *testing.T) {
	for _, test := range transitions {
		t.Run(test.name, func(t *testing.T) {
			l := newLedger(t, Config{})
			l.begin(false)
			test.run(l)
		})
	}
}
