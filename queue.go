package settle

import (
	"sync"
	"sync/atomic"
)

// queue is the deliveries that wait for one lane, or for a route's key function, in the order in which they are to be
// handled. It is bounded by what fills it: deliveries at QoS 1 and 2 by the server's window, those at QoS 0 by a bound that
// all queues of an app share.
type queue struct {
	wake chan struct{} // has room for one: something has changed

	mu         sync.Mutex
	head, tail *Delivery
	qos0       struct{ head, tail *Delivery } // those of them at QoS 0, for dropping the oldest
	waiting    int
	staged     [2]chain // by inbound: what one read of the socket brought, not yet in the queue
}

// chain is a run of deliveries on their way into a queue. It belongs to the goroutine that fills it.
type chain struct{ head, tail *Delivery }

func (c *chain) push(d *Delivery) {
	d.prev, d.next = c.tail, nil
	if c.tail == nil {
		c.head = d
	} else {
		c.tail.next = d
	}
	c.tail = d
}

// qos0Bound is what deliveries at QoS 0 may take up in memory, in all the queues of an app.
type qos0Bound struct {
	maxCount, maxBytes int64
	count, bytes       atomic.Int64
}

func (b *qos0Bound) exceeded() bool {
	return b.count.Load() > b.maxCount || b.bytes.Load() > b.maxBytes
}

func (b *qos0Bound) add(a *arrival, sign int64) {
	b.count.Add(sign)
	b.bytes.Add(sign * a.size())
}

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1)} }

// append takes a chain over, and returns, chained by nextQoS0, what had to be dropped for it.
func (q *queue) append(c chain, bound *qos0Bound) (dropped *Delivery) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for d := c.head; d != nil; {
		next := d.next
		d.prev, d.next = q.tail, nil
		if q.tail == nil {
			q.head = d
		} else {
			q.tail.next = d
		}
		q.tail = d
		q.waiting++
		if d.arrival.QoS == 0 {
			bound.add(d.arrival, 1)
			if q.qos0.tail == nil {
				q.qos0.head = d
			} else {
				q.qos0.tail.nextQoS0 = d
			}
			q.qos0.tail = d
			for bound.exceeded() && q.qos0.head != nil {
				oldest := q.qos0.head
				q.remove(oldest, bound)
				oldest.nextQoS0, dropped = dropped, oldest
			}
		}
		d = next
	}
	return dropped
}

// pop takes the first delivery out, or nil if none waits. If only is not nil, it takes the first that only agrees to.
func (q *queue) pop(bound *qos0Bound, only func(*Delivery) bool) *Delivery {
	q.mu.Lock()
	defer q.mu.Unlock()
	d := q.head
	for d != nil && only != nil && !only(d) {
		d = d.next
	}
	if d != nil {
		q.remove(d, bound)
	}
	return d
}

// remove takes d out. Of deliveries at QoS 0 it is always the oldest: they leave in the order in which they came.
func (q *queue) remove(d *Delivery, bound *qos0Bound) {
	if d.prev == nil {
		q.head = d.next
	} else {
		d.prev.next = d.next
	}
	if d.next == nil {
		q.tail = d.prev
	} else {
		d.next.prev = d.prev
	}
	d.prev, d.next = nil, nil
	q.waiting--
	if d.arrival.QoS == 0 {
		bound.add(d.arrival, -1)
		q.qos0.head = d.nextQoS0
		if q.qos0.head == nil {
			q.qos0.tail = nil
		}
		d.nextQoS0 = nil
	}
}

func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}

// signal wakes whoever waits for the queue.
func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}
