package link

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/settlemq/settle/internal/broker/brokertest"
)

func TestPingSchedule(t *testing.T) {
	seconds := func(n int) time.Duration { return time.Duration(n) * time.Second }
	tests := []struct {
		name                        string
		pinged, now, received, sent int // seconds, as next is; a PINGREQ is due after 30
		ping, dead                  bool
		next                        int
	}{
		{name: "idle for a while", now: 30, received: 1, sent: 1, next: 1},
		{name: "nothing sent", now: 31, received: 30, sent: 1, ping: true, next: 30},
		{name: "nothing received", now: 31, received: 1, sent: 30, ping: true, next: 30},
		{name: "busy", now: 100, received: 99, sent: 98, next: 28},
		{name: "answer awaited", now: 50, pinged: 31, received: 1, sent: 31, next: 11},
		{name: "no answer", now: 61, pinged: 31, received: 1, sent: 31, dead: true},
		{name: "no answer, though we send", now: 61, pinged: 31, received: 1, sent: 60, dead: true},
		{name: "answered", now: 61, pinged: 31, received: 32, sent: 31, ping: true, next: 30},
		{name: "answered by something else", now: 62, pinged: 31, received: 61, sent: 31, ping: true, next: 30},
		{name: "asleep for an hour: ask before giving up", now: 3600, received: 1, sent: 1, ping: true, next: 30},
	}
	for _, test := range tests {
		s := pingSchedule{every: seconds(30), pinged: seconds(test.pinged)}
		ping, dead, next := s.at(seconds(test.now), seconds(test.received), seconds(test.sent))
		if ping != test.ping || dead != test.dead || next != seconds(test.next) {
			t.Errorf("%s: ping %t, dead %t, next %s", test.name, ping, dead, next)
		}
	}
}

// Wherever the last byte stands to the last PINGREQ, silence is noticed within one and a half keep-alives of it.
func TestPingScheduleBound(t *testing.T) {
	const keepAlive, every = 40 * time.Second, 30 * time.Second
	for last := time.Duration(0); last < 5*keepAlive; last += 500 * time.Millisecond {
		s := pingSchedule{every: every}
		received, sent, now := time.Duration(0), time.Duration(0), every
		for {
			ping, dead, next := s.at(now, received, sent)
			if dead {
				break
			}
			if ping {
				sent = now
				if now+time.Second <= last {
					received = now + time.Second
				}
			}
			if received < last && last <= now+next {
				received = last // something else comes
			}
			now += next
		}
		if now > received+keepAlive*3/2 {
			t.Errorf("last byte at %s: noticed at %s", received, now)
		}
	}
}

func TestA7HalfOpenIsNoticed(t *testing.T) {
	in(t, func(t *testing.T) {
		h := start(t, nil)
		defer h.stop()
		c := h.up(false)
		// An idle connection is kept alive.
		for range 5 {
			last := time.Now()
			brokertest.Expect[*packets.Pingreq](c)
			if idle := time.Since(last); idle > 30*time.Second {
				t.Errorf("nothing was sent for %s", idle)
			}
			c.Send(&packets.Pingresp{})
		}
		// Then the server falls silent: its end takes bytes, and nothing comes.
		last := time.Now()
		brokertest.Expect[*packets.Pingreq](c)
		c.ExpectEOF()
		if after := time.Since(last); after > 45*time.Second {
			t.Errorf("noticed after %s", after)
		}
		synctest.Wait()
		if h.Up() || !errors.Is(h.Status().LastError, errHalfOpen) {
			t.Errorf("status is %+v", h.Status())
		}
		h.up(true)
	})
}

// The server's keep-alive holds (3.2.2.3.14); one that wants none is watched at our own.
func TestServerKeepAlive(t *testing.T) {
	for server, want := range map[uint16]time.Duration{4: 3 * time.Second, 0: 22500 * time.Millisecond} {
		in(t, func(t *testing.T) {
			h := start(t, nil)
			defer h.stop()
			c := h.server.Accept()
			brokertest.Expect[*packets.Connect](c)
			c.Send(&packets.Connack{Properties: &packets.Properties{ServerKeepAlive: &server}})
			c.Grant(1)
			began := time.Now()
			brokertest.Expect[*packets.Pingreq](c)
			if waited := time.Since(began); waited != want {
				t.Errorf("PINGREQ after %s at a server's keep-alive of %d s", waited, server)
			}
			if g, _ := h.Grant(); g.KeepAlive != server {
				t.Errorf("granted %+v", g)
			}
		})
	}
}
