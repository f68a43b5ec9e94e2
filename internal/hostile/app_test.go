package hostile_test

import (
	"bytes"
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settlemq/settle/internal/hostile"
)

// topics are one for each kind of route.
var topics = []string{"one/x", "keyed/k/x", "sorted/x", "json/x", "batch/x", "shared/x", "zero/x", "failing/x"}

// TestHostileServer sends everything that a server can say to a live App, in each phase of a connection. Whatever it is, the App goes on or
// leaves with the reason code that the standard names, comes back and consumes; no handler sees what is broken, and all that is
// legal is seen as it is; nothing is acknowledged that was not settled; and nothing is left over.
func TestHostileServer(t *testing.T) {
	var count tally
	var mu sync.Mutex
	t.Cleanup(func() { t.Logf("cases by packet and phase:\n%s", &count) })
	everything := hostile.Cases(hostile.Server, topics[0])
	for i := range phases {
		ph := &phases[i]
		t.Run(strings.ReplaceAll(ph.name, " ", "_"), func(t *testing.T) {
			cases := everything
			if ph.routes { // each kind of route sees each odd PUBLISH once
				for _, topic := range topics[1:] {
					cases = append(cases, messages(topic)...)
				}
			}
			cases = some(cases, i)
			synctest.Test(t, func(t *testing.T) {
				newRig(t).all(ph, cases)
			})
			mu.Lock()
			defer mu.Unlock()
			for k := range cases {
				count.add(cases[k].Packet.Name, ph.name)
			}
		})
	}
}

// messages are the PUBLISHes to a topic that say something.
func messages(topic string) []hostile.Case {
	return slices.DeleteFunc(hostile.Of(hostile.PUBLISH, hostile.Server, topic), func(c hostile.Case) bool {
		return c.Message == nil || c.Unfinished
	})
}

// some are all cases; with the race detector, which takes ten times as long, every stride-th, and others in each phase.
func some(cases []hostile.Case, phase int) []hostile.Case {
	out := make([]hostile.Case, 0, len(cases)/stride+1)
	for i := phase % stride; i < len(cases); i += stride {
		out = append(out, cases[i])
	}
	return out
}

// all runs cases in a phase, one after the other, on one App for as long as that lives.
func (r *rig) all(ph *phase, cases []hostile.Case) {
	began := 0
	if !ph.first {
		r.up()
		r.probe()
		began = goroutines()
	}
	for i := range cases {
		r.run(ph, &cases[i], i%2 == 1)
	}
	r.begin("afterwards")
	if ph.first && r.app != nil { // it has never been accepted
		r.oblige(false)
		p := r.await(false)
		if p.script.connack == nil {
			p.obey()
			p.send(obliging(false).connack)
		}
		synctest.Wait()
		p.grant()
		r.ready()
	}
	if r.app == nil {
		r.up()
	}
	r.probe()
	if !ph.first {
		pass(time.Second)
		if now := goroutines(); now != began {
			r.fail("%d goroutines, and there were %d", now, began)
		}
	}
	r.givesMemoryBack()
	r.stop()
}

// givesMemoryBack shows that the memory of deliveries was: else a dial would wait for it.
func (r *rig) givesMemoryBack() {
	r.oblige(false)
	pass(10 * time.Second) // longer than a connection is thought to be young
	began := time.Now()
	_ = r.main.Close()
	r.await(false)
	if waited := time.Since(began); waited > time.Second {
		r.fail("the dial took %s: memory is occupied", waited)
	}
	r.ready()
	r.probe()
}

// run sends one case.
func (r *rig) run(ph *phase, c *hostile.Case, odd bool) {
	r.t.Helper()
	r.begin(ph.name + ": " + c.Name)
	if r.app == nil && !ph.first {
		r.up()
	}
	p := ph.reach(r)
	if got := p.snapshot(); len(got.faults) > 0 || got.ended && !ph.parting {
		r.fail("before it: %+v", got)
	}
	r.inject(ph, p, c)
	pass(3 * time.Millisecond)
	w := expected(ph, c)
	if ph.stops && c.Packet.Type == hostile.PUBLISH {
		w.on = true // what comes now is left to the session, and not looked at
	}
	got := p.snapshot()
	switch on := !got.ended && !got.parted; {
	case len(got.faults) > 0:
		r.fail("%s", strings.Join(got.faults, "; "))
	case ph.parting:
	case on && !w.on, got.ended && !got.parted && !w.closed, got.parted && !slices.Contains(w.codes, got.code):
		r.fail("got %+v, want %+v", got, w)
	case got.parted && !got.ended:
		r.fail("the connection stands behind DISCONNECT")
	}
	switch {
	case ph.stops:
		r.finishStop(ph, p)
	case w.ends && !(got.parted && got.code != 0):
		r.hasEnded()
	default:
		r.resume(ph, p, c, !got.ended, odd)
	}
	r.checkCalls(ph, c, !got.ended)
}

