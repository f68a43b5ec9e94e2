package hostile_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/rs/zerolog"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/internal/bridge"
	"github.com/settlemq/settle/internal/broker"
	"github.com/settlemq/settle/internal/hostile"
)

var errFails = errors.New("it fails the first time")

const (
	// maxPayload is small, so that unsettled memory which is not given back is noticed: see redialTime.
	maxPayload = 64 << 10
	// redialTime is longer than any backoff, and shorter than a backoff and the wait for memory that is occupied.
	redialTime = 40 * time.Second
)

// rig is a live App and the server's side of its connections, inside a bubble.
type rig struct {
	t        *testing.T
	app      *settle.App
	broker   *broker.Broker // whose connections are scripts
	book     *book
	clean    bool
	retire   []string
	arrivals [2]chan *peer // connections whose CONNECT has come; 1: the second one's
	main     *peer
	second   *peer
	before   *peer      // the connection before, where a phase has made another
	name     string     // of the case in hand
	results  chan error // of Publish or Stop, called by a phase
	probes   int
	log      *lockedLog

	mu       sync.Mutex
	scripts  [2]script      // of connections to come
	recorded map[uint16]int // PUBRECs of the connection before, whose session goes on
	peers    []*peer
	target   *peer              // of copies: the second connection, once it is there
	returned []*packets.Publish // copies that wait for the second connection
}

// lockedLog keeps what an App logs, until the next case.
type lockedLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedLog) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.b.String()
	l.b.Reset()
	return s
}

// pass lets fake time pass, and all that it brings about happen.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// newRig returns a rig whose App has not been started.
func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, broker: broker.New(broker.Options{WireLog: 100}), book: &book{done: make(map[string]int)}, log: &lockedLog{}}
	r.book.close()
	r.book.open()
	for i := range r.arrivals {
		r.arrivals[i] = make(chan *peer, 100)
	}
	return r
}

// start makes a new App and starts it.
func (r *rig) start() {
	r.t.Helper()
	b := r.book
	app, err := settle.New(settle.Config{
		ClientID: "svc", Servers: []string{"mqtt://server"}, Dial: r.dial, CleanStart: r.clean, RetireFilters: r.retire,
		Logger: zerolog.New(r.log).Level(zerolog.WarnLevel), MaxPayload: maxPayload, UnsettledBytes: maxPayload, QoS0Bytes: 1 << 20,
		ReceiveMaximum: 50, RetryReceiveMaximum: 50, ShutdownTimeout: 5 * time.Second,
	},
		settle.Handle("one/#", b.acknowledge, settle.Name("one"), settle.ExactlyOnce),
		settle.Handle("keyed/+/#", b.acknowledge, settle.Name("keyed"), settle.ExactlyOnce, settle.Workers(3, settle.ByTopic)),
		settle.Handle("sorted/#", b.acknowledge, settle.Name("sorted"), settle.ExactlyOnce, settle.Workers(2, func(d *settle.Delivery) string { return d.ContentType() })),
		settle.Handle("json/#", b.acknowledgeJSON, settle.Name("json"), settle.ExactlyOnce, settle.DeadLetterTo("dead")),
		settle.HandleBatch("batch/#", b.acknowledgeAll, settle.Name("batch"), settle.ExactlyOnce, settle.BatchSize(4), settle.Linger(time.Millisecond)),
		settle.Handle("shared/#", b.acknowledge, settle.Name("shared"), settle.ExactlyOnce, settle.Shared("g")),
		settle.Handle("zero/#", b.acknowledge, settle.Name("zero"), settle.AtMostOnce),
		settle.Handle("failing/#", b.fail, settle.Name("failing"), settle.ExactlyOnce, settle.RetryTo("again"), settle.DeadLetterTo("dead"),
			settle.Backoff(settle.Constant(2*time.Millisecond))),
		settle.Handle("held/#", b.hold, settle.Name("held"), settle.ExactlyOnce, settle.Timeout(0), settle.Workers(8)),
	)
	if err != nil {
		r.t.Fatal(err)
	}
	r.app, r.main, r.second = app, nil, nil
	r.mu.Lock()
	r.target = nil
	r.mu.Unlock()
	if err := app.Start(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) dial(context.Context, *url.URL) (net.Conn, error) {
	client, server := r.broker.Script()
	r.mu.Lock()
	p := newPeer(r, server, r.scripts[0]) // of a second connection CONNECT tells
	r.peers = append(r.peers, p)
	r.mu.Unlock()
	go p.read()
	return client, nil
}

// await is the next connection.
func (r *rig) await(second bool) *peer {
	r.t.Helper()
	select {
	case p := <-r.arrivals[b2i(second)]:
		synctest.Wait()
		if second {
			r.second = p
			r.mu.Lock()
			r.target = p
			r.mu.Unlock()
			r.flushReturned()
		} else {
			r.main = p
		}
		return p
	case <-time.After(redialTime):
		r.fail("no connection within %s (second: %t)", redialTime, second)
		return nil
	}
}

// up makes an App that consumes.
func (r *rig) up() {
	r.t.Helper()
	r.oblige(false)
	r.start()
	r.await(false)
	r.await(true)
	r.ready()
}

// oblige has the server do all that it should on connections to come.
func (r *rig) oblige(present bool) { r.will(obliging(present), obliging(false)) }

// will says what the server does on connections to come.
func (r *rig) will(main, second script) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scripts = [2]script{main, second}
}

