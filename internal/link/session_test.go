package link

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho/session"

	"github.com/settlemq/settle/internal/broker/brokertest"
	"github.com/settlemq/settle/internal/wire"
)

// side is one connection as the outbound half sees it.
type side struct {
	*attached
	sent   bytes.Buffer
	broken []error
}

func resume(o *outbound, present bool, maximum uint16) *side {
	s := &side{}
	s.attached = o.attach(func(err error) { s.broken = append(s.broken, err) })
	ack := brokertest.Connack(present)
	ack.Properties.ReceiveMaximum = &maximum
	if err := s.ConAckReceived(&s.sent, nil, ack); err != nil {
		panic(err)
	}
	return s
}

// took returns what was sent since, in words.
func (s *side) took() []string {
	var out []string
	for s.sent.Len() > 0 {
		cp, err := packets.ReadPacket(&s.sent)
		if err != nil {
			panic(err)
		}
		word := fmt.Sprintf("%s %d", cp.PacketType(), cp.PacketID())
		switch p := cp.Content.(type) {
		case *packets.Publish:
			if p.Duplicate {
				word += " dup"
			}
		case *packets.Pubrel:
			if p.ReasonCode != 0 {
				word += fmt.Sprintf(" %#x", p.ReasonCode)
			}
		}
		out = append(out, word)
	}
	return out
}

// tell hands the server's packet over as paho does.
func (s *side) tell(p brokertest.Packet) error {
	cp, err := packets.ReadPacket(bytes.NewReader(brokertest.Bytes(p)))
	if err != nil {
		panic(err)
	}
	return s.PacketReceived(cp, nil)
}

// pub publishes as Link.Publish does, without paho between.
func pub(t fataler, o *outbound, s *side, qos byte) *publication {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // whoever would have to wait fails
	p, err := o.acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	packet := brokertest.Publish("t", qos, 0, "x")
	if err := s.AddToSession(context.WithValue(ctx, publicationKey{}, p), packet, nil); err != nil {
		t.Fatal(err)
	}
	_, _ = packet.WriteTo(&s.sent)
	return p
}

type fataler interface{ Fatal(...any) }

// outcome of a publication in words.
func (p *publication) outcome() string {
	select {
	case cp := <-p.answer:
		a, err := p.read(cp)
		if err != nil {
			return "lost"
		}
		return fmt.Sprintf("%#x", a.Code)
	default:
		return "open"
	}
}

