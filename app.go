package settle

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/settlemq/settle/internal/bridge"
	"github.com/settlemq/settle/internal/topic"
)

// App consumes what its routes ask for, from one MQTT server, as one client. Make it with [New], then [App.Run] it; or
// [App.Start] and [App.Stop] it.
//
// Its methods may be called from any goroutine.
type App struct {
	config Config
	codecs codecs
	log    zerolog.Logger
	epoch  time.Time // what the app's durations count from

	routes       []*route
	routesByName map[string]*route
	retryRoutes  map[string]*route   // by retry topic
	bySubID      map[uint32][]*route // by Subscription Identifier
	byTopic      topic.Trie[*route]
	batches      []*lane // those that assemble batches
	ownPublish   bool    // a main subscription has No Local: what the program publishes goes out over the second connection

	observer bridge.Observer // testkit's; nil in production
	metrics  *metrics
	main     *inbound
	retry    *inbound // nil where no route has a retry topic
	both     [2]*inbound
	qos0     qos0Bound
	holds    holds
	couriers *couriers
	returns  *returns
	later    timerSet[any] // what is tried again after a while

	workers    crew // lanes
	sorters    crew
	background crew // links, and whatever else the app has started

	flushTimer *time.Timer
	flushArmed atomic.Bool
	noRoute    noRouteLog
	qos0Once   sync.Map // route name: the warning about holds at QoS 0 is out

	handlers       context.Context //nolint:containedctx // the parent of all handlers' contexts
	cancelHandlers context.CancelCauseFunc
	running        context.Context //nolint:containedctx // what publishes on the app's own behalf; ends last
	cancelRunning  context.CancelCauseFunc
	intake         chan struct{} // closed when the app stops: nothing new is begun
	stop           chan struct{} // closed after that, when the sorters are done: the lanes finish

	mu         sync.Mutex
	middleware []Middleware
	phase      phase
	err        error
	done       chan struct{}
	stopped    chan struct{} // Stop has returned its result
	stopErr    error
}

// phase is where an app is in its life. It goes one way.
type phase uint8

const (
	phaseNew      phase = iota
	phaseStarting       // Start is asking middleware, which is user code
	phaseRunning
	phaseStopping
	phaseEnded
)

// New makes an app of a configuration and its routes. All that is wrong with them is reported at once: the error is an [errors.Join] of
// *[ConfigError]. New starts nothing and dials nowhere.
func New(cfg Config, routes ...Route) (*App, error) {
	cfg = cfg.withDefaults()
	specs := resolveRoutes(&cfg, routes)
	if err := validate(&cfg, specs); err != nil {
		return nil, err
	}
	a := &App{
		config:       cfg,
		codecs:       newCodecs(cfg.Codecs),
		log:          cfg.Logger,
		epoch:        time.Now(),
		routesByName: make(map[string]*route, len(specs)),
		retryRoutes:  make(map[string]*route),
		intake:       make(chan struct{}),
		stop:         make(chan struct{}),
		done:         make(chan struct{}),
		stopped:      make(chan struct{}),
	}
	if cfg.Name != "" {
		a.log = a.log.With().Str("app", cfg.Name).Logger()
	}
	a.qos0.maxCount, a.qos0.maxBytes = int64(cfg.QoS0Queue), int64(cfg.QoS0Bytes)
	a.holds.app = a
	a.couriers = newCouriers(a)
	a.returns = newReturns(a)
	a.flushTimer = time.AfterFunc(time.Hour, a.flushLater)
	a.flushTimer.Stop()

	for _, spec := range specs {
		a.addRoute(spec)
	}
	a.connect()
	var err error
	if a.metrics, err = newMetrics(cfg.Metrics, cfg.Name, gauges{
		unacked:   func() float64 { return float64(a.main.window.Unacknowledged()) },
		oldest:    func() float64 { return a.main.oldest().Seconds() },
		connected: func() bool { return a.main.link.Status().Connected },
	}); err != nil {
		return nil, err
	}
	for _, rt := range a.routes {
		rt.metrics = a.metrics.route(rt.routeSpec)
	}
	return a, nil
}

// Use puts middleware around the handlers of all routes; it is outside of what a route has by [With], and the first given
// is the outermost. To call it after Start is a programming error, and panics.
func (a *App) Use(middleware ...Middleware) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.phase != phaseNew {
		panic("settle: App.Use was called after Start: middleware has to be there before the first delivery is")
	}
	for _, m := range middleware {
		if m == nil {
			panic("settle: App.Use was given a nil Middleware")
		}
	}
	a.middleware = append(a.middleware, middleware...)
}

// Start begins to dial and returns: the connection is made, and made again, in the background. [App.WaitReady] waits for it.
// Handlers inherit the values of ctx; its end does not stop the app. Start fails with [ErrClosed] on an app that has been
// started or stopped: an app runs once.
func (a *App) Start(ctx context.Context) error {
	if !a.advance(phaseNew, phaseStarting) {
		return fmt.Errorf("%w: an app can be started once", ErrClosed)
	}
	values := context.WithoutCancel(ctx)
	a.handlers, a.cancelHandlers = context.WithCancelCause(values)
	a.running, a.cancelRunning = context.WithCancelCause(values)
	for _, rt := range a.routes {
		rt.buildChain(a.middleware)
	}
	a.warnAtStart()

	a.mu.Lock()
	defer a.mu.Unlock()
	if a.phase != phaseStarting {
		return fmt.Errorf("%w: the app was stopped while it was started", ErrClosed)
	}
	a.phase = phaseRunning
	for _, rt := range a.routes {
		rt.start()
	}
	a.dial()
	return nil
}

