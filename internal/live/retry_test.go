package live_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/internal/mosquitto"
)

var errLedgerDown = errors.New("ledger down")

// failing is a handler that fails the first n attempts.
func (j *journal) failing(n int) func(context.Context, []byte) settle.Outcome {
	return func(ctx context.Context, _ []byte) settle.Outcome {
		if h := j.note(ctx); h.attempt <= n {
			return settle.Retry(errLedgerDown)
		}
		return settle.Ack()
	}
}

// attempts checks that each of n payloads was handled at the attempts 1 … most, once each and in that order.
func (j *journal) expectAttempts(t testing.TB, n, most int) {
	t.Helper()
	next := make(map[string]int)
	for _, h := range j.all() {
		if next[h.payload]++; h.attempt != next[h.payload] {
			t.Errorf("%s: call %d was attempt %d", h.payload, next[h.payload], h.attempt)
		}
	}
	if len(next) != n {
		t.Errorf("%d messages were handled, want %d", len(next), n)
	}
	for payload, times := range next {
		if times != most {
			t.Errorf("%s was tried %d times, want %d", payload, times, most)
		}
	}
}

// A retry with a delay outlives kill -9 of the process that asked for it: the next process handles the copy, and not before it is due.
func TestLiveRetryOutlivesKill9(t *testing.T) {
	t.Parallel()
	const delay = 3 * time.Second
	server := mosquitto.Require(t)
	publisher := newPeer(t, server)
	first := startChild(t, childConfig{Server: server.URL(), ClientID: "kill9", Filter: "kill9/+", RetryTo: "kill9-retry", Delay: delay, Mode: modeFail})
	watcher := newPeer(t, server)
	watcher.subscribe("kill9-retry", 1, 0)
	publisher.publish(notes("kill9/x", "report", 1)...)
	first.awaitLine("failed 1 report-0")
	failed := time.Now()
	// The copy is on the server, so the process may die.
	watcher.await(1)
	first.kill()

	var got journal
	app := start(t, config(server, "kill9"), settle.Handle("kill9/+", got.ack, settle.RetryTo("kill9-retry"), settle.Backoff(settle.Constant(delay))))
	publisher.publish(notes("kill9/x", "later", 1)...)
	got.await(t, 2)
	app.awaitIdle()
	for _, h := range got.where(func(h handled) bool { return h.payload == "report-0" && h.attempt == 2 }) {
		// "failed" was read a little after the process said it.
		if wait := h.at.Sub(failed); wait < delay-500*time.Millisecond {
			t.Errorf("handled again after %v, due after %v", wait, delay)
		}
		if h.topic != "kill9/x" {
			t.Errorf("the topic is %q", h.topic)
		}
	}
	// The process may have died before its PUBACK for the original left: then that comes once more, as attempt 1.
	if n := len(got.where(func(h handled) bool { return h.payload == "report-0" && h.attempt == 2 })); n != 1 {
		t.Errorf("the copy was handled %d times", n)
	}
	if n := len(got.where(func(h handled) bool { return h.payload == "later-0" })); n != 1 {
		t.Errorf("another message was handled %d times", n)
	}
}

// K3: 3,000 deliveries fail while the retry session is offline, which the app does not see, and the server keeps 1,000 for it, answering
// 0x00 for all. No more than RetryBacklog are entrusted to it; the originals of the rest are held until there is room.
func TestLiveK3_RetriesWhileTheRetrySessionIsOffline(t *testing.T) {
	t.Parallel()
	const n, backlog = 3000, 500
	server := mosquitto.Require(t) // it keeps 1,000
	publisher := newPeer(t, server)
	network := &wires{}
	cfg := config(server, "k3")
	cfg.Dial = network.dial
	cfg.ReceiveMaximum = n + 100 // so that all of them are in flight, and none is in the queue of the main session
	var got journal
	app := start(t, cfg, settle.Handle("k3/+", func(ctx context.Context, _ []byte) settle.Outcome {
		if h := got.note(ctx); h.attempt == 1 && h.payload != "bystander-0" {
			return settle.Retry(errLedgerDown)
		}
		return settle.Ack()
	}, settle.RetryTo("k3-retry"), settle.Backoff(settle.Constant(50*time.Millisecond))))
	network.vanish("k3-retry")
	for i := 0; i < n; i += 500 {
		publisher.publish(notes("k3/x", fmt.Sprintf("part%d", i/500), 500)...)
		got.await(t, i+500) // in flight: nothing of it is in the main session's queue
	}
	app.awaitMetric(backlog, "settle_retry_copies_total", "result=confirmed")
	app.awaitMetric(n-backlog, "settle_window_unacked")
	publisher.publish(notes("k3/x", "bystander", 1)...)
	got.await(t, n+1)
	if c := app.metric("settle_retry_copies_total"); c != backlog {
		t.Errorf("%v copies were published while nobody takes them, the backlog is %d", c, backlog)
	}
	if u := app.metric("settle_window_unacked"); u < n-backlog {
		t.Errorf("%v originals are held, want %d", u, n-backlog)
	}

	network.appear("k3-retry")
	got.await(t, 2*n+1)
	app.awaitIdle()
	app.stop()
	for payload, times := range got.times() {
		if times != 2 && payload != "bystander-0" {
			t.Errorf("%s was handled %d times, want 2", payload, times)
		}
	}
	if different := len(got.times()); different != n+1 {
		t.Errorf("%d messages were handled, want %d", different, n+1)
	}
}

