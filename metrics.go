package settle

import (
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/settlemq/settle/internal/window"
	"github.com/settlemq/settle/internal/wire"
)

// metrics are the app's collectors. All methods do nothing on a nil receiver, so that an app without a registry pays a
// nil check; what the hot path needs is resolved once a route, in routeMetrics. It is itself the one collector that is
// registered: all or nothing.
type metrics struct {
	all []prometheus.Collector

	deliveries   *prometheus.CounterVec
	settled      *prometheus.CounterVec
	handler      *prometheus.HistogramVec
	batch        *prometheus.HistogramVec
	inflight     *prometheus.GaugeVec
	ackCodes     *prometheus.CounterVec
	adoptions    prometheus.Counter
	stale        prometheus.Counter
	held         *prometheus.GaugeVec
	sessionsLost prometheus.Counter
	connections  *prometheus.CounterVec
	copies       *prometheus.CounterVec
	waiting      *prometheus.GaugeVec
	deadLetters  *prometheus.CounterVec
	qos0Dropped  *prometheus.CounterVec
	unmatched    prometheus.Counter

	ackOK prometheus.Counter
}

// gauges are read when metrics are collected, from any goroutine. They must not block.
type gauges struct {
	unacked   func() float64 // deliveries in the main window
	oldest    func() float64 // seconds since the oldest of them arrived, 0 if there is none
	connected func() bool    // of the main connection
}

// copyResult is what became of one publish of a retry copy or a dead letter.
type copyResult uint8

const (
	copyConfirmed    copyResult = iota // the server stored it
	copyMoved                          // the same, of a copy that only went to the end of its topic
	copyNotStored                      // 0x10: nobody subscribes to the topic
	copyRefused                        // a reason code of 0x80 or more, or beyond the server's limits
	copyUnconfirmed                    // no answer came
	copyNotConnected                   // it was not sent
	copyLost                           // any of these, of a message at QoS 0: it is not tried again
	copyResults
)

func (r copyResult) String() string {
	return [copyResults]string{"confirmed", "moved", "not_stored", "refused", "unconfirmed", "not_connected", "lost"}[r]
}

func copyResultOf(kind errandKind, err error) copyResult {
	var refused *ServerError
	switch {
	case err == nil && kind == errandHop:
		return copyMoved
	case err == nil:
		return copyConfirmed
	case errors.As(err, &refused):
		return copyRefused
	case errors.Is(err, ErrUnconfirmed):
		return copyUnconfirmed
	case errors.Is(err, ErrNotConnected):
		return copyNotConnected
	default:
		return copyNotStored
	}
}

// connectResult is what became of one attempt to connect.
type connectResult uint8

const (
	connectAccepted connectResult = iota // CONNACK with Success
	connectRefused                       // CONNACK with a reason code of 0x80 or more
	connectFailed                        // no CONNACK at all
	connectResults
)

func (r connectResult) String() string {
	return [connectResults]string{"accepted", "refused", "failed"}[r]
}

// newMetrics makes the collectors and registers them. Without a registry it returns nil, which is as good. app is
// Config.Name.
func newMetrics(registry prometheus.Registerer, app string, g gauges) (*metrics, error) {
	if registry == nil {
		return nil, nil
	}
	var constant prometheus.Labels
	if app != "" {
		constant = prometheus.Labels{"app": app}
	}
	m := buildMetrics(constant, g)
	if err := registry.Register(m); err != nil {
		return nil, &ConfigError{
			Field: "Metrics", Value: reflect.TypeOf(registry).String(),
			Reason: fmt.Sprintf("the collectors cannot be registered (%v): give each app on one registry a Name of its own, or a registry of its own", err),
		}
	}
	return m, nil
}

