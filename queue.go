package settle

import "sync"

// queue is the deliveries that wait for one lane, or for a route's key function, in the order in which they are to be
// handled. It is bounded by what fills it: deliveries at QoS 1 and 2 by the server's window, those at QoS 0 by qos0Bound.
type queue struct {
	wake chan struct{} // has room for one: something has changed

	mu         sync.Mutex
	head, tail *Delivery
	waiting    int

	staged [2]chain // by inbound, which guards it: what one read of the socket brought, not yet in the queue
}

// chain is a run of deliveries on their way into a queue. It belongs to the goroutine that fills it.
type chain struct{ head, tail *Delivery }

func (c *chain) push(d *Delivery) {
	if c.tail == nil {
		c.head = d
	} else {
		c.tail.next = d
	}
	c.tail = d
}

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1)} }

// append takes a chain over.
func (q *queue) append(c chain) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for d := c.head; d != nil; {
		next := d.next
		if d.settled.Load() { // dropped on its way here
			d.next = nil
			d = next
			continue
		}
		d.prev, d.next, d.queued = q.tail, nil, true
		if q.tail == nil {
			q.head = d
		} else {
			q.tail.next = d
		}
		q.tail = d
		q.waiting++
		d = next
	}
}

// pop takes the first delivery out, or nil if none waits. If only is not nil, it takes the first that only agrees to, or what stands
// before that one at its QoS: nothing is overtaken.
func (q *queue) pop(only func(*Delivery) bool) *Delivery {
	q.mu.Lock()
	defer q.mu.Unlock()
	d := q.head
	for d != nil && only != nil && !only(d) {
		d = d.next
	}
	if d == nil {
		return nil
	}
	for e := q.head; e != d; e = e.next {
		if e.QoS() == d.QoS() {
			d = e
			break
		}
	}
	q.unlink(d)
	return d
}

// has says that a delivery waits that only agrees to.
func (q *queue) has(only func(*Delivery) bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for d := q.head; d != nil; d = d.next {
		if only(d) {
			return true
		}
	}
	return false
}

// remove takes d out if it waits.
func (q *queue) remove(d *Delivery) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if d.queued {
		q.unlink(d)
	}
}

func (q *queue) unlink(d *Delivery) {
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
	d.prev, d.next, d.queued = nil, nil, false
	q.waiting--
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
