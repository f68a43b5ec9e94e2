package broker

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/eclipse/paho.golang/packets"
)

func TestPublishReachesASubscriber(t *testing.T) {
	for _, c := range []struct{ publish, subscribe, want byte }{
		{0, 0, 0}, {0, 1, 0}, {0, 2, 0}, {1, 0, 0}, {1, 1, 1}, {1, 2, 1}, {2, 0, 0}, {2, 1, 1}, {2, 2, 2},
	} {
		bubble(t, Options{}, func(t *testing.T, b *Broker) {
			s, _ := connectAs(t, b, "s")
			if codes := s.subscribe(packets.SubOptions{Topic: "a/+", QoS: c.subscribe}); codes[0] != c.subscribe {
				t.Fatalf("granted %v", codes)
			}
			p, _ := connectAs(t, b, "p")
			p.send(pub("a/b", c.publish, 7, "x"))
			switch c.publish {
			case 1:
				p.expectAnswer(PUBACK, 7, 0)
			case 2:
				p.expectAnswer(PUBREC, 7, 0)
				p.send(&packets.Pubrel{PacketID: 7, Properties: &packets.Properties{}})
				p.expectAnswer(PUBCOMP, 7, 0)
			}
			got := s.expectPublish("x", c.want, false)
			if got.Topic != "a/b" || got.Retain {
				t.Fatalf("%+v", got)
			}
			switch c.want {
			case 1:
				s.puback(got.PacketID)
			case 2:
				s.send(&packets.Pubrec{PacketID: got.PacketID, Properties: &packets.Properties{}})
				s.expectAnswer(PUBREL, got.PacketID, 0)
				s.send(&packets.Pubcomp{PacketID: got.PacketID, Properties: &packets.Properties{}})
			}
			synctest.Wait()
			if info, ok := b.Session("s"); !ok || info.Inflight+info.Queued != 0 || !info.Connected {
				t.Fatalf("%+v", info)
			}
		})
	}
}

func TestResumeSendsAgainInOrderWithDup(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		s, ack := connectAs(t, b, "s", receiveMaximum(3))
		if ack.SessionPresent {
			t.Fatal("Session Present without a session")
		}
		s.subscribe(packets.SubOptions{Topic: "a", QoS: 1})
		publishAs(t, b, "a", 1, 1, 5)
		ids := []uint16{s.expectPublish("m1", 1, false).PacketID, s.expectPublish("m2", 1, false).PacketID, s.expectPublish("m3", 1, false).PacketID}
		s.silent() // the window is full
		s.puback(ids[0])
		s.expectPublish("m4", 1, false)
		s.silent()
		b.Cut("s")
		s.expectEnd()
		publishAs(t, b, "a", 1, 6, 6)

		s, ack = connectAs(t, b, "s", receiveMaximum(2))
		if !ack.SessionPresent {
			t.Fatal("no Session Present")
		}
		if p := s.expectPublish("m2", 1, true); p.PacketID != ids[1] {
			t.Fatalf("identifier %d, was %d", p.PacketID, ids[1])
		}
		s.expectPublish("m3", 1, true)
		s.silent() // a smaller window
		s.puback(ids[1])
		p := s.expectPublish("m4", 1, true)
		s.puback(ids[2], p.PacketID)
		p5, p6 := s.expectPublish("m5", 1, false), s.expectPublish("m6", 1, false)
		s.puback(p5.PacketID, p6.PacketID)
		s.silent()
	})
}

func TestOrderIsKept(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		s := subscribed(t, b, "s", "a")
		p, _ := connectAs(t, b, "p")
		const n = 3000
		var want, got []string
		for i := range uint16(n) {
			want = append(want, fmt.Sprint("m", i))
			p.send(pub("a", 1, i+1, fmt.Sprint("m", i)))
		}
		for range n {
			m := expect[*packets.Publish](s)
			got = append(got, string(m.Payload))
			s.puback(m.PacketID)
		}
		if !slices.Equal(got, want) {
			t.Fatal("out of order")
		}
	})
}
