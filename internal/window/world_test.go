package window

import (
	"fmt"
	"strings"

	"github.com/settlemq/settle/internal/wire"
)

// A world is a server with a session as MQTT 5 wants it, a wire in either direction, and a client around
// a Window. Messages have an identity that no frame shows: by it the world knows what the window can only
// conclude. It is driven step by step, by chance (model_test.go) or exhaustively (exhaustive_test.go).

// scenario is what does not change while a world lives.
type scenario struct {
	receiveMaximum int
	serverMaximum  int // what the server holds itself to; above receiveMaximum it overruns the window
	identifiers    uint16
	lowestFree     bool // identifiers: the lowest that is free, else incrementing
	lanes          int
	handleAgain    bool // Config.HandleAgain, and a server that resends in any order
	calm           int  // how much likelier the rest is than what goes wrong
	keepQueue      bool // a lost session loses what was in flight, but not what was queued
	liveExpiry     bool // the server drops expired messages in flight on a live connection, and reuses identifiers
	liveCONNACK    bool // CONNACK arrives at least, after the server's state was restored
	messages       []message

	// What may happen, by kind of step; a negative number is no limit.
	budget [steps]int
}

type message struct {
	id      int
	qos     byte
	text    byte
	key     int
	expires bool

	// What is known from here on is known to the world alone.
	dispatched int    // times that it was handed to a lane
	settled    bool   // handled, once at least
	excused    bool   // the server lost it
	shown      uint64 // the epoch that showed it last
	holding    uint64 // the epoch that showed it last and at whose end its acknowledgement had not been handed over
	parked     uint64 // the epoch in which it is parked
	process    int    // that it was shown to last
	restores   int    // how often the server had been restored when it was shown last
}

// delivery is what the client knows about an arrival. Its place in world.deliveries is its At.
type delivery struct {
	Entry
	message int
	why     kind // why it would be a documented duplicate, were it handled again
}

// expected is an arrival of this epoch whose acknowledgement has not been handed over.
type expected struct {
	id      uint16
	message int
}

type connection uint8

const (
	down    connection = iota
	dialled            // CONNACK has not been read
	up
)

type world struct {
	*scenario
	messages  []message
	published int
	server    session
	snapshot  session
	tainted   uint64 // by identifier: an expired message had it on this connection
	toClient  []packet
	toServer  []packet

	connection  connection
	win         *Window
	epoch       uint64
	process     int
	restores    int
	losses      int
	everTainted bool
	unread      bool // the restored server accepted a connection whose CONNACK was never read
	restored    bool // and no CONNACK was read since the restore
	deliveries  []*delivery
	lanes       [][]int
	expect      [3][]expected
	newest      int // the newest message that was handed to a lane
	due         []*Entry
	spent       [steps]int

	order   func(n int) []int // in which the server sends again
	seen    *tally
	history []step
	err     error
}

func newWorld(s *scenario, seen *tally) *world {
	w := &world{
		scenario: s, messages: append([]message(nil), s.messages...), lanes: make([][]int, s.lanes), order: inOrder,
		newest: -1, seen: seen,
	}
	w.server.exists = false
	w.win = New(Config{ReceiveMaximum: s.receiveMaximum, HandleAgain: s.handleAgain})
	return w
}

// String tells how the world came to be as it is.
func (w *world) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "Receive Maximum %d, server's %d, %d identifiers, lowest free: %t, %d lanes\n", w.receiveMaximum, w.serverMaximum,
		w.identifiers, w.lowestFree, len(w.lanes))
	for _, m := range w.messages[:w.published] {
		fmt.Fprintf(&s, "message %d: QoS %d, text %d, key %d, expires: %t\n", m.id, m.qos, m.text, m.key, m.expires)
	}
	fmt.Fprintln(&s, w.history)
	return s.String()
}

func (w *world) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

// read is the client reading one packet.
func (w *world) read(p packet) {
	switch p.kind {
	case wire.CONNACK:
		w.connection = up
		w.epoch++
		w.expect = [3][]expected{1: w.expect[1][:0], 2: w.expect[2][:0]}
		w.win.Begin(w.epoch, p.present)
		w.restored = false
		if !p.present {
			for i := range w.messages {
				w.messages[i].holding = 0
			}
		}
		w.seen.epochs++
		if w.budget[stepLose] != 0 || !w.server.subscribed {
			w.toServer = append(w.toServer, packet{kind: subscribe})
		}
	case wire.PUBREL:
		w.forgetExpected(p.id)
		w.win.Pubrel(p.id)
	case wire.PUBLISH:
		w.arrive(p)
	}
}

func (w *world) forgetExpected(id uint16) {
	for q := 1; q <= 2; q++ {
		for i, e := range w.expect[q] {
			if e.id == id {
				w.expect[q] = append(w.expect[q][:i], w.expect[q][i+1:]...)
				break
			}
		}
	}
}

