package live_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/internal/mosquitto"
)

// All qualities of service, single deliveries and batches, keys, and every outcome, together for some seconds; and then an account
// in which each message has its place.
func TestLiveMixed(t *testing.T) {
	t.Parallel()
	const rounds, each, keys = 60, 100, 17 // messages of each QoS a round
	const n = rounds * each
	server := mosquitto.Require(t, mosquitto.Options{MaxQueued: mosquitto.NoLimit})
	publisher, watcher := newPeer(t, server), newPeer(t, server)
	watcher.subscribe("mix-dead", 1, 0)
	var got [3]journal
	var order [3]keyOrder
	number := func(d *settle.Delivery) int {
		i, err := strconv.Atoi(strings.TrimPrefix(string(d.Payload()), "m-"))
		if err != nil {
			t.Errorf("payload %q", d.Payload())
		}
		return i
	}

	// QoS 0: batches, nothing to acknowledge.
	atMostOnce := settle.HandleBatch("mix/0/+", func(ctx context.Context, batch [][]byte) settle.Outcomes {
		if len(batch) > 64 {
			t.Errorf("a batch of %d", len(batch))
		}
		for _, d := range settle.DeliveriesFrom(ctx) {
			got[0].add(d)
		}
		return settle.Every(settle.Ack())
	}, settle.Name("zero"), settle.AtMostOnce, settle.BatchSize(64))

	// QoS 1: single, by key, with a retry topic and dead letters.
	atLeastOnce := settle.Handle("mix/1/+", func(ctx context.Context, _ []byte) settle.Outcome {
		d := settle.DeliveryFrom(ctx)
		h := got[1].add(d)
		i := number(d)
		if h.attempt == 1 {
			order[1].note(t, d, i)
		}
		switch i % 50 {
		case 0:
			return settle.Retry(errLedgerDown)
		case 1:
			if h.attempt == 1 {
				return settle.Retry(errLedgerDown)
			}
		case 2:
			return settle.Reject(errLedgerDown)
		case 3:
			return settle.Drop("not wanted")
		case 4:
			if h.attempt == 1 {
				panic("the handler panics")
			}
		}
		return settle.Ack()
	}, settle.Name("one"), settle.Workers(8, settle.ByKey), settle.RetryTo("mix-retry"), settle.DeadLetterTo("mix-dead"), settle.MaxAttempts(3),
		settle.Backoff(settle.Constant(100*time.Millisecond)))

	// QoS 2: batches by key, failures held.
	exactlyOnce := settle.HandleBatch("mix/2/+", func(ctx context.Context, batch [][]byte) settle.Outcomes {
		outcomes := make([]settle.Outcome, len(batch))
		for k, d := range settle.DeliveriesFrom(ctx) {
			h := got[2].add(d)
			i := number(d)
			outcomes[k] = settle.Ack()
			if h.attempt > 1 {
				continue
			}
			order[2].note(t, d, i)
			if i%40 == 0 {
				outcomes[k] = settle.Retry(errLedgerDown)
			}
		}
		return settle.Each(outcomes...)
	}, settle.Name("two"), settle.ExactlyOnce, settle.Workers(4, settle.ByKey), settle.BatchSize(32), settle.Backoff(settle.Constant(50*time.Millisecond)))

	app := start(t, config(server, "mixed"), atMostOnce, atLeastOnce, exactlyOnce)
	tick := time.NewTicker(50 * time.Millisecond) // some seconds of traffic, not one burst
	defer tick.Stop()
	for round := range rounds {
		var batch []note
		for i := round * each; i < (round+1)*each; i++ {
			for qos := range byte(3) {
				batch = append(batch, note{topic: fmt.Sprintf("mix/%d/x", qos), payload: fmt.Sprintf("m-%d", i), qos: qos, key: strconv.Itoa(i % keys)})
			}
		}
		publisher.publish(batch...)
		<-tick.C
	}
	const one, perFifty = n, n / 50
	await(t, "all of it handled", func() bool {
		return got[0].len() >= n && got[1].len() >= one+4*perFifty && got[2].len() >= n+n/40
	})
	letters := payloads(watcher.await(2 * perFifty))
	app.awaitIdle()
	app.stop()

	got[0].expectEach(t, "m", n, 1)
	for i, times := range count(&got[1], n) {
		want := 1
		switch i % 50 {
		case 0:
			want = 3
		case 1, 4:
			want = 2
		}
		if times != want {
			t.Errorf("QoS 1: %d was handled %d times, want %d", i, times, want)
		}
	}
	for i, times := range count(&got[2], n) {
		want := 1
		if i%40 == 0 {
			want = 2
		}
		if times != want {
			t.Errorf("QoS 2: %d was handled %d times, want %d", i, times, want)
		}
	}
	var dead []string
	for i := range n {
		if i%50 == 0 || i%50 == 2 {
			dead = append(dead, fmt.Sprintf("m-%d", i))
		}
	}
	slices.Sort(letters)
	slices.Sort(dead)
	if !slices.Equal(letters, dead) {
		t.Errorf("%d dead letters, want %d", len(letters), len(dead))
	}
	for series, want := range map[[2]string]float64{
		{"zero", "ack"}:    n,
		{"one", "ack"}:     n - 3*perFifty,
		{"one", "retry"}:   5 * perFifty, // 3 of each that always fails, 1 of each that fails once or panics
		{"one", "reject"}:  perFifty,
		{"one", "drop"}:    perFifty,
		{"two", "ack"}:     n,
		{"two", "retry"}:   n / 40,
		{"zero", "retry"}:  0,
		{"two", "drop"}:    0,
		{"zero", "reject"}: 0,
	} {
		if got := app.metric("settle_settled_total", "route="+series[0], "outcome="+series[1]); got != want {
			t.Errorf("settle_settled_total%v is %v, want %v", series, got, want)
		}
	}
	for qos, want := range map[string]float64{"0": n, "2": n} {
		if got := app.metric("settle_deliveries_total", "qos="+qos); got != want {
			t.Errorf("settle_deliveries_total{qos=%q} is %v, want %v", qos, got, want)
		}
	}
	for _, name := range []string{"settle_qos0_dropped_total", "settle_unmatched_total", "settle_stale_settlements_total", "settle_held"} {
		if got := app.metric(name); got != 0 {
			t.Errorf("%s is %v", name, got)
		}
	}
}

// count is how often each of the payloads m-0 … m-(n-1) was handled.
func count(j *journal, n int) []int {
	times, all := j.times(), make([]int, n)
	for payload, k := range maps.All(times) {
		if i, err := strconv.Atoi(strings.TrimPrefix(payload, "m-")); err == nil && i < n {
			all[i] = k
		}
	}
	return all
}

// keyOrder checks that the numbers of each key rise.
type keyOrder struct {
	mu   sync.Mutex
	last map[string]int
}

func (o *keyOrder) note(t testing.TB, d *settle.Delivery, i int) {
	t.Helper()
	key := settle.ByKey(d)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.last == nil {
		o.last = make(map[string]int)
	}
	if last, known := o.last[key]; known && last >= i {
		t.Errorf("key %s: %d came after %d", key, i, last)
	}
	o.last[key] = i
}
