package link

import (
	"context"
	"errors"
	"net"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"

	"github.com/settlemq/settle/internal/broker/brokertest"
)

func TestBacklogInTheSegmentOfConnackFindsItsEpoch(t *testing.T) {
	in(t, func(t *testing.T) {
		h := start(t, nil)
		defer h.stop()
		c := h.server.Accept()
		connect := brokertest.Expect[*packets.Connect](c)
		c.SendRaw(brokertest.Bytes(brokertest.Connack(true), brokertest.Publish("a/b", 1, 1, "one"), brokertest.Publish("a/b", 0, 0, "two")))
		synctest.Wait()
		want := []string{"begin 1 present=true same=false", "publish one", "publish two", "flush"}
		if got := h.rec.seen(); !slices.Equal(got, want) {
			t.Errorf("the receiver saw %q, want %q", got, want)
		}
		// What CONNECT says.
		if connect.ClientID != "c" || connect.CleanStart || connect.KeepAlive != 30 || *connect.Properties.SessionExpiryInterval != 60 ||
			*connect.Properties.ReceiveMaximum != 10 || connect.Properties.MaximumPacketSize != nil ||
			connect.Properties.TopicAliasMaximum != nil || connect.Properties.RequestProblemInfo != nil || connect.UsernameFlag {
			t.Errorf("CONNECT is %+v with %+v", connect, connect.Properties)
		}
	})
}

func TestAcknowledgementsGoOut(t *testing.T) {
	in(t, func(t *testing.T) {
		h := start(t, nil)
		defer h.stop()
		c := h.up(false)
		c.Send(brokertest.Publish("a/b", 1, 9, "x"))
		if ack := brokertest.Expect[*packets.Puback](c); ack.PacketID != 9 {
			t.Errorf("PUBACK for %d", ack.PacketID)
		}
		h.rec.settle(10)
		go h.FlushAcks() // writes on its own goroutine
		if ack := brokertest.Expect[*packets.Puback](c); ack.PacketID != 10 {
			t.Errorf("PUBACK for %d", ack.PacketID)
		}
		c.Send(&packets.Pubrel{PacketID: 3})
		synctest.Wait()
		if got := h.rec.seen(); !slices.Contains(got, "pubrel 3 0x0") {
			t.Errorf("the receiver saw %q", got)
		}
	})
}

// Sessions, epochs and the reconnection after a loss.
func TestReconnect(t *testing.T) {
	in(t, func(t *testing.T) {
		type down struct {
			err   error
			retry time.Duration
		}
		var downs []down
		var ups []uint64
		h := start(t, func(c *Config) {
			c.CleanStart = true
			c.Unsubscribe = []string{"old/#"}
			c.OnUp = func(s Session) { ups = append(ups, s.Epoch) }
			c.OnDown = func(err error, retry time.Duration) { downs = append(downs, down{err, retry}) }
		})
		defer h.stop()
		c := h.server.Accept()
		if connect := c.Handshake(false, 1); !connect.CleanStart {
			t.Error("the first CONNECT has no Clean Start")
		}
		synctest.Wait()
		_ = c.Close()

		c = h.server.Accept()
		if connect := c.Handshake(true, 1); connect.CleanStart {
			t.Error("the second CONNECT has Clean Start")
		}
		synctest.Wait()
		want := []string{"begin 1 present=false same=false", "end " + errServerClosed.Error(), "begin 2 present=true same=true"}
		if got := h.rec.seen(); !slices.Equal(got, want) {
			t.Errorf("the receiver saw %q, want %q", got, want)
		}
		if len(downs) != 1 || !errors.Is(downs[0].err, errServerClosed) || downs[0].retry < 80*time.Millisecond || downs[0].retry > 120*time.Millisecond {
			t.Errorf("OnDown was told %v", downs)
		}
		if !slices.Equal(ups, []uint64{1, 2}) {
			t.Errorf("OnUp was told %v", ups)
		}
		status := h.Status()
		if !status.Connected || !status.Granted || status.Epoch != 2 || status.Server != "mqtt://one" || !status.LastReceived.Equal(time.Now()) {
			t.Errorf("status is %+v", status)
		}
	})
}

func TestRetiredFiltersGoOnceAndOnlyWithTheSession(t *testing.T) {
	in(t, func(t *testing.T) {
		h := start(t, func(c *Config) { c.Unsubscribe = []string{"old/#", "older"} })
		defer h.stop()
		c := h.server.Accept()
		c.Handshake(true, 1)
		u := brokertest.Expect[*packets.Unsubscribe](c)
		if !slices.Equal(u.Topics, []string{"old/#", "older"}) {
			t.Errorf("UNSUBSCRIBE %q", u.Topics)
		}
		synctest.Wait()
		if h.Up() {
			t.Error("up before UNSUBACK")
		}
		c.Send(&packets.Unsuback{PacketID: u.PacketID, Reasons: []byte{0x11, 0x87}})
		synctest.Wait()
		if !h.Up() || !strings.Contains(h.log.String(), "older") {
			t.Errorf("up %t, log %s", h.Up(), h.log)
		}
		_ = c.Close()
		h.up(true) // without UNSUBSCRIBE, or Handshake's successor would find one
	})
}

