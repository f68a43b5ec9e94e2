package hostile_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/internal/hostile"
)

// book has what handlers were called with, and which of it is settled.
type book struct {
	mu    sync.Mutex
	calls []call
	done  map[string]int // by key: outcomes that no acknowledgement was seen for
	gate  chan struct{}  // handlers of "held/#" wait for it
}

// call is one delivery as a handler saw it.
type call struct {
	route   string
	attempt int
	hostile.Message
}

// key names a message, as far as a handler and the server can tell.
func key(topic string, qos byte, payload []byte) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(topic))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write(payload)
	return fmt.Sprintf("%.40q at QoS %d, %d bytes, %x", topic, qos, len(payload), h.Sum64())
}

// note writes a call down.
func (b *book) note(d *settle.Delivery) {
	m := hostile.Message{
		Topic: d.Topic(), QoS: byte(d.QoS()), Dup: d.Redelivered(), Retain: d.Retained(), Payload: d.Payload(),
		ContentType: d.ContentType(), ResponseTopic: d.ResponseTopic(), CorrelationData: d.CorrelationData(),
	}
	for name, value := range d.Headers() {
		m.User = append(m.User, [2]string{name, value})
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls = append(b.calls, call{route: d.Route(), attempt: d.Attempt(), Message: m})
}

// settle notes a call and says that what it was called with is settled.
func (b *book) settle(d *settle.Delivery) {
	b.note(d)
	k := key(d.Topic(), byte(d.QoS()), d.Payload())
	if d.Attempt() > 1 {
		k = "copy " + k
	}
	b.settled(k)
}

// settled says that a message is: from here on its acknowledgement may come.
func (b *book) settled(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done[key]++
}

// spend takes one outcome for an acknowledgement.
func (b *book) spend(key string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.done[key] == 0 {
		return false
	}
	b.done[key]--
	return true
}

// take returns what handlers were called with, without the usual ones of a phase, and forgets everything.
func (b *book) take() []call {
	b.mu.Lock()
	defer b.mu.Unlock()
	calls := slices.DeleteFunc(b.calls, func(c call) bool {
		return c.route == "held" || len(c.Topic) > 6 && c.Topic[len(c.Topic)-6:] == "/probe"
	})
	b.calls = nil
	clear(b.done)
	return calls
}

// count is how many calls there were for a topic.
func (b *book) count(topic string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for i := range b.calls {
		n += b2i(b.calls[i].Topic == topic)
	}
	return n
}

func (b *book) acknowledge(ctx context.Context, _ []byte) settle.Outcome {
	d := settle.DeliveryFrom(ctx)
	b.settle(d)
	return settle.Ack()
}

func (b *book) acknowledgeJSON(ctx context.Context, _ any) settle.Outcome {
	return b.acknowledge(ctx, nil)
}

type blob []byte

func (b *book) acknowledgeAll(ctx context.Context, _ []blob) settle.Outcomes {
	for _, d := range settle.DeliveriesFrom(ctx) {
		b.settle(d)
	}
	return settle.Every(settle.Ack())
}

// fail fails the first time.
func (b *book) fail(ctx context.Context, payload []byte) settle.Outcome {
	d := settle.DeliveryFrom(ctx)
	if d.Attempt() == 1 {
		return settle.Retry(errFails)
	}
	return b.acknowledge(ctx, payload)
}

// hold waits for the gate.
func (b *book) hold(ctx context.Context, payload []byte) settle.Outcome {
	b.mu.Lock()
	gate := b.gate
	b.mu.Unlock()
	select {
	case <-gate:
	case <-ctx.Done():
		return settle.Retry(context.Cause(ctx))
	}
	return b.acknowledge(ctx, payload)
}

// close makes "held/#" wait from now on, and open lets it go.
func (b *book) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gate = make(chan struct{})
}

func (b *book) open() {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.gate:
	default:
		close(b.gate)
	}
}
