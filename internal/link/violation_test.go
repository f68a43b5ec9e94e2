package link

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/settlemq/settle/internal/broker/brokertest"
	"github.com/settlemq/settle/internal/wire"
)

// What breaks the protocol is answered with the right code, and the link dials again.
func TestViolations(t *testing.T) {
	alias := uint16(1)
	aliased := brokertest.Publish("", 1, 1, "x")
	aliased.Properties.TopicAlias = &alias
	tests := []struct {
		name string
		send []byte
		code byte
	}{
		{"QoS 3", []byte{0x36, 5, 0, 1, 'a', 0, 0}, 0x81},
		{"remaining length of five bytes", []byte{0x30, 0x80, 0x80, 0x80, 0x80, 1}, 0x81},
		{"PUBLISH too short", []byte{0x30, 1, 0}, 0x81},
		{"PUBREL with wrong flags", []byte{0x60, 2, 0, 1}, 0x81},
		{"PUBREL too short", []byte{0x62, 1, 0}, 0x81},
		{"PUBACK too short", []byte{0x40, 1, 0}, 0x81},
		{"SUBACK with broken properties", []byte{0x90, 4, 0, 1, 9, 0}, 0x81},
		{"topic alias", brokertest.Bytes(aliased), 0x94},
		{"PINGREQ from the server", []byte{0xC0, 0}, 0x82},
		{"a second CONNACK", brokertest.Bytes(brokertest.Connack(false)), 0x82},
		{"AUTH", brokertest.Bytes(&packets.Auth{ReasonCode: 0x18, Properties: &packets.Properties{AuthMethod: "x"}}), 0x8C},
		{"empty AUTH", []byte{0xF0, 0}, 0x8C},
		{"a control packet without measure", []byte{0x40, 0xFF, 0xFF, 0x7F}, 0x95},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				h := start(t, nil)
				defer h.stop()
				c := h.up(false)
				c.SendRaw(test.send)
				if d := c.ExpectDisconnect(); d.Code != test.code {
					t.Errorf("DISCONNECT %#x, want %#x", d.Code, test.code)
				}
				c.ExpectEOF()
				synctest.Wait()
				var broken *wire.Error
				if err := h.Status().LastError; !errors.As(err, &broken) || broken.Code != test.code {
					t.Errorf("the last error is %v", err)
				}
				h.up(true)
			})
		})
	}
}

// Before CONNACK nothing else may come, and what comes must not start an epoch.
func TestViolationsBeforeConnack(t *testing.T) {
	clean := func(c *Config) { c.CleanStart = true }
	method := &packets.Connack{Properties: &packets.Properties{AuthMethod: "K6"}}
	tests := []struct {
		name   string
		change func(*Config)
		send   []byte
		code   byte
	}{
		{"PUBLISH", nil, brokertest.Bytes(brokertest.Publish("a/b", 0, 0, "x")), 0x82},
		{"AUTH", nil, brokertest.Bytes(&packets.Auth{ReasonCode: 0x18, Properties: &packets.Properties{AuthMethod: "x"}}), 0x8C},
		{"CONNACK of MQTT 3.1.1", nil, []byte{0x20, 2, 0, 0}, 0x81},
		{"K6: CONNACK with an authentication method", nil, brokertest.Bytes(method), 0x8C},
		{"Session Present after Clean Start", clean, brokertest.Bytes(brokertest.Connack(true)), 0x82},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				h := start(t, test.change)
				defer h.stop()
				c := h.server.Accept()
				brokertest.Expect[*packets.Connect](c)
				c.SendRaw(test.send)
				if d := c.ExpectDisconnect(); d.Code != test.code {
					t.Errorf("DISCONNECT %#x, want %#x", d.Code, test.code)
				}
				c.ExpectEOF()
				synctest.Wait()
				if seen := h.rec.seen(); len(seen) != 0 {
					t.Errorf("the receiver saw %q", seen)
				}
				h.up(false)
			})
		})
	}
}

func TestK6ConnackWithoutReader(t *testing.T) {
	in(t, func(t *testing.T) {
		h := start(t, nil)
		c := h.server.Accept()
		brokertest.Expect[*packets.Connect](c)
		c.Send(brokertest.Connack(true)) // and reads nothing from here on
		ctx, cancel := within(3 * time.Second)
		defer cancel()
		began := time.Now()
		if err := h.WaitUp(ctx); err == nil {
			t.Error("up")
		}
		_, err := h.Publish(ctx, publish("t", 1))
		if !errors.Is(err, ErrUnconfirmed) && !errors.Is(err, ErrNotSent) {
			t.Errorf("Publish says %v", err)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("calls ended after %s", took)
		}
		h.up(true)
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("dialled again after %s", took)
		}
		h.stop()
	})
}