// Each step is what happens, then what is sent because of it.
func TestSession(t *testing.T) {
	const qos1, qos2 = 1, 2
	rec := func(code byte) brokertest.Packet { return &packets.Pubrec{PacketID: 1, ReasonCode: code} }
	comp := func(code byte) brokertest.Packet { return &packets.Pubcomp{PacketID: 1, ReasonCode: code} }
	ack := func(code byte) brokertest.Packet { return puback(1, code) }
	cut, lost, give := "cut", "cut, session lost", "give up"
	tests := []struct {
		name    string
		qos     byte
		steps   []any // a packet from the server, or cut, lost, give
		sent    []string
		outcome string
		left    int // exchanges
		broken  bool
	}{
		{"acknowledged", qos1, []any{ack(0)}, nil, "0x0", 0, false},
		{"refused", qos1, []any{ack(0x87)}, nil, "0x87", 0, false},
		{"answered twice", qos1, []any{ack(0x10), ack(0)}, nil, "0x10", 0, false},
		{"cut", qos1, []any{cut}, []string{"PUBLISH 1 dup"}, "open", 1, false},
		{"cut twice", qos1, []any{cut, cut, ack(0)}, []string{"PUBLISH 1 dup", "PUBLISH 1 dup"}, "0x0", 0, false},
		{"session lost", qos1, []any{lost}, nil, "lost", 0, false},
		{"given up", qos1, []any{give}, nil, "open", 1, false},
		{"given up, acknowledged", qos1, []any{give, ack(0)}, nil, "open", 0, false},
		{"given up, cut", qos1, []any{give, cut}, nil, "open", 0, false},
		{"PUBREC for QoS 1", qos1, []any{rec(0)}, nil, "open", 1, true},
		{"PUBCOMP for QoS 1", qos1, []any{comp(0)}, nil, "open", 1, true},
		{"PUBCOMP before PUBREC", qos2, []any{comp(0)}, nil, "open", 1, true},
		{"PUBACK for QoS 2", qos2, []any{ack(0)}, nil, "open", 1, true},
		{"SUBACK for a PUBLISH", qos1, []any{&packets.Suback{PacketID: 1, Reasons: []byte{0}}}, nil, "open", 1, true},
		{"UNSUBACK for a PUBLISH", qos1, []any{&packets.Unsuback{PacketID: 1, Reasons: []byte{0}}}, nil, "open", 1, true},
		{"complete", qos2, []any{rec(0), comp(0)}, []string{"PUBREL 1"}, "0x0", 0, false},
		{"no subscribers", qos2, []any{rec(0x10), comp(0)}, []string{"PUBREL 1"}, "0x10", 0, false},
		{"refused by PUBREC", qos2, []any{rec(0x97)}, nil, "0x97", 0, false},
		{"PUBREC twice", qos2, []any{rec(0), rec(0), comp(0)}, []string{"PUBREL 1", "PUBREL 1"}, "0x0", 0, false},
		{"PUBREC after the end", qos2, []any{rec(0), comp(0), rec(0)}, []string{"PUBREL 1", "PUBREL 1 0x92"}, "0x0", 0, false},
		{"cut before PUBREC", qos2, []any{cut, rec(0), comp(0)}, []string{"PUBLISH 1 dup", "PUBREL 1"}, "0x0", 0, false},
		{"cut before PUBCOMP", qos2, []any{rec(0), cut, comp(0)}, []string{"PUBREL 1", "PUBREL 1"}, "0x0", 0, false},
		{"PUBCOMP lost", qos2, []any{rec(0x10), cut, comp(0x92)}, []string{"PUBREL 1", "PUBREL 1"}, "0x10", 0, false},
		{"forgotten", qos2, []any{rec(0), comp(0x92)}, []string{"PUBREL 1"}, "0x92", 0, false},
		{"given up, then complete", qos2, []any{give, rec(0), comp(0)}, []string{"PUBREL 1"}, "open", 0, false},
		{"given up, cut before PUBREC", qos2, []any{give, cut, rec(0), comp(0)}, []string{"PUBLISH 1 dup", "PUBREL 1"}, "open", 0, false},
		{"given up, cut before PUBCOMP", qos2, []any{rec(0), give, cut, comp(0x92)}, []string{"PUBREL 1", "PUBREL 1"}, "open", 0, false},
		{"session lost before PUBCOMP", qos2, []any{rec(0), lost}, []string{"PUBREL 1"}, "lost", 0, false},
		{"another's PUBACK", qos1, []any{puback(2, 0)}, nil, "open", 1, false},
		{"PUBREC for nobody", qos1, []any{&packets.Pubrec{PacketID: 2}}, []string{"PUBREL 2 0x92"}, "open", 1, false},
	}
	for _, test := range tests {
		t.Run(fmt.Sprintf("QoS %d, %s", test.qos, test.name), func(t *testing.T) {
			o := newOutbound()
			s := resume(o, false, 10)
			p := pub(t, o, s, test.qos)
			s.took()
			var sent []string
			broken := 0
			for _, step := range test.steps {
				switch step := step.(type) {
				case brokertest.Packet:
					_ = s.tell(step)
				case string:
					switch step {
					case cut, lost:
						_ = s.ConnectionLost(nil)
						broken += len(s.broken)
						s = resume(o, step == cut, 10)
					case give:
						o.abandon(p)
					}
				}
				sent = append(sent, s.took()...)
			}
			broken += len(s.broken)
			if !slices.Equal(sent, test.sent) {
				t.Errorf("sent %q, want %q", sent, test.sent)
			}
			if got := p.outcome(); got != test.outcome {
				t.Errorf("the publisher was told %s, want %s", got, test.outcome)
			}
			if len(o.exchanges) != test.left {
				t.Errorf("%d exchanges are left, want %d", len(o.exchanges), test.left)
			}
			if (broken > 0) != test.broken {
				t.Errorf("%d violations", broken)
			}
			o.close()
			if got := p.outcome(); test.outcome == "open" && !slices.ContainsFunc(test.steps, func(s any) bool { return s == give }) && got != "lost" {
				t.Errorf("at the end the publisher was told %s", got)
			}
			if len(o.exchanges) != 0 {
				t.Error("exchanges are left after the end")
			}
		})
	}
}