func (w *world) arrive(p packet) {
	m := &w.messages[p.message]
	d := &delivery{message: p.message, why: w.excuse(m)}
	d.Publish = publish(content{id: p.id, qos: m.qos, text: m.text, dup: p.dup, expires: m.expires})
	d.At = int64(len(w.deliveries))
	w.deliveries = append(w.deliveries, d)

	before := w.win.parked
	arrival, due := w.win.Arrive(&d.Entry, w.due[:0])
	w.due = due
	w.seen.arrivals[arrival]++
	if arrival == Repeated {
		if m.shown != w.epoch && !w.unread && !w.everTainted {
			w.fail("message %d was taken for a repetition", m.id)
		}
		return
	}
	w.forgetExpected(p.id)
	w.expect[m.qos] = append(w.expect[m.qos], expected{p.id, m.id})
	m.shown, m.process, m.restores, m.holding = w.epoch, w.process, w.restores, w.epoch
	switch arrival {
	case Adopted:
		if old := w.deliveries[w.win.slot(p.id).entry.At]; old.message != m.id && w.restores == 0 && !w.everTainted {
			w.fail("message %d was taken for %d, which is another", m.id, old.message)
		}
		if m.qos == 1 {
			w.seen.proved += before
			for i := range w.messages {
				if o := &w.messages[i]; o.parked == w.epoch {
					o.parked, o.holding = 0, w.epoch
				}
			}
		}
	case Answered:
		if !m.settled && !w.unread && !w.everTainted {
			w.fail("message %d was answered and never handled", m.id)
		}
	case Parked:
		m.holding, m.parked = 0, w.epoch
		if len(due) > 0 {
			w.fail("message %d was parked, and %d deliveries are due", m.id, len(due))
		}
	case Fresh:
		if len(due) == 0 || due[len(due)-1] != &d.Entry {
			w.fail("message %d is fresh, and not the last of %d that are due", m.id, len(due))
		}
	}
	switch {
	case w.serverMaximum > w.receiveMaximum && w.win.unacknowledged() >= w.receiveMaximum:
		w.dispatch(due, full)
	case m.expires:
		w.dispatch(due, expiry)
	default:
		w.dispatch(due, none)
	}
}

// dispatch hands deliveries to their lanes; excuse is one for handling again what was parked.
func (w *world) dispatch(due []*Entry, excuse kind) {
	last := -1
	for _, e := range due {
		d := w.deliveries[e.At]
		m := &w.messages[d.message]
		switch {
		case m.id <= last && !w.handleAgain && !w.unread:
			w.fail("message %d is due after %d", m.id, last)
		case m.dispatched == 0:
			backFromTheDead := m.expires && w.restores > 0 || w.everTainted
			if m.id < w.newest && !backFromTheDead && !w.handleAgain && !w.unread {
				w.fail("DISORDER: message %d is handled after %d", m.id, w.newest)
			}
			w.newest = max(w.newest, m.id)
		default:
			why := d.why
			switch {
			case why == unproved && (m.parked == w.epoch || excuse == full) && excuse != none:
				why = excuse
			case why <= unproved && w.unread:
				why = restoredServer
			}
			w.seen.duplicates[why]++
			if why <= unproved {
				w.fail("DUPLICATE: message %d is handled again: shown in epoch %d, held in %d", m.id, m.shown, m.holding)
			}
		}
		last = m.id
		m.dispatched++
		m.parked, m.holding = 0, w.epoch
		lane := m.key % len(w.lanes)
		w.lanes[lane] = append(w.lanes[lane], int(e.At))
	}
}

// settle is a lane finishing the delivery at its head.
func (w *world) settle(lane int) {
	d := w.deliveries[w.lanes[lane][0]]
	w.lanes[lane] = append(w.lanes[lane][:0], w.lanes[lane][1:]...)
	w.messages[d.message].settled = true
	could := w.win.Due()
	due, stale := w.win.Settle(&d.Entry)
	switch {
	case stale:
		w.seen.stale++
	case w.win.Due() && !could && !due:
		w.fail("message %d made an acknowledgement due and nobody was told", d.message)
	}
	if _, again := w.win.Settle(&d.Entry); !again {
		w.fail("message %d was settled twice", d.message)
	}
}

// take hands the acknowledgements that are due to the connection's Write. Whether they arrive is another question.
func (w *world) take() {
	acks := w.win.TakeAcks(w.epoch, nil)
	for len(acks) > 0 {
		p := packet{kind: wire.Type(acks[0] >> 4), id: uint16(acks[2])<<8 | uint16(acks[3])}
		acks = acks[2+acks[1]:]
		w.toServer = append(w.toServer, p)
		if p.kind == wire.PUBCOMP {
			continue
		}
		q := 1
		if p.kind == wire.PUBREC {
			q = 2
		}
		if len(w.expect[q]) == 0 || w.expect[q][0].id != p.id {
			w.fail("%v %d is out of order, or for nothing: outstanding are %v", p.kind, p.id, w.expect[q])
			return
		}
		m := &w.messages[w.expect[q][0].message]
		w.expect[q] = append(w.expect[q][:0], w.expect[q][1:]...)
		m.holding = 0
		switch {
		case m.settled:
		case w.everTainted:
			w.seen.unhelped++
		case w.unread:
			w.seen.unread++
		default:
			w.fail("LOSS: message %d is acknowledged before it is settled", m.id)
		}
	}
	if w.win.Due() {
		w.fail("acknowledgements are due after all were taken")
	}
}

func (w *world) cut() {
	w.seen.cuts++
	w.seen.lostAcks += len(w.toServer)
	w.seen.lostFrames += len(w.toClient)
	w.seen.cutParked += w.win.parked
	if w.connection == up {
		w.win.End()
	} else if w.restored && !w.liveCONNACK {
		w.unread = true
	}
	if acks := w.win.TakeAcks(w.epoch, nil); len(acks) > 0 || w.win.Due() {
		w.fail("acknowledgements without a connection")
	}
	w.connection, w.toClient, w.toServer = down, w.toClient[:0], w.toServer[:0]
}

// kill ends the client's process.
func (w *world) kill() {
	w.seen.kills++
	w.process++
	w.win = New(w.win.config)
	for i := range w.lanes {
		w.lanes[i] = w.lanes[i][:0]
	}
}

// wait is five seconds in which nothing arrives.
func (w *world) wait() {
	before := w.win.Parked()
	w.due = w.win.ReleaseParked(w.epoch, w.due[:0])
	w.seen.released += before
	w.dispatch(w.due, waited)
}
