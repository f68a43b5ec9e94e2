package window

import (
	"sync"

	"github.com/settlemq/settle/internal/mutant"
	"github.com/settlemq/settle/internal/wire"
)

// Config of a Window.
type Config struct {
	// ReceiveMaximum is what CONNECT told the server (3.1.2.11.3). The window holds more if the server
	// sends more; it only decides when parked deliveries cannot wait any longer.
	ReceiveMaximum int
	// HandleAgain switches adoption and parking off: whatever a new connection shows is handled. It is for
	// servers that do not send again in the order in which they sent.
	HandleAgain bool
}

// Window is the ledger of one session. Its methods may be called from any goroutine; Begin and Arrive
// must come from one at a time, in the order of the stream.
type Window struct {
	config Config

	mu    sync.Mutex
	pages [65536 / pageSize]*page

	epoch  uint64
	before uint64 // the epoch before
	online bool
	// trusted says, by QoS, that what was known before may be adopted; the first PUBLISH has to prove it.
	trusted [3]bool
	proved  [3]bool

	live    [3]list // by QoS; this connection's, in arrival order
	unseen  [3]list // by QoS; the connection's before, in arrival order, not shown again so far
	certain [3]int  // of unseen: those without an expiry, which a redelivery must show
	settled int     // of live[1]
	parked  int     // of live[1]: PUBREC is remembered exactly, so nothing at QoS 2 has to wait for proof

	receivedNow int    // PUBRECs sent on this connection that wait for PUBREL
	pubcomps    []byte // encoded, due
}

// New returns an empty window, with no connection.
func New(c Config) *Window { return &Window{config: c} }

// Begin starts an epoch: a CONNACK has come in. known says that it is the session, at the same server,
// that the epoch before was: Session Present = 1. epoch must be larger than any before.
func (w *Window) Begin(epoch uint64, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end()
	for q := 1; q <= 2; q++ {
		// What an epoch did not show again is forgotten at its end.
		for e := w.unseen[q].head; e != nil; e = w.unseen[q].head {
			w.forget(e, &w.unseen[q])
		}
		w.certain[q] = 0
		for e := w.live[q].head; e != nil; {
			next := e.next
			switch {
			case !known || w.config.HandleAgain:
				w.forget(e, &w.live[q])
			case !e.HasExpiry:
				w.certain[q]++
			}
			e = next
		}
		w.unseen[q], w.live[q] = w.live[q], list{}
		w.trusted[q], w.proved[q] = known, false
	}
	if !known {
		w.pages = [65536 / pageSize]*page{}
	}
	w.receivedNow, w.settled = 0, 0
	w.before, w.epoch, w.online = w.epoch, epoch, true
}

// End says that the connection is gone: no acknowledgement is handed out until the next Begin.
func (w *Window) End() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end()
}

func (w *Window) end() {
	w.online = false
	w.pubcomps = w.pubcomps[:0]
	// Cut while parked or answered, they are still what they were: acknowledged before, and shown by this
	// epoch. An answered one may not stay in the list either: where it was repeated on a live connection,
	// it does not stand there as the server sent it.
	for e := w.live[1].head; e != nil && w.parked > 0; {
		next := e.next
		if e.state == parked {
			w.parked--
			w.acknowledge(e, acknowledged)
		}
		e = next
	}
	for e := w.live[2].head; e != nil; {
		next := e.next
		if e.state == answered {
			w.acknowledge(e, received)
		}
		e = next
	}
}

// forget ends an entry's claim to an acknowledgement. Whoever has it goes on handling it.
func (w *Window) forget(e *Entry, from *list) {
	from.remove(e)
	switch {
	case e.state == parked:
		w.parked--
	case e.state == settled && from == &w.live[1]:
		w.settled--
	}
	e.state = gone
	if s := w.slot(e.PacketID); s.entry == e {
		*s = slot{}
	}
}

// erase drops what is known under an identifier, because something else has arrived there.
func (w *Window) erase(s *slot) {
	switch s.memory {
	case entered:
		e := s.entry
		if s.epoch == w.epoch {
			w.forget(e, &w.live[e.QoS])
		} else {
			w.seen(e)
			w.forget(e, &w.unseen[e.QoS])
		}
	case received:
		if s.epoch == w.epoch {
			w.receivedNow--
		}
	}
	*s = slot{}
}

// seen says that e is about to leave the unseen.
func (w *Window) seen(e *Entry) {
	if !e.HasExpiry {
		w.certain[e.QoS]--
	}
}

