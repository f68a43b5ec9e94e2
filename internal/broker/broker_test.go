package broker

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"
)

func TestObserver(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		var got []Message
		cancel, err := b.Subscribe("a/#", func(m Message) { got = append(got, m) })
		if err != nil {
			t.Fatal(err)
		}
		sent := Message{
			Topic: "a/b", Payload: []byte("x"), QoS: 2, PayloadFormat: 1, ContentType: "t", ResponseTopic: "r", CorrelationData: []byte{1},
			UserProperties: []UserProperty{{"k", "v"}, {"k", "w"}}, Expiry: 5, HasExpiry: true,
		}
		if n, err := b.Publish(sent); n != 0 || err != nil {
			t.Errorf("%d %v", n, err)
		}
		c, _ := connectAs(t, b, "c")
		c.send(pub("a", 1, 1, "y"), pub("b", 0, 0, ""))
		synctest.Wait()
		if len(got) != 2 || got[1].ClientID != "c" || got[1].Topic != "a" || got[0].At.IsZero() {
			t.Fatalf("%+v", got)
		}
		got[0].At = time.Time{}
		if fmt.Sprintf("%+v", got[0]) != fmt.Sprintf("%+v", sent) {
			t.Errorf("%+v, want %+v", got[0], sent)
		}
		cancel()
		cancel()
		publishAs(t, b, "a", 0, 1, 1)
		synctest.Wait()
		if len(got) != 2 {
			t.Error("called after cancel")
		}
		if _, err := b.Subscribe("a#", nil); err == nil {
			t.Error("a filter that is none")
		}
		if _, err := b.Publish(Message{Topic: "a/#"}); err == nil {
			t.Error("a topic that is none")
		}
	})
}

func TestRestart(t *testing.T) {
	for _, keep := range []bool{true, false} {
		bubble(t, Options{}, func(t *testing.T, b *Broker) {
			s := subscribed(t, b, "s", "a", "$share/g/b")
			_, _ = connectAs(t, b, "ends with its connection", expiry(0), withWill("a", 0))
			_, _ = b.Publish(retained("r", "kept"))
			publishAs(t, b, "a", 2, 1, 2)
			publishAs(t, b, "b", 1, 3, 3)
			first := s.expectPublish("m1", 2, false).PacketID
			second := s.expectPublish("m2", 2, false).PacketID
			s.expectPublish("m3", 1, false)
			s.send(&packets.Pubrec{PacketID: first, Properties: &packets.Properties{}}, pub("x", 2, 50, ""))
			s.expectAnswer(PUBREL, first, 0)
			s.expectAnswer(PUBREC, 50, codeNoSubscribers)
			before, _ := b.Session("s")
			b.Restart(keep)
			s.expectEnd()
			after, ok := b.Session("s")
			before.Connected = false
			if ok != keep || keep && fmt.Sprint(after) != fmt.Sprint(before) {
				t.Fatalf("%t %+v, want %+v", ok, after, before)
			}
			if !keep {
				return
			}
			if got := b.Sessions(); !slices.Equal(got, []string{"s"}) {
				t.Errorf("sessions %q", got)
			}
			publishAs(t, b, "b", 1, 4, 4)
			s, ack := connectAs(t, b, "s")
			if !ack.SessionPresent {
				t.Fatal("no Session Present")
			}
			s.expectAnswer(PUBREL, first, 0)
			if p := s.expectPublish("m2", 2, true); p.PacketID != second {
				t.Errorf("identifier %d", p.PacketID)
			}
			s.expectPublish("m3", 1, true)
			s.expectPublish("m4", 1, false)
			again := pub("x", 2, 50, "")
			again.Duplicate = true
			s.send(again)
			s.expectAnswer(PUBREC, 50, 0)
			s.subscribe(packets.SubOptions{Topic: "r"})
			s.expectPublish("kept", 0, false)
		})
	}
}

// A server that comes back with an older state has forgotten acknowledgements and messages, and nothing else.
func TestRestore(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		s := subscribed(t, b, "s", "a")
		publishAs(t, b, "a", 1, 1, 2)
		first := s.expectPublish("m1", 1, false)
		s.expectPublish("m2", 1, false)
		old := b.Snapshot()
		s.puback(first.PacketID)
		publishAs(t, b, "a", 1, 3, 3)
		s.expectPublish("m3", 1, false)
		for range 2 { // any number of times
			b.Restore(old)
			s, _ = connectAs(t, b, "s")
			s.expectPublish("m1", 1, true)
			s.expectPublish("m2", 1, true)
			s.silent()
		}
	})
}

