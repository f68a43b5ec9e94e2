package live_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/internal/mosquitto"
)

// service is an app of a test, with its metrics and its log.
type service struct {
	*settle.App
	t        testing.TB
	registry *prometheus.Registry
	log      *logBuffer
}

// config is the least that an app needs.
func config(s *mosquitto.Server, clientID string) settle.Config {
	return settle.Config{Servers: []string{s.URL()}, ClientID: clientID, ShutdownTimeout: 5 * time.Second}
}

// start makes an app and waits until it is ready. It is stopped at the end of the test, unless the test has done so.
func start(t testing.TB, cfg settle.Config, routes ...settle.Route) *service {
	t.Helper()
	s := begin(t, cfg, routes...)
	s.awaitReady()
	return s
}

// begin is start without the wait.
func begin(t testing.TB, cfg settle.Config, routes ...settle.Route) *service {
	t.Helper()
	s := &service{t: t, registry: prometheus.NewRegistry(), log: &logBuffer{}}
	cfg.Metrics, cfg.Logger = s.registry, zerolog.New(s.log).Level(zerolog.InfoLevel).With().Timestamp().Logger()
	app, err := settle.New(cfg, routes...)
	if err != nil {
		t.Fatal(err)
	}
	s.App = app
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = app.Stop(ctx) // its result is looked at by stop
		if t.Failed() {
			t.Logf("the log of %s:\n%s", cfg.ClientID, s.log.end())
		}
	})
	if err := app.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *service) awaitReady() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	if err := s.WaitReady(ctx); err != nil {
		s.t.Fatalf("not ready: %v", err)
	}
}

// stop stops the app, which has to be a clean drain.
func (s *service) stop() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		s.t.Fatalf("stop: %v", err)
	}
}

// metric is the sum of a metric's series that have the given labels, written as "route=usage". Of a histogram it is the count.
func (s *service) metric(name string, labels ...string) float64 {
	s.t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var has []string
			for _, l := range m.GetLabel() {
				has = append(has, l.GetName()+"="+l.GetValue())
			}
			if slices.ContainsFunc(labels, func(l string) bool { return !slices.Contains(has, l) }) {
				continue
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

// awaitMetric waits until a metric has a value.
func (s *service) awaitMetric(want float64, name string, labels ...string) {
	s.t.Helper()
	await(s.t, fmt.Sprintf("%s%v = %v", name, labels, want), func() bool { return s.metric(name, labels...) == want })
}

// awaitIdle waits until everything is acknowledged and nothing is under way.
func (s *service) awaitIdle() {
	s.t.Helper()
	await(s.t, "everything settled and acknowledged", func() bool {
		return s.metric("settle_window_unacked") == 0 && s.metric("settle_inflight") == 0 && s.metric("settle_retry_waiting") == 0
	})
}

// logBuffer keeps the log of an app.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(line)
}

func (b *logBuffer) contains(s string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Contains(b.text.String(), s)
}

func (b *logBuffer) end() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := b.text.String()
	return text[max(0, len(text)-8<<10):]
}

// handled is one call of a handler.
type handled struct {
	payload string
	topic   string
	attempt int
	dup     bool
	retain  bool
	qos     settle.QoS
	route   string
	at      time.Time
}

// journal is what handlers were called with, in the order of their calls.
type journal struct {
	mu      sync.Mutex
	entries []handled
}

func (j *journal) note(ctx context.Context) handled {
	d := settle.DeliveryFrom(ctx)
	return j.add(d)
}

func (j *journal) add(d *settle.Delivery) handled {
	h := handled{
		payload: string(d.Payload()), topic: d.Topic(), attempt: d.Attempt(), dup: d.Redelivered(), retain: d.Retained(), qos: d.QoS(),
		route: d.Route(), at: time.Now(),
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, h)
	return h
}

func (j *journal) all() []handled {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.entries)
}

func (j *journal) len() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.entries)
}

// await returns the first n calls.
func (j *journal) await(t testing.TB, n int) []handled {
	t.Helper()
	awaitFor(t, patience, fmt.Sprintf("%d calls of handlers", n), func() bool { return j.len() >= n })
	return j.all()[:n]
}

// where are the calls that a condition holds for.
func (j *journal) where(condition func(handled) bool) []handled {
	return slices.DeleteFunc(j.all(), func(h handled) bool { return !condition(h) })
}

// times counts the calls by payload.
func (j *journal) times() map[string]int {
	times := make(map[string]int)
	for _, h := range j.all() {
		times[h.payload]++
	}
	return times
}

// ack is a handler that notes its delivery and acknowledges it.
func (j *journal) ack(ctx context.Context, _ []byte) settle.Outcome {
	j.note(ctx)
	return settle.Ack()
}

// expectEach checks that each of the payloads prefix-0 … prefix-(n-1) was handled so many times, and nothing else.
func (j *journal) expectEach(t testing.TB, prefix string, n, times int) {
	t.Helper()
	got := j.times()
	wrong := 0
	for i := range n {
		name := fmt.Sprintf("%s-%d", prefix, i)
		if got[name] != times {
			if wrong++; wrong <= 10 {
				t.Errorf("%s was handled %d times, want %d", name, got[name], times)
			}
		}
		delete(got, name)
	}
	if wrong > 10 {
		t.Errorf("… and %d more", wrong-10)
	}
	if len(got) > 0 {
		t.Errorf("%d payloads came that nobody sent to this app, or not here", len(got))
	}
}
