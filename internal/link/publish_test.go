package link

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	"github.com/settlemq/settle/internal/broker/brokertest"
)

func publish(topic string, qos byte) *paho.Publish {
	return &paho.Publish{Topic: topic, QoS: qos, Payload: []byte(topic)}
}

// publication runs Publish and keeps what it returns.
type result struct {
	answer Answer
	err    error
}

func (h *harness) publish(ctx context.Context, p *paho.Publish) <-chan result {
	out := make(chan result, 1)
	go func() {
		a, err := h.Publish(ctx, p)
		out <- result{a, err}
	}()
	synctest.Wait()
	return out
}

func TestAnswers(t *testing.T) {
	tests := []struct {
		name string
		qos  byte
		rec  int // the code of PUBREC; -1: none
		code byte
		want byte
	}{
		{"QoS 1", 1, -1, 0, 0},
		{"QoS 1, no subscribers", 1, -1, 0x10, 0x10},
		{"QoS 1, refused", 1, -1, 0x87, 0x87},
		{"QoS 2", 2, 0, 0, 0},
		{"QoS 2, no subscribers", 2, 0x10, 0, 0x10},
		{"QoS 2, refused", 2, 0x97, 0, 0x97},
		{"QoS 2, forgotten by the server", 2, 0, 0x92, 0x92},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				h := start(t, nil)
				defer h.stop()
				c := h.up(false)
				r := h.publish(context.Background(), publish("t", test.qos))
				p := brokertest.Expect[*packets.Publish](c)
				if p.Duplicate || p.QoS != test.qos || string(p.Payload) != "t" {
					t.Errorf("PUBLISH is %+v", p)
				}
				why := &packets.Properties{ReasonString: "so"}
				switch {
				case test.qos == 1:
					c.Send(&packets.Puback{PacketID: p.PacketID, ReasonCode: test.code, Properties: why})
				case test.rec >= 0x80:
					c.Send(&packets.Pubrec{PacketID: p.PacketID, ReasonCode: byte(test.rec), Properties: why})
				default:
					c.Send(&packets.Pubrec{PacketID: p.PacketID, ReasonCode: byte(test.rec)})
					brokertest.Expect[*packets.Pubrel](c)
					c.Send(&packets.Pubcomp{PacketID: p.PacketID, ReasonCode: test.code, Properties: why})
				}
				if got := <-r; got.err != nil || got.answer != (Answer{Code: test.want, Reason: "so"}) {
					t.Errorf("got %+v", got)
				}
			})
		})
	}
}

func TestPublishWaitsForAConnection(t *testing.T) {
	in(t, func(t *testing.T) {
		h := start(t, nil)
		defer h.stop()
		ctx, cancel := within(time.Second)
		defer cancel()
		if _, err := h.Publish(ctx, publish("t", 1)); !errors.Is(err, ErrNotSent) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without a connection Publish says %v", err)
		}
		first, second := h.publish(context.Background(), publish("t", 0)), h.publish(context.Background(), publish("t", 1))
		c := h.server.Accept()
		c.Handshake(false, 1)
		for range 2 {
			if p := brokertest.Expect[*packets.Publish](c); p.QoS == 1 {
				c.Send(puback(p.PacketID, 0))
			}
		}
		if a, b := <-first, <-second; a.err != nil || b.err != nil {
			t.Errorf("Publish says %v, %v", a.err, b.err)
		}
	})
}

func TestG7ReceiveMaximumIsNeverExceeded(t *testing.T) {
	one := uint16(1)
	in(t, func(t *testing.T) {
		h := start(t, nil)
		defer h.stop()
		accept := func(present bool) *brokertest.Conn {
			c := h.server.Accept()
			brokertest.Expect[*packets.Connect](c)
			c.Send(&packets.Connack{SessionPresent: present, Properties: &packets.Properties{ReceiveMaximum: &one}})
			return c
		}
		c := accept(false)
		c.Grant(1)
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				a, err := h.Publish(context.Background(), publish(fmt.Sprint(i), byte(1+i%2)))
				if err != nil || a.Code != 0 && a.Code != 0x80 {
					t.Errorf("publish %d: %+v, %v", i, a, err)
				}
			})
		}
		serve := func(c *brokertest.Conn, n int) {
			for i := range n {
				p := brokertest.Expect[*packets.Publish](c)
				if p.QoS == 2 {
					c.Send(&packets.Pubrec{PacketID: p.PacketID})
					brokertest.Expect[*packets.Pubrel](c)
				}
				pass(time.Second) // in which nothing more may come
				synctest.Wait()
				switch {
				case p.QoS == 2:
					c.Send(&packets.Pubcomp{PacketID: p.PacketID})
				case i%4 == 0:
					c.Send(puback(p.PacketID, 0x80)) // a refusal frees the place too
				default:
					c.Send(puback(p.PacketID, 0))
				}
			}
		}
		serve(c, 9)
		brokertest.Expect[*packets.Publish](c) // the tenth is cut off
		_ = c.Close()
		c = accept(true)
		// Now it comes again, before SUBSCRIBE, and counts.
		again := brokertest.Expect[*packets.Publish](c)
		if !again.Duplicate {
			t.Errorf("sent again without DUP: %+v", again)
		}
		c.Grant(1)
		if again.QoS == 2 {
			c.Send(&packets.Pubrec{PacketID: again.PacketID})
			brokertest.Expect[*packets.Pubrel](c)
			c.Send(&packets.Pubcomp{PacketID: again.PacketID})
		} else {
			c.Send(puback(again.PacketID, 0))
		}
		serve(c, 10)
		all.Wait()
	})
}

