package settle_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/internal/broker/brokertest"
)

// The field tests run whole apps against a server that is scripted packet by packet, over unbuffered pipes and inside
// testing/synctest bubbles. field is such an app with all that it has dialled.
type field struct {
	*settle.App
	t        *testing.T
	server   *brokertest.Server
	log      *lockedBuffer
	metrics  *prometheus.Registry
	arrivals map[bool]chan *peer // connections past CONNECT; true: the second one's

	mu      sync.Mutex
	peers   []*peer
	stopped bool
	noDial  func(host string) error
	dials   int
}

// in runs a test in a bubble.
func in(t *testing.T, f func(*testing.T)) { t.Helper(); synctest.Test(t, f) }

// sleep lets time pass. It is for bubbles, where that takes none.
func sleep(d time.Duration) { <-time.After(d) }

// pass lets time pass, and everything that it brings about happen.
func pass(d time.Duration) { sleep(d); synctest.Wait() }

// prepare makes an app that is not started. It is stopped when the test is over.
func prepare(t *testing.T, change func(*settle.Config), routes ...settle.Route) *field {
	t.Helper()
	f := &field{
		t: t, server: brokertest.NewServer(t), log: &lockedBuffer{}, metrics: prometheus.NewRegistry(),
		noDial:   func(string) error { return nil },
		arrivals: map[bool]chan *peer{false: make(chan *peer, 2000), true: make(chan *peer, 2000)},
	}
	cfg := settle.Config{
		ClientID: "svc", Servers: []string{"mqtt://server"}, Dial: f.dial,
		Logger: zerolog.New(f.log), Metrics: f.metrics,
	}
	if change != nil {
		change(&cfg)
	}
	app, err := settle.New(cfg, routes...)
	if err != nil {
		t.Fatal(err)
	}
	f.App = app
	t.Cleanup(f.end)
	return f
}

// begin makes an app and starts it.
func begin(t *testing.T, change func(*settle.Config), routes ...settle.Route) *field {
	t.Helper()
	f := prepare(t, change, routes...)
	if err := f.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f
}

// up makes an app, starts it, and accepts its connection without a session; main is the server's end.
func up(t *testing.T, change func(*settle.Config), routes ...settle.Route) (f *field, main *peer) {
	t.Helper()
	f = begin(t, change, routes...)
	main = f.main(false)
	return f, main
}

// upBoth is up for apps with a retry topic.
func upBoth(t *testing.T, change func(*settle.Config), routes ...settle.Route) (f *field, main, second *peer) {
	t.Helper()
	f = begin(t, change, routes...)
	main, second = f.main(false), f.second(false)
	f.ready()
	return f, main, second
}

func (f *field) ready() {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := f.WaitReady(ctx); err != nil {
		f.t.Fatal(err)
	}
	synctest.Wait()
}

func (f *field) dial(_ context.Context, server *url.URL) (net.Conn, error) {
	f.mu.Lock()
	f.dials++
	refuse := f.noDial
	f.mu.Unlock()
	if err := refuse(server.Host); err != nil {
		return nil, err
	}
	client, c := f.server.Pipe(server)
	p := &peer{Conn: c, f: f, done: make(chan struct{})}
	f.mu.Lock()
	f.peers = append(f.peers, p)
	f.mu.Unlock()
	go p.read()
	return client, nil
}

// refuseDials lets dialling fail from now on; nil lets it work again.
func (f *field) refuseDials(err error) {
	f.refuse(func(string) error { return err })
}

func (f *field) refuse(dials func(host string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.noDial = dials
}

func (f *field) dialled() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dials
}

// next is the next connection whose CONNECT has come. It has not been answered.
func (f *field) next(second bool) *peer {
	f.t.Helper()
	select {
	case p := <-f.arrivals[second]:
		return p
	case <-time.After(brokertest.Patience):
		f.t.Fatalf("no CONNECT within %s (second connection: %t)", brokertest.Patience, second)
		return nil
	}
}

// main accepts the next main connection and waits until it is subscribed.
func (f *field) main(present bool) *peer { f.t.Helper(); return f.next(false).accept(present) }