func TestK6CloseWithoutReader(t *testing.T) {
	in(t, func(t *testing.T) {
		h := start(t, nil)
		h.up(false)
		h.rec.settle(1)
		ctx, cancel := within(3 * time.Second)
		defer cancel()
		began := time.Now()
		if err := h.Close(ctx, nil); err == nil || !strings.Contains(err.Error(), "dropped") {
			t.Errorf("Close says %v", err)
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("Close took %s", took)
		}
		if err := h.wait(); err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
}

func TestK6PubrecRightAfterClose(t *testing.T) {
	in(t, func(t *testing.T) {
		h := start(t, nil)
		c := h.up(false)
		ctx, cancel := within(time.Minute)
		defer cancel()
		result := make(chan error, 1)
		go func() {
			_, err := h.Publish(ctx, publish("t", 2))
			result <- err
		}()
		p := brokertest.Expect[*packets.Publish](c)
		closed := make(chan error, 1)
		go func() { closed <- h.Close(ctx, nil) }()
		c.ExpectDisconnect()
		c.Send(&packets.Pubrec{PacketID: p.PacketID}, &packets.Pubrec{PacketID: 99})
		c.ExpectEOF() // no PUBREL behind DISCONNECT
		_ = c.Close()
		if err := <-closed; err != nil {
			t.Error(err)
		}
		if err := <-result; !errors.Is(err, ErrUnconfirmed) {
			t.Errorf("Publish says %v", err)
		}
		if err := h.wait(); err != nil {
			t.Error(err)
		}
	})
}

// A connection that is dropped reads no more, whatever is still in the pipe.
func TestK6PubrecRightAfterALoss(t *testing.T) {
	in(t, func(t *testing.T) {
		h := start(t, nil)
		defer h.stop()
		c := h.up(false)
		go h.Reconnect(&wire.Error{Code: 0x93, Reason: "test"})
		if d := c.ExpectDisconnect(); d.Code != 0x93 {
			t.Errorf("DISCONNECT %#x", d.Code)
		}
		_ = c.Script.Send(brokertest.Bytes(&packets.Pubrec{PacketID: 1}))
		c.ExpectEOF()
		h.up(true)
	})
}

func TestAReceiversErrorEndsTheConnection(t *testing.T) {
	in(t, func(t *testing.T) {
		h := start(t, func(c *Config) {
			c.Receiver = refuser{c.Receiver}
		})
		defer h.stop()
		c := h.up(false)
		c.Send(brokertest.Publish("a", 1, 1, "x"))
		if d := c.ExpectDisconnect(); d.Code != 0x93 {
			t.Errorf("DISCONNECT %#x", d.Code)
		}
		synctest.Wait()
		if seen := h.rec.seen(); !slices.Equal(seen[1:], []string{"flush", "end " + errTooMany.Error()}) {
			t.Errorf("the receiver saw %q", seen)
		}
		h.up(true)
	})
}

var errTooMany = &wire.Error{Code: 0x93, Reason: "Receive Maximum exceeded"}

type refuser struct{ Receiver }

func (refuser) Publish(wire.Frame) error { return errTooMany }

func TestServersDisconnect(t *testing.T) {
	tests := []struct {
		name string
		send []byte
		code byte
		long bool
	}{
		{"empty", []byte{0xE0, 0}, 0, false},
		{"shutting down", []byte{0xE0, 1, 0x8B}, 0x8B, false},
		{"G1: taken over", brokertest.Bytes(&packets.Disconnect{ReasonCode: 0x8E}), 0x8E, true},
		{"administrative action", []byte{0xE0, 1, 0x98}, 0x98, true},
		{"what would be fatal in a CONNACK", []byte{0xE0, 1, 0x82}, 0x82, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				h := start(t, nil)
				defer h.stop()
				c := h.up(false)
				c.SendRaw(test.send)
				c.ExpectEOF()
				began := time.Now()
				h.up(true)
				if waited := time.Since(began); (waited >= 24*time.Second) != test.long {
					t.Errorf("dialled again after %s", waited)
				}
				var ended *DisconnectError
				if err := h.Status().LastError; !errors.As(err, &ended) || ended.Code != test.code {
					t.Errorf("the last error is %v", err)
				}
				if test.code == 0x8E && !strings.Contains(h.log.String(), "another process uses this client identifier") {
					t.Errorf("the log says %s", h.log)
				}
			})
		})
	}
}

// Mosquitto 2.0.11 closes the socket at a takeover and says nothing.
func TestG1TheThirdYoungConnectionThatIsClosedIsSuspect(t *testing.T) {
	in(t, func(t *testing.T) {
		h := start(t, nil)
		defer h.stop()
		for range suspectCount {
			c := h.up(true)
			c.Send(brokertest.Publish("a", 0, 0, "a delivery resets the ordinary backoff"))
			_ = c.Close()
		}
		began := time.Now()
		c := h.up(true)
		if waited := time.Since(began); waited < 24*time.Second {
			t.Errorf("dialled again after %s", waited)
		}
		if !strings.Contains(h.log.String(), "perhaps another process uses the same client identifier") {
			t.Errorf("the log says %s", h.log)
		}
		pass(suspectAge)
		_ = c.Close() // an older one is no sign of that
		began = time.Now()
		h.up(true)
		if waited := time.Since(began); waited > time.Second {
			t.Errorf("dialled again after %s", waited)
		}
	})
}

func TestRefusals(t *testing.T) {
	fatalCodes := []byte{0x81, 0x82, 0x84, 0x85, 0x8C, 0x90, 0x95, 0x99, 0x9A, 0x9B}
	for code := 0x80; code <= 0xFF; code++ {
		in(t, func(t *testing.T) {
			h := start(t, nil)
			c := h.server.Accept()
			brokertest.Expect[*packets.Connect](c)
			c.Send(&packets.Connack{ReasonCode: byte(code)})
			c.ExpectEOF()
			if slices.Contains(fatalCodes, byte(code)) {
				var refused *ConnectError
				if err := h.wait(); !errors.As(err, &refused) || refused.Code != byte(code) {
					t.Errorf("%#x: Run returned %v", code, err)
				}
				return
			}
			c = h.server.Accept()
			h.stop()
			_ = c.Close()
		})
	}
}

func TestNothingIsFatalForALinkThatWasAccepted(t *testing.T) {
	in(t, func(t *testing.T) {
		h := start(t, nil)
		defer h.stop()
		_ = h.up(false).Close()
		c := h.server.Accept()
		brokertest.Expect[*packets.Connect](c)
		c.Send(&packets.Connack{ReasonCode: 0x84})
		h.up(false)
	})
}
