package link

import (
	"fmt"
	"slices"
	"testing"

	"github.com/eclipse/paho.golang/packets"
	"pgregory.net/rapid"
)

// Whatever happens, the server's Receive Maximum holds, identifiers in flight differ, and everybody is told in the end.
func TestSessionProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := newOutbound()
		maximum := uint16(1)
		s := resume(o, false, maximum)
		open := map[uint16]string{} // on this connection, by what the server has of it
		var told []*publication
		given := map[*publication]bool{}
		read := func() {
			for s.sent.Len() > 0 {
				cp, err := packets.ReadPacket(&s.sent)
				if err != nil {
					t.Fatal(err)
				}
				id := cp.PacketID()
				switch p := cp.Content.(type) {
				case *packets.Publish:
					if _, used := open[id]; used {
						t.Fatalf("identifier %d is in use", id)
					}
					open[id] = fmt.Sprintf("PUBLISH %d", p.QoS)
				case *packets.Pubrel:
					open[id] = "PUBREL"
				}
			}
			publishes := 0
			for _, what := range open {
				if what != "PUBREL" {
					publishes++
				}
			}
			if publishes > int(maximum) {
				t.Fatalf("%d PUBLISHes at Receive Maximum %d", publishes, maximum)
			}
		}
		pick := func() uint16 {
			ids := make([]uint16, 0, len(open))
			for id := range open {
				ids = append(ids, id)
			}
			slices.Sort(ids)
			return rapid.SampledFrom(ids).Draw(t, "id")
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 6).Draw(t, "step") {
			case 0, 1, 2:
				o.mu.Lock()
				free := o.used < o.maximum && len(o.resends) == 0
				o.mu.Unlock()
				if free {
					told = append(told, pub(t, o, s, byte(rapid.IntRange(1, 2).Draw(t, "qos"))))
				}
			case 3, 4:
				if len(open) == 0 {
					continue
				}
				id := pick()
				switch open[id] {
				case "PUBLISH 1":
					delete(open, id)
					_ = s.tell(puback(id, 0))
				case "PUBLISH 2":
					code := rapid.SampledFrom([]byte{0, 0x80}).Draw(t, "code")
					delete(open, id)
					_ = s.tell(&packets.Pubrec{PacketID: id, ReasonCode: code})
				case "PUBREL":
					delete(open, id)
					_ = s.tell(&packets.Pubcomp{PacketID: id})
				}
			case 5:
				_ = s.ConnectionLost(nil)
				maximum = uint16(rapid.IntRange(1, 5).Draw(t, "maximum"))
				clear(open)
				s = resume(o, rapid.Bool().Draw(t, "present"), maximum)
			case 6:
				if len(told) > 0 {
					p := rapid.SampledFrom(told).Draw(t, "publication")
					o.abandon(p)
					given[p] = true
				}
			}
			read()
			if len(s.broken) > 0 {
				t.Fatalf("violation: %v", s.broken)
			}
		}
		o.close()
		for i, p := range told {
			if p.outcome() == "open" && !given[p] {
				t.Fatalf("publication %d was never answered", i)
			}
		}
	})
}
