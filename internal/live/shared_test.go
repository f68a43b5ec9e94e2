package live_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/internal/mosquitto"
)

// A shared group of two: the work is shared. One member leaves by Stop and one by kill -9, with deliveries in its hands. When both come back,
// nothing is lost, and only what the dead one had not acknowledged was handled twice.
func TestLiveSharedGroup(t *testing.T) {
	t.Parallel()
	const n = 400
	server := mosquitto.Require(t)
	publisher := newPeer(t, server)
	var stays, comes journal
	killed := startChild(t, childConfig{Server: server.URL(), ClientID: "group-a", Filter: "group/+", Group: "workers", Window: 50, Mode: modeStall})
	stopped := start(t, config(server, "group-b"), settle.Handle("group/+", stays.ack, settle.Shared("workers")))
	publisher.publish(notes("group/x", "both", n)...)
	killed.awaitLine("stalled")
	await(t, "the work is shared", func() bool { return stays.len() > n/4 })
	stopped.stop()
	publisher.publish(notes("group/x", "one", n)...)
	killed.kill()
	publisher.publish(notes("group/x", "none", n)...)
	done := make(map[string]bool)
	for _, payload := range killed.handledBy() {
		done[payload] = true
	}
	if len(done) != 20 {
		t.Fatalf("the killed member handled %d", len(done))
	}

	var back [2]*service
	for i, id := range []string{"group-a", "group-b"} {
		back[i] = start(t, config(server, id), settle.Handle("group/+", comes.ack, settle.Shared("workers")))
	}
	missing := func() (lost []string) {
		first, second := stays.times(), comes.times()
		for _, prefix := range []string{"both", "one", "none"} {
			for i := range n {
				if payload := fmt.Sprintf("%s-%d", prefix, i); first[payload]+second[payload] == 0 && !done[payload] {
					lost = append(lost, payload)
				}
			}
		}
		return lost
	}
	await(t, "nothing is lost", func() bool { return len(missing()) == 0 })
	for _, app := range back {
		app.awaitIdle()
	}
	first, second := stays.times(), comes.times()
	for payload, times := range second {
		// What the killed member said it had handled may not have been acknowledged before it died.
		if times+first[payload] != 1 && !done[payload] {
			t.Errorf("%s was handled %d times", payload, times+first[payload])
		}
	}
}

// E3: a member that is scaled away for good retires: it handles what is in its session, which then takes no share any more.
func TestLiveE3_Retire(t *testing.T) {
	t.Parallel()
	const n = 100
	server := mosquitto.Require(t)
	publisher := newPeer(t, server)
	var stays, leaves journal
	route := func(j *journal) settle.Route {
		return settle.Handle("e3/+", func(ctx context.Context, _ []byte) settle.Outcome {
			if h := j.note(ctx); h.attempt == 1 && h.payload == "first-0" {
				return settle.Retry(errLedgerDown)
			}
			return settle.Ack()
		}, settle.Shared("workers"), settle.RetryTo("e3-retry"), settle.Backoff(settle.Constant(200*time.Millisecond)))
	}
	start(t, config(server, "e3-leaves"), route(&leaves)).stop()
	publisher.publish(notes("e3/x", "first", n)...) // to the session of the one that is away
	leaving := start(t, config(server, "e3-leaves"), route(&leaves))
	staying := start(t, config(server, "e3-stays"), route(&stays))
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	if err := leaving.Retire(ctx); err != nil {
		t.Fatal(err)
	}
	publisher.publish(notes("e3/x", "second", n)...)
	await(t, "all of it goes to the one that stays", func() bool {
		return len(stays.where(func(h handled) bool { return h.payload[0] == 's' })) >= n
	})
	staying.awaitIdle()
	staying.stop()
	times := leaves.times()
	for payload, more := range stays.times() {
		times[payload] += more
	}
	for _, prefix := range []string{"first", "second"} {
		for i := range n {
			payload, want := fmt.Sprintf("%s-%d", prefix, i), 1
			if payload == "first-0" {
				want = 2
			}
			if times[payload] != want {
				t.Errorf("%s was handled %d times, want %d", payload, times[payload], want)
			}
		}
	}
}
