package window

import (
	"github.com/settlemq/settle/internal/mutant"
	"github.com/settlemq/settle/internal/wire"
)

// state says where an entry stands; doc.go has the transitions.
type state uint8

const (
	gone state = iota
	open
	parked
	settled
	answered // settled by a PUBREC that was handed to Write before: only its repetition is due
)

// due says that nothing but what arrived before holds the acknowledgement back.
func (s state) due() bool { return s >= settled }

// Entry is one inbound PUBLISH at QoS 1 or 2 as the window knows it. It is meant to be embedded in what the
// owner knows about the delivery. The owner fills in Publish and At before Arrive and leaves both alone
// afterwards; all else belongs to the window.
type Entry struct {
	wire.Publish
	At    int64 // when it arrived, in the owner's own clock; OldestAt reports it
	Owner any   // what the entry is embedded in, for whoever gets it back from Arrive

	digest     uint64 // of the frame; known once settled
	state      state
	acked      bool // its acknowledgement was handed out
	prev, next *Entry
}

// list is an intrusive list in arrival order.
type list struct {
	head, tail *Entry
	len        int
}

func (l *list) push(e *Entry) {
	e.prev, e.next = l.tail, nil
	if l.tail == nil {
		l.head = e
	} else {
		l.tail.next = e
	}
	l.tail = e
	l.len++
}

func (l *list) remove(e *Entry) {
	if e.prev == nil {
		l.head = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		l.tail = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.prev, e.next = nil, nil
	l.len--
}

// next is the entry whose turn it is to be acknowledged: the oldest, settled or not.
func (l *list) next() *Entry {
	e := l.head
	for mutant.OutOfOrder && e != nil && !e.state.due() { // or the oldest that is settled
		e = e.next
	}
	return e
}

// memory says what a slot remembers about its Packet Identifier.
type memory uint8

const (
	nothing      memory = iota
	entered             // entry is open, parked or settled
	acknowledged        // a QoS 1 delivery: PUBACK handed to Write
	received            // a QoS 2 delivery: PUBREC handed to Write, PUBREL not seen
)

// slot is all that is known about one Packet Identifier. There is one, so that whatever arrives under an
// identifier replaces what was known before: memory that outlives its identifier loses messages.
type slot struct {
	entry  *Entry // if entered
	digest uint64 // if acknowledged or received
	epoch  uint64 // the connection that showed it last
	memory memory
}

// Identifiers are looked up by index: a map would cost more than all the rest of the window. Pages
// keep a session that uses few identifiers small.
const pageSize = 256

type page [pageSize]slot

func (w *Window) slot(id uint16) *slot {
	p := w.pages[id/pageSize]
	if p == nil {
		p = new(page)
		w.pages[id/pageSize] = p
	}
	return &p[id%pageSize]
}
