package broker

import (
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/eclipse/paho.golang/packets"
	"pgregory.net/rapid"
)

// fate is what the client knows of a message.
type fate struct {
	qos       byte
	seen      bool
	id        uint16
	released  bool // QoS 2: PUBREC was sent, and surely handled
	asked     bool // PUBREC or PUBACK was sent, and perhaps not handled when the connection was cut
	completed bool // QoS 2: PUBCOMP was sent, and perhaps not handled
	over      bool
}

// subscriber is a client that keeps to the standard, and holds the server to it.
type subscriber struct {
	t           *rapid.T
	outer       *testing.T
	b           *Broker
	c           *client
	fates       []*fate      // by the number of the message
	unacked     []int        // seen on this connection, its PUBACK or PUBREC not sent, in order
	pubrels     []int        // PUBREL seen on this connection, PUBCOMP not sent
	inFlight    map[int]bool // on this connection
	window      int
	last        int // of the messages seen on this connection
	lastRelease int // of the messages whose PUBREL was seen on this connection
	begun       int // how many had been published when this connection began
	byID        map[uint16]int
}

func (s *subscriber) connect(window uint16) {
	s.c, _ = connectAs(s.outer, s.b, "s", receiveMaximum(window))
	s.window, s.last, s.lastRelease, s.begun = int(window), -1, -1, len(s.fates)
	s.unacked, s.pubrels, s.inFlight = nil, nil, make(map[int]bool)
}

// look reads what has come.
func (s *subscriber) look() {
	for {
		select {
		case cp := <-s.c.read:
			if cp == nil {
				return
			}
			s.take(cp)
		default:
			return
		}
	}
}

func (s *subscriber) take(cp *packets.ControlPacket) {
	switch p := cp.Content.(type) {
	case *packets.Publish:
		n, _ := strconv.Atoi(string(p.Payload))
		f := s.fates[n]
		switch {
		case f.over || f.released:
			s.t.Fatalf("message %d comes after it was answered", n)
		case n <= s.last:
			s.t.Fatalf("message %d comes behind %d", n, s.last)
		case p.QoS != f.qos:
			s.t.Fatalf("message %d has QoS %d", n, p.QoS)
		case f.seen && (!p.Duplicate || p.PacketID != f.id):
			s.t.Fatalf("message %d comes again with DUP %t, identifier %d and not %d", n, p.Duplicate, p.PacketID, f.id)
		case p.Duplicate && n >= s.begun:
			s.t.Fatalf("message %d, younger than the connection, has DUP", n)
		}
		if other, used := s.byID[p.PacketID]; used && other != n && !s.fates[other].over && !s.fates[other].asked {
			s.t.Fatalf("message %d has the identifier of %d", n, other)
		}
		f.seen, f.id, f.asked = true, p.PacketID, false
		s.byID[p.PacketID], s.last = n, n
		s.unacked = append(s.unacked, n)
		if s.inFlight[n] = true; len(s.inFlight) > s.window {
			s.t.Fatalf("%d in flight, the Receive Maximum is %d", len(s.inFlight), s.window)
		}
	case *packets.Pubrel:
		n, known := s.byID[p.PacketID]
		if !known || p.ReasonCode != 0 || s.fates[n].over || !(s.fates[n].asked || s.fates[n].released) {
			s.t.Fatalf("PUBREL %d 0x%02X for no PUBREC", p.PacketID, p.ReasonCode)
		}
		if n <= s.lastRelease {
			s.t.Fatalf("PUBREL for message %d comes behind that for %d", n, s.lastRelease)
		}
		s.fates[n].released, s.fates[n].completed, s.lastRelease = true, false, n
		s.pubrels = append(s.pubrels, n)
	default:
		s.t.Fatalf("got %v", cp)
	}
}

// acknowledge answers the first n that wait for it.
func (s *subscriber) acknowledge(n int) {
	for ; n > 0 && len(s.unacked) > 0; n-- {
		m := s.unacked[0]
		s.unacked = s.unacked[1:]
		f := s.fates[m]
		f.asked = true
		if f.qos == 1 {
			delete(s.inFlight, m)
			s.c.puback(f.id)
		} else {
			s.c.send(&packets.Pubrec{PacketID: f.id, Properties: &packets.Properties{}})
		}
	}
}

