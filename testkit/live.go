package testkit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/paho"
	"github.com/rs/zerolog"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/internal/bridge"
	"github.com/settlemq/settle/internal/broker"
	"github.com/settlemq/settle/internal/link"
	"github.com/settlemq/settle/internal/window"
	"github.com/settlemq/settle/internal/wire"
)

// StartLive is [Start] on a real server, at a URL as in settle.Config: the app dials it instead of its own servers. The Kit connects too, as a
// client of its own that publishes and that subscribes to "#": it needs the right to, and it records what other clients
// publish. The server's sessions outlive the test, so give the app a client id that is new.
func StartLive(t testing.TB, serverURL string, app *settle.App) *Kit {
	t.Helper()
	u, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal("testkit: the server's URL cannot be parsed") // the error would show its password
	}
	k := attach(t, &live{url: u}, app)
	k.start()
	return k
}

// live is a real server, and the Kit's own connection to it. It implements link.Receiver and link.AckSource.
type live struct {
	url    *url.URL
	rec    *recorder
	link   *link.Link
	window *window.Window
	cancel context.CancelFunc
	run    sync.WaitGroup

	due []*window.Entry // the reader's alone
}

func (s *live) attach(k *Kit) error {
	k.redirect(nil, []*url.URL{s.url})
	return s.connect(k.rec, k.wait())
}

// connect makes the Kit's own connection.
func (s *live) connect(rec *recorder, within time.Duration) error {
	s.rec = rec
	s.window = window.New(window.Config{ReceiveMaximum: liveReceiveMaximum})
	s.link = link.New(link.Config{
		Name: "testkit", Servers: []*url.URL{s.url}, ClientID: "testkit-" + rand.Text(), CleanStart: true,
		SessionExpiry: liveSessionExpiry, ReceiveMaximum: liveReceiveMaximum, KeepAlive: 30,
		Subscriptions: []link.Subscription{{Filter: "#", QoS: byte(settle.ExactlyOnce), Name: "testkit"}},
		Limits:        wire.Limits{MaxPayload: liveMaxPayload, MaxControl: liveMaxPayload},
		Receiver:      s, Acks: s, Logger: zerolog.Nop(),
	})
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.run.Go(func() { _ = s.link.Run(ctx) })
	patience, cancelPatience := context.WithTimeout(ctx, within)
	defer cancelPatience()
	if err := s.link.WaitUp(patience); err != nil {
		return fmt.Errorf("connect to the real server: %w", errors.Join(err, s.link.Status().LastError))
	}
	return nil
}

const (
	liveReceiveMaximum = 1000
	liveSessionExpiry  = 600 // seconds
	liveMaxPayload     = 64 << 20
)

func (s *live) detach() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	ends := uint32(0)
	_ = s.link.Close(ctx, &ends)
	s.cancel()
	s.run.Wait()
}

func (s *live) publish(ctx context.Context, p *paho.Publish) error {
	answer, err := s.link.Publish(ctx, p)
	if err == nil && answer.Code >= 0x80 {
		err = fmt.Errorf("the server refuses it with 0x%02X %s", answer.Code, answer.Reason)
	}
	return err //nolint:wrapcheck // it says all
}

func (s *live) cut(k *Kit, _ []string) { bridge.Settle.Drop(k.app, errCut) }

var errCut = errors.New("cut by the test")

func (s *live) caughtUp() bool         { return true }
func (s *live) idle(string, bool) bool { return true }
func (s *live) session(string) string  { return "" }
func (s *live) wire(string) []string   { return nil }

// Begin implements link.Receiver.
func (s *live) Begin(session link.Session) {
	s.window.Begin(session.Epoch, session.Present && session.Epoch > 1)
}

// Publish implements link.Receiver.
func (s *live) Publish(f wire.Frame) error {
	e := new(window.Entry)
	if err := wire.ParsePublish(f, &e.Publish); err != nil {
		return err //nolint:wrapcheck // it is a *wire.Error, for the link
	}
	if e.QoS == 0 {
		s.saw(e)
		return nil
	}
	_, s.due = s.window.Arrive(e, s.due[:0])
	for _, e := range s.due {
		s.saw(e)
		s.window.Settle(e)
	}
	return nil
}

// saw records a message, unless the server had kept it from before the Kit subscribed.
func (s *live) saw(e *window.Entry) {
	if e.Retain {
		return
	}
	p := &e.Publish
	m := broker.Message{
		Topic: p.Topic, Payload: p.Payload, QoS: p.QoS, PayloadFormat: p.PayloadFormat, ContentType: p.ContentType,
		ResponseTopic: p.ResponseTopic, CorrelationData: p.CorrelationData, Expiry: p.Expiry, HasExpiry: p.HasExpiry, At: time.Now(),
	}
	for name, value := range p.UserProperties() {
		m.UserProperties = append(m.UserProperties, broker.UserProperty{Name: name, Value: value})
	}
	s.rec.sawPublished(m)
}

// Pubrel implements link.Receiver.
func (s *live) Pubrel(id uint16, _ byte) { s.window.Pubrel(id) }

// Flush implements link.Receiver.
func (s *live) Flush() {
	if s.window.Due() {
		s.link.WakeWriter()
	}
}

// End implements link.Receiver.
func (s *live) End(error) { s.window.End() }

// TakeAcks implements link.AckSource.
func (s *live) TakeAcks(epoch uint64, dst []byte) []byte { return s.window.TakeAcks(epoch, dst) }