// Arrival says what became of an entry that arrived.
type Arrival uint8

const (
	// Fresh entries are to be handled.
	Fresh Arrival = iota
	// Adopted entries are ones that we have: the older entry stands for both, and this one is dropped.
	Adopted
	// Parked entries wait for proof that they are what was acknowledged on the connection before.
	Parked
	// Answered entries repeat a PUBLISH whose PUBREC was sent: it is sent again.
	Answered
	// Repeated entries came twice on one connection: they are dropped.
	Repeated
)

// Arrive takes in a PUBLISH at QoS 1 or 2 and appends to due, in order, what has to be handled now: parked
// entries whose wait has ended, and e itself if it is Fresh.
func (w *Window) Arrive(e *Entry, due []*Entry) (Arrival, []*Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := e.QoS
	s := w.slot(e.PacketID)
	arrival := w.recognise(e, s)
	if w.testifies(e, arrival) && (!w.proved[q] || arrival == Adopted) {
		w.proved[q] = true
		if !w.proves(s, arrival) {
			// Not the session that we knew: nothing in it may be taken for what we have.
			w.trusted[q] = false
			if w.certain[q] > 0 {
				w.trusted = [3]bool{}
			}
			arrival = Fresh
		}
	}
	switch arrival {
	case Repeated:
		return arrival, due
	case Adopted:
		old := s.entry
		w.seen(old)
		w.unseen[q].remove(old)
		if q == 1 {
			w.settleParked()
			if old.state == settled {
				w.settled++
			}
		}
		w.live[q].push(old)
		s.epoch = w.epoch
	case Parked:
		e.digest, e.state = s.digest, parked
		w.parked++
		w.enter(e, s)
		if mutant.AdoptAcknowledged { // it looks the same, so it is the same
			w.settleParked()
			return arrival, due
		}
	case Answered:
		e.digest, e.state = s.digest, answered
		w.enter(e, s)
	case Fresh:
		due = w.releaseParked(due)
		w.erase(s)
		e.state = open
		w.enter(e, s)
		due = append(due, e)
		if mutant.AckEarly { // it has arrived: that will do
			w.settle(e, wire.Digest(e.Frame.Bytes))
		}
	}
	if w.certain[1] == 0 { // nothing is left that could prove it
		due = w.releaseParked(due)
		if arrival == Parked {
			arrival = Fresh
		}
	}
	return arrival, due
}

func (w *Window) enter(e *Entry, s *slot) {
	if s.memory == received && s.epoch == w.epoch {
		w.receivedNow--
	}
	*s = slot{memory: entered, entry: e, epoch: w.epoch}
	w.live[e.QoS].push(e)
}

// recognise compares e with what is known under its identifier.
func (w *Window) recognise(e *Entry, s *slot) Arrival {
	q, here := e.QoS, s.epoch == w.epoch
	if s.memory == nothing || !e.Dup || e.HasExpiry && !here {
		// A new message; or one that a server may have dropped in flight and given its identifier away. On
		// one connection DUP tells those apart: what is sent first there has DUP = 0.
		return Fresh
	}
	switch s.memory {
	case entered:
		switch old := s.entry; {
		case old.QoS != e.QoS || !wire.Same(old.Frame.Bytes, e.Frame.Bytes):
			return Fresh
		case here:
			return Repeated
		case w.trusted[q]:
			return Adopted
		}
	case acknowledged:
		switch {
		case e.QoS != 1 || s.digest != wire.Digest(e.Frame.Bytes):
			return Fresh
		case here:
			// The server had sent it again before our PUBACK reached it. A second PUBACK might find another
			// message under the identifier; without one, the worst is a slot that is lost until the connection is.
			return Repeated
		case w.trusted[q] && s.epoch == w.before:
			return Parked
		}
	case received:
		if e.QoS == 2 && s.digest == wire.Digest(e.Frame.Bytes) && (here || w.trusted[q] && s.epoch == w.before) {
			return Answered
		}
	}
	return Fresh
}

// testifies says whether e can say anything about the session. A redelivery with an expiry neither proves nor
// refutes: the server may have dropped it, or not. Without an order there is no first one either.
func (w *Window) testifies(e *Entry, arrival Arrival) bool {
	return arrival != Repeated && !(e.HasExpiry && e.Dup) && !w.config.HandleAgain
}

