package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/testkit"
)

const (
	patience = 20 * time.Second
	// backoff is what retries wait in most scenarios: short, as on a real server it is real.
	backoff = 50 * time.Millisecond
)

var errDown = errors.New("the ledger is down")

// world is where a scenario plays: a server, and an app on it. All apps of a world have one client identifier.
type world struct {
	t       *testing.T
	live    bool
	start   func(w *world)
	restart func() // has the server lose everything

	config   settle.Config
	app      *settle.App
	kit      *testkit.Kit
	registry *prometheus.Registry
	journal  journal
}

// begin starts an app of some routes, in place of the one that there was, which must have been stopped.
func (w *world) begin(routes ...settle.Route) *testkit.Kit {
	w.t.Helper()
	w.registry = prometheus.NewRegistry()
	cfg := w.config
	cfg.Servers, cfg.Logger, cfg.Metrics = []string{"mqtt://somewhere"}, zerolog.Nop(), w.registry
	if cfg.ClientID == "" {
		cfg.ClientID = "svc"
	}
	app, err := settle.New(cfg, routes...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.app = app
	w.start(w)
	return w.kit
}

func (w *world) stop() {
	w.t.Helper()
	if err := w.kit.Stop(); err != nil {
		w.t.Fatalf("stop: %v", err)
	}
}

// quiet wants the app to come to rest.
func (w *world) quiet() {
	w.t.Helper()
	if !w.kit.Quiet(patience) {
		w.t.Fatal("the app did not come to rest")
	}
}

// metric is the sum of a metric's series.
func (w *world) metric(name string) (sum float64) {
	w.t.Helper()
	return w.labelled(name, "", "")
}

// labelled is the sum of those that have a label.
func (w *world) labelled(name, label, value string) (sum float64) {
	w.t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				has := label == ""
				for _, l := range m.GetLabel() {
					has = has || l.GetName() == label && l.GetValue() == value
				}
				if has {
					sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
				}
			}
		}
	}
	return sum
}

// journal is the payloads that handlers were called with, in the order of the calls.
type journal struct {
	mu   sync.Mutex
	seen []string
}

// note returns how often the payload has been noted.
func (j *journal) note(payload []byte) (times int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seen = append(j.seen, string(payload))
	for _, p := range j.seen {
		if p == string(payload) {
			times++
		}
	}
	return times
}

func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.seen)
}

// wantHandled wants handlers to have been called with these payloads, in this order.
func (w *world) wantHandled(want ...string) {
	w.t.Helper()
	if got := w.journal.all(); !slices.Equal(got, want) {
		w.t.Errorf("handled %q, want %q", got, want)
	}
}

// acks notes a payload and acknowledges it.
func (w *world) acks(_ context.Context, payload []byte) settle.Outcome {
	w.journal.note(payload)
	return settle.Ack()
}

// first notes a payload, and returns one outcome for its first delivery and Ack for all others.
func (w *world) first(o settle.Outcome) func(context.Context, []byte) settle.Outcome {
	return func(_ context.Context, payload []byte) settle.Outcome {
		if w.journal.note(payload) == 1 {
			return o
		}
		return settle.Ack()
	}
}

// says returns always the same.
func (w *world) says(o settle.Outcome) func(context.Context, []byte) settle.Outcome {
	return func(_ context.Context, payload []byte) settle.Outcome {
		w.journal.note(payload)
		return o
	}
}

// gate holds handlers up.
type gate struct {
	entered chan string
	open    chan struct{}
}

func newGate() *gate { return &gate{entered: make(chan string, 100), open: make(chan struct{})} }

// wait is called by a handler.
func (g *gate) wait(payload []byte) {
	g.entered <- string(payload)
	<-g.open
}

// held waits for a handler to be at the gate.
func (w *world) held(g *gate) {
	w.t.Helper()
	select {
	case <-g.entered:
	case <-time.After(patience):
		w.t.Fatal("no handler is at work")
	}
}

func numbered(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint("m", i)
	}
	return all
}

func (w *world) publishAll(topic string, payloads ...string) {
	w.t.Helper()
	for _, p := range payloads {
		w.kit.Publish(topic, []byte(p), settle.AtLeastOnce)
	}
}

// header is a header of a message, "" if there is none.
func header(m testkit.Message, name string) string {
	value, _ := m.Header(name)
	return value
}
