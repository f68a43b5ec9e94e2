package settle

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/settlemq/settle/internal/window"
	"github.com/settlemq/settle/internal/wire"
)

func testMetrics(t *testing.T, registry *prometheus.Registry, app string) *metrics {
	t.Helper()
	m, err := newMetrics(registry, app, gauges{
		unacked:   func() float64 { return 7 },
		oldest:    func() float64 { return 1.5 },
		connected: func() bool { return true },
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// use moves every metric, and holds nil metrics to doing nothing.
func use(m *metrics, single, batch *routeSpec) {
	var acks []byte
	acks = wire.AppendPuback(acks, 1)
	acks = wire.AppendPubrec(acks, 2)
	acks = wire.AppendPubcomp(acks, 2, 0)
	acks = wire.AppendPubcomp(acks, 3, 0x92)
	m.acks(acks)
	m.arrival(window.Adopted)
	m.arrival(window.Fresh)
	m.staleAck()
	m.sessionLost()
	m.connection(connectAccepted)
	m.connection(connectFailed)
	m.noRoute()

	r := m.route(single)
	r.delivered(ExactlyOnce, true)
	r.delivered(AtMostOnce, false)
	r.settled(KindAck)
	r.settled(KindInvalid)
	r.handled(20 * time.Millisecond)
	r.inflight(3)
	r.inflight(-1)
	r.held(2)
	r.waiting(4)
	r.stale(1)
	r.dropped(2)
	r.batch(5) // not a batch route: nothing
	r.copied(errandRetry, nil)
	r.copied(errandHop, nil)
	r.copied(errandRetry, &ServerError{Code: 0x87})
	r.copied(errandRetry, fmt.Errorf("%w: x", ErrUnconfirmed))
	r.copied(errandDead, errors.New("no subscribers"))
	r.copied(errandDead, fmt.Errorf("%w: x", ErrNotConnected))
	m.route(batch).batch(5)
	m.route(batch).copied(errandRetry, nil) // without a retry topic: nothing
}

var (
	singleSpec = &routeSpec{name: "usage", retryTo: "r", deadLetterTo: "d"}
	batchSpec  = &routeSpec{name: "power", batch: true}
)

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	use(testMetrics(t, registry, "billing"), singleSpec, batchSpec)

	want := `
settle_acks_total{app="billing",code="0x00"} 2
settle_acks_total{app="billing",code="0x92"} 1
settle_adopted_total{app="billing"} 1
settle_connected{app="billing"} 1
settle_connections_total{app="billing",result="accepted"} 1
settle_connections_total{app="billing",result="failed"} 1
settle_connections_total{app="billing",result="refused"} 0
settle_dead_letters_total{app="billing",result="confirmed",route="usage"} 0
settle_dead_letters_total{app="billing",result="not_connected",route="usage"} 1
settle_dead_letters_total{app="billing",result="not_stored",route="usage"} 1
settle_dead_letters_total{app="billing",result="refused",route="usage"} 0
settle_dead_letters_total{app="billing",result="unconfirmed",route="usage"} 0
settle_deliveries_total{app="billing",qos="0",redelivered="false",route="usage"} 1
settle_deliveries_total{app="billing",qos="2",redelivered="true",route="usage"} 1
settle_held{app="billing",route="power"} 0
settle_held{app="billing",route="usage"} 2
settle_inflight{app="billing",route="power"} 0
settle_inflight{app="billing",route="usage"} 2
settle_qos0_dropped_total{app="billing",route="usage"} 2
settle_retry_copies_total{app="billing",result="confirmed",route="usage"} 1
settle_retry_copies_total{app="billing",result="moved",route="usage"} 1
settle_retry_copies_total{app="billing",result="refused",route="usage"} 1
settle_retry_copies_total{app="billing",result="unconfirmed",route="usage"} 1
settle_retry_waiting{app="billing",route="usage"} 4
settle_sessions_lost_total{app="billing"} 1
settle_settled_total{app="billing",outcome="ack",route="usage"} 1
settle_settled_total{app="billing",outcome="retry",route="usage"} 1
settle_stale_settlements_total{app="billing"} 2
settle_unmatched_total{app="billing"} 1
settle_window_oldest_seconds{app="billing"} 1.5
settle_window_unacked{app="billing"} 7
settle_batch_size_sum{app="billing",route="power"} 5
settle_batch_size_count{app="billing",route="power"} 1
settle_handler_seconds_count{app="billing",route="usage"} 1
`
	got := exposition(t, registry)
	for line := range strings.Lines(strings.TrimSpace(want)) {
		if !strings.Contains(got, "\n"+strings.TrimSpace(line)+"\n") {
			t.Errorf("missing: %s", line)
		}
	}
	for _, no := range []string{
		`settle_batch_size_count{app="billing",route="usage"}`,
		`settle_retry_copies_total{app="billing",result="confirmed",route="power"}`,
		`settle_retry_waiting{app="billing",route="power"}`,
		`outcome="invalid"`,
	} {
		if strings.Contains(got, no) {
			t.Errorf("a series that can never be: %s", no)
		}
	}
	if t.Failed() {
		t.Log(got)
	}
}

func exposition(t *testing.T, registry *prometheus.Registry) string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteByte('\n')
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := make([]string, 0, len(m.GetLabel()))
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			in := "{" + strings.Join(labels, ",") + "}"
			switch {
			case m.GetHistogram() != nil:
				fmt.Fprintf(&b, "%s_sum%s %v\n%s_count%s %d\n", f.GetName(), in, m.GetHistogram().GetSampleSum(), f.GetName(), in, m.GetHistogram().GetSampleCount())
			case m.GetGauge() != nil:
				fmt.Fprintf(&b, "%s%s %v\n", f.GetName(), in, m.GetGauge().GetValue())
			default:
				fmt.Fprintf(&b, "%s%s %v\n", f.GetName(), in, m.GetCounter().GetValue())
			}
		}
	}
	return b.String()
}