func TestSessionSendsAgainInOrderWithinTheNewReceiveMaximum(t *testing.T) {
	o := newOutbound()
	s := resume(o, false, 10)
	var all []*publication
	for i := range 6 {
		all = append(all, pub(t, o, s, byte(1+i%2)))
	}
	_ = s.tell(&packets.Pubrec{PacketID: 4})
	_ = s.tell(&packets.Pubrec{PacketID: 2}) // PUBRELs go in the order of the PUBRECs
	_ = s.ConnectionLost(nil)

	s = resume(o, true, 3)
	check := func(want ...string) {
		t.Helper()
		if got := s.took(); !slices.Equal(got, want) {
			t.Errorf("sent %q, want %q", got, want)
		}
	}
	check("PUBREL 4", "PUBREL 2", "PUBLISH 1 dup")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := o.acquire(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a new publish was let in: %v", err)
	}
	_ = s.tell(puback(3, 0)) // not sent on this connection: a server that knows better than we
	check()
	_ = s.tell(&packets.Pubcomp{PacketID: 4})
	check("PUBLISH 5 dup")
	_ = s.tell(puback(1, 0))
	check("PUBLISH 6 dup")
	_ = s.tell(&packets.Pubcomp{PacketID: 2})
	check()
	if p := pub(t, o, s, 1); p.exchange.id != 7 {
		t.Errorf("identifier %d", p.exchange.id)
	}
	for i, p := range all {
		if want := []string{"0x0", "0x0", "0x0", "0x0", "open", "open"}[i]; p.outcome() != want {
			t.Errorf("publication %d", i)
		}
	}
	_ = s.tell(puback(5, 0))
	_ = s.tell(puback(7, 0))
	_ = s.tell(&packets.Pubrec{PacketID: 6, ReasonCode: 0x80})
	if o.used != 0 || len(o.exchanges) != 0 {
		t.Errorf("%d of the quota are used by %d exchanges", o.used, len(o.exchanges))
	}
}

func TestSessionAnsweredWhileItWaitsToBeSentAgain(t *testing.T) {
	o := newOutbound()
	s := resume(o, false, 10)
	_, second := pub(t, o, s, 1), pub(t, o, s, 2)
	_ = s.ConnectionLost(nil)
	s = resume(o, true, 1)
	_ = s.tell(&packets.Pubrec{PacketID: 2}) // unasked
	_ = s.tell(puback(1, 0))
	_ = s.tell(&packets.Pubcomp{PacketID: 2})
	if got := s.took(); !slices.Equal(got, []string{"PUBLISH 1 dup", "PUBREL 2"}) {
		t.Errorf("sent %q", got)
	}
	if second.outcome() != "0x0" || o.used != 0 {
		t.Errorf("%d of the quota are used", o.used)
	}
}

func TestSessionIdentifiersAreNotReusedInFlight(t *testing.T) {
	o := newOutbound()
	s := resume(o, false, 65535)
	first := pub(t, o, s, 1)
	o.lastID = 65534
	if p := pub(t, o, s, 1); p.exchange.id != 65535 {
		t.Errorf("identifier %d", p.exchange.id)
	}
	if p := pub(t, o, s, 1); p.exchange.id != 2 {
		t.Errorf("identifier %d", p.exchange.id)
	}
	for range 65532 {
		pub(t, o, s, 1)
	}
	_ = first
	err := s.AddToSession(context.Background(), &packets.Subscribe{}, nil)
	if !errors.Is(err, session.ErrPacketIdentifiersExhausted) {
		t.Errorf("with every identifier in use AddToSession says %v", err)
	}
	_ = s.tell(puback(77, 0))
	sub := &packets.Subscribe{}
	if err := s.AddToSession(context.Background(), sub, nil); err != nil || sub.PacketID != 77 {
		t.Errorf("identifier %d, %v", sub.PacketID, err)
	}
}

