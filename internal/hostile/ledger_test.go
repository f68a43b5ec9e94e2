package hostile_test

import "slices"

// given is a delivery at QoS 1 or 2 on this connection.
type given struct {
	id    uint16
	bytes []byte
	key   string // of the handler's call that has to come before its acknowledgement; "": none
	gone  bool   // acknowledged, or replaced
}

// pubcomp is a PUBCOMP that is due.
type pubcomp struct {
	id   uint16
	code byte
}

// deliver writes down what give sends. mu is held.
func (p *peer) deliver(b []byte, qos byte, id uint16, key string) {
	if qos == 0 {
		return
	}
	p.forget(id)
	p.given[qos] = append(p.given[qos], &given{id: id, bytes: b, key: key})
}

// forget drops what there is under an identifier: it is another's now, or released. mu is held.
func (p *peer) forget(id uint16) {
	for q := 1; q <= 2; q++ {
		for _, g := range p.given[q] {
			g.gone = g.gone || g.id == id
		}
	}
	delete(p.received, id)
}

// noteRelease writes down a PUBREL, and what is to answer it. mu is held.
func (p *peer) noteRelease(id uint16) {
	code := byte(0x92)
	if p.received[id] {
		code = 0
	}
	p.forget(id)
	p.released = append(p.released, pubcomp{id, code})
}

// acknowledged holds an acknowledgement against the deliveries: it has to be for the oldest, and that has to be done.
func (p *peer) acknowledged(qos byte, id uint16) bool {
	for _, g := range p.given[qos] {
		if g.gone {
			continue
		}
		if g.id != id {
			p.fault("identifier %d acknowledged at QoS %d, and %d comes first", id, qos, g.id)
			return false
		}
		if g.key != "" && !p.r.book.spend(g.key) {
			p.fault("identifier %d acknowledged at QoS %d before it was settled: %q", id, qos, g.key)
		}
		g.gone = true
		return true
	}
	p.fault("identifier %d acknowledged at QoS %d, and nothing was delivered under it", id, qos)
	return false
}

// open are the deliveries without an acknowledgement.
func (p *peer) open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.released) + len(p.received)
	for q := 1; q <= 2; q++ {
		for _, g := range p.given[q] {
			if !g.gone {
				n++
			}
		}
	}
	return n
}

// tidy forgets what has been dealt with, so that a connection that lives through a thousand cases does not grow.
func (p *peer) tidy() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frames = p.frames[:0]
	for q := 1; q <= 2; q++ {
		p.given[q] = slices.DeleteFunc(p.given[q], func(g *given) bool { return g.gone })
	}
	clear(p.recorded)
}