func TestMetricsAreLintClean(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	use(testMetrics(t, registry, ""), singleSpec, batchSpec)
	problems, err := testutil.GatherAndLint(registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	if strings.Contains(exposition(t, registry), "app=") {
		t.Error("an app label without a Name")
	}
}

func TestNoMetrics(t *testing.T) {
	m, err := newMetrics(nil, "", gauges{})
	if m != nil || err != nil {
		t.Fatal(m, err)
	}
	use(m, singleSpec, batchSpec) // must not panic
}

func TestTwoAppsOnOneRegistry(t *testing.T) {
	registry := prometheus.NewRegistry()
	testMetrics(t, registry, "a")
	testMetrics(t, registry, "b")

	m, err := newMetrics(registry, "a", gauges{})
	var invalid *ConfigError
	if m != nil || !errors.As(err, &invalid) || invalid.Field != "Metrics" || !strings.Contains(invalid.Reason, "Name of its own") {
		t.Fatal(err)
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(""), "settle_none"); err != nil {
		t.Error("the registry is spoilt:", err)
	}
}

func TestMetricsOnTheHotPathAllocateNothing(t *testing.T) {
	m := testMetrics(t, prometheus.NewRegistry(), "")
	r := m.route(singleSpec)
	acks := wire.AppendPubrec(wire.AppendPuback(nil, 1), 2)
	if n := testing.AllocsPerRun(100, func() {
		r.delivered(AtLeastOnce, false)
		r.inflight(1)
		r.handled(time.Millisecond)
		r.settled(KindAck)
		r.inflight(-1)
		m.acks(acks)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Truncated acknowledgements cannot come from our own window; they must not hang the counter all the same.
func TestAcksStopAtGarbage(t *testing.T) {
	m := testMetrics(t, prometheus.NewRegistry(), "")
	m.acks([]byte{0x40, 200, 0})
	m.acks([]byte{0x40})
	if got := testutil.ToFloat64(m.ackOK); got != 0 {
		t.Error(got)
	}
}
