package live_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/eclipse/paho.golang/packets"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/internal/mosquitto"
	"github.com/settlemq/settle/internal/topic"
)

// E5: overlapping filters. Each route gets a message once, whatever the server makes of the overlap.
func TestLiveE5_OverlappingFilters(t *testing.T) {
	const n = 50
	server := mosquitto.Require(t)
	publisher := newPeer(t, server)
	for name, routes := range map[string]func(*journal) []settle.Route{
		"two filters": func(j *journal) []settle.Route {
			return []settle.Route{settle.Handle("e5/#", j.ack), settle.Handle("e5/+", j.ack)}
		},
		"one filter twice": func(j *journal) []settle.Route {
			return []settle.Route{settle.Handle("e5/+", j.ack, settle.Name("one")), settle.Handle("e5/+", j.ack, settle.Name("two"))}
		},
		"two filters at two QoS": func(j *journal) []settle.Route {
			return []settle.Route{settle.Handle("e5/#", j.ack, settle.ExactlyOnce), settle.Handle("e5/+", j.ack, settle.AtLeastOnce)}
		},
		"shared and not": func(j *journal) []settle.Route {
			return []settle.Route{settle.Handle("e5/+", j.ack, settle.Shared("g"), settle.Name("shared")), settle.Handle("e5/+", j.ack, settle.Name("alone"))}
		},
	} {
		t.Run(name, func(t *testing.T) {
			publisher.t = t
			var got journal
			app := start(t, config(server, "e5 "+name), routes(&got)...)
			publisher.publish(notes("e5/x", "report", n)...)
			got.await(t, 2*n)
			app.awaitIdle()
			app.stop()
			got.expectEach(t, "report", n, 2)
			each := make(map[string]int)
			for _, h := range got.all() {
				each[h.route]++
			}
			for route, times := range each {
				if times != n {
					t.Errorf("route %q was called %d times, want %d", route, times, n)
				}
			}
		})
	}
}

// K1: a backlog was queued under the subscription identifiers of an older release: one that nobody knows any more, and one that is another
// filter's now. Topics decide, and each of the two routes on the filter gets each message once.
func TestLiveK1_BacklogUnderOlderIdentifiers(t *testing.T) {
	const n = 50
	server := mosquitto.Require(t)
	publisher := newPeer(t, server)
	for name, id := range map[string]int{"none": 0, "unknown": 7, "of another filter": int(topic.ID("", "k1/b/+"))} {
		t.Run(name, func(t *testing.T) {
			publisher.t = t
			clientID := "k1 " + name
			older := dialPeer(t, server, session(clientID))
			older.subscribe("k1/a/+", 1, id)
			older.disconnect()
			publisher.publish(notes("k1/a/x", "old", n)...)

			var got journal
			app := start(t, config(server, clientID), settle.Handle("k1/b/+", got.ack, settle.Name("b")),
				settle.Handle("k1/a/+", got.ack, settle.Name("a1")), settle.Handle("k1/a/+", got.ack, settle.Name("a2")))
			publisher.publish(append(notes("k1/a/x", "new", n), notes("k1/b/x", "b", n)...)...)
			got.await(t, 5*n)
			app.awaitIdle()
			app.stop()
			times := make(map[string]int)
			for _, h := range got.all() {
				times[h.route+" "+h.payload]++
				if wrong := strings.HasPrefix(h.payload, "b") != (h.route == "b"); wrong {
					t.Errorf("route %s got %s", h.route, h.payload)
				}
			}
			if len(times) != 5*n || got.len() != 5*n {
				t.Errorf("%d calls, %d different ones, want %d", got.len(), len(times), 5*n)
			}
		})
	}
}

// F4: Maximum Packet Size is not announced, for Mosquitto drops what exceeds it and keeps the place in the window. What is too large comes,
// more of it than the window holds, goes to the dead letters as a stub, and the next message is handled.
func TestLiveF4_OversizeDoesNotEatTheWindow(t *testing.T) {
	t.Parallel()
	const n, window = 60, 20
	server := mosquitto.Require(t)
	publisher, watcher := newPeer(t, server), newPeer(t, server)
	watcher.subscribe("f4-dead", 1, 0)
	var (
		mu      sync.Mutex
		connect *packets.Connect
		got     journal
	)
	tap := &wires{on: func(_ *wire, outgoing bool, f frame) {
		if outgoing && f.kind() == packets.CONNECT {
			mu.Lock()
			defer mu.Unlock()
			connect, _ = f.decode(t).(*packets.Connect)
		}
	}}
	cfg := config(server, "f4")
	cfg.Dial, cfg.ReceiveMaximum, cfg.MaxPayload = tap.dial, window, 1<<10
	app := start(t, cfg, settle.Handle("f4/+", func(ctx context.Context, _ []byte) settle.Outcome {
		got.note(ctx)
		return settle.Ack()
	}, settle.DeadLetterTo("f4-dead")))
	mu.Lock()
	if p := connect.Properties; p.MaximumPacketSize != nil || p.ReceiveMaximum == nil || *p.ReceiveMaximum != window {
		t.Errorf("CONNECT: Maximum Packet Size %v, Receive Maximum %v", p.MaximumPacketSize, p.ReceiveMaximum)
	}
	mu.Unlock()
	publisher.publish(notes("f4/x", strings.Repeat("x", 64<<10), n)...)
	publisher.publish(notes("f4/x", "small", 1)...)
	if first := got.await(t, 1)[0]; first.payload != "small-0" {
		t.Errorf("handled a payload of %d bytes", len(first.payload))
	}
	for _, letter := range watcher.await(n) {
		if len(letter.Payload) != 0 || property(letter, "settle-stub") == "" || property(letter, "settle-original-topic") != "f4/x" {
			t.Errorf("the dead letter is %v", letter)
		}
	}
	app.awaitIdle()
}
