package hostile_test

import (
	"context"
	"slices"
	"testing/synctest"
	"time"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/internal/hostile"
)

// phase is where in the life of a connection a case is sent.
type phase struct {
	name string
	// connecting: CONNECT has come and CONNACK not been sent. first: nor has it ever been.
	connecting, first bool
	// parting: the app's DISCONNECT has come, and nothing that the server says matters any more.
	parting bool
	// second: on the connection that retry copies come over.
	second bool
	// stops: the app is stopping, and will not be back.
	stops bool
	// routes: with PUBLISHes to every kind of route.
	routes bool
	// present: every other time the server still has the session when the app comes back.
	present bool
	// reach brings an app there. It returns the connection that the case is sent over.
	reach func(r *rig) *peer
	// resume has the server do what reach has had it leave undone, where the connection has lived through the case. May be nil.
	resume func(p *peer)
}

// phases are all of them. Each begins with an app that consumes and has nothing to do, but for the first, and ends with it.
var phases = []phase{
	{
		name: "instead of the first CONNACK", connecting: true, first: true,
		reach: func(r *rig) *peer {
			if r.app == nil {
				r.will(script{}, obliging(false))
				r.start()
				r.await(true)
			}
			return r.await(false)
		},
	},
	{
		name: "instead of CONNACK, with deliveries of the connection before", connecting: true,
		reach: func(r *rig) *peer {
			r.before = r.openDeliveries(r.main)
			r.will(script{}, obliging(false))
			_ = r.main.Close()
			return r.await(false)
		},
		resume: func(p *peer) {
			p.obey()
			p.grant()
		},
	},
	{
		name: "between CONNACK and SUBACK",
		reach: func(r *rig) *peer {
			s := obliging(false)
			s.suback = false
			r.will(s, obliging(false))
			_ = r.main.Close()
			return r.await(false)
		},
		resume: func(p *peer) {
			p.obey()
			p.grant()
		},
	},
	{
		name:    "with deliveries open",
		present: true, routes: true,
		reach: func(r *rig) *peer { return r.openDeliveries(r.main) },
		resume: func(p *peer) {
			p.obey()
			p.releaseAll()
		},
	},
	{
		name: "with publishes unanswered", present: true,
		reach: func(r *rig) *peer {
			p := r.main
			p.mu.Lock()
			p.script.puback = false
			p.mu.Unlock()
			r.results = make(chan error, 3)
			for _, qos := range []settle.QoS{1, 2, 2} {
				go func() {
					r.results <- r.app.Publish(context.Background(), "out", []byte("x"), qos)
				}()
				synctest.Wait()
			}
			last := p.unanswered()[2] // its PUBCOMP is what is missing
			p.record([]byte{hostile.PUBREC << 4, 2, byte(last >> 8), byte(last)}, last)
			synctest.Wait()
			return p
		},
		resume: func(p *peer) {
			p.obey()
			p.answerAll()
		},
	},
	{
		name: "while Stop waits for a handler", stops: true,
		reach: func(r *rig) *peer {
			p := r.openDeliveries(r.main)
			r.beginStop()
			return p
		},
	},
	{
		name: "behind the DISCONNECT of Stop", parting: true, stops: true,
		reach: func(r *rig) *peer {
			r.main.stay()
			r.beginStop()
			return r.main
		},
	},
	{
		name: "on the second connection, with a copy on its way", second: true,
		reach: func(r *rig) *peer {
			const topic = "failing/copy/probe"
			c := hostile.Publication("", topic, 1, "held up")
			id := r.main.nextID()
			r.main.give(c.WithID(id), 1, id, key(topic, 1, c.Message.Payload))
			synctest.Wait()
			return r.second
		},
	},
}

// openDeliveries has two deliveries run on a connection, and a third one whose PUBREL is due.
func (r *rig) openDeliveries(p *peer) *peer {
	r.book.close()
	p.mu.Lock()
	p.script.pubrel = false
	p.mu.Unlock()
	done := hostile.Publication("", "one/probe", 2, "open")
	id := p.nextID()
	p.give(done.WithID(id), 2, id, key("one/probe", 2, done.Message.Payload))
	synctest.Wait()
	for i, topic := range []string{"held/a", "held/b"} {
		qos := byte(i + 1)
		c := hostile.Publication("", topic, qos, "open")
		id := p.nextID()
		p.give(c.WithID(id), qos, id, key(topic, qos, c.Message.Payload))
	}
	pass(2 * time.Millisecond)
	return p
}