// What a loss leaves behind, by what had been answered before it.
func TestSentAgain(t *testing.T) {
	in(t, func(t *testing.T) {
		h := start(t, nil)
		defer h.stop()
		c := h.up(false)
		ctx, cancel := context.WithCancel(context.Background())
		var results []<-chan result
		var sent []*packets.Publish
		for i, qos := range []byte{1, 2, 1, 2, 1, 2} {
			of := context.Background()
			if i >= 4 {
				of = ctx
			}
			results = append(results, h.publish(of, publish(fmt.Sprint(i), qos)))
			sent = append(sent, brokertest.Expect[*packets.Publish](c))
		}
		c.Send(&packets.Pubrec{PacketID: sent[3].PacketID})
		brokertest.Expect[*packets.Pubrel](c)
		cancel()
		for i := 4; i < 6; i++ {
			if r := <-results[i]; !errors.Is(r.err, ErrUnconfirmed) || !errors.Is(r.err, context.Canceled) {
				t.Errorf("publish %d: %+v", i, r)
			}
		}
		_ = c.Close()

		c = h.server.Accept()
		brokertest.Expect[*packets.Connect](c)
		c.Send(brokertest.Connack(true))
		if rel := brokertest.Expect[*packets.Pubrel](c); rel.PacketID != sent[3].PacketID {
			t.Errorf("PUBREL for %d, want %d", rel.PacketID, sent[3].PacketID)
		}
		for _, i := range []int{0, 1, 2, 5} { // 4 was given up, and at QoS 1 that is the end of it
			p := brokertest.Expect[*packets.Publish](c)
			if !p.Duplicate || p.Topic != fmt.Sprint(i) || p.PacketID != sent[i].PacketID || p.QoS != sent[i].QoS || string(p.Payload) != p.Topic {
				t.Errorf("sent again: %+v, want number %d", p, i)
			}
		}
		c.Send(&packets.Pubcomp{PacketID: sent[3].PacketID, ReasonCode: 0x92}) // its first PUBCOMP was lost
		c.Grant(1)
		c.Send(puback(sent[0].PacketID, 0), puback(sent[2].PacketID, 0x10))
		for _, i := range []int{1, 5} {
			c.Send(&packets.Pubrec{PacketID: sent[i].PacketID})
			brokertest.Expect[*packets.Pubrel](c)
			c.Send(&packets.Pubcomp{PacketID: sent[i].PacketID})
		}
		for i, want := range []byte{0, 0, 0x10, 0} {
			if r := <-results[i]; r.err != nil || r.answer.Code != want {
				t.Errorf("publish %d: %+v", i, r)
			}
		}
	})
}

func TestALostSessionIsTold(t *testing.T) {
	in(t, func(t *testing.T) {
		h := start(t, nil)
		defer h.stop()
		c := h.up(false)
		r1, r2 := h.publish(context.Background(), publish("1", 1)), h.publish(context.Background(), publish("2", 2))
		brokertest.Expect[*packets.Publish](c)
		brokertest.Expect[*packets.Publish](c)
		_ = c.Close()
		h.up(false) // without the session, and without a PUBLISH before SUBSCRIBE
		for _, r := range []<-chan result{r1, r2} {
			if got := <-r; !errors.Is(got.err, ErrUnconfirmed) || !errors.Is(got.err, errSessionLost) {
				t.Errorf("Publish says %v", got.err)
			}
		}
	})
}