// inject sends the bytes of a case, and writes down what they entitle the app to.
func (r *rig) inject(ph *phase, p *peer, c *hostile.Case) {
	id := p.nextID()
	b := c.WithID(id)
	if c.Property == hostile.PropertyMaximumPacketSize && c.Packet.Type == hostile.CONNACK {
		p.mu.Lock()
		p.maximum = int(binary.BigEndian.Uint32([]byte(c.Value)))
		p.mu.Unlock()
	}
	kind := c.Packet.Type
	taken := (c.Legal() || c.Tolerable) && !c.Unfinished && !ph.connecting
	parts := [][]byte{b}
	if c.Split {
		parts = slices.Collect(slices.Chunk(b, 1))
	}
	p.sendNoted(func() {
		switch {
		case !taken:
		case kind == hostile.PUBLISH && !ph.stops: // else it is left to the session
			p.deliver(b, c.Message.QoS, id, r.keyOf(ph, c))
		case kind == hostile.PUBREL:
			p.noteRelease(id)
		case kind == hostile.PUBREC && c.Code < 0x80: // else there is nothing to release
			p.recorded[id]++
		}
	}, parts...)
}

// keyOf names the call that has to come before a delivery's acknowledgement, "" where there is to be none.
func (r *rig) keyOf(ph *phase, c *hostile.Case) string {
	m := c.Message
	if routeOf(m.Topic) == "" || ph.second || len(m.Payload) > maxPayload {
		return ""
	}
	return key(m.Topic, m.QoS, m.Payload)
}

// routeOf is the route of a topic, "" for none.
func routeOf(topic string) string {
	first, _, _ := strings.Cut(topic, "/")
	for _, t := range topics {
		if strings.HasPrefix(t, first+"/") {
			return first
		}
	}
	return ""
}

// finishStop lets Stop go on, and wants it to end.
func (r *rig) finishStop(ph *phase, p *peer) {
	if ph.parting {
		_ = p.Close()
	}
	r.oblige(false)
	r.book.open()
	pass(10 * time.Millisecond)
	if got := p.snapshot(); len(got.faults) > 0 {
		r.fail("%s", strings.Join(got.faults, "; "))
	}
	select {
	case <-r.results:
	case <-time.After(time.Minute):
		r.fail("Stop has not returned")
	}
	r.app = nil
	r.closeAll()
}

// hasEnded wants the app to end by itself.
func (r *rig) hasEnded() {
	select {
	case <-r.app.Done():
	case <-time.After(time.Minute):
		r.fail("the app has not ended")
	}
	if r.app.Err() == nil {
		r.fail("the app has ended without an error")
	}
	r.book.open()
	r.app = nil
	r.closeAll()
}

// resume goes on after a case until the app consumes again and has nothing to do.
func (r *rig) resume(ph *phase, p *peer, c *hostile.Case, alive, odd bool) {
	if alive && c.Unfinished {
		_ = p.Close() // the rest does not come
		alive = false
	}
	switch {
	case !alive && ph.first:
		return // the next case meets its next attempt
	case !alive:
		present := ph.present && odd
		r.oblige(present)
		r.keep(p, present)
		again := r.await(ph.second)
		if present {
			again.inherit(p)
		}
		r.book.open()
	default:
		if ph.connecting && !ph.first && saysPresent(c) {
			p.inherit(r.before)
		}
		r.book.open()
		if ph.resume != nil {
			ph.resume(p)
		} else if ph.first {
			p.obey()
			p.grant()
		}
	}
	r.ready()
	for range cap(r.results) {
		select {
		case <-r.results:
		case <-time.After(time.Minute):
			r.fail("Publish has not returned")
		}
	}
	r.results = nil
	r.probe()
	if ph.first {
		r.stop()
		r.app = nil
	}
}

// keep has the next connection know which PUBRECs were sent on this one.
func (r *rig) keep(p *peer, present bool) {
	p.mu.Lock()
	recorded := maps.Clone(p.recorded)
	p.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recorded = nil
	if present {
		r.recorded = recorded
	}
}

// saysPresent says that a CONNACK has Session Present.
func saysPresent(c *hostile.Case) bool {
	_, size := binary.Uvarint(c.Bytes[1:])
	return c.Packet.Type == hostile.CONNACK && c.Bytes[1+size] == 1
}

// checkCalls wants handlers to have been called for what a case says, and for nothing else.
func (r *rig) checkCalls(ph *phase, c *hostile.Case, on bool) {
	r.t.Helper()
	calls := r.book.take()
	m := c.Message
	if m == nil || !on || ph.connecting || ph.second || ph.stops || c.Unfinished || routeOf(m.Topic) == "" || routeOf(m.Topic) == "json" || len(m.Payload) > maxPayload {
		if len(calls) > 0 {
			r.fail("a handler was called with %+v", calls[0])
		}
		return
	}
	if len(calls) != 1 || calls[0].route != routeOf(m.Topic) {
		r.fail("%d calls of handlers, want one of %q", len(calls), routeOf(m.Topic))
	}
	got := calls[0].Message
	if got.Topic != m.Topic || !bytes.Equal(got.Payload, m.Payload) || got.Retain != m.Retain || got.ContentType != m.ContentType ||
		got.ResponseTopic != m.ResponseTopic || !bytes.Equal(got.CorrelationData, m.CorrelationData) || !slices.Equal(got.User, m.User) {
		r.fail("a handler saw %+v, want %+v", got, *m)
	}
	if calls[0].route == "failing" { // it saw a copy
		return
	}
	if got.QoS != m.QoS || got.Dup != m.Dup || (got.CorrelationData == nil) != (m.CorrelationData == nil) {
		r.fail("a handler saw %+v, want %+v", got, *m)
	}
}