// obey has the server do everything from now on.
func (p *peer) obey() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.script.suback, p.script.puback, p.script.pubrel = true, true, true
}

// grant answers every SUBSCRIBE that was left unanswered.
func (p *peer) grant() {
	p.mu.Lock()
	asked := p.asked
	p.asked = nil
	p.mu.Unlock()
	for _, a := range asked {
		p.send([]byte{hostile.SUBACK << 4, 4, byte(a.id >> 8), byte(a.id), 0, a.qos})
	}
}

// unanswered are the identifiers of publishes that no answer was sent for.
func (p *peer) unanswered() []uint16 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.published)
}

// answerAll answers the three publishes of their phase.
func (p *peer) answerAll() {
	ids := p.unanswered()
	p.mu.Lock()
	p.published = nil
	p.mu.Unlock()
	p.send([]byte{hostile.PUBACK << 4, 2, byte(ids[0] >> 8), byte(ids[0])})
	p.record([]byte{hostile.PUBREC << 4, 2, byte(ids[1] >> 8), byte(ids[1])}, ids[1])
	p.send([]byte{hostile.PUBCOMP << 4, 2, byte(ids[2] >> 8), byte(ids[2])})
}

// beginStop has Stop begin on a goroutine of its own.
func (r *rig) beginStop() {
	r.results = make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		r.results <- r.app.Stop(ctx)
	}()
	synctest.Wait()
}

// want is what may come of a case.
type want struct {
	on     bool   // the connection goes on
	closed bool   // the app closes it without DISCONNECT
	codes  []byte // or with one of these codes
	ends   bool   // and then the app may end by itself
}

// expected is what the standard wants to come of a case in a phase.
func expected(ph *phase, c *hostile.Case) want {
	kind := c.Packet.Type
	taken := c.Legal() || c.Tolerable
	w := want{codes: slices.Clone(c.Wrong)}
	switch {
	case ph.parting:
		return want{on: true, closed: true}
	case c.Unfinished:
		w.on = true
	case ph.connecting && kind == hostile.CONNACK:
		w = connackWanted(ph, c, w)
	case kind == hostile.DISCONNECT: // an end, also where it is not allowed yet
		w.closed = taken
		if ph.connecting {
			w.codes = append(w.codes, hostile.CodeProtocol)
		}
	case kind == hostile.AUTH: // no method was agreed on [MQTT-4.12.0-6]
		w.codes = append(w.codes, hostile.CodeProtocol, hostile.CodeBadAuthMethod)
	case ph.connecting, kind == hostile.CONNACK: // nothing comes before CONNACK [MQTT-3.2.0-1], and one is enough [MQTT-3.2.0-2]
		w.codes = append(w.codes, hostile.CodeProtocol)
	default:
		w.on = taken
	}
	return w
}

// fatalCodes are the reason codes of a first CONNACK after which it makes no sense to try again.
var fatalCodes = []byte{0x81, 0x82, 0x84, 0x85, 0x8C, 0x90, 0x95, 0x99, 0x9A, 0x9B}

func connackWanted(ph *phase, c *hostile.Case, w want) want {
	taken := c.Legal() || c.Tolerable
	switch {
	case taken && c.Code >= 0x80:
		w.closed, w.ends = true, ph.first && slices.Contains(fatalCodes, c.Code)
	case !taken:
	case c.Property == hostile.PropertySessionExpiry && c.Value == "\x00\x00\x00\x00",
		c.Property == hostile.PropertyMaximumQoS:
		w.codes, w.ends = append(w.codes, 0), true // the app needs more, and says so
	case c.Property == hostile.PropertyWildcardsAvailable && c.Value == "\x00", c.Property == hostile.PropertySharedAvailable && c.Value == "\x00",
		c.Property == hostile.PropertyMaximumPacketSize && c.Value == "\x00\x00\x00\x01":
		w.codes = append(w.codes, 0)
	default:
		w.on = true
	}
	return w
}
