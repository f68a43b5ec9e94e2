package settle_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/internal/link/linktest"
)

// The field tests run whole apps against a server that is scripted packet by packet, over unbuffered pipes and inside
// testing/synctest bubbles. field is such an app with all that it has dialled.
type field struct {
	*settle.App
	t        *testing.T
	log      *lockedBuffer
	metrics  *prometheus.Registry
	arrivals map[bool]chan *peer // connections past CONNECT; true: the second one's
	retry    bool                // there is a second connection

	mu      sync.Mutex
	peers   []*peer
	stopped bool
	noDial  func(host string) error
	dials   int
}

// in runs a test in a bubble.
func in(t *testing.T, f func(*testing.T)) { t.Helper(); synctest.Test(t, f) }

// pass lets time pass, and everything that it brings about happen.
func pass(d time.Duration) { time.Sleep(d); synctest.Wait() }

// prepare makes an app that is not started. It is stopped when the test is over.
func prepare(t *testing.T, change func(*settle.Config), routes ...settle.Route) *field {
	t.Helper()
	f := &field{
		t: t, log: &lockedBuffer{}, metrics: prometheus.NewRegistry(),
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
	return f, f.main(false)
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

func (f *field) dial(ctx context.Context, server *url.URL) (net.Conn, error) {
	f.mu.Lock()
	f.dials++
	refuse := f.noDial
	f.mu.Unlock()
	if err := refuse(server.Host); err != nil {
		return nil, err
	}
	client, end := linktest.Pipe()
	c := linktest.NewConn(f.t, end)
	c.URL = server
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
	case <-time.After(linktest.Patience):
		f.t.Fatalf("no CONNECT within %s (second connection: %t)", linktest.Patience, second)
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
		time.Sleep(20 * time.Hour) // until handlers that wait for the test give up
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

// peer is the server's end of one connection. A goroutine reads it and writes down what comes; what a well-behaved server
// would answer at once is answered, unless the test has set something else.
type peer struct {
	*linktest.Conn
	f       *field
	connect *packets.Connect
	done    chan struct{} // closed when nothing more comes

	sending sync.Mutex // one packet after the other

	mu            sync.Mutex
	came          []string
	all           []string // came, never cleared
	publishes     []*packets.Publish
	pings         int
	ended         bool
	sessionExpiry *uint32 // of DISCONNECT
	hooks         hooks
}

// hooks are what a test has the server do otherwise.
type hooks struct {
	subscribe func(*packets.Subscribe) []byte                 // reason codes; nil: no answer
	publish   func(*packets.Publish) (code byte, answer bool) // of PUBACK, or of PUBREC
	hold      chan struct{}                                   // publishes are answered when it is closed
	pubrec    func(id uint16) bool                            // whether PUBREL follows
	came      func(line string)
	deaf      bool // no PINGRESP
	stay      bool // does not close when the client has
}

func (p *peer) set(change func(*hooks)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.hooks)
}

func (p *peer) behaviour() hooks {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hooks
}

func (p *peer) note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	line := fmt.Sprintf(format, args...)
	p.came, p.all = append(p.came, line), append(p.all, line)
	if p.hooks.came != nil {
		p.hooks.came(line)
	}
}

// read is the peer's goroutine.
func (p *peer) read() {
	defer close(p.done)
	for {
		cp, err := readPacket(p.Conn.Conn)
		if err != nil {
			p.mu.Lock()
			p.ended = true
			p.mu.Unlock()
			if !p.behaviour().stay {
				_ = p.Close()
			}
			return
		}
		p.take(cp)
	}
}

// readPacket also reads the empty form of DISCONNECT, which the packets package does not.
func readPacket(r io.Reader) (*packets.ControlPacket, error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	if head == [2]byte{packets.DISCONNECT << 4, 0} {
		return &packets.ControlPacket{Content: &packets.Disconnect{Properties: &packets.Properties{}}}, nil
	}
	return packets.ReadPacket(io.MultiReader(bytes.NewReader(head[:]), r))
}

func (p *peer) take(cp *packets.ControlPacket) {
	h := p.behaviour()
	switch c := cp.Content.(type) {
	case *packets.Connect:
		p.connect = c
		p.f.arrivals[strings.HasSuffix(c.ClientID, "-retry")] <- p
	case *packets.Subscribe:
		for _, s := range c.Subscriptions {
			p.note("SUBSCRIBE %s q%d", s.Topic, s.QoS)
		}
		codes := make([]byte, 0, len(c.Subscriptions))
		for _, s := range c.Subscriptions {
			codes = append(codes, s.QoS)
		}
		if h.subscribe != nil {
			if codes = h.subscribe(c); codes == nil {
				return
			}
		}
		p.write(&packets.Suback{PacketID: c.PacketID, Reasons: codes})
	case *packets.Unsubscribe:
		p.note("UNSUBSCRIBE %s", strings.Join(c.Topics, " "))
		p.write(&packets.Unsuback{PacketID: c.PacketID, Reasons: make([]byte, len(c.Topics))})
	case *packets.Pingreq:
		p.mu.Lock()
		p.pings++
		p.mu.Unlock()
		if !h.deaf {
			p.write(&packets.Pingresp{})
		}
	case *packets.Publish:
		p.takePublish(c, h)
	case *packets.Puback:
		p.note("PUBACK %d%s", c.PacketID, coded(c.ReasonCode))
	case *packets.Pubrec:
		p.note("PUBREC %d%s", c.PacketID, coded(c.ReasonCode))
		if h.pubrec == nil || h.pubrec(c.PacketID) {
			p.write(&packets.Pubrel{PacketID: c.PacketID})
		}
	case *packets.Pubrel:
		p.write(&packets.Pubcomp{PacketID: c.PacketID})
	case *packets.Pubcomp:
		p.note("PUBCOMP %d%s", c.PacketID, coded(c.ReasonCode))
	case *packets.Disconnect:
		p.mu.Lock()
		p.sessionExpiry = c.Properties.SessionExpiryInterval
		p.mu.Unlock()
		p.note("DISCONNECT%s", coded(c.ReasonCode))
	default:
		p.note("%s", cp.PacketType())
	}
}

func (p *peer) takePublish(c *packets.Publish, h hooks) {
	p.mu.Lock()
	p.publishes = append(p.publishes, c)
	p.mu.Unlock()
	p.note("PUBLISH %s q%d %s", c.Topic, c.QoS, c.Payload)
	code, answer := byte(0), true
	if h.publish != nil {
		code, answer = h.publish(c)
	}
	if !answer {
		return
	}
	if h.hold != nil {
		go func() {
			<-h.hold
			p.answer(c, code)
		}()
		return
	}
	p.answer(c, code)
}

func (p *peer) answer(c *packets.Publish, code byte) {
	switch c.QoS {
	case 1:
		p.write(&packets.Puback{PacketID: c.PacketID, ReasonCode: code})
	case 2:
		p.write(&packets.Pubrec{PacketID: c.PacketID, ReasonCode: code})
	}
}

func coded(code byte) string {
	if code == 0 {
		return ""
	}
	return fmt.Sprintf(" 0x%02X", code)
}

// write sends packets. That the client has gone is no failure.
func (p *peer) write(out ...linktest.Packet) {
	p.sending.Lock()
	defer p.sending.Unlock()
	for _, packet := range out {
		if _, err := packet.WriteTo(p.Conn.Conn); err != nil {
			return
		}
	}
}

// send sends packets in one segment, and waits until all that comes of it has come.
func (p *peer) send(out ...linktest.Packet) {
	p.f.t.Helper()
	p.sending.Lock()
	p.SendRaw(linktest.Bytes(out...))
	_ = p.SetWriteDeadline(time.Time{}) // SendRaw's is for that write
	p.sending.Unlock()
	synctest.Wait()
}

// accept answers CONNECT, and waits until the subscriptions have been granted.
func (p *peer) accept(present bool) *peer {
	p.f.t.Helper()
	p.write(linktest.Connack(present))
	synctest.Wait()
	return p
}

// cut ends the connection without a word.
func (p *peer) cut() {
	_ = p.Close()
	<-p.done
	synctest.Wait()
}

// took returns what has come since the last time, without SUBSCRIBE. What a busy lane had put off has left by then.
func (p *peer) took() []string {
	pass(2 * time.Millisecond)
	p.mu.Lock()
	defer p.mu.Unlock()
	came := p.came
	p.came = nil
	return slices.DeleteFunc(came, func(s string) bool { return strings.HasPrefix(s, "SUBSCRIBE") })
}

// expect compares what has come since the last time.
func (p *peer) expect(want ...string) {
	p.f.t.Helper()
	if got := p.took(); !slices.Equal(got, want) {
		p.f.t.Errorf("the server was sent %q, want %q", got, want)
	}
}

// published are all PUBLISHes that have come to a topic.
func (p *peer) published(topic string) []*packets.Publish {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []*packets.Publish
	for _, c := range p.publishes {
		if c.Topic == topic {
			found = append(found, c)
		}
	}
	return found
}

func (p *peer) history() []string {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.all)
}

