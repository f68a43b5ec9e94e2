package settle

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/settlemq/settle/internal/link"
	"github.com/settlemq/settle/internal/window"
	"github.com/settlemq/settle/internal/wire"
)

// inbound is the inbound half of one session: what its connection reads goes through its window to the routes. An app
// has one for its subscriptions and, if a route has a retry topic, one for what comes back from there.
//
// It implements link.Receiver: the reader calls it, so nothing here waits for user code or writes (see slowDown for what comes closest).
type inbound struct {
	app    *App
	name   string // "main" or "retry", for logs and errors
	index  int    // which of a queue's staged chains is this one's
	window *window.Window
	link   *link.Link
	log    zerolog.Logger

	// deliver passes on an arrival that is to be handled. mu is held; what it stages is handed on when the run of frames is over.
	deliver func(*arrival)
	lost    func() // what is to be done when the server has lost the session; may be nil

	// mu makes sure that one goroutine at a time passes arrivals on, or what was parked could be overtaken.
	mu       sync.Mutex
	session  link.Session
	counted  bool // the present attempt to connect has been counted: it was accepted
	slab     []arrival
	due      []*window.Entry
	matched  []*route
	staged   []*queue
	proof    *time.Timer // until when parked deliveries wait for proof
	proofEnd time.Time   // the latest that it may be set to
	draining bool        // the app stops: what arrives now is left to the session
	arrived  time.Duration

	received     atomic.Int64 // when the last delivery came, since the app's epoch
	acknowledged atomic.Int64 // when acknowledgements were last handed to the connection

	// How far a server may exceed Receive Maximum before it is slowed down, for how long at a time, and what tells that
	// acknowledgements have left.
	overrun  int
	pause    time.Duration
	progress chan struct{}

	// Memory that arrivals take up until they are settled.
	memory room
}

// slabSize is how many arrivals are allocated at once. All of a slab is kept as long as anybody holds one of its deliveries.
const slabSize = 16

const (
	// proofTime is how long parked deliveries wait to be proved acknowledged before they are handled again.
	proofTime = 5 * time.Second
	// fullTime is how long they wait after the last frame where the window is full: a server that keeps to Receive Maximum sends
	// nothing more before something is acknowledged. Mosquitto 2.0.11 does not keep to it, and the proof is often in what exceeds it.
	fullTime = 250 * time.Millisecond
)

func (in *inbound) newArrival() *arrival {
	if len(in.slab) == 0 {
		in.slab = make([]arrival, slabSize)
	}
	a := &in.slab[0]
	in.slab = in.slab[1:]
	a.in = in
	a.Owner = a
	return a
}

// Begin starts an epoch.
func (in *inbound) Begin(s link.Session) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if s.Epoch > 1 && !s.Present && in.app.config.SessionExpiry >= 0 {
		in.app.metrics.sessionLost()
		in.app.spawn(func() { // whoever reads the log may be slow
			in.log.Warn().Str("server", s.Server).
				Msg("the server has lost the session: what it had queued is gone; what this process holds is still handled")
		})
	}
	if s.Epoch > 1 && !(s.Present && s.SameServer) && in.lost != nil { // another server's session is not the one that we know
		defer in.lost()
	}
	in.app.metrics.connection(connectAccepted)
	in.session, in.counted = s, true
	in.window.Begin(s.Epoch, s.Present && s.SameServer && s.Epoch > 1)
}

// Publish takes in one message. It is the hot path: it allocates nothing of its own but slabs.
func (in *inbound) Publish(f wire.Frame) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.draining {
		return nil
	}
	a := in.newArrival()
	if err := wire.ParsePublish(f, &a.Publish); err != nil {
		return err //nolint:wrapcheck // it is a *wire.Error, for the link
	}
	if in.arrived == 0 {
		in.arrived = in.app.now()
		in.received.Store(int64(in.arrived))
	}
	a.At = int64(in.arrived)
	if a.QoS == 0 {
		in.deliver(a)
		return nil
	}
	if !in.memory.take(a.size()) {
		return &wire.Error{Code: receiveMaximumExceeded, Reason: "more unacknowledged bytes than Receive Maximum and MaxPayload allow"}
	}
	var what window.Arrival
	what, in.due = in.window.Arrive(&a.Entry, in.due[:0])
	if what != window.Fresh { // it is not handled, or not now
		in.memory.give(a.size())
		in.app.metrics.arrival(what)
	}
	in.deliverDue(&a.Entry)
	return nil
}

// deliverDue passes on what is to be handled now. But for fresh, it was parked until now, and did not count as held.
func (in *inbound) deliverDue(fresh *window.Entry) {
	for i, e := range in.due {
		a := e.Owner.(*arrival) //nolint:forcetypeassert // newArrival sets it
		if e != fresh {
			in.memory.used.Add(a.size())
		}
		in.due[i] = nil
		in.deliver(a)
	}
}

// receiveMaximumExceeded is the DISCONNECT reason code for a server that sends too much (4.9).
const receiveMaximumExceeded = 0x93

// Pubrel takes in a PUBREL: PUBCOMP is due.
func (in *inbound) Pubrel(id uint16, _ byte) { in.window.Pubrel(id) }

// Flush hands on what one read of the socket held.
func (in *inbound) Flush() {
	in.handOn()
	in.slowDown()
}

