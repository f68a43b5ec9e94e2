package link

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/settlemq/settle/internal/broker/brokertest"
	"github.com/settlemq/settle/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errTestOver = errors.New("the test is over")

// recorder is a Receiver and an AckSource: it writes down what it is told, in words, and acknowledges at once what ack
// lets through.
type recorder struct {
	link *Link
	ack  bool

	mu     sync.Mutex
	events []string
	epoch  uint64
	due    []byte
}

func (r *recorder) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, fmt.Sprintf(format, args...))
}

func (r *recorder) Begin(s Session) {
	r.note("begin %d present=%t same=%t", s.Epoch, s.Present, s.SameServer)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epoch, r.due = s.Epoch, nil
}

func (r *recorder) Publish(f wire.Frame) error {
	var p wire.Publish
	if err := wire.ParsePublish(f, &p); err != nil {
		return err
	}
	r.note("publish %s", p.Payload)
	if r.ack && p.QoS == 1 {
		r.settle(p.PacketID)
	}
	return nil
}

func (r *recorder) settle(id uint16) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.due = wire.AppendPuback(r.due, id)
}

func (r *recorder) Pubrel(id uint16, code byte) { r.note("pubrel %d %#x", id, code) }

func (r *recorder) Flush() {
	r.note("flush")
	r.link.WakeWriter()
}

func (r *recorder) End(err error) { r.note("end %v", err) }

func (r *recorder) TakeAcks(epoch uint64, dst []byte) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if epoch != r.epoch {
		panic(fmt.Sprintf("acknowledgements taken for epoch %d in epoch %d", epoch, r.epoch))
	}
	dst = append(dst, r.due...)
	r.due = r.due[:0]
	return dst
}

func (r *recorder) seen() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.events...)
}

// logBuffer is a log that may be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// harness is a link that runs against a scripted server.
type harness struct {
	*Link
	t      *testing.T
	server *brokertest.Server
	rec    *recorder
	log    *logBuffer
	cancel context.CancelCauseFunc
	done   chan error
	ended  bool
}

func mustURL(s string) *url.URL {
	u, err := url.Parse(s)
	if err != nil {
		panic(err)
	}
	return u
}

// prepare makes a link that does not run yet.
func prepare(t *testing.T, change func(*Config)) *harness {
	t.Helper()
	h := &harness{t: t, server: brokertest.NewServer(t), rec: &recorder{ack: true}, log: &logBuffer{}, done: make(chan error, 1)}
	cfg := Config{
		Name: "main", ClientID: "c", Servers: []*url.URL{mustURL("mqtt://one")}, Dial: h.server.Dial,
		SessionExpiry: 60, ReceiveMaximum: 10, KeepAlive: 30,
		Subscriptions: []Subscription{{Filter: "a/#", QoS: 1, ID: 7, Name: "route a"}},
		Limits:        wire.Limits{MaxPayload: 1 << 20, MaxControl: 1 << 16, Chunk: 4096},
		Receiver:      h.rec, Acks: h.rec, Logger: zerolog.New(h.log),
	}
	if change != nil {
		change(&cfg)
	}
	h.Link = New(cfg)
	h.rec.link = h.Link
	return h
}

// start runs a link.
func start(t *testing.T, change func(*Config)) *harness {
	t.Helper()
	h := prepare(t, change)
	ctx, cancel := context.WithCancelCause(context.Background())
	h.cancel = cancel
	go func() { h.done <- h.Run(ctx) }()
	return h
}

// stop ends the link by its context.
func (h *harness) stop() {
	h.t.Helper()
	h.cancel(errTestOver)
	if err := h.wait(); !errors.Is(err, errTestOver) {
		h.t.Errorf("Run returned %v, not the cause of its context", err)
	}
}

// wait returns what Run returns.
func (h *harness) wait() error {
	h.t.Helper()
	select {
	case err := <-h.done:
		h.ended = true
		return err
	case <-time.After(brokertest.Patience):
		h.t.Fatal("Run has not returned")
		return nil
	}
}

// up takes the next connection to the state up.
func (h *harness) up(present bool) *brokertest.Conn {
	h.t.Helper()
	c := h.server.Accept()
	c.Handshake(present, len(h.cfg.Subscriptions))
	synctest.Wait()
	if !h.Up() {
		h.t.Fatalf("the link is not up but %s", h.Status().State)
	}
	return c
}

// in runs a test in a bubble.
func in(t *testing.T, f func(*testing.T)) { t.Helper(); synctest.Test(t, f) }

func within(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

func puback(id uint16, code byte) *packets.Puback {
	return &packets.Puback{PacketID: id, ReasonCode: code}
}

// pass lets time pass in a bubble.
func pass(d time.Duration) { <-time.After(d) }
