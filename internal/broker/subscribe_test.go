package broker

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/settlemq/settle/internal/topic"
)

func TestSuback(t *testing.T) {
	for _, c := range []struct {
		filter string
		qos    byte
		o      Options
		want   byte
	}{
		{"a", 2, Options{}, 2},
		{"a/#", 1, Options{}, 1},
		{"#", 0, Options{}, 0},
		{"$share/g/a/+", 1, Options{}, 1},
		{"a", 2, Options{MaximumQoS: ptr[byte](1)}, 1},
		{"", 1, Options{}, codeFilterInvalid},
		{"a#", 1, Options{}, codeFilterInvalid},
		{"a/#/b", 1, Options{}, codeFilterInvalid},
		{"$share/g", 1, Options{}, codeFilterInvalid},
		{"$share//a", 1, Options{}, codeFilterInvalid},
		{"$share/+/a", 1, Options{}, codeFilterInvalid},
		{"$share/g/", 1, Options{}, codeFilterInvalid},
		{"$share/g/a", 1, Options{NoShared: true}, codeSharedNotSupported},
		{"a/+", 1, Options{NoWildcards: true}, codeWildcardUnsupported},
		{"$share/g/#", 1, Options{NoWildcards: true}, codeWildcardUnsupported},
	} {
		bubble(t, c.o, func(t *testing.T, b *Broker) {
			s, _ := connectAs(t, b, "s")
			if codes := s.subscribe(packets.SubOptions{Topic: c.filter, QoS: c.qos}, packets.SubOptions{Topic: "ok", QoS: 0}); !slices.Equal(codes, []byte{c.want, 0}) {
				t.Errorf("%q: %x, want %02x 00", c.filter, codes, c.want)
			}
		})
	}
}

func TestUnsubscribe(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		s := subscribed(t, b, "s", "a", "b/#", "$share/g/c")
		s.send(&packets.Unsubscribe{PacketID: 5, Topics: []string{"a", "a", "x", "b/#/c", "$share/g/c"}, Properties: &packets.Properties{}})
		want := []byte{0, codeNoSubscription, codeNoSubscription, codeFilterInvalid, 0}
		if ack := expect[*packets.Unsuback](s); !slices.Equal(ack.Reasons, want) || ack.PacketID != 5 {
			t.Errorf("%x, want %x", ack.Reasons, want)
		}
		publishAs(t, b, "a", 1, 1, 1)
		publishAs(t, b, "c", 1, 1, 1)
		s.silent()
		if info, _ := b.Session("s"); !slices.Equal(info.Subscriptions, []string{"b/#"}) {
			t.Errorf("%+v", info)
		}
		if len(b.groups) != 0 || len(b.tree.root.children) != 1 {
			t.Error("something is left of what nobody subscribes to")
		}
	})
}

// The tree agrees with topic.Match, which has a table of its own.
func TestTreeMatches(t *testing.T) {
	filters := []string{"#", "+", "+/+", "/+", "a", "a/", "a/#", "a/+", "a/+/#", "a/b", "+/b/#", "$SYS/#", "$SYS/+", "+/#", "a/+/c", "/#", "/"}
	var tr tree
	var subs []*subscription
	for _, f := range filters {
		sub := &subscription{filter: newFilter(f)}
		tr.insert(sub)
		subs = append(subs, sub)
	}
	check := func() {
		t.Helper()
		for _, name := range []string{"a", "a/", "/a", "/", "a/b", "a/b/c", "a//c", "$SYS", "$SYS/x", "b/b", "a/$b", "x/y/z"} {
			var got, want []string
			for _, sub := range tr.match(nil, name) {
				got = append(got, sub.topicFilter)
			}
			for _, sub := range subs {
				if sub.node != nil && topic.Match(sub.topicFilter, name) {
					want = append(want, sub.topicFilter)
				}
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("%q: %q, want %q", name, got, want)
			}
		}
	}
	check()
	for _, sub := range subs {
		sub.remove()
		check()
	}
	if len(tr.root.children) != 0 {
		t.Error("levels are left")
	}
}