// advance moves the app from one phase to the next, and reports whether it was in the first.
func (a *App) advance(from, to phase) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.phase != from {
		return false
	}
	a.phase = to
	return true
}

// Run is the life of a service in one call: it starts the app, and stops it when ctx ends, or on SIGTERM or SIGINT. It returns nil
// after a clean drain, a *[DrainError] where something had not settled in time, and the reason where the app ended by itself. A second
// signal, while it drains, ends the process as it would without Settle.
func (a *App) Run(ctx context.Context) error {
	signals, release := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer release()
	if err := a.Start(ctx); err != nil {
		return err
	}
	select {
	case <-signals.Done():
	case <-a.Done():
	}
	release()
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.config.ShutdownTimeout+stopMargin)
	defer cancel()
	return errors.Join(a.Err(), a.Stop(drain))
}

// stopMargin is what Run gives Stop beyond ShutdownTimeout, for the farewell to the server.
const stopMargin = 5 * time.Second

// Done is closed when the app has ended: after Stop, or by itself, because the server says that the configuration is
// wrong. [App.Err] tells which.
func (a *App) Done() <-chan struct{} { return a.done }

// Err is why the app ended by itself; nil while it runs, and after Stop.
func (a *App) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

// now is the time since the app's epoch, by the monotonic clock.
func (a *App) now() time.Duration { return time.Since(a.epoch) }

// stopping says that the lanes begin nothing that the server would send again.
func (a *App) stopping() bool {
	return isClosed(a.stop)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// halted says that nothing at all is to be begun any more.
func (a *App) halted() bool { return a.running.Err() != nil }

// spawn runs f on a goroutine that Stop waits for.
func (a *App) spawn(f func()) {
	a.background.Add(1)
	go func() {
		defer a.background.Done()
		f()
	}()
}

// flushAcks has the acknowledgements written that are due.
func (a *App) flushAcks() {
	for _, in := range a.inbounds() {
		if in.window.Due() {
			in.link.FlushAcks()
		}
	}
}

// flushSoon makes sure that acknowledgements which a lane puts off, because it has more to do, leave all the same.
func (a *App) flushSoon() {
	if !a.flushArmed.Load() && a.flushArmed.CompareAndSwap(false, true) {
		a.flushTimer.Reset(flushDelay)
	}
}

// flushDelay bounds how long a due acknowledgement may wait for the lane that settled it.
const flushDelay = time.Millisecond

func (a *App) flushLater() {
	a.flushArmed.Store(false)
	a.flushAcks()
}

func (a *App) inbounds() []*inbound {
	if a.retry == nil {
		return a.both[:1]
	}
	return a.both[:]
}

// route is a route of an app at work.
type route struct {
	*routeSpec
	app       *App
	metrics   *routeMetrics
	lanes     []*lane
	sorter    *sorter // where the key is a function of the user's
	chain     Next
	turn      atomic.Uint32
	heldNow   atomic.Int64 // deliveries held
	unsettled atomic.Int64 // deliveries that the route has and has not settled, those held included
	seed      maphash.Seed
}

func (a *App) addRoute(spec *routeSpec) {
	rt := &route{routeSpec: spec, app: a, seed: maphash.MakeSeed()}
	for i := range spec.workers {
		rt.lanes = append(rt.lanes, newLane(rt, i))
	}
	if spec.keyKind == keyCustom && spec.workers > 1 {
		rt.sorter = &sorter{queue: newQueue(), route: rt}
	}
	a.routes = append(a.routes, rt)
	a.routesByName[spec.name] = rt
	if spec.retryTo != "" {
		a.retryRoutes[spec.retryTo] = rt
	}
	if spec.batch {
		a.batches = append(a.batches, rt.lanes...)
	}
}

func (rt *route) start() {
	for _, l := range rt.lanes {
		rt.app.workers.Add(1)
		go l.work()
	}
	if rt.sorter != nil {
		rt.app.sorters.Add(1)
		go rt.sorter.work()
	}
}

// queueFor is the queue that a delivery goes into: its lane's, or the sorter's.
func (rt *route) queueFor(d *Delivery) *queue {
	switch {
	case rt.sorter != nil:
		return rt.sorter.queue
	case len(rt.lanes) == 1:
		return rt.lanes[0].queue
	case rt.keyKind == keyUser:
		key, _ := d.arrival.UserProperty(PartitionKeyHeader)
		return rt.laneFor(key).queue
	case rt.keyKind == keyTopic:
		return rt.laneFor(d.Topic()).queue
	}
	return rt.laneFor("").queue
}

// laneFor is the lane of a key. Deliveries without one take turns.
func (rt *route) laneFor(key string) *lane {
	n := uint64(len(rt.lanes))
	if key == "" {
		return rt.lanes[uint64(rt.turn.Add(1))%n]
	}
	return rt.lanes[maphash.String(rt.seed, key)%n]
}

// enqueue puts one delivery where it is to be handled, now.
func (rt *route) enqueue(d *Delivery) {
	if o := rt.app.observer; o != nil {
		o.Queued(d)
	}
	var c chain
	c.push(d)
	rt.app.enqueue(rt.queueFor(d), c)
}

// enqueue puts deliveries into a queue and wakes its lane.
func (a *App) enqueue(q *queue, c chain) {
	for d := c.head; d != nil; {
		next := d.next
		if d.arrival.QoS == 0 {
			a.wait0(d, q)
		}
		d = next
	}
	q.append(c)
	q.signal()
}

// handling adds to the deliveries that the route has; n may be negative.
func (rt *route) handling(n int) {
	rt.unsettled.Add(int64(n))
	rt.metrics.inflight(n)
}

// wakeBatches has lanes that assemble a batch see whether more can come.
func (a *App) wakeBatches() {
	for _, l := range a.batches {
		l.signal()
	}
}
