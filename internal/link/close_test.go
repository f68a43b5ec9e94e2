package link

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/settlemq/settle/internal/broker/brokertest"
)

// H2, K4, I4: acknowledgements, then DISCONNECT, then the write side closes, and what comes is read past.
func TestCloseInGoodOrder(t *testing.T) {
	zero, day := uint32(0), uint32(86400)
	tests := []struct {
		name   string
		config uint32
		expiry *uint32
		want   brokertest.Disconnect
	}{
		{"the session stays", 60, nil, brokertest.Disconnect{}},
		{"the session ends", 60, &zero, brokertest.Disconnect{HasSessionExpiry: true}},
		{"the session stays longer", 60, &day, brokertest.Disconnect{HasSessionExpiry: true, SessionExpiry: 86400}},
		{"no session cannot be given one", 0, &day, brokertest.Disconnect{}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				var downs int
				h := start(t, func(c *Config) {
					c.SessionExpiry = test.config
					c.OnDown = func(error, time.Duration) { downs++ }
				})
				h.rec.ack = false
				c := h.up(false)
				c.Send(brokertest.Publish("a", 1, 1, "before"))
				synctest.Wait()
				h.rec.settle(1)
				h.rec.settle(2)
				ctx, cancel := within(time.Minute)
				defer cancel()
				closed := make(chan error, 1)
				go func() { closed <- h.Close(ctx, test.expiry) }()
				for want := uint16(1); want <= 2; want++ {
					if ack := brokertest.Expect[*packets.Puback](c); ack.PacketID != want {
						t.Errorf("PUBACK for %d, want %d", ack.PacketID, want)
					}
				}
				if d := c.ExpectDisconnect(); d != test.want {
					t.Errorf("DISCONNECT %+v, want %+v", d, test.want)
				}
				c.ExpectEOF()
				for range 100 {
					c.Send(brokertest.Publish("a", 1, 3, "after"), &packets.Pubrel{PacketID: 4})
				}
				// Behind DISCONNECT nothing is sent, and nobody who wants to send cuts the farewell short.
				h.rec.settle(3)
				h.FlushAcks()
				late, stop := within(time.Millisecond)
				defer stop()
				for qos := range byte(3) {
					if r := <-h.publish(late, publish("t", qos)); !errors.Is(r.err, ErrNotSent) {
						t.Errorf("at QoS %d Publish says %v", qos, r.err)
					}
				}
				synctest.Wait()
				if s := h.Status().State; s != Draining {
					t.Errorf("%s", s)
				}
				select {
				case err := <-closed:
					t.Errorf("Close did not wait for the server's end: %v", err)
				default:
				}
				_ = c.Close()
				if err := <-closed; err != nil {
					t.Error(err)
				}
				if err := h.wait(); err != nil {
					t.Errorf("Run returned %v", err)
				}
				want := []string{"begin 1 present=false same=false", "publish before", "flush", "end <nil>"}
				if got := h.rec.seen(); !slices.Equal(got, want) {
					t.Errorf("the receiver saw %q, want %q", got, want)
				}
				if downs != 0 || h.Status().LastError != nil || strings.Contains(h.log.String(), `"warn"`) {
					t.Errorf("%d downs, last error %v, log %s", downs, h.Status().LastError, h.log)
				}
				if err := h.Close(ctx, nil); err != nil {
					t.Errorf("a second Close says %v", err)
				}
			})
		})
	}
}

func TestCloseWaitsForTheServersEndTwoSecondsAtMost(t *testing.T) {
	in(t, func(t *testing.T) {
		h := start(t, nil)
		c := h.up(false)
		closed := make(chan error, 1)
		go func() { closed <- h.Close(context.Background(), nil) }()
		c.ExpectDisconnect()
		began := time.Now()
		if err := <-closed; err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != DefaultDrainTimeout {
			t.Errorf("waited %s", took)
		}
		if err := h.wait(); err != nil {
			t.Error(err)
		}
	})
}

// Without a connection there is nothing to say, whatever the link is doing.
func TestCloseWithoutAConnection(t *testing.T) {
	tests := []struct {
		name  string
		state State
		until func(h *harness) *brokertest.Conn
	}{
		{"dialling", Dialling, func(*harness) *brokertest.Conn { return nil }},
		{"connecting", Connecting, func(h *harness) *brokertest.Conn {
			c := h.server.Accept()
			brokertest.Expect[*packets.Connect](c)
			return c
		}},
		{"waiting", Waiting, func(h *harness) *brokertest.Conn {
			c := h.server.Accept()
			_ = c.Close()
			return nil
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				h := start(t, nil)
				c := test.until(h)
				synctest.Wait()
				if s := h.Status().State; s != test.state {
					t.Fatalf("%s", s)
				}
				began := time.Now()
				if err := h.Close(context.Background(), nil); err != nil {
					t.Error(err)
				}
				if c != nil {
					c.ExpectDisconnect() // the server may accept the CONNECT, and must then publish no will
					c.ExpectEOF()
					_ = c.Close()
				}
				if err := h.wait(); err != nil {
					t.Errorf("Run returned %v", err)
				}
				if time.Since(began) != 0 {
					t.Errorf("took %s", time.Since(began))
				}
				if s := h.Status().State; s != Ended {
					t.Errorf("%s", s)
				}
			})
		})
	}
}

func TestCloseBeforeRun(t *testing.T) {
	h := prepare(t, nil)
	if err := h.Close(context.Background(), nil); err != nil {
		t.Error(err)
	}
	if err := h.WaitUp(context.Background()); !errors.Is(err, ErrEnded) {
		t.Errorf("WaitUp says %v", err)
	}
	if err := h.Run(context.Background()); err != nil {
		t.Errorf("Run returned %v", err)
	}
	if err := h.Run(context.Background()); err == nil {
		t.Error("a second Run is let pass")
	}
}

func TestTheEndOfTheContextIsWithoutCeremony(t *testing.T) {
	in(t, func(t *testing.T) {
		h := start(t, nil)
		c := h.up(false)
		began := time.Now()
		h.stop()
		c.ExpectEOF() // and no DISCONNECT
		if time.Since(began) != 0 {
			t.Errorf("took %s", time.Since(began))
		}
		if seen := h.rec.seen(); seen[len(seen)-1] != "end "+errTestOver.Error() {
			t.Errorf("the receiver saw %q", seen)
		}
	})
}

func TestReconnectOnDemand(t *testing.T) {
	in(t, func(t *testing.T) {
		h := start(t, nil)
		defer h.stop()
		h.Reconnect(errTestOver) // without a connection: nothing
		c := h.up(false)
		h.rec.settle(1)
		h.Reconnect(errTestOver)
		brokertest.Expect[*packets.Puback](c)
		if d := c.ExpectDisconnect(); d.Code != 0 {
			t.Errorf("DISCONNECT %+v", d)
		}
		c.ExpectEOF()
		published := h.publish(context.Background(), publish("t", 0)) // waits for the next connection
		c.Send(brokertest.Publish("a", 0, 0, "goes nowhere"))         // the farewell goes on
		defer func() {
			if r := <-published; r.err != nil {
				t.Error(r.err)
			}
		}()
		_ = c.Close()
		c = h.up(true)
		brokertest.Expect[*packets.Publish](c)
		if err := h.Status().LastError; !errors.Is(err, errTestOver) {
			t.Errorf("the last error is %v", err)
		}
	})
}
