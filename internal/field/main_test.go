package field_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The packets that tests ask for, by the numbers of the standard (MQTT 5, 2.1.2).
const (
	typeConnect    = 1
	typeConnack    = 2
	typePublish    = 3
	typePuback     = 4
	typeSuback     = 9
	typeDisconnect = 14
)

var errFails = errors.New("it fails")

// in runs a test in a bubble.
func in(t *testing.T, test func(*testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { // after all others
			if t.Failed() {
				pass(20 * time.Hour) // handlers that wait for the test give up, or the bubble would not end
			}
		})
		test(t)
	})
}

// scaled is a number of messages: all of them, or a tenth with the race detector, to which each costs ten times as much.
func scaled(n int) int {
	if raceEnabled {
		return n / 10
	}
	return n
}

// pass lets time pass, and everything that it brings about happen.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// service is an app under a Kit, with its log and its metrics.
type service struct {
	*testkit.Kit

	t       *testing.T
	app     *settle.App
	log     *buffer
	metrics *prometheus.Registry
}

// attach makes an app that has not been started, with the client identifier "svc" unless the test changes it.
func attach(t *testing.T, b *testkit.Broker, change func(*settle.Config), routes ...settle.Route) *service {
	t.Helper()
	s := &service{t: t, log: &buffer{}, metrics: prometheus.NewRegistry()}
	cfg := settle.Config{ClientID: "svc", Servers: []string{"mqtt://server"}, Logger: zerolog.New(s.log), Metrics: s.metrics}
	if change != nil {
		change(&cfg)
	}
	app, err := settle.New(cfg, routes...)
	if err != nil {
		t.Fatal(err)
	}
	s.app, s.Kit = app, testkit.Attach(t, b, app)
	t.Cleanup(func() { // before the Kit's
		if t.Failed() {
			t.Logf("log of %s:\n%s", cfg.ClientID, s.log)
		}
	})
	return s
}

// start starts the app and waits until it is ready.
func (s *service) start() *service {
	s.t.Helper()
	s.launch()
	s.ready()
	return s
}

// launch starts the app and does not wait.
func (s *service) launch() {
	s.t.Helper()
	if err := s.app.Start(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

// begin makes an app and starts it.
func begin(t *testing.T, b *testkit.Broker, change func(*settle.Config), routes ...settle.Route) *service {
	t.Helper()
	return attach(t, b, change, routes...).start()
}

func (s *service) ready() {
	s.t.Helper()
	s.Until("the app is ready", func() bool { return s.app.Ready() == nil })
}

func (s *service) stop() {
	s.t.Helper()
	if err := s.Stop(); err != nil {
		s.t.Fatalf("stop: %v", err)
	}
}

// die ends the app as if its process were killed: the server hears no more of it.
func (s *service) die() {
	s.t.Helper()
	accept := s.Broker().RefuseConnect(0x88)
	s.CutConnection()
	_ = s.Stop() // it cannot say farewell
	accept()
}

// quiet wants the app to come to rest.
func (s *service) quiet() {
	s.t.Helper()
	if !s.Quiet(2 * time.Hour) {
		s.t.Error("the app does not come to rest")
	}
}

// unready wants the app to say that it is not ready, and why.
func (s *service) unready(why ...string) {
	s.t.Helper()
	err := s.app.Ready()
	if err == nil {
		s.t.Error("the app says that it is ready")
		return
	}
	for _, w := range why {
		if !strings.Contains(err.Error(), w) {
			s.t.Errorf("why it is not ready does not say %q: %v", w, err)
		}
	}
}

// logged wants texts in the log.
func (s *service) logged(texts ...string) {
	s.t.Helper()
	for _, text := range texts {
		if !strings.Contains(s.log.String(), text) {
			s.t.Errorf("not in the log: %s", text)
		}
	}
}

// value is a metric by its name and labels, as in `settle_settled_total{outcome="ack",route="a"}`.
func (s *service) value(series string) float64 {
	s.t.Helper()
	families, err := s.metrics.Gather()
	if err != nil {
		s.t.Fatal(err)
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
			if name == series {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	s.t.Fatalf("there is no series %s", series)
	return 0
}

func (s *service) expect(series string, want float64) {
	s.t.Helper()
	if got := s.value(series); got != want {
		s.t.Errorf("%s is %v, want %v", series, got, want)
	}
}

// publish publishes payloads at one QoS, one after the other.
func (s *service) publish(topic string, qos settle.QoS, payloads ...string) {
	s.t.Helper()
	for _, p := range payloads {
		s.Publish(topic, []byte(p), qos)
	}
}

// connected wants so many connections to have been accepted.
func (s *service) connected(want float64) {
	s.t.Helper()
	s.expect(`settle_connections_total{result="accepted"}`, want)
}

// numbered are the payloads "1" to "n".
func numbered(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint(i + 1)
	}
	return all
}

// header is a header of a message, "" if there is none.
func header(m testkit.Message, name string) string {
	value, _ := m.Header(name)
	return value
}
