package broker

import "time"

// outbound is one message for one session, or waiting in a group for whoever has room.
type outbound struct {
	prev, next *outbound
	in         *list
	msg        *message
	ids        []uint32 // Subscription Identifiers, shared with the subscription and never changed
	group      *group   // of a shared subscription
	conn       *conn    // on which it counts against the window
	order      uint64   // of sending, within the session; 0 before
	turn       uint64   // of sending, among those of its QoS on conn
	id         uint16
	qos        byte
	retain     bool // the RETAIN flag that it is sent with
}

// list is a doubly linked list of outbound messages. An entry is in one list at most.
type list struct {
	head, tail *outbound
	n          int
	bytes      int // of the messages
}

func (l *list) pushBack(o *outbound) {
	o.in, o.prev, o.next = l, l.tail, nil
	if l.tail == nil {
		l.head = o
	} else {
		l.tail.next = o
	}
	l.tail = o
	l.n++
	l.bytes += o.msg.size()
}

func (l *list) pushFront(o *outbound) {
	o.in, o.prev, o.next = l, nil, l.head
	if l.head == nil {
		l.tail = o
	} else {
		l.head.prev = o
	}
	l.head = o
	l.n++
	l.bytes += o.msg.size()
}

// remove takes an entry out of the list that it is in.
func (o *outbound) remove() {
	l := o.in
	if o.prev == nil {
		l.head = o.next
	} else {
		o.prev.next = o.next
	}
	if o.next == nil {
		l.tail = o.prev
	} else {
		o.next.prev = o.prev
	}
	o.in, o.prev, o.next = nil, nil, nil
	l.n--
	l.bytes -= o.msg.size()
}

// expire removes what has expired, and returns how many that were.
func (l *list) expire(now time.Time) (n uint64) {
	for o := l.head; o != nil; {
		next := o.next
		if o.msg.expired(now) {
			o.remove()
			n++
		}
		o = next
	}
	return n
}