// K7: two replicas that are not a group have one retry topic. Each handles its own copies.
func TestLiveK7_ReplicasOnOneRetryTopic(t *testing.T) {
	t.Parallel()
	const n = 50
	server := mosquitto.Require(t)
	publisher := newPeer(t, server)
	var got [2]journal
	var apps [2]*service
	for i := range got {
		apps[i] = start(t, config(server, fmt.Sprintf("k7-%d", i)), settle.Handle("k7/+", got[i].failing(1), settle.Name("usage"), settle.RetryTo("k7-retry"),
			settle.Backoff(settle.Constant(100*time.Millisecond))))
	}
	publisher.publish(notes("k7/x", "report", n)...)
	for i := range got {
		got[i].await(t, 2*n)
		apps[i].awaitIdle()
	}
	for i := range got {
		apps[i].stop()
		got[i].expectAttempts(t, n, 2)
	}
}

// K10: a retry topic is renamed between releases while copies wait under the old name. None is acknowledged away: with a dead-letter topic
// they go there; without one they stay until a route has the topic again.
func TestLiveK10_RetryTopicRenamed(t *testing.T) {
	const n = 20
	server := mosquitto.Require(t)
	publisher := newPeer(t, server)
	later := func(j *journal) func(context.Context, []byte) settle.Outcome {
		return func(ctx context.Context, _ []byte) settle.Outcome {
			if h := j.note(ctx); h.attempt == 1 {
				return settle.RetryAfter(time.Hour, errLedgerDown)
			}
			return settle.Ack()
		}
	}
	t.Run("dead letters", func(t *testing.T) {
		publisher.t = t
		watcher := newPeer(t, server)
		watcher.subscribe("k10a-dead", 1, 0)
		var got journal
		app := start(t, config(server, "k10a"), settle.Handle("k10a/+", later(&got), settle.RetryTo("k10a-old"), settle.DeadLetterTo("k10a-dead")))
		publisher.publish(notes("k10a/x", "report", n)...)
		app.awaitMetric(n, "settle_retry_waiting")
		app.stop()

		app = start(t, config(server, "k10a"), settle.Handle("k10a/+", got.ack, settle.RetryTo("k10a-new"), settle.DeadLetterTo("k10a-dead")))
		letters := payloads(watcher.await(n))
		app.awaitIdle()
		slices.Sort(letters)
		if letters = slices.Compact(letters); len(letters) != n {
			t.Errorf("%d different dead letters, want %d", len(letters), n)
		}
	})
	t.Run("held", func(t *testing.T) {
		publisher.t = t
		var got, second, third journal
		app := start(t, config(server, "k10b"), settle.Handle("k10b/+", later(&got), settle.RetryTo("k10b-old")))
		publisher.publish(notes("k10b/x", "report", n)...)
		app.awaitMetric(n, "settle_retry_waiting")
		app.stop()

		app = start(t, config(server, "k10b"), settle.Handle("k10b/+", second.failing(1), settle.RetryTo("k10b-new"), settle.Backoff(settle.Constant(time.Millisecond))))
		await(t, "the old copies are named in the log", func() bool { return app.log.contains("k10b-old") })
		// The renamed topic works meanwhile.
		publisher.publish(notes("k10b/x", "new", 1)...)
		second.await(t, 2)
		app.stop()

		app = start(t, config(server, "k10b"), settle.Handle("k10b/+", third.ack, settle.RetryTo("k10b-old")))
		app.awaitMetric(n, "settle_retry_waiting")
		app.stop()
		for payload := range second.times() {
			if strings.HasPrefix(payload, "report") {
				t.Errorf("%s was handled by a route with another retry topic", payload)
			}
		}
	})
}

