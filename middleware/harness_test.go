package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/internal/broker/brokertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long the tests wait for what has to happen.
const patience = 30 * time.Second

// usage is what the meters of these tests and examples send.
type usage struct {
	KWh float64 `json:"kwh"`
}

// scripted is an app with a server that a test plays.
type scripted struct {
	*settle.App
	tb      testing.TB
	server  *brokertest.Server
	conn    *brokertest.Conn
	reading sync.WaitGroup
	acked   chan uint16   // Packet Identifiers, as they are acknowledged
	handled chan struct{} // once for each call of the chain
	next    uint16        // Packet Identifier
}

// newScripted makes an app of routes. What its chain does is watched from outside of all middleware.
func newScripted(tb testing.TB, routes ...settle.Route) *scripted {
	tb.Helper()
	s := &scripted{tb: tb, server: brokertest.NewServer(tb), acked: make(chan uint16, 1000), handled: make(chan struct{}, 1000)}
	app, err := settle.New(settle.Config{
		ClientID: "middleware", Servers: []string{"mqtt://scripted"}, Dial: s.server.Dial, Logger: zerolog.Nop(), ShutdownTimeout: time.Second,
	}, routes...)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	app.Use(func(next settle.Next) settle.Next {
		return func(ctx context.Context) settle.Outcomes {
			defer func() { s.handled <- struct{}{} }()
			return next(ctx)
		}
	})
	s.App = app
	return s
}

// start connects the app.
func (s *scripted) start(routes int) {
	if err := s.Start(context.Background()); err != nil {
		s.tb.Fatalf("%v", err)
	}
	s.conn = s.server.Accept()
	s.conn.Handshake(false, routes)
	s.reading.Go(func() {
		for {
			p, err := s.conn.Script.Next()
			if err != nil || p.Type == packets.DISCONNECT {
				_ = s.conn.Close()
				return
			}
			if p.Type == packets.PUBACK {
				s.acked <- p.ID
			}
		}
	})
}

// send publishes to the app.
func (s *scripted) send(topic, payload string, properties ...func(*packets.Properties)) {
	s.next++
	p := brokertest.Publish(topic, 1, s.next, payload)
	for _, set := range properties {
		set(p.Properties)
	}
	s.conn.Send(p)
}

// sendAtOnce publishes payloads in one write, so that they can be one batch.
func (s *scripted) sendAtOnce(topic string, payloads ...string) {
	var all []brokertest.Packet
	for _, payload := range payloads {
		s.next++
		all = append(all, brokertest.Publish(topic, 1, s.next, payload))
	}
	s.conn.SendRaw(brokertest.Bytes(all...))
}

// await waits until the chain has been called n times more.
func (s *scripted) await(n int) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for i := range n {
		select {
		case <-s.handled:
		case <-timer.C:
			s.tb.Fatalf("%d of %d calls within %s", i, n, patience)
		}
	}
}

func (s *scripted) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		s.tb.Fatalf("stop: %v", err)
	}
	s.reading.Wait()
}

func messageID(id string) func(*packets.Properties) {
	return func(p *packets.Properties) {
		p.User = append(p.User, packets.User{Key: settle.MessageIDHeader, Value: id})
	}
}

func correlation(data string) func(*packets.Properties) {
	return func(p *packets.Properties) { p.CorrelationData = []byte(data) }
}

// lines collects what a logger writes, a line an element.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(bytes.TrimSuffix(p, []byte("\n"))))
	return len(p), nil
}

func (l *lines) get() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.all...)
}

// In examples there is no test to fail, so what goes wrong panics.
type exampleTB struct{ testing.TB }

func (exampleTB) Helper()                           {}
func (exampleTB) Cleanup(func())                    {} // which would print the wire of a test that failed
func (exampleTB) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// newApp is an app for an example, with a server that sends what deliver is given.
func newApp(route settle.Route) *scripted { return newScripted(exampleTB{}, route) }

// deliver runs the app until it has handled payloads, one after the other, each published to topic with the message ids m-1, m-2, ...
func (s *scripted) deliver(topic string, payloads ...string) {
	s.start(1)
	for i, payload := range payloads {
		s.send(topic, payload, messageID(fmt.Sprintf("m-%d", i+1)))
		s.await(1)
	}
	s.stop()
}

// terminal is a logger for examples: readable, and without what differs from run to run.
func terminal() zerolog.Logger {
	return zerolog.New(zerolog.ConsoleWriter{Out: os.Stdout, NoColor: true, PartsExclude: []string{"time"}, FieldsExclude: []string{"took", "retry_after"}})
}

var errLedgerDown = errors.New("ledger down")

func joined(lines []string) string { return strings.Join(lines, "\n") }