// proves says whether an arrival fits the session that we knew. The first PUBLISH of its QoS on a connection has
// to be the oldest that was not acknowledged, or one that was; and none that was not acknowledged is left out by a
// server that sends again in the order in which it sent.
func (w *Window) proves(s *slot, arrival Arrival) bool {
	switch arrival {
	case Parked, Answered:
		return true
	case Adopted:
		for old := w.unseen[s.entry.QoS].head; old != nil; old = old.next {
			if !old.HasExpiry {
				return old == s.entry
			}
		}
	}
	return false
}

// settleParked: something that we hold was sent after all that is parked. So these are the
// messages that were acknowledged, not new ones under their identifiers.
func (w *Window) settleParked() {
	for e := w.live[1].head; e != nil && w.parked > 0; e = e.next {
		if e.state == parked {
			e.state = settled
			w.parked--
			w.settled++
		}
	}
}

func (w *Window) releaseParked(due []*Entry) []*Entry {
	for e := w.live[1].head; e != nil && w.parked > 0; e = e.next {
		if e.state == parked {
			e.state = open
			w.parked--
			due = append(due, e)
		}
	}
	return due
}

// ReleaseParked appends to due, in order, all that is parked, because its owner has waited long enough for a proof: longer than a
// server takes that may send on, or a moment where the window is Full and nothing more comes. It does nothing if epoch is over.
func (w *Window) ReleaseParked(epoch uint64, due []*Entry) []*Entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	if epoch != w.epoch || !w.online {
		return due
	}
	return w.releaseParked(due)
}

// Settle says that e has been handled: its acknowledgement leaves in its turn. The result tells whether one can
// leave now, and whether the settlement was stale: nothing may be sent for e any more. Calling it a second time is stale.
func (w *Window) Settle(e *Entry) (due, stale bool) {
	digest := wire.Digest(e.Frame.Bytes)
	w.mu.Lock()
	defer w.mu.Unlock()
	if mutant.CrossEpoch && w.online && e.QoS == 1 && !e.acked && e.state != settled {
		if s := w.slot(e.PacketID); s.entry != e || s.epoch != w.epoch { // not this connection's, but it will do to send it on
			e.digest, e.state = digest, settled
			w.pubcomps = wire.AppendPuback(w.pubcomps, e.PacketID)
			return true, false
		}
	}
	if e.state != open {
		return false, true
	}
	w.settle(e, digest)
	return w.online && w.live[e.QoS].next() == e, false
}

func (w *Window) settle(e *Entry, digest uint64) {
	e.digest, e.state = digest, settled
	if e.QoS == 1 && w.slot(e.PacketID).epoch == w.epoch {
		w.settled++
	}
}

// TakeAcks appends the acknowledgements that are due on the connection of that epoch, in their order. They count
// as sent from here on, whatever becomes of the write: the server may have read them.
func (w *Window) TakeAcks(epoch uint64, dst []byte) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	if epoch != w.epoch || !w.online {
		return dst
	}
	// PUBCOMP first: what else is due under its identifier was sent after the server had it.
	dst = append(dst, w.pubcomps...)
	w.pubcomps = w.pubcomps[:0]
	for e := w.live[1].next(); e != nil && e.state.due(); e = w.live[1].next() {
		w.acknowledge(e, acknowledged)
		w.settled--
		dst = wire.AppendPuback(dst, e.PacketID)
	}
	for e := w.live[2].next(); e != nil && e.state.due(); e = w.live[2].next() {
		w.acknowledge(e, received)
		dst = wire.AppendPubrec(dst, e.PacketID)
	}
	return dst
}

// acknowledge makes e a memory of what was acknowledged.
func (w *Window) acknowledge(e *Entry, as memory) {
	w.live[e.QoS].remove(e)
	e.state, e.acked = gone, true
	*w.slot(e.PacketID) = slot{memory: as, digest: e.digest, epoch: w.epoch}
	if as == received {
		w.receivedNow++
	}
}

// packetIdentifierNotFound is the PUBCOMP reason code for a PUBREL that nothing is known of (3.7.2.1). It is no
// error: the process that sent the PUBREC may be another.
const packetIdentifierNotFound = 0x92

// Pubrel takes in a PUBREL: the handshake ends with the PUBCOMP that is now due, and its identifier is the
// server's to use again.
func (w *Window) Pubrel(id uint16) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.slot(id)
	code := byte(packetIdentifierNotFound)
	switch s.memory {
	case received:
		code = 0
	case entered:
		// No PUBREC was sent for what we have under the identifier: this is not the session that we knew.
		w.trusted = [3]bool{}
	}
	w.erase(s)
	w.pubcomps = wire.AppendPubcomp(w.pubcomps, id, code)
}
