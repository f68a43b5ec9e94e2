package settle

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/eclipse/paho.golang/paho"
	"github.com/rs/zerolog"

	"github.com/settlemq/settle/internal/link"
	"github.com/settlemq/settle/internal/mutant"
)

// couriers publish retry copies and dead letters, and say that the original is settled once the server has confirmed that it
// stored them.
//
//	queued → publishing → confirmed: the original is done
//	            ↓   ↑
//	         backing off (refused, stored nowhere, unconfirmed, not connected)
//	blocked (a retry copy, while the backlog has no room or the retry topic is not subscribed) → queued
type couriers struct {
	app *App

	mu      sync.Mutex
	queued  []*errand
	blocked [2][]*errand // originals, and what follows a copy; in order
	busy    int          // goroutines
	away    int          // of busy, those whose publish is under way
	pending crew         // errands not done
}

// maxCouriers is how many publishes are under way at once. A server's Receive Maximum, which the link keeps to, is often 20.
const maxCouriers = 64

// confirmTime is how long one try waits for the server's answer before it is made again.
const confirmTime = 10 * time.Second

type errandKind uint8

const (
	errandRetry errandKind = iota // a retry copy after a failed attempt
	errandHop                     // the same copy once more, at the end of its topic
	errandDead                    // a dead letter
)

// errand is one copy or dead letter to be published.
type errand struct {
	kind   errandKind
	d      *Delivery
	cause  string
	copyID string
	due    time.Time
	tries  int
	stub   bool // the server takes no packet as large as the whole message
	again  bool // the session that had the copy is lost

	// confirmed is called when the server has stored it, or there is nothing more to try.
	confirmed func()
}

func newCouriers(app *App) *couriers { return &couriers{app: app} }

func (c *couriers) retry(d *Delivery, delay time.Duration, cause error) {
	c.accept(&errand{kind: errandRetry, d: d, cause: reason(cause), copyID: newID(), due: time.Now().Add(delay), confirmed: c.original(d)})
}

func (c *couriers) deadLetter(d *Delivery, cause error) {
	c.accept(&errand{kind: errandDead, d: d, cause: reason(cause), confirmed: c.original(d)})
}

func (c *couriers) hop(d *Delivery, copyID string, due time.Time, confirmed func()) {
	c.accept(&errand{kind: errandHop, d: d, cause: d.arrival.copied.reason, copyID: copyID, due: due, confirmed: confirmed})
}

// original settles the delivery that an errand is about.
func (c *couriers) original(d *Delivery) func() {
	return func() {
		if d.done() {
			c.app.flushAcks()
		}
	}
}

func (c *couriers) accept(e *errand) {
	if e.d.arrival.QoS == 0 && !c.app.qos0.reserve(e.d) {
		c.lose(e, errNoRoom)
		return
	}
	c.pending.Add(1)
	c.put(e, e.again) // one that goes out again has its slot, which others wait for
}

// put has an errand tried when its turn comes, or, first, before those of its class that wait.
func (c *couriers) put(e *errand, first bool) {
	c.mu.Lock()
	if e.kind == errandDead {
		c.queued = append(c.queued, e)
	} else {
		blocked := &c.blocked[e.class()]
		at := len(*blocked)
		if first {
			at = 0
		}
		*blocked = slices.Insert(*blocked, at, e)
	}
	c.mu.Unlock()
	c.pump()
}

// class says which of the blocked an errand stands with.
func (e *errand) class() int {
	if e.follows() {
		return 1
	}
	return 0
}

// pump lets blocked errands go as far as there is room for them, and sees that somebody publishes what is queued.
func (c *couriers) pump() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for class := range c.blocked {
		for len(c.blocked[class]) > 0 && c.app.returns.admit(c.blocked[class][0]) {
			c.queued = append(c.queued, c.blocked[class][0])
			c.blocked[class][0] = nil
			c.blocked[class] = c.blocked[class][1:]
		}
	}
	for c.busy < maxCouriers && c.busy-c.away < len(c.queued) {
		c.busy++
		c.app.background.Add(1)
		go c.work()
	}
}

func (c *couriers) work() {
	defer c.app.background.Done()
	for {
		c.mu.Lock()
		if len(c.queued) == 0 || c.app.halted() {
			c.busy--
			c.mu.Unlock()
			return
		}
		e := c.queued[0]
		c.queued[0] = nil
		c.queued = c.queued[1:]
		c.away++
		c.mu.Unlock()
		c.run(e)
		c.mu.Lock()
		c.away--
		c.mu.Unlock()
	}
}

// errQueueLost says that a copy was confirmed, and that the session which the server had stored it in is gone.
var errQueueLost = errors.New("the session in which the server stored the copy is gone")

