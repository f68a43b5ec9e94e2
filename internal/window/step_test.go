package window

import (
	"fmt"
	"slices"
)

// step is one thing that happens.
type step struct {
	kind stepKind
	arg  int
}

type stepKind uint8

const (
	stepPublish  stepKind = iota // somebody publishes the next message of the scenario
	stepSend                     // the server sends what is queued first
	stepToClient                 // the client reads a packet
	stepToServer                 // the server reads a packet
	stepSettle                   // a lane finishes what it has at its head
	stepHold                     // a lane puts what it has at its head behind the rest
	stepTake                     // acknowledgements are handed to Write
	stepCut                      // the connection is lost with all that is on the wire
	stepConnect                  // the server accepts a connection
	stepLose                     // the server loses the session
	stepSnapshot                 // the server's state is saved
	stepRestore                  // and comes back
	stepKill                     // the client's process dies
	stepExpire                   // the server drops an expired message
	stepRepeat                   // the server repeats a PUBLISH on a live connection
	stepWait                     // five seconds pass
	steps
)

func (s step) String() string {
	return fmt.Sprintf("%s %d", [...]string{
		"publish", "send", "toClient", "toServer", "settle", "hold", "take", "cut", "connect", "lose", "snapshot",
		"restore", "kill", "expire", "repeat", "wait",
	}[s.kind], s.arg)
}

// unlimited is a budget.
const unlimited = -1

func (w *world) affords(k stepKind) bool { return w.budget[k] == unlimited || w.spent[k] < w.budget[k] }

// possible appends all that can happen now.
func (w *world) possible(to []step) []step {
	add := func(k stepKind, arg int, can bool) {
		if can && w.affords(k) {
			to = append(to, step{k, arg})
		}
	}
	alive := w.connection != down
	add(stepPublish, 0, w.published < len(w.messages))
	add(stepSend, 0, w.canSend())
	add(stepToClient, 0, len(w.toClient) > 0)
	add(stepToServer, 0, len(w.toServer) > 0)
	for i, l := range w.lanes {
		add(stepSettle, i, len(l) > 0)
		add(stepHold, i, len(l) > 1)
	}
	add(stepTake, 0, w.connection == up && w.win.Due())
	add(stepCut, 0, alive && !(w.restored && w.liveCONNACK && w.connection == dialled))
	add(stepConnect, 0, !alive)
	add(stepLose, 0, !alive && w.server.exists)
	add(stepSnapshot, 0, w.server.exists)
	add(stepRestore, 0, !alive && w.snapshot.exists)
	add(stepKill, 0, !alive && w.epoch > 0)
	for i, f := range w.server.inflight {
		add(stepExpire, i, w.messages[f.message].expires && !f.released && (!alive || w.liveExpiry))
		add(stepRepeat, i, alive && !f.released)
	}
	for i, m := range w.server.queue {
		add(stepExpire, -1-i, w.messages[m].expires)
	}
	add(stepWait, 0, w.connection == up && w.win.parked > 0)
	return to
}

// do lets s happen.
func (w *world) do(s step) {
	w.spent[s.kind]++
	switch s.kind {
	case stepPublish:
		if w.server.subscribed {
			w.server.queue = append(w.server.queue, w.published)
		} else {
			w.messages[w.published].excused = true // nobody subscribes
		}
		w.published++
	case stepSend:
		w.send()
	case stepToClient:
		p := w.toClient[0]
		w.toClient = append(w.toClient[:0], w.toClient[1:]...)
		w.read(p)
	case stepToServer:
		p := w.toServer[0]
		w.toServer = append(w.toServer[:0], w.toServer[1:]...)
		w.serve(p)
	case stepSettle:
		w.settle(s.arg)
	case stepHold:
		l := w.lanes[s.arg]
		w.lanes[s.arg] = append(append(l[:0:0], l[1:]...), l[0])
	case stepTake:
		w.take()
	case stepCut:
		w.cut()
	case stepConnect:
		w.accept(w.order)
	case stepLose:
		w.lose()
	case stepSnapshot:
		w.snapshot.copyFrom(&w.server)
	case stepRestore:
		w.restore()
	case stepKill:
		w.kill()
	case stepExpire:
		w.expire(s.arg)
	case stepRepeat:
		f := w.server.inflight[s.arg]
		w.toClient = append(w.toClient, packet{kind: 3, id: f.id, message: f.message, dup: true})
	case stepWait:
		w.wait()
	}
}

// expire drops message i that is in flight, or -1-i that is queued.
func (w *world) expire(i int) {
	if i < 0 {
		q := w.server.queue
		w.messages[q[-1-i]].excused = true
		w.server.queue = slices.Concat(q[:-1-i], q[-i:])
		return
	}
	f := w.server.inflight[i]
	w.messages[f.message].excused = true
	if w.connection != down {
		w.tainted |= 1 << f.id
		w.everTainted = true
	}
	w.server.remove(i)
}
