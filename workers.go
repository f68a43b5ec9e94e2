package settle

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// A lane runs one call after the other. Its goroutine takes a delivery, or assembles a batch, calls the route's chain
// and settles what comes back. When a handler outlives its timeout, the lane leaves that goroutine behind, a
// stray, and goes on with a new one.
//
//	worker:  waiting → running → settling → waiting
//	                  running → (timeout: the watch claims the run) → stray → gone, or worker again if the lane waits for one
//
// Whoever claims a run settles its deliveries: the worker when the handler returns, or the watch when its time is over.
type lane struct {
	*queue
	route *route
	index int

	current atomic.Pointer[run]

	watch   *time.Timer
	watchAt atomic.Int64 // when watch fires, since the app's epoch; 0: it does not

	strayMu sync.Mutex
	strays  int
	halted  bool // as many strays as may be: no worker until one of them ends

	dirty   bool // acknowledgements are due that this worker has not written
	flushed time.Duration
}

// maxStrays is how many handlers a lane leaves behind before it waits for one of them to end. More would let a handler that
// never returns eat the memory, one timeout at a time.
const maxStrays = 8

// flushEvery is how long a busy worker may put off writing acknowledgements that are due.
const flushEvery = 250 * time.Microsecond

func newLane(rt *route, index int) *lane {
	l := &lane{queue: newQueue(), route: rt, index: index}
	l.watch = time.AfterFunc(time.Hour, l.expire)
	l.watch.Stop()
	return l
}

func (l *lane) base() context.Context { return l.route.app.handlers }
func (l *lane) clock() time.Time      { return l.route.app.epoch }

// work is the lane's goroutine.
func (l *lane) work() {
	defer l.route.app.workers.Done()
	l.loop()
}

func (l *lane) loop() {
	for {
		r := l.next()
		if r == nil {
			l.flush()
			return
		}
		if !l.execute(r) {
			return
		}
	}
}

// next waits for what is to be run next; nil means that the app stops and nothing is left that would be lost.
func (l *lane) next() *run {
	app := l.route.app
	for {
		stopping := app.stopping()
		var only func(*Delivery) bool
		if stopping {
			if app.halted() { // Stop has returned: no handler is called behind its back
				return nil
			}
			only = runsAtStop
		}
		if d := l.take(only); d != nil {
			if l.route.batch {
				return l.assemble(d)
			}
			d.run.lane, d.run.one, d.lane = l, d, l.index
			return &d.run
		}
		if stopping {
			return nil
		}
		l.flush()
		select {
		case <-l.wake:
		case <-app.stop:
		}
	}
}

// mustRun says that nobody else has the message: it is handled even though the app stops.
func mustRun(d *Delivery) bool { return !d.arrival.in.serverHas(d.arrival) }

// runsAtStop says that a delivery is handled even though the app stops: because nobody else has it, or because it came before one
// that another lane has settled, which would be handled again for want of its acknowledgement.
func runsAtStop(d *Delivery) bool { return d.arrival.blocks.Load() || mustRun(d) }

// flush writes the acknowledgements that are due.
func (l *lane) flush() {
	if l.dirty {
		l.dirty = false
		l.route.app.flushAcks()
	}
}

// execute calls the chain and settles what it returns. It reports whether the worker goes on.
func (l *lane) execute(r *run) (goesOn bool) {
	returned := false
	var outcomes Outcomes
	defer func() {
		if returned {
			return
		}
		// A middleware panicked, or somebody called runtime.Goexit and this goroutine ends.
		v := recover()
		exits := v == nil
		outcomes = l.route.panicked(r, v, debug.Stack())
		goesOn = l.finish(r, outcomes)
		if exits && goesOn {
			l.route.app.workers.Add(1)
			go l.work()
		}
	}()
	l.current.Store(r)
	outcomes = l.route.chain(r)
	returned = true
	return l.finish(r, outcomes)
}

// finish ends a run whose chain has returned.
func (l *lane) finish(r *run, outcomes Outcomes) (goesOn bool) {
	app := l.route.app
	if !r.claim() {
		// Too late: the watch has settled it and the lane has gone on.
		l.route.metrics.stale(r.size())
		r.handled(app.now())
		r.end(errReturned)
		return l.strayEnded()
	}
	l.current.Store(nil)
	now := app.now()
	r.handled(now)
	l.settle(r, outcomes)
	r.end(errReturned)
	if l.dirty {
		if now-l.flushed > flushEvery {
			l.flushed = now
			l.flush()
		} else {
			app.flushSoon()
		}
	}
	return true
}

// settle carries out one outcome for each delivery of a run.
func (l *lane) settle(r *run, outcomes Outcomes) {
	if r.one != nil {
		l.dirty = r.one.settle(l.route.checked(outcomes, 1).At(0)) || l.dirty
		return
	}
	outcomes = l.route.checked(outcomes, len(r.batch))
	for i, d := range r.batch {
		l.dirty = d.settle(outcomes.At(i)) || l.dirty
	}
}