// second accepts the next second connection.
func (f *field) second(present bool) *peer { f.t.Helper(); return f.next(true).accept(present) }

// stop stops the app within a generous time.
func (f *field) stop() error {
	f.mu.Lock()
	f.stopped = true
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return f.Stop(ctx)
}

// end leaves nothing of the app behind, whatever the test has done.
func (f *field) end() {
	f.refuseDials(errors.New("the test is over"))
	f.mu.Lock()
	stopped := f.stopped
	f.mu.Unlock()
	if !stopped {
		_ = f.stop()
	}
	f.mu.Lock()
	peers := f.peers
	f.mu.Unlock()
	for _, p := range peers {
		_ = p.Close()
		<-p.done
	}
	if f.t.Failed() {
		f.t.Logf("log:\n%s", f.log)
		sleep(20 * time.Hour) // until handlers that wait for the test give up
	}
}

// value is a metric by its name and labels, as in `settle_settled_total{outcome="ack",route="a"}`.
func (f *field) value(series string) float64 {
	f.t.Helper()
	families, err := f.metrics.Gather()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := make([]string, 0, len(m.GetLabel()))
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			name := family.GetName()
			if len(labels) > 0 {
				name += "{" + strings.Join(labels, ",") + "}"
			}
			if name != series {
				continue
			}
			switch {
			case m.GetCounter() != nil:
				return m.GetCounter().GetValue()
			case m.GetGauge() != nil:
				return m.GetGauge().GetValue()
			case m.GetHistogram() != nil:
				return float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	f.t.Fatalf("there is no series %s", series)
	return 0
}

func (f *field) expectValue(series string, want float64) {
	f.t.Helper()
	if got := f.value(series); got != want {
		f.t.Errorf("%s is %v, want %v", series, got, want)
	}
}

func (f *field) expectLogged(texts ...string) {
	f.t.Helper()
	for _, text := range texts {
		if !strings.Contains(f.log.String(), text) {
			f.t.Errorf("not in the log: %s", text)
		}
	}
}

// lockedBuffer is a log that may be read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// calls writes down what handlers are called with, and holds the calls until the test lets them go.
type calls struct {
	mu   sync.Mutex
	seen []string
	gate chan settle.Outcome
}

func newCalls() *calls { return &calls{gate: make(chan settle.Outcome)} }

// list is what was called so far.
func (c *calls) list() []string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.seen)
}

// expectAll is expect where lanes run at once.
func (c *calls) expectAll(t *testing.T, want ...string) {
	t.Helper()
	got := c.list()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("handled %q, want %q", got, want)
	}
}

// ack is a handler that notes its payload and acknowledges.
func (c *calls) ack(_ context.Context, b []byte) settle.Outcome {
	c.note(string(b))
	return settle.Ack()
}

// wait is a handler that notes its payload and waits for its outcome, whatever its context says.
func (c *calls) wait(_ context.Context, b []byte) settle.Outcome {
	c.note(string(b))
	select {
	case o := <-c.gate:
		return o
	case <-time.After(10 * time.Hour): // the test has failed, and its bubble must come to an end
		return settle.Drop("")
	}
}

// polite is wait, but for the end of its context.
func (c *calls) polite(ctx context.Context, b []byte) settle.Outcome {
	c.note(string(b))
	select {
	case o := <-c.gate:
		return o
	case <-ctx.Done():
		return settle.Retry(context.Cause(ctx))
	}
}

// release lets one waiting handler return.
func (c *calls) release(o settle.Outcome) {
	select {
	case c.gate <- o:
	case <-time.After(time.Second):
		panic("no handler waits to be released")
	}
	synctest.Wait()
}

var errFails = errors.New("it fails")

// goroutines is how many there are in the bubble.
func goroutines() int {
	synctest.Wait()
	b := make([]byte, 4<<20)
	return strings.Count(string(b[:runtime.Stack(b, true)]), "synctest bubble")
}

// goexit keeps the linter from saying that what follows it is dead.
func goexit() { runtime.Goexit() }
