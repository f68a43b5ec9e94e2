package hostile_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/internal/hostile"
)

// situation is a connection with one exchange open in each of its states.
type situation struct {
	*peer
	open1, open2, received uint16        // deliveries: at QoS 1 and 2, being handled; at QoS 2, PUBREC has come
	pub1, pub2, rel2       uint16        // publishes: at QoS 1 and 2, unanswered; at QoS 2, PUBREC was sent
	results                [3]chan error // of the publishes
}

// everythingOpen brings about the situation.
func (r *rig) everythingOpen() *situation {
	s := &situation{peer: r.openDeliveries(r.main)}
	s.mu.Lock()
	s.script.puback = false
	s.received = s.lastID - 2
	s.open1, s.open2 = s.lastID-1, s.lastID
	s.mu.Unlock()
	for i, qos := range []settle.QoS{1, 2, 2} {
		s.results[i] = make(chan error, 1)
		go func() { s.results[i] <- r.app.Publish(context.Background(), "out", []byte("x"), qos) }()
		synctest.Wait()
	}
	ids := s.unanswered()
	s.pub1, s.pub2, s.rel2 = ids[0], ids[1], ids[2]
	s.record(answer(hostile.PUBREC, s.rel2), s.rel2)
	synctest.Wait()
	return s
}

// answer is a PUBACK, PUBREC, PUBREL or PUBCOMP.
func answer(kind byte, id uint16, code ...byte) []byte {
	first := kind << 4
	if kind == hostile.PUBREL {
		first |= 2
	}
	return append([]byte{first, byte(2 + len(code)), byte(id >> 8), byte(id)}, code...)
}

// granted is a SUBACK or UNSUBACK.
func granted(kind byte, id uint16, codes ...byte) []byte {
	return append([]byte{kind << 4, byte(3 + len(codes)), byte(id >> 8), byte(id), 0}, codes...)
}

// exchange is a packet that names one of the identifiers of a situation.
type exchange struct {
	name string
	send func(r *rig, s *situation)
	code byte // of the DISCONNECT that answers it; 0: it is taken
	// publish is the index of the publish that it ends, -1: none; refused is the code that this one is refused with, 0: it is not.
	publish int
	refused byte
	anew    bool // it is another message, and handled
}

// TestIdentifiersOfOthers sends every answer under every identifier that is in use, and every PUBLISH under one that is.
func TestIdentifiersOfOthers(t *testing.T) {
	exchanges := slices.Concat(answers(), repeats())
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.up()
		for i, x := range exchanges {
			for _, present := range []bool{false, true} {
				r.begin(fmt.Sprintf("%s, session present %t", x.name, present))
				r.exchange(&exchanges[i], present)
			}
		}
		r.givesMemoryBack()
		r.stop()
	})
	t.Logf("%d cases", 2*len(exchanges))
}

func (r *rig) exchange(x *exchange, present bool) {
	r.t.Helper()
	s := r.everythingOpen()
	x.send(r, s)
	pass(3 * time.Millisecond)
	got := s.snapshot()
	switch {
	case len(got.faults) > 0:
		r.fail("%q", got.faults)
	case x.code == 0 && (got.ended || got.parted), x.code != 0 && (!got.ended || !got.parted || got.code != x.code):
		r.fail("got %+v, want 0x%02X", got, x.code)
	}
	if x.code == 0 && x.publish >= 0 {
		select {
		case err := <-s.results[x.publish]:
			var refused *settle.ServerError
			if errors.As(err, &refused) != (x.refused != 0) || refused != nil && refused.Code != x.refused || refused == nil && err != nil {
				r.fail("Publish returned %v, want 0x%02X", err, x.refused)
			}
		default:
			r.fail("Publish has not returned")
		}
	}
	if got.ended {
		r.oblige(present)
		r.keep(s.peer, present)
		next := r.await(false)
		if present {
			next.inherit(s.peer)
		}
		r.book.open()
	} else {
		r.book.open()
		s.obey()
		s.releaseAll()
		s.answerAll() // those that were answered are answered twice: the second answers nothing
	}
	r.ready()
	for i, result := range s.results {
		if x.code == 0 && i == x.publish {
			continue
		}
		select {
		case <-result:
		case <-time.After(time.Minute):
			r.fail("publish %d has not returned", i)
		}
	}
	r.probe()
	if a, b := r.book.count("held/a"), r.book.count("held/b"); !x.anew && (a != 1 || b != 1) {
		r.fail("the handlers of what was open were called %d and %d times", a, b)
	}
	r.book.take()
}