// guard makes sure that the watch fires no later than at.
func (l *lane) guard(at, now time.Duration) {
	if l.watchAt.Load() == 0 && l.watchAt.CompareAndSwap(0, int64(at)) {
		l.watch.Reset(at - now)
	}
}

// expire is the watch. It is set once for many runs, so it first has to see whether the present one is over its time.
func (l *lane) expire() {
	l.watchAt.Store(0)
	r := l.current.Load()
	if r == nil {
		return
	}
	at := time.Duration(r.deadline.Load())
	if at == 0 {
		return
	}
	if now := l.route.app.now(); now < at {
		l.guard(at, now)
		return
	}
	rt := l.route
	rt.app.workers.Add(1) // the next worker: a lane that seems to have none would be given one by Stop
	if !r.claim() {
		rt.app.workers.Done()
		return
	}
	l.current.Store(nil)
	r.end(ErrHandlerTimeout)
	rt.timedOut(r)
	rt.app.flushAcks()

	l.strayMu.Lock()
	l.strays++
	l.halted = l.strays >= maxStrays
	halted := l.halted
	l.strayMu.Unlock()
	if halted {
		rt.app.workers.Done()
		rt.app.log.Error().Str("route", rt.name).Int("lane", l.index).Int("strays", maxStrays).
			Msg("handlers ignore the end of their context; the lane waits until one of them returns")
		return
	}
	go l.work()
}

// isHalted says that the lane waits for handlers that ignore the end of their context.
func (l *lane) isHalted() bool {
	l.strayMu.Lock()
	defer l.strayMu.Unlock()
	return l.halted
}

// strayEnded is what a worker does that the lane has left behind: it ends, unless the lane waits for it.
func (l *lane) strayEnded() (goesOn bool) {
	l.strayMu.Lock()
	defer l.strayMu.Unlock()
	l.strays--
	goesOn, l.halted = l.halted, false
	return goesOn
}

// begin starts the handler's timeout: what comes before it, middleware that waits for instance, is not the handler's.
func (r *run) begin() {
	l := r.lane
	now := l.route.app.now()
	r.began.Store(int64(now) + 1)
	if timeout := l.route.timeout; timeout > 0 {
		r.deadline.Store(int64(now + timeout))
		l.guard(now+timeout, now)
	}
}

// handled counts how long the handler took, if it was called. A middleware may have called it on another goroutine, and be gone before it.
func (r *run) handled(now time.Duration) {
	if began := r.began.Load(); began != 0 {
		r.lane.route.metrics.handled(max(now-time.Duration(began-1), 0))
	}
}

// claim decides who settles the run's deliveries.
func (r *run) claim() bool { return r.claimed.CompareAndSwap(false, true) }

func (r *run) route() *route { return r.lane.route }
func (r *run) app() *App     { return r.lane.route.app }

// sorter runs a route's own key function, which is user code: on a goroutine of its own, not on the reader's.
type sorter struct {
	*queue
	route *route
}

func (s *sorter) work() {
	app := s.route.app
	sorted := false
	defer func() {
		if !sorted { // a key function called runtime.Goexit
			app.sorters.Add(1)
			go s.work()
		}
		app.sorters.Done()
	}()
	for {
		over := isClosed(app.intake) // read before the queue is: nothing comes after it
		if d := s.take(nil); d != nil {
			s.sort(d)
			continue
		}
		if over {
			sorted = true
			return
		}
		select {
		case <-s.wake:
		case <-app.intake:
		}
	}
}

// sort finds the lane of a delivery. A key function that panics is a failed attempt.
func (s *sorter) sort(d *Delivery) {
	returned := false
	defer func() {
		if returned {
			return
		}
		fault := &PanicError{Delivery: d, Value: recover(), Stack: debug.Stack()}
		if d.settle(s.route.ask(s.route.onPanic, fault)) {
			s.route.app.flushAcks()
		}
	}()
	key := s.route.key(d)
	returned = true
	var c chain
	c.push(d)
	s.route.app.enqueue(s.route.laneFor(key).queue, c)
}

// take takes the next delivery out of the queue, or returns nil.
func (rt *route) take(q *queue, only func(*Delivery) bool) *Delivery {
	for {
		d := q.pop(only)
		if d == nil || d.arrival.QoS > 0 || rt.app.qos0.leave(d) {
			return d
		}
		// It was dropped while it was taken out.
	}
}

func (l *lane) take(only func(*Delivery) bool) *Delivery   { return l.route.take(l.queue, only) }
func (s *sorter) take(only func(*Delivery) bool) *Delivery { return s.route.take(s.queue, only) }

// checked makes outcomes one for each of n deliveries, and says so if they were not.
func (rt *route) checked(outcomes Outcomes, n int) Outcomes {
	outcomes, err := outcomes.resolve(n)
	if err != nil {
		rt.app.log.Error().Str("route", rt.name).Err(err).Msg("wrong number of outcomes; deliveries without one are retried")
	}
	return outcomes
}

// errNoRun is what a middleware is told that calls next with a context that does not come from the one it was given.
func errNoRun(route string) string {
	return fmt.Sprintf("settle: route %q: a middleware called next with a context that is not derived from its own", route)
}
