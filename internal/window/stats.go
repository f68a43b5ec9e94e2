package window

import "math"

func (w *Window) unacknowledged() int { return w.live[1].len + w.live[2].len + w.receivedNow }

// Unacknowledged is the number of deliveries of this connection that the server has no final acknowledgement of:
// what counts against Receive Maximum.
func (w *Window) Unacknowledged() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.unacknowledged()
}

// Full says that the server may send nothing more at QoS 1 and 2 until something is acknowledged.
func (w *Window) Full() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.unacknowledged() >= w.config.ReceiveMaximum
}

// ReceiveMaximum is what the window was made with.
func (w *Window) ReceiveMaximum() int { return w.config.ReceiveMaximum }

// Settled is the number of deliveries whose acknowledgement is due, or will be when those before it are settled.
func (w *Window) Settled() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for q := 1; q <= 2; q++ {
		for _, l := range [2]*list{&w.live[q], &w.unseen[q]} {
			for e := l.head; e != nil; e = e.next {
				if e.state.due() {
					n++
				}
			}
		}
	}
	return n
}

// Parked is the number of entries that wait for proof.
func (w *Window) Parked() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.parked
}

// Due says that TakeAcks would return something.
func (w *Window) Due() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.online {
		return false
	}
	for q := 1; q <= 2; q++ {
		if e := w.live[q].next(); e != nil && e.state.due() {
			return true
		}
	}
	return len(w.pubcomps) > 0
}

// OldestAt is the At of the delivery that has waited longest for its acknowledgement, and whether there is one. It
// looks at all of them: one that was adopted may stand behind younger ones.
func (w *Window) OldestAt() (int64, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	oldest := int64(math.MaxInt64)
	for q := 1; q <= 2; q++ {
		for _, l := range [2]*list{&w.live[q], &w.unseen[q]} {
			for e := l.head; e != nil; e = e.next {
				oldest = min(oldest, e.At)
			}
		}
	}
	if oldest == math.MaxInt64 {
		return 0, false
	}
	return oldest, true
}

// Holds says that the server keeps e until it is acknowledged, as far as can be told from here.
func (w *Window) Holds(e *Entry) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return e.state != gone
}

// Behind is the number of QoS 1 deliveries that are settled and wait for others before them: what is to be acknowledged
// as soon as the head of the window is settled.
func (w *Window) Behind() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.live[1].head; e == nil || e.state.due() {
		return 0
	}
	return w.settled
}

// Heads are the first n QoS 1 deliveries of the window that have not been acknowledged.
func (w *Window) Heads(n int) []*Entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	var heads []*Entry
	for e := w.live[1].head; e != nil && len(heads) < n; e = e.next {
		heads = append(heads, e)
	}
	return heads
}

// Acknowledged says that e's acknowledgement was handed to the connection.
func (w *Window) Acknowledged(e *Entry) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return e.acked
}

// Blockers are the entries of this connection that are not settled while one behind them is: as long as one of them is
// open, acknowledgements that are due otherwise cannot leave.
func (w *Window) Blockers() []*Entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	var blockers []*Entry
	for q := 1; q <= 2; q++ {
		last := w.live[q].tail
		for last != nil && last.state != settled {
			last = last.prev
		}
		for e := w.live[q].head; last != nil && e != last; e = e.next {
			if e.state == open {
				blockers = append(blockers, e)
			}
		}
	}
	return blockers
}
