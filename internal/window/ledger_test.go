package window

import (
	"fmt"
	"strings"
	"testing"

	"github.com/settlemq/settle/internal/wire"
)

// ledger drives a Window by hand. Entries have names.
type ledger struct {
	t       *testing.T
	w       *Window
	epoch   uint64
	entries map[string]*Entry
	names   map[*Entry]string
}

func newLedger(t *testing.T, c Config) *ledger {
	if c.ReceiveMaximum == 0 {
		c.ReceiveMaximum = 10
	}
	return &ledger{t: t, w: New(c), entries: map[string]*Entry{}, names: map[*Entry]string{}}
}

// begin starts the next epoch on a session that is known, or not.
func (l *ledger) begin(known bool) {
	l.t.Helper()
	l.epoch++
	l.w.Begin(l.epoch, known)
	l.audit()
}

func (l *ledger) audit() {
	l.t.Helper()
	if err := audit(l.w, 20); err != nil {
		l.t.Fatal(err)
	}
}

// arrive lets a PUBLISH arrive and checks what becomes of it and what is due.
func (l *ledger) arrive(name string, c content, want Arrival, due ...string) {
	l.t.Helper()
	e := &Entry{Publish: publish(c), At: int64(len(l.entries))}
	l.entries[name], l.names[e] = e, name
	got, entries := l.w.Arrive(e, nil)
	if got != want {
		l.t.Fatalf("%s: arrival %d, want %d", name, got, want)
	}
	l.due(entries, due...)
}

func (l *ledger) due(entries []*Entry, want ...string) {
	l.t.Helper()
	var names []string
	for _, e := range entries {
		names = append(names, l.names[e])
	}
	if fmt.Sprint(names) != fmt.Sprint(want) {
		l.t.Fatalf("due: %v, want %v", names, want)
	}
	l.audit()
}

// fresh is arrive for what is simply to be handled.
func (l *ledger) fresh(name string, c content) {
	l.t.Helper()
	l.arrive(name, c, Fresh, name)
}

const (
	notDue = iota
	due
	stale
)

func (l *ledger) settle(name string, want int) {
	l.t.Helper()
	isDue, isStale := l.w.Settle(l.entries[name])
	if isDue != (want == due) || isStale != (want == stale) {
		l.t.Fatalf("settle %s: due %t, stale %t", name, isDue, isStale)
	}
	l.audit()
}

// acks takes what is due: "A1 R2 C3" is PUBACK 1, PUBREC 2, PUBCOMP 3; "C3!" says that 3 was not found.
func (l *ledger) acks(want string) {
	l.t.Helper()
	if l.w.Due() != (want != "") {
		l.t.Fatalf("Due() = %t, want %q", l.w.Due(), want)
	}
	if got := decode(l.w.TakeAcks(l.epoch, nil)); got != want {
		l.t.Fatalf("acknowledgements %q, want %q", got, want)
	}
	l.audit()
}

func decode(b []byte) string {
	var all []string
	for len(b) > 0 {
		s := fmt.Sprint(map[wire.Type]string{wire.PUBACK: "A", wire.PUBREC: "R", wire.PUBCOMP: "C"}[wire.Type(b[0]>>4)], int(b[2])<<8|int(b[3]))
		s = strings.ReplaceAll(s, " ", "")
		if b[1] == 3 && b[4] == packetIdentifierNotFound {
			s += "!"
		}
		all, b = append(all, s), b[2+b[1]:]
	}
	return strings.Join(all, " ")
}

// is checks state and list of an entry: "open live".
func (l *ledger) is(name, want string) {
	l.t.Helper()
	e := l.entries[name]
	words := []string{[...]string{"gone", "open", "parked", "settled", "answered"}[e.state]}
	for where, list := range map[string]*list{"live": &l.w.live[e.QoS], "unseen": &l.w.unseen[e.QoS]} {
		for o := list.head; o != nil; o = o.next {
			if o == e {
				words = append(words, where)
			}
		}
	}
	if got := strings.Join(words, " "); got != want {
		l.t.Fatalf("%s is %s, want %s", name, got, want)
	}
}

func q1(id uint16, text byte) content { return content{id: id, qos: 1, text: text} }
func q2(id uint16, text byte) content { return content{id: id, qos: 2, text: text} }

// resent is c as a server sends it again.
func resent(c content) content { c.dup = true; return c }

// expiring is c with a Message Expiry Interval.
func expiring(c content) content { c.expires = true; return c }

// parked brings a window to where a' is parked, because b is open and unseen.
func (l *ledger) parked() {
	l.t.Helper()
	l.fresh("a", q1(1, 'a'))
	l.fresh("b", q1(2, 'a'))
	l.settle("a", due)
	l.acks("A1")
	l.begin(true)
	l.arrive("a'", resent(q1(1, 'a')), Parked)
}