func (p *peer) gone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

// publish is a PUBLISH from the server; id is left out at QoS 0.
func publish(topic string, qos byte, id uint16, payload string, users ...string) *packets.Publish {
	p := linktest.Publish(topic, qos, id, payload)
	for i := 0; i+1 < len(users); i += 2 {
		p.Properties.User = append(p.Properties.User, packets.User{Key: users[i], Value: users[i+1]})
	}
	return p
}

// again is p as a server sends it again.
func again(p *packets.Publish) *packets.Publish {
	q := *p
	q.Duplicate = true
	return &q
}

// comeBack is a retry copy on its way from the server.
func comeBack(c *packets.Publish, id uint16) *packets.Publish {
	q := *c
	q.PacketID, q.Duplicate = id, false
	return &q
}

// user is the first user property of that name.
func user(p *packets.Publish, name string) string {
	for _, u := range p.Properties.User {
		if u.Key == name {
			return u.Value
		}
	}
	return ""
}

// circle has the server bring every retry copy back over the second connection at once, under the identifiers after last.
func circle(main, second *peer, last uint16, topics ...string) {
	var mu sync.Mutex
	id := last
	main.set(func(h *hooks) {
		h.publish = func(c *packets.Publish) (byte, bool) {
			if slices.Contains(topics, c.Topic) {
				mu.Lock()
				id++
				second.write(comeBack(c, id))
				mu.Unlock()
			}
			return 0, true
		}
	})
}

// calls writes down what handlers are called with, and holds the calls until the test lets them go.
type calls struct {
	mu   sync.Mutex
	seen []string
	gate chan settle.Outcome
}

func newCalls() *calls { return &calls{gate: make(chan settle.Outcome)} }

func (c *calls) note(s string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, s)
}

// list is what was called so far.
func (c *calls) list() []string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.seen)
}

func (c *calls) expect(t *testing.T, want ...string) {
	t.Helper()
	if got := c.list(); !slices.Equal(got, want) {
		t.Errorf("handled %q, want %q", got, want)
	}
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

// raw is a packet that the packets package cannot encode.
type raw []byte

// WriteTo implements linktest.Packet.
func (r raw) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(r)
	return int64(n), err
}

// goexit keeps the linter from saying that what follows it is dead.
func goexit() { runtime.Goexit() }