// answers are those that a server gives, under identifiers of every kind.
func answers() []exchange {
	type of struct {
		name string
		id   func(*situation) uint16
	}
	kinds := []of{
		{"a publish at QoS 1", func(s *situation) uint16 { return s.pub1 }},
		{"a publish at QoS 2", func(s *situation) uint16 { return s.pub2 }},
		{"a publish whose PUBREL was sent", func(s *situation) uint16 { return s.rel2 }},
		{"a delivery at QoS 1", func(s *situation) uint16 { return s.open1 }},
		{"a delivery at QoS 2", func(s *situation) uint16 { return s.open2 }},
		{"a delivery whose PUBREC was sent", func(s *situation) uint16 { return s.received }},
		{"nothing", func(*situation) uint16 { return 65535 }},
	}
	var out []exchange
	for i, k := range kinds {
		ours := i < 3 // identifiers of the two directions have nothing to do with each other (2.2.1)
		add := func(name string, code byte, publish int, refused byte, encode func(id uint16) []byte) {
			out = append(out, exchange{name: name + " for " + k.name, code: code, publish: publish, refused: refused, send: func(_ *rig, s *situation) {
				id := k.id(s)
				b := encode(id)
				s.sendNoted(func() {
					switch {
					case b[0]>>4 == hostile.PUBREL:
						s.noteRelease(id)
					case b[0]>>4 == hostile.PUBREC && b[4] < 0x80:
						s.recorded[id]++
					}
				}, b)
			}})
		}
		for _, code := range []byte{0, 0x10, 0x80, 0x97, 0xFE} {
			refused := code
			if code < 0x80 {
				refused = 0
			}
			ends, wrong := -1, byte(0)
			switch i {
			case 0:
				ends = 0
			case 1, 2:
				wrong = hostile.CodeProtocol
			}
			add(fmt.Sprintf("PUBACK 0x%02X", code), wrong, ends, refused, func(id uint16) []byte { return answer(hostile.PUBACK, id, code) })
			ends, wrong = -1, 0
			switch {
			case i == 0:
				wrong = hostile.CodeProtocol
			case i == 1 && refused != 0:
				ends = 1
			}
			add(fmt.Sprintf("PUBREC 0x%02X", code), wrong, ends, refused, func(id uint16) []byte { return answer(hostile.PUBREC, id, code) })
		}
		for _, code := range []byte{0, 0x92} {
			ends, wrong := -1, byte(0)
			switch i {
			case 0, 1:
				wrong = hostile.CodeProtocol
			case 2:
				ends = 2
			}
			add(fmt.Sprintf("PUBCOMP 0x%02X", code), wrong, ends, code, func(id uint16) []byte { return answer(hostile.PUBCOMP, id, code) })
			add(fmt.Sprintf("PUBREL 0x%02X", code), 0, -1, 0, func(id uint16) []byte { return answer(hostile.PUBREL, id, code) })
		}
		for kind, name := range map[byte]string{hostile.SUBACK: "SUBACK", hostile.UNSUBACK: "UNSUBACK"} {
			wrong := byte(0)
			if ours {
				wrong = hostile.CodeProtocol
			}
			add(name, wrong, -1, 0, func(id uint16) []byte { return granted(kind, id, 0) })
		}
	}
	return out
}