// raw frames, since paho's packets hold one identifier only.
func TestSubscriptionIdentifiers(t *testing.T) {
	for _, c := range []struct {
		overlap Overlap
		want    [][]uint32
	}{{OnePublish, [][]uint32{{3, 300, 100_000_000}}}, {OneEach, [][]uint32{{300}, {3}, {100_000_000}}}} {
		bubble(t, Options{Overlap: c.overlap}, func(t *testing.T, b *Broker) {
			s, _ := connectAs(t, b, "s")
			s.subscribeID(300, packets.SubOptions{Topic: "a/#", QoS: 0})
			s.subscribeID(3, packets.SubOptions{Topic: "a/+", QoS: 2})
			s.subscribeID(100_000_000, packets.SubOptions{Topic: "a/b", QoS: 1})
			s.subscribe(packets.SubOptions{Topic: "x/b", QoS: 1})
			var got [][]uint32
			var qos []byte
			b.SetInterceptor(func(_ string, d Direction, p Packet) Verdict {
				if d == ToClient && p.Type == PUBLISH {
					body := frameBody(p.Bytes)
					_, body, _ = field(body)
					if p.QoS > 0 {
						body = body[2:]
					}
					length, size := varint(body)
					var ids []uint32
					for rest := body[size : size+int(length)]; len(rest) > 0; {
						var prop property
						prop, rest, _ = splitProperty(rest)
						ids = append(ids, prop.number)
					}
					got, qos = append(got, ids), append(qos, p.QoS)
				}
				return Verdict{}
			})
			publishAs(t, b, "a/b", 2, 1, 1)
			synctest.Wait()
			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
			if c.overlap == OnePublish && qos[0] != 2 {
				t.Errorf("QoS %d, want the highest of the filters", qos[0])
			}
		})
	}
}

func TestResubscribeReplaces(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		s, _ := connectAs(t, b, "s")
		s.subscribeID(1, packets.SubOptions{Topic: "a", QoS: 2})
		s.subscribeID(2, packets.SubOptions{Topic: "a", QoS: 1})
		publishAs(t, b, "a", 2, 1, 1)
		if p := s.expectPublish("m1", 1, false); *p.Properties.SubscriptionIdentifier != 2 {
			t.Errorf("identifier %d", *p.Properties.SubscriptionIdentifier)
		}
		s.silent()
	})
}

func TestNoLocal(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		s, _ := connectAs(t, b, "s")
		other := subscribed(t, b, "o", "a")
		s.subscribe(packets.SubOptions{Topic: "a", QoS: 1, NoLocal: true})
		s.send(pub("a", 1, 1, "own"))
		s.expectAnswer(PUBACK, 1, 0)
		other.expectPublish("own", 1, false)
		other.send(pub("a", 1, 1, "other's"))
		s.expectPublish("other's", 1, false)
		s.silent()
		s.subscribe(packets.SubOptions{Topic: "#", QoS: 1}) // another filter of its own may match all the same
		s.send(pub("a", 1, 2, "own"))
		s.expectPublish("own", 1, false)
		s.expectAnswer(PUBACK, 2, 0)
	})
}

func retained(topic, payload string) Message {
	return Message{Topic: topic, Payload: []byte(payload), QoS: 1, Retain: true}
}

func TestRetained(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		for _, m := range []Message{retained("b", "2"), retained("a", "1"), retained("a/b", "old"), retained("a/b", "3"), retained("gone", "x"), retained("gone", ""), retained("$SYS/x", "s"), {
			Topic: "late", Payload: []byte("x"), Retain: true, HasExpiry: true, Expiry: 5,
		}} {
			if _, err := b.Publish(m); err != nil {
				t.Fatal(err)
			}
		}
		pass(5 * time.Second)
		s, _ := connectAs(t, b, "s")
		s.subscribeID(7, packets.SubOptions{Topic: "#", QoS: 2})
		for _, want := range []string{"1", "3", "2"} { // in the order of the topics
			p := s.expectPublish(want, 1, false)
			if !p.Retain || *p.Properties.SubscriptionIdentifier != 7 {
				t.Errorf("%+v", p)
			}
		}
		s.silent()
	})
}

func TestRetainHandling(t *testing.T) {
	for _, c := range []struct {
		handling    byte
		first, then bool
	}{{0, true, true}, {1, true, false}, {2, false, false}} {
		bubble(t, Options{}, func(t *testing.T, b *Broker) {
			_, _ = b.Publish(retained("a", "x"))
			s, _ := connectAs(t, b, "s")
			for _, want := range []bool{c.first, c.then} {
				s.subscribe(packets.SubOptions{Topic: "a", RetainHandling: c.handling})
				if want {
					s.expectPublish("x", 0, false)
				}
				s.silent()
			}
			s.subscribe(packets.SubOptions{Topic: "$share/g/a"}) // never
			s.silent()
		})
	}
}

func TestRetainAsPublished(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		s, _ := connectAs(t, b, "s")
		s.subscribe(packets.SubOptions{Topic: "a"}, packets.SubOptions{Topic: "b", RetainAsPublished: true}, packets.SubOptions{Topic: "$share/g/c", RetainAsPublished: true})
		for name, want := range map[string]bool{"a": false, "b": true, "c": true} {
			_, _ = b.Publish(retained(name, "x"))
			if p := s.expectPublish("x", 0, false); p.Retain != want {
				t.Errorf("%s: RETAIN %t", name, p.Retain)
			}
		}
	})
}