func buildMetrics(constant prometheus.Labels, g gauges) *metrics {
	m := &metrics{}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: constant}, labels)
		m.all = append(m.all, v)
		return v
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: constant}, labels)
		m.all = append(m.all, v)
		return v
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, ConstLabels: constant, Buckets: buckets}, labels)
		m.all = append(m.all, v)
		return v
	}
	function := func(name, help string, f func() float64) {
		if f == nil {
			f = func() float64 { return 0 }
		}
		m.all = append(m.all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: constant}, f))
	}

	m.deliveries = counter("settle_deliveries_total", "Deliveries handed to a route, by QoS and DUP flag.", "route", "qos", "redelivered")
	m.settled = counter("settle_settled_total", "Deliveries settled, by outcome.", "route", "outcome")
	m.handler = histogram("settle_handler_seconds", "Time that handlers took, a batch counted once.", handlerBuckets, "route")
	m.batch = histogram("settle_batch_size", "Deliveries in a batch.", prometheus.ExponentialBuckets(1, 2, 13), "route")
	m.inflight = gauge("settle_inflight", "Deliveries that a route has been handed and has not finished with.", "route")
	function("settle_window_unacked", "Deliveries that the server has sent and that are not acknowledged, main connection.", g.unacked)
	function("settle_window_oldest_seconds", "Age of the oldest delivery that is not acknowledged, main connection.", g.oldest)
	m.ackCodes = counter("settle_acks_total", "Acknowledgements (PUBACK and PUBREC) handed to the connection, by reason code.", "code")
	m.adoptions = counter("settle_adopted_total", "Redeliveries joined with a delivery that was still held.").WithLabelValues()
	m.stale = counter("settle_stale_settlements_total", "Settlements without effect: a second one, or one of a lost connection.").WithLabelValues()
	m.held = gauge("settle_held", "Deliveries held unacknowledged for another attempt.", "route")
	m.sessionsLost = counter("settle_sessions_lost_total", "Reconnects at which the server had no session any more.").WithLabelValues()
	m.connections = counter("settle_connections_total", "Attempts to connect, by result.", "result")
	function("settle_connected", "Whether the main connection is up, 1 or 0.", func() float64 {
		if g.connected != nil && g.connected() {
			return 1
		}
		return 0
	})
	m.copies = counter("settle_retry_copies_total", "Publishes of retry copies, by result.", "route", "result")
	m.waiting = gauge("settle_retry_waiting", "Retry copies that wait on the retry connection until they are due.", "route")
	m.deadLetters = counter("settle_dead_letters_total", "Publishes of dead letters, by result.", "route", "result")
	m.qos0Dropped = counter("settle_qos0_dropped_total", "QoS 0 deliveries dropped because their queue was full.", "route")
	m.unmatched = counter("settle_unmatched_total", "Deliveries that no route wanted.").WithLabelValues()

	m.ackOK = m.ackCodes.WithLabelValues(codeLabel(0))
	for r := range connectResults {
		m.connections.WithLabelValues(r.String())
	}
	return m
}

// handlerBuckets reach from a handler that only computes to the default timeout and past it.
var handlerBuckets = []float64{.0001, .0005, .001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}

func codeLabel(code byte) string { return fmt.Sprintf("0x%02X", code) }