// K13: more copies than RetryBacklog fail again and again. Their next attempts take over their places, and none waits for ever.
func TestLiveK13_CopiesThatAllFailAgain(t *testing.T) {
	t.Parallel()
	const n, attempts = 600, 4
	server := mosquitto.Require(t)
	publisher := newPeer(t, server)
	var got journal
	app := start(t, config(server, "k13"), settle.Handle("k13/+", got.failing(attempts-1), settle.RetryTo("k13-retry"), settle.Backoff(settle.Constant(500*time.Millisecond))))
	publisher.publish(notes("k13/x", "report", n)...)
	got.await(t, n*attempts)
	app.awaitIdle()
	app.stop()
	got.expectAttempts(t, n, attempts)
}

// K14: two services that know nothing of each other consume one filter, and each has its retry topic inside of it. No copy of
// one becomes an original of the other.
func TestLiveK14_RetryTopicsInsideTheFilterOfAnother(t *testing.T) {
	t.Parallel()
	const n = 50
	server := mosquitto.Require(t)
	publisher := newPeer(t, server)
	var got [2]journal
	var apps [2]*service
	for i := range got {
		id := fmt.Sprintf("k14-%d", i)
		apps[i] = start(t, config(server, id), settle.Handle("k14/+/usage", got[i].failing(1), settle.RetryTo("k14/"+id+"/usage"),
			settle.Backoff(settle.Constant(50*time.Millisecond))))
	}
	publisher.publish(notes("k14/x/usage", "report", n)...)
	for i := range got {
		got[i].await(t, 2*n)
		// Its copies came to the other as messages that are not for it.
		apps[i].awaitMetric(n, "settle_unmatched_total")
		apps[i].awaitIdle()
	}
	for i := range got {
		apps[i].stop()
		got[i].expectAttempts(t, n, 2)
		for _, h := range got[i].all() {
			if h.topic != "k14/x/usage" {
				t.Fatalf("handled %+v", h)
			}
		}
	}
}

// K15: the server lets 20 be in flight, and twenty copies that are due in an hour take all of them. One that is due in a second is
// handled after a second.
func TestLiveK15_SmallInFlightLimit(t *testing.T) {
	server := mosquitto.Require(t, mosquitto.Options{MaxInflight: 20})
	publisher := newPeer(t, server)
	for _, window := range []int{0, 20} {
		t.Run(fmt.Sprintf("RetryReceiveMaximum %d", window), func(t *testing.T) {
			publisher.t = t
			id := fmt.Sprintf("k15-%d", window)
			var got journal
			cfg := config(server, id)
			cfg.RetryReceiveMaximum = window
			app := start(t, cfg, settle.Handle(id+"/+", func(ctx context.Context, _ []byte) settle.Outcome {
				switch h := got.note(ctx); {
				case h.attempt > 1:
					return settle.Ack()
				case h.payload == "soon-0":
					return settle.RetryAfter(time.Second, errLedgerDown)
				default:
					return settle.RetryAfter(time.Hour, errLedgerDown)
				}
			}, settle.RetryTo(id+"-retry")))
			publisher.publish(notes(id+"/x", "hour", 20)...)
			app.awaitMetric(20, "settle_retry_waiting")
			publisher.publish(notes(id+"/x", "soon", 1)...)
			var soon []handled
			await(t, "the second attempt of the one that is due soon", func() bool {
				soon = got.where(func(h handled) bool { return h.payload == "soon-0" })
				return len(soon) == 2
			})
			if wait := soon[1].at.Sub(soon[0].at); wait < time.Second || wait > 12*time.Second {
				t.Errorf("handled after %v, due after a second", wait)
			}
			if early := got.where(func(h handled) bool { return h.payload != "soon-0" && h.attempt > 1 }); len(early) > 0 {
				t.Errorf("handled an hour early: %+v", early)
			}
		})
	}
}
