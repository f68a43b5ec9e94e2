package settle

import (
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// holds are the deliveries that are kept unacknowledged on purpose, in memory, to be run again.
//
//	held → (due) → waiting in its lane
//	held → (the app stops) → left to the session, or run now where nobody else has the message
//	kept: left to the session
type holds struct {
	app  *App
	set  timerSet[*Delivery]
	said atomic.Int64 // when a full window was last logged, since the app's epoch
}

// sayFullEvery is how often a window that is full while deliveries are held is logged.
const sayFullEvery = 10 * time.Second

func (h *holds) hold(d *Delivery, delay time.Duration) {
	rt := d.route
	next := d.again(d.attempt + 1)
	rt.holding(1)
	if d.arrival.QoS == 0 {
		h.app.warnQoS0Hold(rt)
		h.app.wait0(next, nil)
	}
	if !h.set.after(delay, next, func() {
		rt.holding(-1)
		if next.arrival.QoS > 0 || h.app.qos0.leave(next) {
			rt.enqueue(next)
		}
	}) {
		rt.holding(-1)
		h.keep(d)
		return
	}
	if next.settled.Load() && h.set.cancel(next) { // dropped at once, for want of room
		rt.holding(-1)
		return
	}
	if d.arrival.QoS > 0 && d.arrival.in.window.Full() {
		h.sayFull(d.arrival.in)
	}
}

// keep holds a delivery for good: the app is stopping.
func (h *holds) keep(d *Delivery) {
	if mustRun(d) {
		h.app.log.Error().Str("route", d.route.name).Str("message_id", d.MessageID()).
			Msg("the app stopped before this message could be handled, and the server does not have it: it is lost")
	}
}

// sayFull names the routes whose holds keep a full window from moving.
func (h *holds) sayFull(in *inbound) {
	now, said := int64(h.app.now()), h.said.Load()
	if said != 0 && time.Duration(now-said) < sayFullEvery || !h.said.CompareAndSwap(said, now) {
		return
	}
	held := zerolog.Dict()
	for _, rt := range h.app.routes {
		if n := rt.heldNow.Load(); n > 0 {
			held = held.Int64(rt.name, n)
		}
	}
	in.log.Warn().Dict("held_by_route", held).
		Msg("the window is full and deliveries are held in it: nothing more comes until one is settled; a retry topic would take no slot, see settle.RetryTo")
}

func (rt *route) holding(n int) {
	rt.heldNow.Add(int64(n))
	rt.metrics.held(n)
}