func (r *rig) ready() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), redialTime)
	defer cancel()
	if err := r.app.WaitReady(ctx); err != nil {
		r.fail("not ready: %v", err)
	}
	synctest.Wait()
}

// bringBack delivers a retry copy, or a marker, over the second connection.
func (r *rig) bringBack(c *packets.Publish, original string) {
	again := *c
	again.QoS, again.Duplicate = 1, false
	r.mu.Lock()
	p := r.target
	if p == nil {
		r.returned = append(r.returned, &again)
		r.mu.Unlock()
		return
	}
	r.mu.Unlock()
	again.PacketID = p.nextID()
	of := ""
	if userProperty(c, "settle-marker") == "" {
		of = "copy " + key(original, 1, c.Payload)
	}
	var b bytes.Buffer
	_, _ = again.WriteTo(&b)
	p.give(b.Bytes(), 1, again.PacketID, of)
}

func (r *rig) flushReturned() {
	r.mu.Lock()
	waiting := r.returned
	r.returned = nil
	r.mu.Unlock()
	for _, c := range waiting {
		r.bringBack(c, userProperty(c, "settle-original-topic"))
	}
}

// probe shows that the app consumes, and that nothing is left over. Now and then a delivery has to be tried again, which takes both connections.
func (r *rig) probe() {
	r.t.Helper()
	p := r.main
	probed := []string{"one/probe", "keyed/k/probe", "failing/probe"}
	if r.probes++; r.probes%4 != 0 {
		probed = probed[:2]
	}
	for i, topic := range probed {
		c := hostile.Publication("probe", topic, 1, fmt.Sprintf(`{"probe":%d}`, i))
		id := p.nextID()
		p.give(c.WithID(id), 1, id, key(topic, 1, c.Message.Payload))
	}
	r.idle()
}

// idle waits until nothing is left to be done.
func (r *rig) idle() {
	r.t.Helper()
	var s bridge.State
	left := 0
	for range 200 {
		pass(5 * time.Millisecond)
		s = bridge.Settle.State(r.app)
		left = r.main.open() + r.second.open()
		if s.Unacknowledged+s.Unsettled+s.Held+s.Waiting+s.Unconfirmed+s.OnTheirWay+s.Settled+left == 0 && !s.Due {
			break
		}
	}
	if s.Unacknowledged+s.Unsettled+s.Held+s.Waiting+s.Unconfirmed+s.OnTheirWay+s.Settled+left != 0 || s.Due {
		r.fail("left over: %+v, %d deliveries without an acknowledgement", s, left)
	}
	for _, p := range []*peer{r.main, r.second} {
		if got := p.snapshot(); len(got.faults) > 0 || got.ended || got.parted {
			r.fail("after it: %+v", got)
		}
		p.tidy()
	}
}

// stop stops the app, and wants nothing to be left of it.
func (r *rig) stop() {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := r.app.Stop(ctx); err != nil {
		r.fail("Stop: %v", err)
	}
	r.closeAll()
}

// closeAll ends every connection, and forgets them.
func (r *rig) closeAll() {
	r.mu.Lock()
	peers := r.peers
	r.peers, r.returned = nil, nil
	r.mu.Unlock()
	for _, p := range peers {
		_ = p.Close()
		<-p.done
	}
	for i := range r.arrivals {
		for len(r.arrivals[i]) > 0 {
			<-r.arrivals[i]
		}
	}
	synctest.Wait()
}

// fail ends the test: a rig that has gone wrong says nothing about the next case.
func (r *rig) fail(format string, args ...any) {
	r.t.Helper()
	r.t.Errorf("%s: %s", r.name, fmt.Sprintf(format, args...))
	for _, p := range []*peer{r.main, r.second} {
		if p != nil {
			r.t.Logf("second %t: %+v; the wire:\n%s", p.second, p.snapshot(), strings.Join(r.broker.WireLog(p.ClientID()), "\n"))
		}
	}
	r.t.Logf("log:\n%s", r.log.take())
	r.book.open()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_ = r.app.Stop(ctx)
	r.closeAll()
	r.t.FailNow()
}

// begin names the case in hand. HOSTILE_TRACE=1 tells of it beforehand: a panic ends the process before a test can.
func (r *rig) begin(name string) {
	r.name = name
	r.log.take()
	if os.Getenv("HOSTILE_TRACE") != "" {
		fmt.Fprintln(os.Stderr, name)
	}
}

// goroutines is how many there are in this test's bubble.
func goroutines() int {
	synctest.Wait()
	b := make([]byte, 1<<20)
	own := string(b[:runtime.Stack(b, false)])
	_, bubble, _ := strings.Cut(own[:strings.IndexByte(own, '\n')], "synctest bubble ")
	bubble, _, _ = strings.Cut(bubble, "]")
	return strings.Count(string(b[:runtime.Stack(b, true)]), "synctest bubble "+bubble)
}