func TestSessionWithoutConnection(t *testing.T) {
	o := newOutbound()
	s := resume(o, false, 1)
	pub(t, o, s, 1)
	waiting := make(chan error, 1)
	go func() { // waits for the quota until the connection is lost
		waiting <- s.AddToSession(context.Background(), brokertest.Publish("t", 1, 0, "x"), make(chan packets.ControlPacket, 1))
	}()
	for {
		o.mu.Lock()
		n := len(o.waiting)
		o.mu.Unlock()
		if n == 1 {
			break
		}
	}
	suback := make(chan packets.ControlPacket, 1)
	if err := s.AddToSession(context.Background(), &packets.Subscribe{}, suback); err != nil {
		t.Fatal(err)
	}
	_ = s.ConnectionLost(nil)
	if err := <-waiting; !errors.Is(err, session.ErrNoConnection) {
		t.Errorf("the waiting publisher was told %v", err)
	}
	if cp := <-suback; cp.Type != 0 {
		t.Errorf("the subscriber was told %v", cp)
	}
	for _, p := range []session.Packet{brokertest.Publish("t", 1, 0, "x"), &packets.Subscribe{}} {
		if err := s.AddToSession(context.Background(), p, nil); !errors.Is(err, session.ErrNoConnection) {
			t.Errorf("without a connection AddToSession says %v", err)
		}
	}
	next := resume(o, true, 10)
	_ = s.ConnectionLost(nil) // paho tells late
	if err := s.tell(puback(1, 0)); !errors.Is(err, session.ErrNoConnection) {
		t.Errorf("a packet of the old connection: %v", err)
	}
	pub(t, o, next, 1)
	if len(next.took()) != 2 {
		t.Error("the new connection was ended by the old one's loss")
	}
	// The inbound half does not come here.
	for _, p := range []brokertest.Packet{brokertest.Publish("t", 1, 1, "x"), &packets.Pubrel{PacketID: 1}} {
		if err := next.tell(p); err == nil {
			t.Errorf("%T was taken", p)
		}
	}
	o.close()
	if err := o.attach(nil).ConAckReceived(io.Discard, nil, brokertest.Connack(true)); err == nil {
		t.Error("a closed session takes a connection")
	}
}

// A frame that could not be written was not sent, unless a later connection has sent it meanwhile.
func TestSessionWithdraw(t *testing.T) {
	o := newOutbound()
	s := resume(o, false, 10)
	p := pub(t, o, s, 1)
	if !o.withdraw(p) || o.used != 0 || len(o.exchanges) != 0 {
		t.Errorf("%d of the quota are used by %d exchanges", o.used, len(o.exchanges))
	}
	p = pub(t, o, s, 1)
	_ = s.ConnectionLost(nil)
	s = resume(o, true, 10)
	if o.withdraw(p) {
		t.Error("what was sent again was withdrawn")
	}
	_ = s.tell(puback(p.exchange.id, 0))
	if p.outcome() != "0x0" {
		t.Error("the answer was lost")
	}
}

// A publisher that is granted its place at the moment it gives up passes it on.
func TestSessionQuotaIsNotLeakedByCancelledWaiters(t *testing.T) {
	in(t, func(t *testing.T) {
		o := newOutbound()
		s := resume(o, false, 1)
		for range 200 {
			p := pub(t, o, s, 1)
			ctx, cancel := context.WithCancel(context.Background())
			got := make(chan *publication, 2)
			for range 2 {
				go func() {
					p, _ := o.acquire(ctx)
					got <- p
				}()
			}
			synctest.Wait()
			go cancel()
			_ = s.tell(puback(p.exchange.id, 0))
			for range 2 {
				if p := <-got; p != nil {
					o.cancel(p)
				}
			}
			if o.used != 0 || len(o.waiting) != 0 {
				t.Fatalf("%d of the quota are used, %d wait", o.used, len(o.waiting))
			}
		}
	})
}

func TestAViolationIsAnError(t *testing.T) {
	o := newOutbound()
	s := resume(o, false, 10)
	pub(t, o, s, 2)
	var broken *wire.Error
	if err := s.tell(puback(1, 0)); !errors.As(err, &broken) || broken.Code != 0x82 || len(s.broken) != 1 {
		t.Errorf("PUBACK for QoS 2: %v", err)
	}
	in(t, func(t *testing.T) { // and ends the connection
		h := start(t, nil)
		defer h.stop()
		c := h.up(false)
		ctx, cancel := within(time.Minute)
		defer cancel()
		h.publish(ctx, publish("t", 2))
		p := brokertest.Expect[*packets.Publish](c)
		c.Send(puback(p.PacketID, 0))
		if d := c.ExpectDisconnect(); d.Code != 0x82 {
			t.Errorf("DISCONNECT %#x", d.Code)
		}
		cancel()
	})
}
