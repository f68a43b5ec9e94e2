package chaos

import (
	"sync"
	"time"
)

// book is what a run writes down: every sending, every event of every consumer, every dead letter. While the run goes on it answers how much is
// left to do; when the run is over it is audited.
type book struct {
	began time.Time

	mu      sync.Mutex
	pages   map[string]*page // by stream
	strange []string         // what nobody understands
}

// page is what is written of one stream.
type page struct {
	stream  *stream
	units   []unit
	lives   []*life // of its consumers; those of one consumer in their order
	letters []letter

	// What is counted while the run goes on.
	accepted, settled, released int
}

// unit is one sending of a message. What was not answered is sent again, and is another unit.
type unit struct {
	message uint32
	state   unitState
	at      uint32 // when it was answered, in units of 100 µs

	acked, dead, released bool // while the run goes on
}

type unitState uint8

const (
	unanswered unitState = iota // perhaps the server has it
	accepted                    // the server has answered that it has it
	nowhere                     // it has answered that nobody subscribes: reason code 0x10
)

// letter is a dead letter that came.
type letter struct {
	unit    uint32
	attempt uint8
	again   bool // with DUP: it may have come before
}

// life is one process of a consumer.
type life struct {
	consumer string
	number   int
	ended    Kind   // Kill or Terminate; "" while it lives
	told     uint32 // when it was told to
	unclean  bool   // it left something undone when it was told to stop
	events   []event

	// Of the main connection, while the run goes on: what it has to show again. Keys are units.
	open    map[uint32]struct{} // shown and not acknowledged
	missing map[uint32]struct{} // of the connection before
	main    uint16              // the connection that stands; 0 for none
	since   time.Time           // nothing is missing
	both    [2]bool             // main and second connection have been accepted
}

func newBook(began time.Time) *book {
	b := &book{began: began, pages: make(map[string]*page)}
	for i := range streams {
		b.pages[streams[i].name] = &page{stream: &streams[i]}
	}
	return b
}

func (b *book) newLife(s *stream, consumer string, number int) *life {
	l := &life{consumer: consumer, number: number, open: make(map[uint32]struct{})}
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.pages[s.name]
	p.lives = append(p.lives, l)
	return l
}

// send gives a sending its number.
func (b *book) send(s *stream, message uint32) uint32 {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.pages[s.name]
	p.units = append(p.units, unit{message: message})
	return uint32(len(p.units) - 1) //nolint:gosec // a run does not last so long
}

// now is the time since the run began, in units of 100 µs.
func (b *book) now() uint32 { return uint32(time.Since(b.began) / (100 * time.Microsecond)) } //nolint:gosec // days

// answer notes what the server said to a sending.
func (b *book) answer(s *stream, n uint32, state unitState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.pages[s.name]
	u := &p.units[n]
	u.state, u.at = state, b.now()
	if state != accepted {
		return
	}
	p.accepted++
	if u.acked || u.dead {
		p.settled++
	}
	if u.released {
		p.released++
	}
}

// events notes what a consumer has told, and returns what is not complete yet.
func (b *book) events(s *stream, l *life, told []byte) (rest []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for ; len(told) >= eventSize; told = told[eventSize:] {
		b.event(s, l, readEvent(told))
	}
	return told
}

// event is called with the lock held.
func (b *book) event(s *stream, l *life, e event) {
	l.events = append(l.events, e)
	if e.kind == eventShown && e.flags&flagForeign != 0 {
		return
	}
	l.follow(e)
	p := b.pages[s.name]
	if int(e.unit) >= len(p.units) {
		if e.unit > 0 { // else it is of a connection, and nothing has been sent
			b.strange = append(b.strange, l.consumer+" told of a message that was never sent")
			l.events = l.events[:len(l.events)-1]
		}
		return
	}
	switch u := &p.units[e.unit]; {
	case e.kind == eventShown && e.copy == 0 && u.released: // the server does not know yet
		u.released = false
		if u.state == accepted {
			p.released--
		}
	case e.kind == eventAcknowledged && e.copy == 0 && !u.released:
		u.released = true
		if u.state == accepted {
			p.released++
		}
	case e.kind == eventReturned && e.code == returnedAck && !u.acked:
		u.acked = true
		if u.state == accepted && !u.dead {
			p.settled++
		}
	}
}

// follow keeps track of what the main connection has to show again.
func (l *life) follow(e event) {
	switch e.kind {
	case eventConnected:
		l.both[e.copy] = true
		if e.copy == 0 {
			l.main, l.missing, l.open = e.conn, l.open, make(map[uint32]struct{})
			if e.flags&flagPresent == 0 {
				l.missing = nil
			}
			l.since = time.Now()
		}
	case eventLost:
		if e.conn == l.main {
			l.main = 0
		}
	case eventShown:
		if e.copy == 0 && e.conn == l.main {
			l.open[e.unit] = struct{}{}
			if _, missed := l.missing[e.unit]; missed {
				delete(l.missing, e.unit)
				l.since = time.Now()
			}
		}
	case eventAcknowledged:
		if e.copy == 0 && e.conn == l.main {
			delete(l.open, e.unit)
		}
	}
}

// breath is how long a consumer is given to take in what it has read.
const breath = 250 * time.Millisecond

// caughtUp says that a life's main connection stands and has shown again all that it had to.
func (b *book) caughtUp(l *life) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return l.main != 0 && len(l.missing) == 0 && time.Since(l.since) > breath
}

// connected says that a life's connections have all been accepted once.
func (b *book) connected(s *stream, l *life) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return l.both[0] && (l.both[1] || s.held())
}

// letter notes a dead letter.
func (b *book) letter(s *stream, l letter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.pages[s.name]
	if int(l.unit) >= len(p.units) {
		b.strange = append(b.strange, "a dead letter of a message that was never sent")
		return
	}
	p.letters = append(p.letters, l)
	u := &p.units[l.unit]
	if u.state == accepted && !u.acked && !u.dead {
		p.settled++
	}
	u.dead = true
}

func (b *book) wonder(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.strange = append(b.strange, what)
}

// unreleased is how many messages of a stream were accepted, and not acknowledged by a consumer.
func (b *book) unreleased(s *stream) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.pages[s.name]
	return p.accepted - p.released
}

// accepted is how many sendings the server has taken.
func (b *book) accepted() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.pages {
		n += p.accepted
	}
	return n
}

// unsettled is how many sendings have not come to their end, and how many deliveries have not been acknowledged.
func (b *book) unsettled() (messages, deliveries int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.pages {
		messages += p.accepted - p.settled
		for _, l := range p.lives {
			if l.ended == "" {
				deliveries += len(l.open)
			}
		}
	}
	return messages, deliveries
}