// repeats are PUBLISHes under an identifier that is in use.
func repeats() []exchange {
	var out []exchange
	add := func(name string, send func(r *rig, s *situation)) {
		out = append(out, exchange{name: name, publish: -1, send: send, anew: !strings.Contains(name, "again with DUP")})
	}
	again := func(s *situation, id uint16) *given {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, g := range slices.Concat(s.given[1], s.given[2]) {
			if g.id == id {
				return g
			}
		}
		return nil
	}
	same := func(g *given, dup byte) []byte {
		b := slices.Clone(g.bytes)
		b[0] |= dup
		return b
	}
	for name, id := range map[string]func(*situation) uint16{
		"QoS 1": func(s *situation) uint16 { return s.open1 }, "QoS 2": func(s *situation) uint16 { return s.open2 },
	} {
		add("the same PUBLISH again with DUP, "+name, func(_ *rig, s *situation) {
			s.send(same(again(s, id(s)), 8)) // not on a live connection [MQTT-4.4.0-1]; there is one acknowledgement for both
		})
		add("the same PUBLISH again without DUP, "+name, func(_ *rig, s *situation) {
			g := again(s, id(s))
			s.give(same(g, 0), g.bytes[0]>>1&3, g.id, g.key)
		})
	}
	add("the same PUBLISH again with DUP, after PUBREC", func(_ *rig, s *situation) {
		g := again(s, s.received)
		s.give(same(g, 8), 2, g.id, "") // handled once, and answered twice
	})
	add("the same PUBLISH again without DUP, after PUBREC", func(_ *rig, s *situation) {
		g := again(s, s.received)
		s.give(same(g, 0), 2, g.id, g.key)
	})
	for _, qos := range []byte{1, 2} {
		for _, dup := range []byte{0, 8} {
			for name, id := range map[string]func(*situation) uint16{
				"a delivery at QoS 1": func(s *situation) uint16 { return s.open1 }, "a delivery at QoS 2": func(s *situation) uint16 { return s.open2 },
				"a delivery after PUBREC": func(s *situation) uint16 { return s.received },
			} {
				add(fmt.Sprintf("another PUBLISH of QoS %d with flags %04b under the identifier of %s", qos, dup|qos<<1, name), func(_ *rig, s *situation) {
					c := hostile.Publication("", "one/probe", qos, "another")
					b := c.WithID(id(s))
					b[0] |= dup
					s.give(b, qos, id(s), key("one/probe", qos, c.Message.Payload))
				})
			}
		}
	}
	return out
}

// TestGrants answers a SUBSCRIBE with everything that a SUBACK can say, and with what is none.
func TestGrants(t *testing.T) {
	type grant struct {
		name  string
		index int // of the SUBSCRIBE
		send  func(id uint16) []byte
		codes []byte // of the DISCONNECT; none: it is granted
	}
	var grants []grant
	for _, index := range []int{0, 6} { // asked for at QoS 2, and at 0
		qos := byte(2)
		if index == 6 {
			qos = 0
		}
		for code := range 256 {
			code := byte(code)
			g := grant{fmt.Sprintf("SUBACK 0x%02X for QoS %d", code, qos), index, func(id uint16) []byte { return granted(hostile.SUBACK, id, code) }, nil}
			switch {
			case code == qos:
			case code < qos, code >= 0x80: // too little: nothing is wrong with the connection
				g.codes = []byte{0}
			case code <= 2: // more than was asked for [MQTT-3.8.4-8]
				g.codes = []byte{hostile.CodeProtocol}
			default:
				g.codes = []byte{hostile.CodeMalformed, hostile.CodeProtocol}
			}
			grants = append(grants, g)
		}
		wrong := []byte{hostile.CodeProtocol} // as many codes as filters [MQTT-3.8.4-6]
		grants = append(grants,
			grant{"SUBACK with two codes", index, func(id uint16) []byte { return granted(hostile.SUBACK, id, qos, qos) }, wrong},
			grant{"UNSUBACK", index, func(id uint16) []byte { return granted(hostile.UNSUBACK, id, 0) }, wrong},
			grant{"PUBACK", index, func(id uint16) []byte { return answer(hostile.PUBACK, id) }, wrong},
			grant{"PUBREC", index, func(id uint16) []byte { return answer(hostile.PUBREC, id) }, wrong},
			grant{"PUBCOMP", index, func(id uint16) []byte { return answer(hostile.PUBCOMP, id) }, wrong},
		)
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.up()
		for _, g := range grants {
			r.begin(g.name)
			half := obliging(false)
			half.suback = false
			r.will(half, obliging(false))
			_ = r.main.Close()
			p := r.await(false)
			p.mu.Lock()
			asked := p.asked[g.index]
			p.asked = slices.Delete(p.asked, g.index, g.index+1)
			p.mu.Unlock()
			p.send(g.send(asked.id))
			p.grant()
			pass(time.Millisecond)
			got := p.snapshot()
			switch granted := len(g.codes) == 0; {
			case len(got.faults) > 0, granted != !got.parted, got.parted && !slices.Contains(g.codes, got.code), got.ended != got.parted:
				r.fail("got %+v, want one of %x", got, g.codes)
			case !granted:
				r.oblige(false)
				r.await(false)
			default:
				p.obey()
			}
			r.ready()
			r.probe()
		}
		r.stop()
	})
	t.Logf("%d cases", len(grants))
}