// Describe implements prometheus.Collector.
func (m *metrics) Describe(descs chan<- *prometheus.Desc) {
	for _, c := range m.all {
		c.Describe(descs)
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(values chan<- prometheus.Metric) {
	for _, c := range m.all {
		c.Collect(values)
	}
}

// acks counts acknowledgements as they are handed to the connection, one encoded packet after the other. A PUBCOMP
// counts only where it says that something was wrong: the PUBREC before it has been counted.
func (m *metrics) acks(frames []byte) {
	if m == nil {
		return
	}
	good := 0
	for len(frames) >= 2 {
		size := 2 + int(frames[1]) // acknowledgements have a Remaining Length of one byte
		if size > len(frames) {
			break
		}
		code := byte(0)
		if size > 4 {
			code = frames[4]
		}
		switch {
		case code != 0:
			m.ackCodes.WithLabelValues(codeLabel(code)).Inc()
		case wire.Type(frames[0]>>4) != wire.PUBCOMP:
			good++
		}
		frames = frames[size:]
	}
	m.ackOK.Add(float64(good))
}

// arrival counts a delivery that the window recognised.
func (m *metrics) arrival(what window.Arrival) {
	if m != nil && what == window.Adopted {
		m.adoptions.Inc()
	}
}

// staleAck counts a settlement that came too late for its connection.
func (m *metrics) staleAck() {
	if m != nil {
		m.stale.Inc()
	}
}

func (m *metrics) sessionLost() {
	if m != nil {
		m.sessionsLost.Inc()
	}
}

func (m *metrics) connection(r connectResult) {
	if m != nil {
		m.connections.WithLabelValues(r.String()).Inc()
	}
}

func (m *metrics) noRoute() {
	if m != nil {
		m.unmatched.Inc()
	}
}

// routeMetrics are the metrics of one route, every label resolved. Like metrics it may be nil.
type routeMetrics struct {
	deliveries  [3][2]prometheus.Counter // by QoS, by DUP
	outcomes    [KindReject + 1]prometheus.Counter
	handler     prometheus.Observer
	batches     prometheus.Observer // nil for a single route
	handling    prometheus.Gauge
	holds       prometheus.Gauge
	copies      [copyResults]prometheus.Counter
	waits       prometheus.Gauge
	deadLetters [copyResults]prometheus.Counter
	qos0Drops   prometheus.Counter
	stales      prometheus.Counter // of the app
}

// route resolves the labels of a route. Series that a route can never have, of copies without a retry topic say, are
// not made.
func (m *metrics) route(s *routeSpec) *routeMetrics {
	if m == nil {
		return nil
	}
	r := &routeMetrics{
		handler:   m.handler.WithLabelValues(s.name),
		handling:  m.inflight.WithLabelValues(s.name),
		holds:     m.held.WithLabelValues(s.name),
		qos0Drops: m.qos0Dropped.WithLabelValues(s.name),
		stales:    m.stale,
	}
	for q := range r.deliveries {
		r.deliveries[q][0] = m.deliveries.WithLabelValues(s.name, QoS(q).String(), "false")
		r.deliveries[q][1] = m.deliveries.WithLabelValues(s.name, QoS(q).String(), "true")
	}
	for k := KindAck; k <= KindReject; k++ {
		r.outcomes[k] = m.settled.WithLabelValues(s.name, k.String())
	}
	if s.batch {
		r.batches = m.batch.WithLabelValues(s.name)
	}
	for result := range copyResults {
		if s.retryTo != "" {
			r.copies[result] = m.copies.WithLabelValues(s.name, result.String())
		}
		if s.deadLetterTo != "" {
			r.deadLetters[result] = m.deadLetters.WithLabelValues(s.name, result.String())
		}
	}
	if s.retryTo != "" {
		r.waits = m.waiting.WithLabelValues(s.name)
	}
	return r
}

func (r *routeMetrics) delivered(q QoS, dup bool) {
	if r == nil || q > ExactlyOnce {
		return
	}
	if dup {
		r.deliveries[q][1].Inc()
		return
	}
	r.deliveries[q][0].Inc()
}

// settled counts one settlement; the zero Outcome is counted as the Retry that it becomes.
func (r *routeMetrics) settled(k Kind) {
	if r == nil {
		return
	}
	if k == KindInvalid || k > KindReject {
		k = KindRetry
	}
	r.outcomes[k].Inc()
}

func (r *routeMetrics) handled(took time.Duration) {
	if r != nil {
		r.handler.Observe(took.Seconds())
	}
}

func (r *routeMetrics) batch(n int) {
	if r != nil && r.batches != nil {
		r.batches.Observe(float64(n))
	}
}

// inflight adds to the deliveries that the route has not finished with; n may be negative.
func (r *routeMetrics) inflight(n int) {
	if r != nil {
		r.handling.Add(float64(n))
	}
}

// stale counts n settlements that came second.
func (r *routeMetrics) stale(n int) {
	if r != nil {
		r.stales.Add(float64(n))
	}
}

// held adds to the deliveries that are held; n may be negative.
func (r *routeMetrics) held(n int) {
	if r != nil {
		r.holds.Add(float64(n))
	}
}

// waiting adds to the copies that wait; n may be negative.
func (r *routeMetrics) waiting(n int) {
	if r != nil && r.waits != nil {
		r.waits.Add(float64(n))
	}
}

// copied counts one publish of a retry copy or a dead letter.
func (r *routeMetrics) copied(kind errandKind, err error) { r.count(kind, copyResultOf(kind, err)) }

// lost counts a copy or a dead letter of a message at QoS 0 that was given up.
func (r *routeMetrics) lost(kind errandKind) { r.count(kind, copyLost) }

func (r *routeMetrics) count(kind errandKind, result copyResult) {
	if r == nil {
		return
	}
	counters := &r.copies
	if kind == errandDead {
		counters = &r.deadLetters
	}
	if c := counters[result]; c != nil {
		c.Inc()
	}
}

func (r *routeMetrics) dropped(n int) {
	if r != nil {
		r.qos0Drops.Add(float64(n))
	}
}