func TestSubscriptions(t *testing.T) {
	yes, no := byte(1), byte(0)
	subscriptions := []Subscription{
		{Filter: "a/#", QoS: 2, ID: 7, Name: "first", NoLocal: true},
		{Filter: "$share/g/b", QoS: 1, Name: "second"},
	}
	tests := []struct {
		name    string
		connack packets.Properties
		grants  []byte // nil: nothing is asked for
		errs    []string
	}{
		{name: "granted", grants: []byte{2, 1}},
		{name: "granted, without identifiers", connack: packets.Properties{SubIDAvailable: &no}, grants: []byte{2, 1}},
		{name: "refused", grants: []byte{2, 0x87}, errs: []string{`"$share/g/b" (second) refused: not authorized (0x87): "why not"`}},
		{name: "lower", grants: []byte{1, 1}, errs: []string{`"a/#" (first): granted QoS 1 where QoS 2 was asked for`}},
		{name: "both", grants: []byte{0, 0x80}, errs: []string{`"a/#" (first)`, `"$share/g/b" (second)`}},
		{name: "no shared", connack: packets.Properties{SharedSubAvailable: &no}, errs: []string{`"$share/g/b" (second) refused: shared`}},
		{name: "no wildcards", connack: packets.Properties{WildcardSubAvailable: &no, SharedSubAvailable: &yes}, errs: []string{`"a/#" (first) refused: wildcard`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				h := start(t, func(c *Config) { c.Subscriptions = subscriptions })
				defer h.stop()
				c := h.server.Accept()
				brokertest.Expect[*packets.Connect](c)
				c.Send(&packets.Connack{Properties: &test.connack})
				if test.grants != nil {
					first, second := brokertest.Expect[*packets.Subscribe](c), brokertest.Expect[*packets.Subscribe](c)
					o := first.Subscriptions[0]
					if o.Topic != "a/#" || o.QoS != 2 || !o.NoLocal || o.RetainHandling != 1 {
						t.Errorf("the first SUBSCRIBE is %+v", o)
					}
					if id := first.Properties.SubscriptionIdentifier; (test.connack.SubIDAvailable == nil) != (id != nil && *id == 7) {
						t.Errorf("the first SUBSCRIBE has identifier %v", id)
					}
					if o := second.Subscriptions[0]; o.Topic != "$share/g/b" || o.QoS != 1 || second.Properties.SubscriptionIdentifier != nil {
						t.Errorf("the second SUBSCRIBE is %+v", o)
					}
					why := &packets.Properties{ReasonString: "why not"}
					c.Send(&packets.Suback{PacketID: second.PacketID, Reasons: test.grants[1:], Properties: why},
						&packets.Suback{PacketID: first.PacketID, Reasons: test.grants[:1]})
				}
				synctest.Wait()
				if test.errs == nil {
					if !h.Up() {
						t.Error("not up")
					}
					return
				}
				if h.Up() {
					t.Fatal("up")
				}
				if d := c.ExpectDisconnect(); d.Code != 0 || d.HasSessionExpiry {
					t.Errorf("DISCONNECT %+v", d)
				}
				c.ExpectEOF()
				_ = c.Close()
				c = h.server.Accept() // and tries again
				_ = c.Close()
				synctest.Wait()
				for _, want := range test.errs {
					if !strings.Contains(strings.ReplaceAll(h.log.String(), `\"`, `"`), want) {
						t.Errorf("no %q in the log: %s", want, h.log)
					}
				}
			})
		})
	}
}