// slowDown lets a server wait, held up by TCP, that sends far more than Receive Maximum: for as long as acknowledgements leave, until the
// lanes have made up, and not for long. Mosquitto 2.0.11 has been seen to send 65,535 ahead and to use identifiers again that were
// in flight. Where nothing is settled, because handlers hang or wait for an answer that stands further back in the stream, it is over in a
// blink; and a connection from which anything comes is alive, so keep-alive does not mind.
func (in *inbound) slowDown() {
	if in.window.Unacknowledged() <= in.overrun {
		return
	}
	all := time.NewTimer(in.pause)
	defer all.Stop()
	still := time.NewTimer(blink)
	defer still.Stop()
	for in.window.Unacknowledged() > in.overrun/2 && !isClosed(in.app.intake) {
		select {
		case <-in.progress:
			still.Reset(blink)
		case <-in.app.intake:
		case <-still.C:
			return
		case <-all.C:
			return
		}
	}
}

// blink is how long a reader that holds up its server waits for the next acknowledgement to leave.
const blink = 10 * time.Millisecond

// handOn is Flush without the wait.
func (in *inbound) handOn() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.arrived = 0
	in.flushStaged()
	in.watchParked()
	if in.window.Due() {
		in.link.WakeWriter()
	}
	if len(in.app.batches) > 0 && in.window.Full() {
		in.app.wakeBatches() // nothing more will come to fill them
	}
}

// watchParked sees to it that parked deliveries do not wait for ever.
func (in *inbound) watchParked() {
	if in.window.Parked() == 0 {
		return
	}
	if in.proof == nil {
		epoch := in.session.Epoch
		in.proof = time.AfterFunc(proofTime, func() { in.releaseParked(epoch) })
		in.proofEnd = time.Now().Add(proofTime)
	}
	if in.window.Full() {
		in.proof.Reset(min(fullTime, max(time.Until(in.proofEnd), 0)))
	}
}

func (in *inbound) releaseParked(epoch uint64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.proof = nil
	if in.draining {
		return
	}
	in.due = in.window.ReleaseParked(epoch, in.due[:0])
	in.deliverDue(nil)
	in.flushStaged()
	if in.window.Due() { // what no route wants, or a copy that took another's place
		in.link.WakeWriter()
	}
}

// End says that the connection is gone.
func (in *inbound) End(error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.arrived = 0
	in.flushStaged()
	in.window.End()
	if in.proof != nil {
		in.proof.Stop()
		in.proof = nil
	}
}

// down says that an attempt to connect, or a connection, has ended.
func (in *inbound) down(err error, _ time.Duration) {
	in.mu.Lock()
	defer in.mu.Unlock()
	var refused *link.ConnectError
	switch {
	case in.counted:
	case errors.As(err, &refused):
		in.app.metrics.connection(connectRefused)
	default:
		in.app.metrics.connection(connectFailed)
	}
	in.counted = false
}

// stage puts a delivery into a queue when the present run of frames is over: a lock and a wake-up a run, not a message.
func (in *inbound) stage(q *queue, d *Delivery) {
	c := &q.staged[in.index]
	if c.head == nil {
		in.staged = append(in.staged, q)
	}
	c.push(d)
}

func (in *inbound) flushStaged() {
	for i, q := range in.staged {
		c := q.staged[in.index]
		q.staged[in.index] = chain{}
		in.staged[i] = nil
		in.app.enqueue(q, c)
	}
	in.staged = in.staged[:0]
}

// TakeAcks implements link.AckSource.
func (in *inbound) TakeAcks(epoch uint64, dst []byte) []byte {
	before := len(dst)
	dst = in.window.TakeAcks(epoch, dst)
	if len(dst) > before {
		in.acknowledged.Store(int64(in.app.now()))
		select {
		case in.progress <- struct{}{}:
		default:
		}
		in.app.changed()
		in.app.metrics.acks(dst[before:])
	}
	return dst
}

// finish says that all routes have settled a. It reports whether acknowledgements are due.
func (in *inbound) finish(a *arrival) (due bool) {
	if a.QoS == 0 {
		return false
	}
	due, stale := in.window.Settle(&a.Entry)
	if stale {
		in.app.metrics.staleAck()
	}
	in.memory.give(a.size())
	return due
}

// serverHas says that the server keeps the message until we acknowledge it, also if this process ends.
func (in *inbound) serverHas(a *arrival) bool {
	return a.QoS > 0 && in.app.config.SessionExpiry >= 0 && in.window.Holds(&a.Entry)
}

// drain stops the intake: what arrives from now on is left to the session.
func (in *inbound) drain() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.draining = true
	in.flushStaged()
}

// roomTime is how long a dial waits for room at the most.
const roomTime = 30 * time.Second

// room bounds the memory that arrivals take up. Those of a connection that is gone count as well, until they are settled: so the
// next connection waits for room.
type room struct {
	limit int64 // beyond it nothing is taken in
	early int64 // beyond it no connection is made
	used  atomic.Int64
	freed chan struct{}
}

func newRoom(limit, early int64) room {
	return room{limit: limit, early: early, freed: make(chan struct{}, 1)}
}

func (r *room) take(n int64) bool {
	if r.used.Add(n) <= r.limit {
		return true
	}
	r.used.Add(-n)
	return false
}

func (r *room) give(n int64) {
	if r.used.Add(-n) < r.early {
		select {
		case r.freed <- struct{}{}:
		default:
		}
	}
}

// wait returns when there is room for another connection's deliveries; or after a while all the same, because those that
// fill it may need a connection to be settled.
func (r *room) wait(ctx context.Context) error {
	if r.used.Load() < r.early {
		return nil
	}
	patience := time.NewTimer(roomTime)
	defer patience.Stop()
	for r.used.Load() >= r.early {
		select {
		case <-r.freed:
		case <-patience.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