// complete sends PUBCOMP for the first n that wait for it.
func (s *subscriber) complete(n int) {
	for ; n > 0 && len(s.pubrels) > 0; n-- {
		m := s.pubrels[0]
		s.pubrels = s.pubrels[1:]
		s.fates[m].completed = true // over when it has surely been handled: else PUBREL comes again
		delete(s.inFlight, m)
		s.c.send(&packets.Pubcomp{PacketID: s.fates[m].id, Properties: &packets.Properties{}})
	}
}

// settle lets everything under way arrive, so that what was sent has been handled.
func (s *subscriber) settle() {
	synctest.Wait()
	s.look()
	for _, f := range s.fates {
		f.over = f.over || f.qos == 1 && f.asked || f.completed
	}
}

// noDeadline hides a method that rapid looks for and that panics in a bubble, whose time is not the test's.
type noDeadline struct{ rapid.TB }

// Whatever is published, acknowledged, cut and resumed: nothing is lost, order is kept, DUP says the truth, and the window holds.
func TestSessionDelivery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rounds := 10 // of rapid's 100, which alone do not find what needs three cuts
		if testing.Short() {
			rounds = 2
		}
		for range rounds {
			rapid.Check(noDeadline{t}, func(rt *rapid.T) {
				b := New(Options{WireLog: -1, MaxInflight: rapid.IntRange(0, 4).Draw(rt, "max inflight")})
				defer b.Close()
				s := &subscriber{t: rt, outer: t, b: b, byID: make(map[uint16]int)}
				s.connect(uint16(rapid.IntRange(1, 5).Draw(rt, "window")))
				s.c.subscribe(packets.SubOptions{Topic: "a", QoS: 2})
				rt.Repeat(map[string]func(*rapid.T){
					"publish": func(rt *rapid.T) {
						for range rapid.IntRange(1, 4).Draw(rt, "n") {
							qos := byte(rapid.IntRange(1, 2).Draw(rt, "qos"))
							s.fates = append(s.fates, &fate{qos: qos})
							if _, err := b.Publish(Message{Topic: "a", QoS: qos, Payload: strconv.AppendInt(nil, int64(len(s.fates)-1), 10)}); err != nil {
								rt.Fatal(err)
							}
						}
					},
					"acknowledge": func(rt *rapid.T) { s.acknowledge(rapid.IntRange(1, 4).Draw(rt, "n")) },
					"complete":    func(rt *rapid.T) { s.complete(rapid.IntRange(1, 4).Draw(rt, "n")) },
					"settle":      func(*rapid.T) { s.settle() },
					"look":        func(*rapid.T) { s.look() },
					"cut": func(rt *rapid.T) {
						b.Cut("s")
						for cp := s.c.next(); cp != nil; cp = s.c.next() {
							s.take(cp)
						}
						s.connect(uint16(rapid.IntRange(1, 5).Draw(rt, "window")))
					},
					"restart": func(rt *rapid.T) {
						b.Restart(true)
						for cp := s.c.next(); cp != nil; cp = s.c.next() {
							s.take(cp)
						}
						s.connect(uint16(rapid.IntRange(1, 5).Draw(rt, "window")))
					},
					"takeover": func(rt *rapid.T) {
						old := s.c
						defer func() { _ = old.Close() }()
						s.settle()
						s.connect(uint16(rapid.IntRange(1, 5).Draw(rt, "window")))
					},
				})
				s.settle()
				for range 2*len(s.fates) + 1 {
					s.acknowledge(len(s.fates))
					s.complete(len(s.fates))
					s.settle()
				}
				for n, f := range s.fates {
					if !f.over {
						rt.Errorf("message %d was lost: %+v", n, *f)
					}
				}
				if info, _ := b.Session("s"); info.Inflight+info.Queued != 0 {
					rt.Errorf("%+v", info)
				}
				_ = s.c.Close()
			})
		}
	})
}
