package chaos

import "math"

// audit closes the book.
func (b *book) audit(seed uint64) Account {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := Account{Twice: make(map[Reason]int), Unacked: make(map[string]int), exampled: make(map[string]int), Strange: b.strange}
	a.FullLoad.By, a.OtherLoad.By = make(map[Reason]int), make(map[Reason]int)
	for i := range streams {
		newAuditor(&a, seed, b.pages[streams[i].name]).audit()
	}
	return a
}

// auditor audits one stream. It goes through the journals of each consumer, one life after the other.
type auditor struct {
	*Account
	seed uint64
	*page

	conns   []connection
	seen    uint32  // showings so far
	parcels []story // by unit: the message as it was published
	copies  map[parcelKey]*story
	firsts  []group               // by unit: the first attempt
	groups  map[attemptKey]*group // the others
	called  []uint32              // by unit: how often its handler was called
	letters []int                 // by unit
	sent    map[uint32]int        // by unit: publishes of a dead letter

	*lifeState
}

type parcelKey struct{ unit, copy uint32 }

type attemptKey struct {
	unit    uint32
	attempt uint8
}

// story is what the wire shows of one parcel.
type story struct {
	showings  []showing
	published int    // of a copy: PUBLISHes of it
	confirmed int    // of these, how many were
	stored    bool   // of a copy: one of them was confirmed, or it has come back
	first     uint32 // which of all showings was its first
	chained   int    // showings that the last reason to call again has used up
}

// showing is one PUBLISH of a parcel.
type showing struct {
	conn, place int32 // indices of auditor.conns and of its order
	id          uint16
	acked       bool
}

// connection is one that was accepted.
type connection struct {
	life     *life
	second   bool
	before   int32 // the one before it of its kind and life, an index of auditor.conns; -1 for none
	index    int   // among those of its kind in its life
	lastRead int32 // where in order its last Read begins: what a connection reads when a write has failed is dropped with it
	order    []place
	open     int   // deliveries that are not acknowledged
	turn     int32 // the place of the last acknowledgement, plus one

	present, parted, orderly bool

	at     uint32
	oldest int  // of order: the first that the next connection has to show and has not shown
	misfit bool // it did not show in their order what the one before it had left
}

// place is one PUBLISH of a connection.
type place struct {
	parcelKey
	dup, acked bool
	foreign    bool
	again      bool // the next connection has shown it
}

// group is a message at one attempt.
type group struct {
	calls   int     // in all lives
	copies  int     // different copies that have been published, that bring it
	shown   int     // different parcels that brought it
	reasons []cause // why a handler may be called
}

// cause is a reason to call a handler, and the showing behind it.
type cause struct {
	why   Reason
	life  *life
	conn  int32
	place int32
	load  int // what was in work when the connection was lost that makes it be called again
}

// lifeState is what the auditor keeps of one life.
type lifeState struct {
	life     *life
	busiest  int                    // deliveries that are in work on the main connection
	byNumber map[uint16]int32       // connections: indices of auditor.conns
	kinds    [2]int                 // connections so far, main and second
	last     [2]int32               // of these, the last, an index of auditor.conns; -1 for none
	acks     map[attemptKey]bool    // an Ack was returned
	failed   map[attemptKey]bool    // something else, or an Ack so late that the timeout may have been first
	acked    map[uint32]bool        // by unit: a handler said Ack, in a stream that is held
	running  map[attemptKey]uint32  // since when
	busy     map[uint32]attemptKey  // by key: the last call
	stored   map[attemptKey]bool    // the copy or dead letter that ends this attempt has been stored
	asked    map[wireKey]publishing // publishes that have not been answered
}

type wireKey struct{ conn, id uint16 }

type publishing struct {
	attemptKey
	copy uint32
	dead bool
}

func newAuditor(a *Account, seed uint64, p *page) *auditor {
	n := len(p.units)
	return &auditor{
		Account: a, seed: seed, page: p,
		parcels: make([]story, n), copies: make(map[parcelKey]*story), firsts: make([]group, n), groups: make(map[attemptKey]*group),
		called: make([]uint32, n), letters: make([]int, n), sent: make(map[uint32]int),
	}
}

func (a *auditor) audit() {
	var cursors []*cursor
	for _, name := range a.stream.consumers {
		c := &cursor{last: make(map[uint32]uint32)}
		for _, l := range a.lives {
			if l.consumer == name && len(l.events) > 0 {
				c.lives = append(c.lives, l)
			}
		}
		cursors = append(cursors, c)
	}
	for {
		var next *cursor
		for _, c := range cursors {
			if len(c.lives) > 0 && (next == nil || c.event().at < next.event().at) {
				next = c
			}
		}
		if next == nil {
			break
		}
		if next.state == nil {
			next.state = newLifeState(next.lives[0])
		}
		a.lifeState = next.state
		e := next.event()
		if e.kind == eventBegun && a.called[e.unit] == 0 {
			a.inOrder(next.last, e.unit)
		}
		a.take(e)
		next.advance()
	}
	a.close()
}

// cursor goes through the lives of one consumer.
type cursor struct {
	lives []*life // the rest
	at    int
	state *lifeState
	last  map[uint32]uint32 // by key: the last unit that was first called for, plus one
}

func (c *cursor) event() *event { return &c.lives[0].events[c.at] }

func (c *cursor) advance() {
	if c.at++; c.at == len(c.lives[0].events) {
		c.lives, c.at, c.state = c.lives[1:], 0, nil
	}
}

// inOrder checks that the messages of a key are first handled in the order in which they were sent, or, where the server has sent them in another
// one, in that.
func (a *auditor) inOrder(last map[uint32]uint32, unit uint32) {
	key := keyOf(a.units[unit].message)
	if last[key] <= unit+1 {
		last[key] = unit + 1
		return
	}
	if later := last[key] - 1; a.shownFirst(later) < a.shownFirst(unit) {
		a.Disorder++
		return
	}
	a.OutOfOrder++
	a.example("out of order: %s was first handled after %s", a.describe(unit), a.describe(last[key]-1))
}

// shownFirst tells when a message was first shown.
func (a *auditor) shownFirst(unit uint32) uint32 {
	if s := &a.parcels[unit]; len(s.showings) > 0 {
		return s.first
	}
	return math.MaxUint32
}

func newLifeState(l *life) *lifeState {
	return &lifeState{
		last: [2]int32{-1, -1},
		life: l, byNumber: make(map[uint16]int32), acks: make(map[attemptKey]bool), failed: make(map[attemptKey]bool), acked: make(map[uint32]bool),
		running: make(map[attemptKey]uint32), busy: make(map[uint32]attemptKey), stored: make(map[attemptKey]bool), asked: make(map[wireKey]publishing),
	}
}
