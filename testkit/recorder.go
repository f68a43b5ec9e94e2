package testkit

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/internal/bridge"
	"github.com/settlemq/settle/internal/broker"
)

// recorder writes down what an app does. It implements bridge.Observer: lanes and connections call it.
type recorder struct {
	routes map[string]bridge.Route
	pulse  pulse

	mu         sync.Mutex
	queued     uint64
	turns      map[*settle.Delivery]uint64 // by which they came up, and are not settled
	bodies     map[*settle.Delivery]any    // decoded and not settled
	all        []*record                   // in order of settling
	byRoute    map[string][]*record
	byDelivery map[*settle.Delivery]*record // those whose copy is not stored yet
	batches    map[string][][]*settle.Delivery
	inBatch    map[*settle.Delivery]*record // of batches; nil until it is settled
	published  []Message
}

// record is a settlement that may still change. recorder.mu guards it.
type record struct {
	Settlement

	turn   uint64 // by which it came up for its route
	copyTo string // where a copy has to be stored before the delivery is done; "" for nowhere
}

func newRecorder(routes []bridge.Route) *recorder {
	r := &recorder{
		routes:     make(map[string]bridge.Route),
		turns:      make(map[*settle.Delivery]uint64),
		bodies:     make(map[*settle.Delivery]any),
		byRoute:    make(map[string][]*record),
		byDelivery: make(map[*settle.Delivery]*record),
		batches:    make(map[string][][]*settle.Delivery),
		inBatch:    make(map[*settle.Delivery]*record),
	}
	for _, rt := range routes {
		r.routes[rt.Name] = rt
	}
	return r
}

// Queued implements bridge.Observer.
func (r *recorder) Queued(delivery any) {
	d := delivery.(*settle.Delivery) //nolint:forcetypeassert // the bridge says so
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, again := r.turns[d]; !again {
		r.queued++
		r.turns[d] = r.queued
	}
}

// Decoded implements bridge.Observer.
func (r *recorder) Decoded(delivery, body any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bodies[delivery.(*settle.Delivery)] = body //nolint:forcetypeassert // the bridge says so
}

// Batch implements bridge.Observer.
func (r *recorder) Batch(deliveries any) {
	batch := slices.Clone(deliveries.([]*settle.Delivery)) //nolint:forcetypeassert // the bridge says so
	r.mu.Lock()
	defer r.mu.Unlock()
	route := batch[0].Route()
	r.batches[route] = append(r.batches[route], batch)
	for _, d := range batch {
		r.inBatch[d] = nil
	}
}

// Settled implements bridge.Observer.
func (r *recorder) Settled(delivery, outcome any, lane int, due time.Time) {
	d, o := delivery.(*settle.Delivery), outcome.(settle.Outcome) //nolint:forcetypeassert // the bridge says so
	s := &record{Settlement: Settlement{
		Route: d.Route(), Topic: d.Topic(), MessageID: d.MessageID(), Payload: d.Payload(), Outcome: o,
		Attempt: d.Attempt(), Lane: lane, At: time.Now(), Due: due, Delivery: d,
	}}
	switch rt := r.routes[s.Route]; {
	case !due.IsZero():
		s.copyTo = rt.RetryTo
	case o.Kind() == settle.KindReject || o.Kind() == settle.KindRetry:
		s.copyTo = rt.DeadLetterTo
	}
	r.mu.Lock()
	s.turn, s.Body = r.turns[d], r.bodies[d]
	delete(r.turns, d)
	delete(r.bodies, d)
	r.all = append(r.all, s)
	r.byRoute[s.Route] = append(r.byRoute[s.Route], s)
	if s.copyTo != "" {
		r.byDelivery[d] = s
	}
	if _, batched := r.inBatch[d]; batched {
		r.inBatch[d] = s
	}
	r.mu.Unlock()
	r.pulse.beat()
}

// Sent implements bridge.Observer.
func (r *recorder) Sent(delivery any, topic string) {
	d := delivery.(*settle.Delivery) //nolint:forcetypeassert // the bridge says so
	r.mu.Lock()
	if s := r.byDelivery[d]; s != nil {
		s.SentTo = topic
		delete(r.byDelivery, d)
	}
	r.mu.Unlock()
	r.pulse.beat()
}

// Changed implements bridge.Observer.
func (r *recorder) Changed() { r.pulse.beat() }

// sawPublished notes a message that the server was sent.
func (r *recorder) sawPublished(m broker.Message) {
	r.mu.Lock()
	r.published = append(r.published, Message{m})
	r.mu.Unlock()
	r.pulse.beat()
}

// pulse wakes those who wait for something to change. Beating costs next to nothing while nobody does.
type pulse struct {
	waiting atomic.Int32
	mu      sync.Mutex
	changed chan struct{}
}

func (p *pulse) beat() {
	if p.waiting.Load() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// next is closed at the next beat. waiting is above zero.
func (p *pulse) next() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.changed
}
