package broker

import (
	"fmt"

	"github.com/settlemq/settle/internal/topic"
)

// observer is told of messages in this process.
type observer struct {
	b       *Broker
	sub     *subscription
	f       func(Message)
	waiting []*message
	telling bool // a goroutine calls f
}

// Subscribe has f called with every message that is published from now on to a topic that filter matches, whoever publishes
// it, in order, one at a time, from a goroutine of its own; what f has not taken yet waits in memory. It is no subscriber: it changes neither reason codes nor what
// Publish returns. cancel ends it; a call that has begun is not waited for, but by Close.
func (b *Broker) Subscribe(filter string, f func(Message)) (cancel func(), err error) {
	if err := topic.ValidateFilter(filter); err != nil {
		return nil, fmt.Errorf("the filter %w", err)
	}
	o := &observer{b: b, f: f}
	o.sub = &subscription{filter: newFilter(filter), watcher: o}
	o.sub.topicFilter = filter
	b.mu.Lock()
	defer b.unlock()
	b.tree.insert(o.sub)
	return func() {
		b.mu.Lock()
		defer b.unlock()
		o.waiting = nil
		if o.sub.node != nil {
			o.sub.remove()
		}
	}, nil
}

// tell adds a message to those that the program is told of.
func (o *observer) tell(m *message) {
	o.waiting = append(o.waiting, m)
	if o.telling || o.b.closed {
		return
	}
	o.telling = true
	o.b.wg.Add(1)
	go o.run()
}

func (o *observer) run() {
	b := o.b
	defer b.wg.Done()
	for {
		b.mu.Lock()
		waiting := o.waiting
		o.waiting = nil
		if len(waiting) == 0 || b.closed {
			o.telling = false
			b.unlock()
			return
		}
		b.unlock()
		for _, m := range waiting {
			o.f(m.export())
		}
	}
}