func TestLimits(t *testing.T) {
	qos, no, size := byte(1), byte(0), uint32(100)
	long := strings.Repeat("x", 65536)
	tests := []struct {
		name    string
		publish paho.Publish
		limit   string // "": it goes out
	}{
		{"QoS", paho.Publish{Topic: "t", QoS: 2}, "server's Maximum QoS"},
		{"retain", paho.Publish{Topic: "t", QoS: 1, Retain: true}, "server's Retain Available"},
		// Header 2, topic 2+1, identifier 2, property length 1: 92 bytes are left.
		{"largest", paho.Publish{Topic: "t", QoS: 1, Payload: make([]byte, 92)}, ""},
		{"too large", paho.Publish{Topic: "t", QoS: 1, Payload: make([]byte, 93)}, "server's Maximum Packet Size"},
		{"largest, QoS 0", paho.Publish{Topic: "t", Payload: make([]byte, 94)}, ""},
		{"too large, QoS 0", paho.Publish{Topic: "t", Payload: make([]byte, 95)}, "server's Maximum Packet Size"},
		{"topic", paho.Publish{Topic: long}, "length of a Topic Name"},
		{"correlation data", paho.Publish{Topic: "t", Properties: &paho.PublishProperties{CorrelationData: []byte(long)}}, "length of Correlation Data"},
		{"user property", paho.Publish{Topic: "t", Properties: &paho.PublishProperties{User: paho.UserProperties{{Key: "k", Value: long}}}}, "length of a User Property's value"},
	}
	in(t, func(t *testing.T) {
		h := start(t, nil)
		defer h.stop()
		c := h.server.Accept()
		brokertest.Expect[*packets.Connect](c)
		c.Send(&packets.Connack{Properties: &packets.Properties{MaximumQOS: &qos, RetainAvailable: &no, MaximumPacketSize: &size}})
		c.Grant(1)
		synctest.Wait()
		if g, ok := h.Grant(); !ok || g.MaximumQoS != 1 || g.RetainAvailable || g.MaximumPacketSize != 100 || g.ReceiveMaximum != 65535 || g.SessionExpiry != 60 {
			t.Errorf("granted %+v", g)
		}
		for _, test := range tests {
			r := h.publish(context.Background(), &test.publish)
			if test.limit == "" {
				if p := brokertest.Expect[*packets.Publish](c); p.QoS > 0 {
					c.Send(puback(p.PacketID, 0))
				}
			}
			got := <-r
			var limit *LimitError
			switch {
			case test.limit == "" && got.err != nil:
				t.Errorf("%s: %v", test.name, got.err)
			case test.limit != "" && (!errors.As(got.err, &limit) || limit.Limit != test.limit || !errors.Is(got.err, ErrNotSent)):
				t.Errorf("%s: %v", test.name, got.err)
			}
		}
	})
}

// Publishers wait when the network is slower than they are, so memory stays bounded.
func TestQoS0BackPressure(t *testing.T) {
	in(t, func(t *testing.T) {
		h := start(t, nil)
		defer h.stop()
		c := h.up(false)
		payload := make([]byte, 64<<10)
		ctx, cancel := within(5 * time.Second)
		defer cancel()
		sent := 0
		for {
			if _, err := h.Publish(ctx, &paho.Publish{Topic: "t", Payload: payload}); err != nil {
				if !errors.Is(err, ErrNotSent) {
					t.Error(err)
				}
				break
			}
			sent++
		}
		if most := 2*maxPending/len(payload) + 2; sent < maxPending/len(payload) || sent > most {
			t.Errorf("%d publishes of %d bytes were taken", sent, len(payload))
		}
		for range sent {
			brokertest.Expect[*packets.Publish](c)
		}
		if _, err := h.Publish(context.Background(), publish("t", 0)); err != nil {
			t.Error(err)
		}
		brokertest.Expect[*packets.Publish](c)
	})
}

// B7: a publish from every lane at once, and acknowledgements, over unbuffered pipes, while the server writes too. Frames
// come out whole.
func TestWritesNeverInterleaveWithinAFrame(t *testing.T) {
	in(t, func(t *testing.T) {
		h := start(t, func(c *Config) { c.ReceiveMaximum = 65535 })
		defer h.stop()
		c := h.up(false)
		const lanes, each = 8, 50
		var all sync.WaitGroup
		for lane := range lanes {
			all.Go(func() {
				for i := range each {
					p := &paho.Publish{Topic: fmt.Sprintf("lane/%d", lane), QoS: byte(i % 2), Payload: make([]byte, i*100)}
					for j := range p.Payload {
						p.Payload[j] = byte(i)
					}
					if _, err := h.Publish(context.Background(), p); err != nil {
						t.Error(err)
					}
					h.rec.settle(uint16(1 + lane*each + i))
					h.FlushAcks()
				}
			})
		}
		// The server writes on a goroutine of its own, as a real one does.
		answers := make(chan brokertest.Packet, lanes*each)
		written := make(chan struct{})
		go func() {
			defer close(written)
			for p := range answers {
				c.Send(brokertest.Publish("a/b", 0, 0, strings.Repeat("y", 1000)), p)
			}
		}()
		var acked []uint16
		for range 2 * lanes * each {
			switch p := c.Next().Content.(type) {
			case *packets.Publish:
				if slices.ContainsFunc(p.Payload, func(b byte) bool { return int(b) != len(p.Payload)/100 }) {
					t.Fatal("a PUBLISH is torn")
				}
				if p.QoS == 1 {
					answers <- puback(p.PacketID, 0)
				}
			case *packets.Puback:
				acked = append(acked, p.PacketID)
			default:
				t.Fatalf("a %T came", p)
			}
		}
		close(answers)
		<-written
		all.Wait()
		slices.Sort(acked)
		for i, id := range acked {
			if int(id) != i+1 {
				t.Fatalf("acknowledged %v", acked)
			}
		}
	})
}
