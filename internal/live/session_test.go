package live_test

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/internal/cutproxy"
	"github.com/settlemq/settle/internal/mosquitto"
)

func newProxy(t testing.TB, s *mosquitto.Server) *cutproxy.Proxy {
	t.Helper()
	p, err := cutproxy.New(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// through is config with a proxy between.
func through(p *cutproxy.Proxy, clientID string) settle.Config {
	return settle.Config{Servers: []string{p.URL()}, ClientID: clientID, ShutdownTimeout: 5 * time.Second}
}

// The session test of the guide: cut, publish while down, start again with the same client identifier. The report published while down is the
// first that is received.
func TestLiveSession(t *testing.T) {
	server := mosquitto.Require(t)
	proxy := newProxy(t, server)
	publisher := newPeer(t, server)
	for _, qos := range []settle.QoS{settle.AtLeastOnce, settle.ExactlyOnce} {
		t.Run("QoS"+qos.String(), func(t *testing.T) {
			publisher.t = t
			id, filter := "billing-"+qos.String(), "meters/"+qos.String()+"/+"
			topic := "meters/" + qos.String() + "/usage"
			var before, after journal
			app := start(t, through(proxy, id), settle.Handle(filter, before.ack, qos))
			publisher.publish(note{topic: topic, payload: "before", qos: byte(qos)})
			before.await(t, 1)
			app.awaitIdle()

			if err := proxy.Refuse(); err != nil {
				t.Fatal(err)
			}
			proxy.Cut()
			app.awaitMetric(0, "settle_connected")
			app.stop()
			publisher.publish(note{topic: topic, payload: "while down", qos: byte(qos)})
			if err := proxy.Accept(); err != nil {
				t.Fatal(err)
			}

			start(t, through(proxy, id), settle.Handle(filter, after.ack, qos))
			publisher.publish(note{topic: topic, payload: "later", qos: byte(qos)})
			got := after.await(t, 2)
			if got[0].payload != "while down" || got[1].payload != "later" || got[0].qos != qos {
				t.Errorf("received %+v", got)
			}
			if before.len() != 1 {
				t.Errorf("the stopped app handled %+v", before.all())
			}
		})
	}
}

// A1: the session is lost while offline. The app subscribes again, says so, and is not ready in between.
func TestLiveA1_SessionLostWhileOffline(t *testing.T) {
	t.Parallel()
	server := mosquitto.Require(t)
	proxy := newProxy(t, server)
	publisher := newPeer(t, server)
	var got journal
	cfg := through(proxy, "a1")
	cfg.SessionExpiry = 2 * time.Second
	app := start(t, cfg, settle.Handle("a1/+", got.ack))
	publisher.publish(notes("a1/x", "before", 1)...)
	got.await(t, 1)
	app.awaitIdle()

	if err := proxy.Refuse(); err != nil {
		t.Fatal(err)
	}
	proxy.Cut()
	await(t, "not ready", func() bool { return app.Ready() != nil })
	if err := app.Live(); err != nil {
		t.Errorf("a cut is no reason to restart the process: %v", err)
	}
	// The server ends the session a second or so after it has expired: then nobody subscribes to the topic any more.
	await(t, "the server forgets the session", func() bool {
		probe := newPeer(t, server)
		probe.publish(note{topic: "a1/probe", payload: "lost", qos: 1})
		return probe.answers()[0x10] == 1
	})
	if app.Ready() == nil {
		t.Error("ready while there is no connection")
	}
	if err := proxy.Accept(); err != nil {
		t.Fatal(err)
	}
	app.awaitReady()
	publisher.publish(notes("a1/x", "after", 1)...)
	for _, h := range got.await(t, 2)[1:] {
		if h.payload != "after-0" {
			t.Errorf("handled %+v: the session should have been gone", h)
		}
	}
	if n := app.metric("settle_sessions_lost_total"); n != 1 {
		t.Errorf("settle_sessions_lost_total is %v, want 1", n)
	}
}

// A2: the same client identifier comes back with another filter. The new one is consumed though the session was present; what the
// old one still brings is acknowledged and counted; it goes when the app says so.
func TestLiveA2_FilterChanged(t *testing.T) {
	t.Parallel()
	server := mosquitto.Require(t)
	publisher := newPeer(t, server)
	var a, b journal
	app := start(t, config(server, "a2"), settle.Handle("a2/a", a.ack))
	publisher.publish(notes("a2/a", "first", 1)...)
	a.await(t, 1)
	app.stop()

	app = start(t, config(server, "a2"), settle.Handle("a2/b", b.ack))
	publisher.publish(append(notes("a2/a", "old", 1), notes("a2/b", "new", 1)...)...)
	if got := b.await(t, 1)[0]; got.payload != "new-0" {
		t.Errorf("handled %+v", got)
	}
	app.awaitMetric(1, "settle_unmatched_total")
	app.awaitIdle()
	app.stop()

	cfg := config(server, "a2")
	cfg.RetireFilters = []string{"a2/a"}
	app = start(t, cfg, settle.Handle("a2/b", b.ack))
	publisher.publish(append(notes("a2/a", "older", 1), notes("a2/b", "newer", 1)...)...)
	if got := b.await(t, 2)[1]; got.payload != "newer-0" {
		t.Errorf("handled %+v", got)
	}
	app.awaitIdle()
	if n := app.metric("settle_unmatched_total"); n != 0 {
		t.Errorf("the retired subscription still brings messages: settle_unmatched_total is %v", n)
	}
}

// A3: a backlog that arrives with CONNACK finds its handlers, all of it, in its order.
func TestLiveA3_BacklogBeforeTheHandlers(t *testing.T) {
	const n = 900 // the server queues 1,000
	server := mosquitto.Require(t)
	publisher := newPeer(t, server)
	for _, qos := range []settle.QoS{settle.AtLeastOnce, settle.ExactlyOnce} {
		t.Run("QoS"+qos.String(), func(t *testing.T) {
			publisher.t = t
			var got journal
			id, topic := "a3-"+qos.String(), "a3/"+qos.String()
			start(t, config(server, id), settle.Handle(topic, got.ack, qos)).stop() // makes the session
			backlog := notes(topic, "backlog", n)
			for i := range backlog {
				backlog[i].qos = byte(qos)
			}
			publisher.publish(backlog...)
			if got.len() > 0 {
				t.Fatal("handled after the app was stopped")
			}
			app := start(t, config(server, id), settle.Handle(topic, got.ack, qos))
			for i, h := range got.await(t, n) {
				if want := "backlog-" + strconv.Itoa(i); h.payload != want {
					t.Fatalf("delivery %d is %s, want %s", i, h.payload, want)
				}
			}
			app.awaitIdle()
			app.stop()
			got.expectEach(t, "backlog", n, 1)
		})
	}
}

// A5: what is handled while its connection is lost is acknowledged once, on the next connection, and does not come back at
// every reconnect.
func TestLiveA5_AcknowledgedOnTheNewConnection(t *testing.T) {
	server := mosquitto.Require(t)
	proxy := newProxy(t, server)
	publisher := newPeer(t, server)
	for _, qos := range []settle.QoS{settle.AtLeastOnce, settle.ExactlyOnce} {
		t.Run("QoS"+qos.String(), func(t *testing.T) {
			publisher.t = t
			topic := "a5/" + qos.String()
			var got journal
			started, finish := make(chan struct{}, 4), make(chan struct{})
			app := start(t, through(proxy, "a5-"+qos.String()), settle.Handle(topic, func(ctx context.Context, _ []byte) settle.Outcome {
				if h := got.note(ctx); h.payload == "slow" {
					started <- struct{}{}
					<-finish
				}
				return settle.Ack()
			}, qos))
			publisher.publish(note{topic: topic, payload: "slow", qos: byte(qos)})
			receive(t, started, "the slow handler")
			proxy.Cut()
			app.awaitMetric(1, "settle_adopted_total")
			close(finish)
			app.awaitIdle()
			publisher.publish(note{topic: topic, payload: "next", qos: byte(qos)})
			got.await(t, 2)
			app.awaitIdle()
			connections := app.metric("settle_connections_total", "result=accepted")
			proxy.Cut()
			app.awaitMetric(connections+1, "settle_connections_total", "result=accepted")
			publisher.publish(note{topic: topic, payload: "last", qos: byte(qos)})
			got.await(t, 3)
			app.awaitIdle()
			app.stop()
			var order []string
			for _, h := range got.all() {
				order = append(order, h.payload)
			}
			// "next" was acknowledged, but on a connection that is lost now: the server may not have seen it.
			if want := []string{"slow", "next", "last"}; !slices.Equal(slices.Compact(order), want) || slices.Index(order, "next") != 1 {
				t.Errorf("handled %v, want %v", order, want)
			}
		})
	}
}

// H1: stopping does not unsubscribe, and does not end the session: what is published while the app is down comes when it is back.
func TestLiveH1_StopKeepsTheSubscription(t *testing.T) {
	t.Parallel()
	server := mosquitto.Require(t)
	publisher := newPeer(t, server)
	var (
		mu   sync.Mutex
		said []frame
		got  journal
	)
	tap := &wires{on: func(_ *wire, outgoing bool, f frame) {
		if outgoing && (f.kind() == packets.UNSUBSCRIBE || f.kind() == packets.DISCONNECT) {
			mu.Lock()
			defer mu.Unlock()
			said = append(said, slices.Clone(f))
		}
	}}
	cfg := config(server, "h1")
	cfg.Dial = tap.dial
	start(t, cfg, settle.Handle("h1/+", got.ack, settle.RetryTo("h1-retry"))).stop()
	mu.Lock()
	if len(said) != 2 {
		t.Fatalf("%d packets of farewell on two connections", len(said))
	}
	for _, f := range said {
		if f.kind() == packets.DISCONNECT && len(f.body()) == 0 {
			continue // Normal disconnection, in its short form (3.14.2.1)
		}
		d, ok := f.decode(t).(*packets.Disconnect)
		if !ok || d.ReasonCode != 0 || d.Properties.SessionExpiryInterval != nil {
			t.Errorf("the farewell was %v", f.decode(t))
		}
	}
	mu.Unlock()
	publisher.publish(notes("h1/x", "down", 3)...)
	app := start(t, cfg, settle.Handle("h1/+", got.ack, settle.RetryTo("h1-retry")))
	got.await(t, 3)
	app.awaitIdle()
	got.expectEach(t, "down", 3, 1)
}
