package window

import "github.com/settlemq/settle/internal/wire"

// flight is a message that the server has sent and that is not acknowledged.
type flight struct {
	id       uint16
	message  int
	released bool // PUBREC has come, PUBREL is out
	reused   bool // its identifier was an expired message's on this connection: acknowledgements may be meant for that
}

type session struct {
	exists     bool
	subscribed bool // nothing is queued for a session before
	inflight   []flight
	queue      []int
	last       uint16 // identifier given away last
}

func (s *session) copyFrom(from *session) {
	inflight := append(s.inflight[:0], from.inflight...) //nolint:gocritic // reuses what s has: this runs millions of times
	queue := append(s.queue[:0], from.queue...)          //nolint:gocritic // the same
	*s = *from
	s.inflight, s.queue = inflight, queue
}

func (s *session) find(id uint16) int {
	for i := range s.inflight {
		if s.inflight[i].id == id {
			return i
		}
	}
	return -1
}

func (s *session) remove(i int) { s.inflight = append(s.inflight[:i], s.inflight[i+1:]...) }

type packet struct {
	kind    wire.Type
	id      uint16
	message int
	dup     bool
	present bool
}

// allocate gives an identifier away, or 0.
func (w *world) allocate() uint16 {
	id := w.server.last
	if w.lowestFree {
		id = 0
	}
	for range w.identifiers {
		if id++; id > w.identifiers {
			id = 1
		}
		if w.server.find(id) < 0 {
			w.server.last = id
			return id
		}
	}
	return 0
}

func (w *world) canSend() bool {
	return w.connection != down && w.server.subscribed && len(w.server.queue) > 0 && len(w.server.inflight) < w.serverMaximum &&
		len(w.server.inflight) < int(w.identifiers)
}

func (w *world) send() {
	id, m := w.allocate(), w.server.queue[0]
	w.server.queue = append(w.server.queue[:0], w.server.queue[1:]...)
	w.server.inflight = append(w.server.inflight, flight{id: id, message: m, reused: w.tainted>>id&1 == 1})
	w.toClient = append(w.toClient, packet{kind: wire.PUBLISH, id: id, message: m})
}

// accept is the server's side of a connection: CONNACK, and all that is in flight once more.
func (w *world) accept(order func(n int) []int) {
	w.connection, w.tainted = dialled, 0
	w.toClient = append(w.toClient, packet{kind: wire.CONNACK, present: w.server.exists})
	w.server.exists = true
	for i := range w.server.inflight {
		w.server.inflight[i].reused = false
	}
	for _, i := range order(len(w.server.inflight)) {
		f := w.server.inflight[i]
		if f.released {
			w.toClient = append(w.toClient, packet{kind: wire.PUBREL, id: f.id})
		} else {
			w.toClient = append(w.toClient, packet{kind: wire.PUBLISH, id: f.id, message: f.message, dup: true})
		}
	}
}

func inOrder(n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	return order
}

// subscribe is the packet type of SUBSCRIBE: the client sends one on every CONNACK.
const subscribe wire.Type = 8

// serve is the server reading one packet.
func (w *world) serve(p packet) {
	if p.kind == subscribe {
		w.server.subscribed = true
		return
	}
	i := w.server.find(p.id)
	if i < 0 {
		if p.kind != wire.PUBCOMP && w.tainted>>p.id&1 == 0 {
			w.fail("%v for identifier %d, which is not in flight", p.kind, p.id)
		}
		return
	}
	f := &w.server.inflight[i]
	qos := w.messages[f.message].qos
	switch {
	case p.kind == wire.PUBACK && qos == 1:
		w.acknowledged(f)
		w.server.remove(i)
	case p.kind == wire.PUBREC && qos == 2:
		if !f.released {
			w.acknowledged(f)
			f.released = true
		}
		w.toClient = append(w.toClient, packet{kind: wire.PUBREL, id: p.id})
	case p.kind == wire.PUBCOMP && f.released:
		w.server.remove(i)
	case p.kind != wire.PUBCOMP && !f.reused:
		w.fail("%v for identifier %d, which is of QoS %d", p.kind, p.id, qos)
	}
}

// acknowledged is where a message is lost, if one is.
func (w *world) acknowledged(f *flight) {
	m := &w.messages[f.message]
	switch {
	case m.settled:
	case w.everTainted:
		w.seen.unhelped++
	case w.unread:
		w.seen.unread++
	default:
		w.fail("LOSS: the server has message %d acknowledged, and it was not handled", m.id)
	}
}

// lose ends the server's session.
func (w *world) lose() {
	w.forgetting(w.server.inflight, nil)
	if !w.keepQueue {
		w.forgetting(nil, w.server.queue)
		w.server.queue = w.server.queue[:0]
	}
	w.server = session{queue: w.server.queue}
	w.snapshot.exists = false
	w.losses++
	w.seen.sessionsLost++
}

// restore brings an older state of the server back.
func (w *world) restore() {
	w.forgetting(w.server.inflight, w.server.queue)
	w.server.copyFrom(&w.snapshot)
	w.restores++
	w.restored = true
	w.seen.restores++
	for _, f := range w.server.inflight {
		w.messages[f.message].excused = false
	}
	for _, m := range w.server.queue {
		w.messages[m].excused = false
	}
}

// forgetting notes that the server is about to forget messages.
func (w *world) forgetting(inflight []flight, queue []int) {
	for _, f := range inflight {
		w.messages[f.message].excused = true
	}
	for _, m := range queue {
		w.messages[m].excused = true
	}
}
