package settle

import "sync"

// qos0Bound is what deliveries at QoS 0 that wait, for a lane or for another attempt, may take up in all of an app: no window
// bounds them. Beyond it the oldest is dropped.
//
// Those whose copy or dead letter is being published count too, but cannot be dropped; where there is no room for one, it
// is lost at once.
type qos0Bound struct {
	maxCount, maxBytes int64

	mu           sync.Mutex
	head, tail   *Delivery // those that wait, oldest first, chained by prev0 and next0
	count, bytes int64
}

// exceeded: one message always has room, however large it is.
func (b *qos0Bound) exceeded() bool {
	return b.count > b.maxCount || b.bytes > b.maxBytes && b.count > 1
}

func (b *qos0Bound) add(d *Delivery, sign int64) {
	b.count += sign
	b.bytes += sign * d.arrival.size()
}

// wait puts d behind those that wait, and returns, chained by next0, those that had to be dropped for it; it may be one of them.
func (b *qos0Bound) wait(d *Delivery) (dropped *Delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d.prev0, d.next0, d.waits0 = b.tail, nil, true
	if b.tail == nil {
		b.head = d
	} else {
		b.tail.next0 = d
	}
	b.tail = d
	b.add(d, 1)
	for b.exceeded() && b.head != nil {
		oldest := b.head
		b.unlink(oldest)
		oldest.next0, dropped = dropped, oldest
	}
	return dropped
}

// leave says that d waits no longer. It reports false if d has been dropped.
func (b *qos0Bound) leave(d *Delivery) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !d.waits0 {
		return false
	}
	b.unlink(d)
	return true
}

func (b *qos0Bound) unlink(d *Delivery) {
	if d.prev0 == nil {
		b.head = d.next0
	} else {
		d.prev0.next0 = d.next0
	}
	if d.next0 == nil {
		b.tail = d.prev0
	} else {
		d.next0.prev0 = d.prev0
	}
	d.prev0, d.next0, d.waits0 = nil, nil, false
	b.add(d, -1)
}

// reserve makes room for d's copy, if there is any.
func (b *qos0Bound) reserve(d *Delivery) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(d, 1)
	if b.exceeded() {
		b.add(d, -1)
		return false
	}
	return true
}

// release gives back what reserve took.
func (b *qos0Bound) release(d *Delivery) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(d, -1)
}

// wait0 has a delivery at QoS 0 wait, in q or, if q is nil, held; and drops what there is no room for.
func (a *App) wait0(d *Delivery, q *queue) {
	d.queue = q
	for dropped := a.qos0.wait(d); dropped != nil; {
		d, dropped = dropped, dropped.next0
		d.next0 = nil
		d.settled.Store(true) // before it is looked for: whoever is about to put it there finds it settled
		if d.queue != nil {
			d.queue.remove(d)
		} else if a.holds.set.cancel(d) {
			d.route.holding(-1)
		}
		d.route.metrics.dropped(1)
		d.done()
	}
}
