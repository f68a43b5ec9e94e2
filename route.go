package settle

import (
	"context"
	"reflect"
	"strconv"
	"time"
)

// QoS is a Quality of Service (MQTT 5 section 4.3). It is an option of a route, where it is the highest that the
// subscription asks for, and of a publish; both default to [AtLeastOnce]. The server delivers each message at the lower
// of what its publisher and the subscription asked for.
type QoS byte

const (
	// AtMostOnce is QoS 0: no acknowledgement, no redelivery. Deliveries pass through a bounded queue that drops the
	// oldest (Config.QoS0Queue); what a crash, a cut or that bound meets is gone.
	AtMostOnce QoS = 0
	// AtLeastOnce is QoS 1: the server keeps the message until our PUBACK, which leaves when the delivery is settled.
	AtLeastOnce QoS = 1
	// ExactlyOnce is QoS 2: the server keeps the message until our PUBREC, which leaves when the delivery is settled,
	// and the handshake keeps what was received from being handled again. It promises one transfer between server and
	// client, not one run of the handler: a process that crashes before its PUBREC handles the message again.
	ExactlyOnce QoS = 2
)

// String returns "0", "1" or "2", as in the qos label of settle_deliveries_total.
func (q QoS) String() string {
	switch q {
	case AtMostOnce:
		return "0"
	case AtLeastOnce:
		return "1"
	case ExactlyOnce:
		return "2"
	default:
		return "invalid"
	}
}

// Next is what a [Middleware] is wrapped around: the rest of the chain and at its end decoding and the handler. It
// returns one outcome for each delivery of DeliveriesFrom(ctx), in their order.
type Next func(ctx context.Context) Outcomes

// Middleware wraps the handling of deliveries, single ones and batches alike. It is called once for each route
// when the app starts, and the Next that it returns is called from all of the route's lanes at once.
//
// A middleware may wait, replace the context, change outcomes, or return [Every] of an outcome of its own without
// calling next; it must not call next twice, and calls it
// on the goroutine that it was called on. Decoding and the handler's timeout start inside the chain. The first one
// given is the outermost.
type Middleware func(Next) Next

// Route is a topic filter with its handler and its options, made by [Handle] or [HandleBatch] and given to [New]. It is
// immutable, and may be given to several apps. The zero Route is refused by New.
type Route struct{ spec *routeSpec }

// RouteOption is an option of a route, for [Handle], [HandleBatch] and Config.RouteDefaults. Its implementations are
// this package's.
type RouteOption interface{ applyRoute(*routeSpec) }

type routeOptionFunc func(*routeSpec)

func (f routeOptionFunc) applyRoute(s *routeSpec) { f(s) }

// keyKind tells how a route finds the key of a delivery.
type keyKind uint8

const (
	keyNone   keyKind = iota // deliveries take turns among the lanes
	keyUser                  // ByKey: the user property, read without a call
	keyTopic                 // ByTopic
	keyCustom                // a function of the user's own
)

// routeSpec is what a route asks for. Handle and HandleBatch make it from the route's own options; resolve lays these
// over the defaults, on a copy, so that one Route can serve several apps.
type routeSpec struct {
	filter  string
	typ     reflect.Type // T: what one payload is decoded into
	batch   bool
	noFunc  bool // the handler is nil
	options []RouteOption

	one  func(ctx context.Context, r *run) (Outcome, error)                        // decodes and calls the handler of a single route
	many func(ctx context.Context, r *run, view *decoded, faults []error) Outcomes // the same for a batch route

	index    int            // among the routes given to New
	set      settings       // what the layer being applied has set: the defaults, then the route's own options
	problems []*ConfigError // what that layer's options found wrong by themselves

	name, group   string
	qos           QoS
	workers       int
	key           KeyFunc
	keyKind       keyKind
	timeout       time.Duration // 0: no limit
	retryTo       string
	backoff       BackoffPolicy
	maxAttempts   int // 0: unlimited
	dropExhausted bool
	deadLetterTo  string
	batchSize     int
	linger        time.Duration
	encoding      string
	allowEmpty    bool
	onDecode      func(error) Outcome
	onPanic       func(error) Outcome
	onTimeout     func(error) Outcome
	onOversize    func(error) Outcome
	middleware    []Middleware
}

// settings is a set of options that were given, so that a value is checked once, where it was written.
type settings uint32

const (
	setQoS settings = 1 << iota
	setName
	setWorkers
	setTimeout
	setRetryTo
	setBackoff
	setDropExhausted
	setDeadLetterTo
	setShared
	setBatchSize
	setLinger
	setEncoding
	setOnDecode
	setOnPanic
	setOnTimeout
	setOnOversize
)

func (s settings) has(t settings) bool { return s&t != 0 }

// defaultAttempts is MaxAttempts where there is a dead-letter topic and nothing else was said.
const defaultAttempts = 10

func newRouteSpec(filter string, typ reflect.Type, batch, noFunc bool, options []RouteOption) *routeSpec {
	return &routeSpec{filter: filter, typ: typ, batch: batch, noFunc: noFunc, options: options}
}

// resolve returns a copy of s with every setting in its final form: the package's defaults, then cfg.RouteDefaults,
// then the route's own options. cfg has its defaults filled in. Afterwards set and problems tell about the own options
// only.
func (s *routeSpec) resolve(index int, cfg *Config) *routeSpec {
	r := *s
	r.index = index
	r.qos = AtLeastOnce
	r.workers = 1
	r.timeout = 30 * time.Second
	r.backoff = defaultBackoff
	r.batchSize = min(64, cfg.ReceiveMaximum)
	r.linger = 20 * time.Millisecond
	r.onDecode, r.onOversize = Reject, Reject
	r.onPanic, r.onTimeout = Retry, Retry

	r.apply(cfg.RouteDefaults)
	r.apply(s.options)

	if r.name == "" {
		r.name = r.filter
	}
	if r.maxAttempts == 0 && r.deadLetterTo != "" {
		r.maxAttempts = defaultAttempts
	}
	return &r
}

// apply lays one layer of options over s. set and problems tell about that layer alone.
func (s *routeSpec) apply(options []RouteOption) {
	s.set, s.problems = 0, nil
	for i, o := range options {
		if o == nil {
			s.problem("option "+strconv.Itoa(i), nil, "is nil: leave it out")
			continue
		}
		o.applyRoute(s)
	}
}

func (s *routeSpec) problem(field string, value any, reason string) {
	s.problems = append(s.problems, &ConfigError{Field: field, Value: value, Reason: reason})
}

// exhausted tells whether a failure after so many attempts, the present one included, is the last.
func (s *routeSpec) exhausted(attempts int) bool {
	return s.maxAttempts > 0 && attempts >= s.maxAttempts
}

// delay is how long to wait after so many failed attempts, when the outcome does not say.
func (s *routeSpec) delay(attempts int) time.Duration { return delayOf(s.backoff, attempts) }

// resolveRoutes gives every route its final settings, in the order of routes. The zero Route becomes a spec that
// validate refuses.
func resolveRoutes(cfg *Config, routes []Route) []*routeSpec {
	specs := make([]*routeSpec, len(routes))
	for i, r := range routes {
		if r.spec == nil {
			specs[i] = &routeSpec{index: i}
			continue
		}
		specs[i] = r.spec.resolve(i, cfg)
	}
	return specs
}