// run makes one try.
func (c *couriers) run(e *errand) {
	losses := c.app.returns.lost()
	err := c.publish(e)
	rt := e.d.route
	if err == nil && !c.app.returns.published(e, losses) {
		err = errQueueLost
	}
	if err == nil || c.app.returns.arrivedAlready(e) {
		rt.metrics.copied(e.kind, nil)
		e.observe()
		e.confirmed()
		c.done(e)
		return
	}
	rt.metrics.copied(e.kind, err)
	var refused *ServerError
	switch {
	case errors.As(err, &refused) && refused.Code == packetTooLarge && e.kind == errandDead:
		e.stub = true
	case errors.As(err, &refused) && refused.Code == packetTooLarge && rt.deadLetterTo != "":
		// It cannot go round again: the server would not take it back.
		c.app.returns.cancel(e)
		e.kind, e.stub = errandDead, true
		e.cause = "too large for the server's Maximum Packet Size: " + e.cause
	case e.d.arrival.QoS == 0 && e.kind != errandHop:
		c.lose(e, err)
		c.done(e)
		return
	}
	if c.abandons(e) {
		return
	}
	e.tries++
	delay := courierBackoff(e.tries)
	level := zerolog.WarnLevel
	if errors.Is(err, ErrNotConnected) {
		level = zerolog.DebugLevel // the link says so
	}
	c.app.log.WithLevel(level).Err(err).Str("route", rt.name).Str("message_id", e.d.MessageID()).Int("tries", e.tries).Dur("again_in", delay).
		Msg("a copy was not stored by the server; its original is held and the publish is tried again")
	if !c.app.later.after(delay, e, func() { c.requeue(e) }) {
		c.done(e)
	}
}

// lose gives up the copy or the dead letter of a message at QoS 0, which nobody else has.
func (c *couriers) lose(e *errand, err error) {
	rt := e.d.route
	c.app.log.Error().Err(err).Str("route", rt.name).Str("message_id", e.d.MessageID()).
		Msg("a message at QoS 0 could not be published again: it is lost")
	rt.metrics.lost(e.kind)
	c.app.returns.cancel(e)
	e.confirmed()
}

var errNoRoom = errors.New("QoS0Queue or QoS0Bytes has no room for it while it would be published")

// abandons says that an errand is given up because the app stops. The server has the original, and sends it again.
func (c *couriers) abandons(e *errand) bool {
	if !c.app.stopping() || mustRun(e.d) {
		return false
	}
	c.app.returns.cancel(e)
	c.done(e)
	return true
}

// stop gives up the errands that wait, for the backlog, for a connection or for another try, and whose originals the server has.
func (c *couriers) stop() {
	c.mu.Lock()
	var waiting []*errand
	for class := range c.blocked {
		waiting = append(waiting, c.blocked[class]...)
		c.blocked[class] = nil
	}
	c.mu.Unlock()
	for _, key := range c.app.later.keys() {
		if e, ok := key.(*errand); ok && c.app.later.cancel(e) {
			waiting = append(waiting, e)
		}
	}
	for _, e := range waiting {
		if !c.abandons(e) {
			c.requeue(e)
		}
	}
}

// requeue gives an errand its next try. It comes before those that have had none.
func (c *couriers) requeue(e *errand) { c.put(e, true) }

func (c *couriers) done(e *errand) {
	if e.d.arrival.QoS == 0 {
		c.app.qos0.release(e.d)
	}
	c.pending.Done()
}

func courierBackoff(tries int) time.Duration {
	d := min(100*time.Millisecond<<min(tries-1, 10), 30*time.Second)
	return d - d/5 + rand.N(2*d/5)
}

const (
	// noMatchingSubscribers is the PUBACK reason code of a message that went nowhere (3.4.2.1).
	noMatchingSubscribers = 0x10
	// packetTooLarge is the reason code for a packet that exceeds the peer's Maximum Packet Size (4.13).
	packetTooLarge = 0x95
)

// publish makes one try. Its error says why the server has not stored the copy, as far as we know.
func (c *couriers) publish(e *errand) error {
	ctx, cancel := context.WithTimeout(c.app.running, confirmTime)
	defer cancel()
	p := e.packet()
	over := c.app.main.link
	if e.kind == errandDead {
		over = c.app.outbound() // a route of ours may consume them
	}
	if mutant.Unconfirmed && over.Up() { // handed to the connection is as good as stored
		e.confirmed()
		e.confirmed = func() {}
		_, _ = over.Publish(ctx, p)
		return nil
	}
	answer, err := over.Publish(ctx, p)
	if errors.Is(err, link.ErrNotSent) && e.tries >= patientTries-1 && ctx.Err() != nil && c.app.running.Err() == nil {
		if s := over.Status(); s.Connected && time.Since(s.Since) > patientTries*confirmTime {
			over.Reconnect(errNoAnswer)
		}
	}
	if err == nil && answer.Code == noMatchingSubscribers {
		return fmt.Errorf("the topic %q has no subscribers: the server has not stored the message", clip(p.Topic))
	}
	return publishError(p.Topic, answer, err)
}

// A server that leaves its answers out, on a connection that stands, uses up its own Receive Maximum with each: in the end
// nothing may be published on that connection. After so many tries that could not even be sent it is made anew, which begins the count again (4.9).
const patientTries = 3

var errNoAnswer = errors.New("the server has not answered PUBLISH for too long")

func (e *errand) packet() *paho.Publish {
	switch {
	case e.kind == errandDead && e.stub:
		return e.d.stubPacket(e.cause)
	case e.kind == errandDead:
		return e.d.deadPacket(e.cause)
	case e.kind == errandHop:
		return e.d.retryPacket(e.copyID, e.d.attempt-1, e.due, e.cause)
	default:
		return e.d.retryPacket(e.copyID, e.d.attempt, e.due, e.cause)
	}
}