func TestSnapshotKeepsWhatIsQueued(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		s, _ := connectAs(t, b, "s", receiveMaximum(1), expiry(60))
		s.subscribe(packets.SubOptions{Topic: "a", QoS: 1}, packets.SubOptions{Topic: "$share/g/b", QoS: 1})
		publishAs(t, b, "a", 1, 1, 2)
		publishAs(t, b, "b", 1, 3, 3)
		s.expectPublish("m1", 1, false)
		b.Restart(true)
		s, _ = connectAs(t, b, "s", expiry(60))
		s.expectPublish("m1", 1, true)
		s.expectPublish("m2", 1, false)
		s.expectPublish("m3", 1, false)
		b.Restart(true)
		pass(61 * time.Second)
		if _, ok := b.Session("s"); ok {
			t.Error("not expired")
		}
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New(Options{})
		c := subscribed(t, b, "c", "a")
		stalled, err := b.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = stalled.Write(encoded(connecting("stalled", withWill("a", 0))))
		b.SetInterceptor(on(ToClient, PINGRESP, Verdict{Late: time.Hour}))
		c.send(&packets.Pingreq{})
		synctest.Wait()
		b.Close()
		c.expectEnd()
		b.Close()
		if _, err := b.Dial(t.Context()); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		if _, err := b.Publish(Message{Topic: "a"}); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		if _, err := b.Listen(t.Context(), "127.0.0.1:0"); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		nc, peer := net.Pipe()
		b.Serve(nc)
		if _, err := peer.Write([]byte{0}); err == nil {
			t.Error("a closed server serves")
		}
		_ = stalled.Close()
	})
}

// Over TCP, and plain pipes, which cannot be closed by halves.
func TestTransports(t *testing.T) {
	b := New(Options{})
	defer b.Close()
	address, err := b.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Dial("tcp", address.String())
	if err != nil {
		t.Fatal(err)
	}
	local, remote := net.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		b.Serve(remote)
	}()
	for name, nc := range map[string]net.Conn{"tcp": tcp, "pipe": local} {
		c := newClient(t, nc)
		c.send(connecting(name))
		expect[*packets.Connack](c)
		c.subscribe(packets.SubOptions{Topic: "a", QoS: 1})
		c.send(pub("a", 1, 1, name))
		c.puback(c.expectPublish(name, 1, false).PacketID)
		c.expectAnswer(PUBACK, 1, 0)
		c.send(&packets.Unsubscribe{PacketID: 2, Topics: []string{"a"}, Properties: &packets.Properties{}})
		expect[*packets.Unsuback](c)
	}
	_ = local.Close()
	<-served
}

// A client that closes its write side behind a mistake still reads what it was.
func TestHalfClose(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, b *Broker) {
		c, _ := connectAs(t, b, "c")
		c.raw([]byte{0xD0, 0})
		_ = c.Conn.(interface{ CloseWrite() error }).CloseWrite()
		c.expectDisconnect(codeProtocolError)
		c, _ = connectAs(t, b, "c")
		c.send(&packets.Disconnect{})
		_ = c.Conn.(interface{ CloseWrite() error }).CloseWrite()
		c.expectEnd()
	})
}

func TestLogf(t *testing.T) {
	var lines []string
	bubble(t, Options{Logf: func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }}, func(t *testing.T, b *Broker) {
		c, _ := connectAs(t, b, "c")
		_ = c.Close()
		synctest.Wait()
		c = dial(t, b)
		c.send(connecting("d"))
		expect[*packets.Connack](c)
		c.raw([]byte{0xD0, 0})
		c.expectDisconnect(codeProtocolError)
	})
	want := []string{
		`"c": connection ended: the client closed it without DISCONNECT`,
		`"d": connection ended: DISCONNECT 0x82 PINGRESP is not for clients to send`,
	}
	if !slices.Equal(lines, want) {
		t.Errorf("%q", lines)
	}
}
