package broker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"
)

// member connects to a group at QoS 2, with a window of one, and a session of an hour.
func member(t *testing.T, b *Broker, id string) *client {
	t.Helper()
	c, _ := connectAs(t, b, id, receiveMaximum(1))
	c.subscribe(packets.SubOptions{Topic: "$share/g/a", QoS: 2})
	return c
}

func TestSharedTakesTurns(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		x, y := member(t, b, "x"), member(t, b, "y")
		other := subscribed(t, b, "o", "$share/h/a", "a")
		publishAs(t, b, "a", 1, 1, 2)
		first := x.expectPublish("m1", 1, false)
		y.expectPublish("m2", 1, false)
		publishAs(t, b, "a", 1, 3, 4) // both are full
		x.silent()
		y.silent()
		x.puback(first.PacketID)
		second := x.expectPublish("m3", 1, false)
		x.puback(second.PacketID)
		x.expectPublish("m4", 1, false)
		y.silent()
		got := map[string]int{}
		for range 8 { // another group, and a subscription of its own, each get all
			p := expect[*packets.Publish](other)
			got[string(p.Payload)]++
		}
		for _, m := range []string{"m1", "m2", "m3", "m4"} {
			if got[m] != 2 {
				t.Errorf("%s %d times", m, got[m])
			}
		}
	})
}

func TestSharedPassesOverWhoIsAway(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		member(t, b, "x")
		y := member(t, b, "y")
		b.Cut("x")
		for range 3 {
			publishAs(t, b, "a", 1, 1, 1)
			y.puback(y.expectPublish("m1", 1, false).PacketID)
		}
		publishAs(t, b, "a", 0, 2, 2)
		y.expectPublish("m2", 0, false)
		b.Cut("y") // nobody is there: it waits for whoever comes first
		publishAs(t, b, "a", 1, 3, 3)
		if info, _ := b.Session("y"); info.SharedQueued != 1 || info.Queued != 0 {
			t.Errorf("%+v", info)
		}
		x, _ := connectAs(t, b, "x")
		x.expectPublish("m3", 1, false)
	})
}

func TestSharedHandsBack(t *testing.T) {
	for _, c := range []struct {
		name string
		qos  byte
		end  func(b *Broker, x *client)
		want bool // y gets what x had
	}{
		{"connection lost", 1, func(b *Broker, _ *client) { b.Cut("x") }, false},
		{"session expired", 1, func(b *Broker, _ *client) { b.Cut("x"); pass(time.Hour) }, true},
		{"session expired, QoS 2", 2, func(b *Broker, _ *client) { b.Cut("x"); pass(time.Hour) }, false},
		{"session ended by DISCONNECT", 1, func(_ *Broker, x *client) {
			x.send(&packets.Disconnect{Properties: &packets.Properties{SessionExpiryInterval: ptr[uint32](0)}})
		}, true},
		{"clean start", 1, func(b *Broker, x *client) { connectAs(x.t, b, "x", cleanStart) }, true},
		{"unsubscribed", 1, func(_ *Broker, x *client) {
			x.send(&packets.Unsubscribe{PacketID: 1, Topics: []string{"$share/g/a"}, Properties: &packets.Properties{}})
		}, false}, // it is still being delivered (3.10.4)
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, b *Broker) {
				x, y := member(t, b, "x"), member(t, b, "y")
				publishAs(t, b, "a", c.qos, 1, 3)
				x.expectPublish("m1", c.qos, false)
				id := y.expectPublish("m2", c.qos, false).PacketID
				c.end(b, x)
				synctest.Wait()
				if c.qos == 1 {
					y.puback(id)
				} else {
					y.send(&packets.Pubrec{PacketID: id, Properties: &packets.Properties{}})
					y.expectAnswer(PUBREL, id, 0)
					y.send(&packets.Pubcomp{PacketID: id, Properties: &packets.Properties{}})
				}
				want := "m3"
				if c.want {
					want = "m1" // before what is younger
				}
				p := y.expectPublish(want, c.qos, false)
				if c.want {
					y.puback(p.PacketID)
					y.expectPublish("m3", 1, false)
				}
				y.silent()
			})
		})
	}
}

// What was put into a member's buffer and never written goes to another at once.
func TestSharedHandsBackWhatWasNotWritten(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		stalled, err := b.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = stalled.Close() }()
		_, _ = stalled.Write(encoded(connecting("x"), &packets.Subscribe{
			PacketID: 1, Properties: &packets.Properties{}, Subscriptions: []packets.SubOptions{{Topic: "$share/g/a", QoS: 2}},
		}))
		synctest.Wait() // CONNACK is with Write, which waits
		publishAs(t, b, "a", 2, 1, 3)
		y := member(t, b, "y")
		b.Cut("x")
		y.expectPublish("m1", 2, false)
		if info, _ := b.Session("y"); info.SharedQueued != 2 {
			t.Errorf("%+v", info)
		}
	})
}

func TestSharedAtAMembersQoS(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		x, _ := connectAs(t, b, "x", receiveMaximum(1))
		x.subscribeID(9, packets.SubOptions{Topic: "$share/g/a", QoS: 0})
		publishAs(t, b, "a", 2, 1, 2)
		for _, want := range []string{"m1", "m2"} {
			if p := x.expectPublish(want, 0, false); *p.Properties.SubscriptionIdentifier != 9 {
				t.Errorf("%+v", p)
			}
		}
	})
}