func TestSeveralServersAreTriedInTurn(t *testing.T) {
	in(t, func(t *testing.T) {
		var waits []time.Duration
		h := start(t, func(c *Config) {
			c.Servers = []*url.URL{mustURL("mqtt://one"), mqttTwo}
			c.OnDown = func(_ error, d time.Duration) { waits = append(waits, d) }
		})
		defer h.stop()
		var hosts []string
		refuse := func() {
			c := h.server.Accept()
			hosts = append(hosts, c.URL.Host)
			_ = c.Close()
		}
		refuse()
		refuse()
		refuse()
		c := h.up(false) // the second
		hosts = append(hosts, c.URL.Host)
		_ = c.Close()
		c = h.up(true) // the second again: it has the session
		hosts = append(hosts, c.URL.Host)
		c.Send(&packets.Disconnect{ReasonCode: 0x8B})
		c = h.up(false)
		hosts = append(hosts, c.URL.Host)
		if want := []string{"one", "two", "one", "two", "two", "one"}; !slices.Equal(hosts, want) {
			t.Errorf("dialled %q, want %q", hosts, want)
		}
		zero := []bool{true, false, true, false, true}
		for i, w := range waits {
			if (w == 0) != zero[i] {
				t.Errorf("waited %v", waits)
			}
		}
		want := []string{"begin 1 present=false same=false", "begin 2 present=true same=true", "begin 3 present=false same=false"}
		got := slices.DeleteFunc(h.rec.seen(), func(s string) bool { return !strings.HasPrefix(s, "begin") })
		if !slices.Equal(got, want) {
			t.Errorf("the receiver saw %q", got)
		}
	})
}

var mqttTwo = mustURL("mqtt://two")

func TestCheckIsFatal(t *testing.T) {
	in(t, func(t *testing.T) {
		wrong := errors.New("Session Expiry 0 is less than a retry topic needs")
		h := start(t, func(c *Config) { c.Check = func(*paho.Connack) error { return wrong } })
		c := h.server.Accept()
		c.Handshake(false, 0)
		if d := c.ExpectDisconnect(); d.Code != 0 {
			t.Errorf("DISCONNECT %+v", d)
		}
		_ = c.Close()
		if err := h.wait(); !errors.Is(err, wrong) {
			t.Errorf("Run returned %v", err)
		}
		ctx, cancel := within(time.Second)
		defer cancel()
		if err := h.WaitUp(ctx); !errors.Is(err, ErrEnded) || !errors.Is(err, wrong) {
			t.Errorf("WaitUp says %v", err)
		}
		if _, err := h.Publish(ctx, &paho.Publish{Topic: "t", QoS: 1}); !errors.Is(err, ErrNotSent) || !errors.Is(err, wrong) {
			t.Errorf("Publish says %v", err)
		}
	})
}

func TestH4NoGoroutineIsLeftAfterAThousandReconnects(t *testing.T) {
	in(t, func(t *testing.T) {
		h := start(t, nil)
		defer h.stop()
		c := h.up(false)
		before, _ := bubble()
		for i := range 1000 {
			c.Send(brokertest.Publish("a/b", 0, 0, "keeps the backoff short"))
			if i%2 == 0 {
				c.Send(&packets.Disconnect{ReasonCode: 0x80})
			}
			_ = c.Close()
			c = h.up(true)
		}
		synctest.Wait()
		if after, stacks := bubble(); after != before {
			t.Errorf("%d goroutines before, %d after:\n%s", before, after, stacks)
		}
		if h.Status().Epoch != 1001 {
			t.Errorf("epoch %d", h.Status().Epoch)
		}
	})
}

// bubble counts the goroutines of this bubble.
func bubble() (int, string) {
	synctest.Wait()
	b := make([]byte, 1<<20)
	stacks := string(b[:runtime.Stack(b, true)])
	return strings.Count(stacks, "synctest bubble"), stacks
}

func TestG8ADialThatHangsHasADeadline(t *testing.T) {
	in(t, func(t *testing.T) {
		release := make(chan struct{})
		var dials atomic.Int32
		var last error
		h := start(t, func(c *Config) {
			c.Dial = func(context.Context, *url.URL) (net.Conn, error) {
				dials.Add(1)
				<-release
				return nil, errors.New("too late")
			}
			c.OnDown = func(err error, _ time.Duration) { last = err }
		})
		began := time.Now()
		ctx, cancel := within(10 * time.Second)
		defer cancel()
		if err := h.WaitUp(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("WaitUp says %v", err)
		}
		pass(5 * time.Minute)
		synctest.Wait()
		if n := dials.Load(); n != maxStrays {
			t.Errorf("%d dials are under way after %s", n, time.Since(began))
		}
		if last == nil || !strings.Contains(last.Error(), "mqtt://one within 10s") || !strings.Contains(last.Error(), "ignore their context") {
			t.Errorf("OnDown was told %v", last)
		}
		close(release)
		h.stop()
	})
}

func TestBeforeDialIsWaitedForEachTime(t *testing.T) {
	in(t, func(t *testing.T) {
		room := make(chan struct{})
		h := start(t, func(c *Config) {
			c.BeforeDial = func(ctx context.Context) error {
				select {
				case <-room:
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
		})
		for range 2 {
			pass(time.Hour)
			if s := h.Status().State; s != Dialling {
				t.Fatalf("%s without room", s)
			}
			room <- struct{}{}
			c := h.up(false)
			_ = c.Close()
		}
		h.stop()
	})
}
