package settle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/settlemq/settle/internal/broker"
)

// A storm is an app with routes of every kind at the in-process server, in which all goes wrong that can, at random: connections are cut at any
// packet, answers withheld, publishes refused, sessions lost, handlers fail in every way, the app is stopped and started again. When
// it is over, each message has come to an end at each of its routes, and the app holds nothing any more.
type storm struct {
	t   *testing.T
	b   *broker.Broker
	log *lockedLog

	mu        sync.Mutex
	rand      *rand.Rand
	calm      bool
	began     map[string]bool            // route and message: a handler was called
	ended     map[string]bool            // and has said how it ends, or there is a dead letter
	sent      map[string]map[string]bool // by route
	withholds bool                       // PUBACKs; never where that uses up Receive Maximum
	excusing  bool                       // sessions of the main connection are lost, and what was queued there with them
}

// stamp adds the time to what is logged.
type stamp struct{}

func (stamp) Run(e *zerolog.Event, _ zerolog.Level, _ string) {
	e.Str("at", time.Now().Format("15:04:05.000"))
}

type lockedLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (s *storm) roll(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rand.IntN(n)
}

func (s *storm) note(m map[string]bool, route, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m[route+" "+id] = true
}

// handle is what all handlers do with one element.
func (s *storm) handle(ctx context.Context, d *Delivery, mayDie bool) Outcome {
	id, route := string(d.Payload()), d.Route()
	s.note(s.began, route, id)
	if n := s.roll(20); n < 6 {
		sleep(time.Duration(s.roll(300)) * time.Millisecond)
	}
	s.mu.Lock()
	calm := s.calm
	n := s.rand.IntN(100)
	s.mu.Unlock()
	if calm {
		n = 99
	}
	switch {
	case n < 20:
		return Retry(errStorm)
	case n < 25:
		return RetryAfter(time.Duration(s.roll(60_000))*time.Millisecond, errStorm)
	case n < 28:
		return Reject(errStorm)
	case n < 30:
		return Outcome{}
	case n < 33 && mayDie:
		panic(errStorm)
	case n < 35 && mayDie:
		goexit()
	case n < 37 && mayDie:
		<-ctx.Done()
		return Retry(context.Cause(ctx))
	case n < 38 && mayDie:
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), ErrHandlerTimeout) {
			return Retry(context.Cause(ctx))
		}
		sleep(time.Duration(s.roll(5000)) * time.Millisecond)
		return Ack() // too late
	}
	if ctx.Err() != nil {
		return Retry(context.Cause(ctx))
	}
	s.note(s.ended, route, id)
	return Ack()
}

var errStorm = errors.New("the handler fails")

func sleep(d time.Duration) {
	<-time.After(d) // the bubble's time
}

// goexit keeps the linter from saying that what follows it is dead.
func goexit() { runtime.Goexit() }

func (s *storm) one(ctx context.Context, _ []byte) Outcome {
	return s.handle(ctx, DeliveryFrom(ctx), true)
}

func (s *storm) many(ctx context.Context, all []string) Outcomes {
	each := make([]Outcome, len(all))
	for i, d := range DeliveriesFrom(ctx) {
		each[i] = s.handle(ctx, d, false)
	}
	return Each(each...)
}

// forget has the server lose a session: somebody takes it over, begins a new one and ends it.
func (s *storm) forget(client string) {
	s.b.Cut(client)
	c, err := s.b.Dial(context.Background())
	if err != nil {
		s.t.Fatal(err)
	}
	connect := append([]byte{broker.CONNECT << 4, byte(13 + len(client)), 0, 4, 'M', 'Q', 'T', 'T', 5, 2, 0, 0, 0, 0, byte(len(client))}, client...)
	if _, err := c.Write(connect); err == nil {
		_, _ = c.Read(make([]byte, 100))
	}
	_ = c.Close()
}

// meddle is the network, and the server's moods.
func (s *storm) meddle(client string, dir broker.Direction, p broker.Packet) (v broker.Verdict) {
	if !strings.HasPrefix(client, "svc") {
		return v
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calm {
		return v
	}
	switch n := s.rand.IntN(1000); {
	case n < 3:
		v.Cut = true
	case n < 6:
		v.Drop, v.Cut = true, true
	case n < 40:
		v.Hold = time.Duration(s.rand.IntN(50)) * time.Millisecond
	case n < 100 && p.Type == broker.PUBLISH && dir == broker.FromClient:
		v.Refuse = 0x97
	case n < 130 && p.Type == broker.PUBACK && dir == broker.ToClient && s.withholds:
		v.Drop = true
	}
	return v
}

func (s *storm) app(backlog, receive, retryReceive int, redelivery Redelivery) *App {
	backoff := Backoff(Exponential(20*time.Millisecond, 30*time.Second))
	dead := []RouteOption{DeadLetterTo("dead"), MaxAttempts(6), backoff, Timeout(3 * time.Second)}
	with := func(more ...RouteOption) []RouteOption { return append(more, dead...) }
	cfg := Config{
		ClientID: "svc", Servers: []string{"mqtt://server"}, Logger: zerolog.New(s.log).Level(zerolog.DebugLevel).Hook(stamp{}),
		Dial:           func(ctx context.Context, _ *url.URL) (net.Conn, error) { return s.b.Dial(ctx) },
		ReceiveMaximum: receive, RetryReceiveMaximum: retryReceive, RetryBacklog: backlog, QoS0Queue: 10, Redelivery: redelivery,
		ShutdownTimeout: 5 * time.Second,
	}
	batch := min(8, receive)
	a, err := New(cfg,
		Handle("a/+", s.one, with(Name("copy"), ExactlyOnce, Workers(3, ByTopic), RetryTo("retry/a"))...),
		HandleBatch("b/+", s.many, with(Name("batch"), RetryTo("retry/b"), BatchSize(batch), Workers(2, func(d *Delivery) string {
			if d.Level(1) == "0" && len(d.Payload())%7 == 0 {
				panic(errStorm)
			}
			return d.Level(1)
		}))...),
		Handle("c/+", s.one, with(Name("hold"), Workers(2))...),
		Handle("a/#", s.one, with(Name("both"), ExactlyOnce)...),
		Handle("z/+", s.one, with(Name("zero"), AtMostOnce, RetryTo("retry/z"))...),
		Handle("y/+", s.one, with(Name("zero hold"), AtMostOnce)...),
	)
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

// holds names what the app still has.
func (s *storm) holds(a *App) (left []string) {
	has := func(what string, n int) {
		if n != 0 {
			left = append(left, fmt.Sprintf("%s %d", what, n))
		}
	}
	for _, rt := range a.routes {
		has("unsettled of "+rt.name, int(rt.unsettled.Load()))
		has("held of "+rt.name, int(rt.heldNow.Load()))
		for _, l := range rt.lanes {
			has("queued of "+rt.name, l.len())
		}
	}
	for _, in := range a.inbounds() {
		has("memory of "+in.name, int(in.memory.used.Load()))
		has("unacknowledged of "+in.name, in.window.Unacknowledged())
		has("settled of "+in.name, in.window.Settled())
		has("parked of "+in.name, in.window.Parked())
	}
	a.qos0.mu.Lock()
	has("QoS 0 deliveries", int(a.qos0.count))
	has("QoS 0 bytes", int(a.qos0.bytes))
	a.qos0.mu.Unlock()
	has("held", a.holds.set.len())
	has("errands", a.couriers.pending.count())
	a.couriers.mu.Lock()
	has("couriers away", a.couriers.away)
	has("blocked", len(a.couriers.blocked[0])+len(a.couriers.blocked[1]))
	a.couriers.mu.Unlock()
	rs := a.returns
	has("lapses", rs.lapse.len())
	has("dues", rs.due.len())
	rs.mu.Lock()
	has("slots", rs.slots)
	has("copies out", len(rs.out))
	has("copies waiting", len(rs.waiting))
	has("copies idle", rs.idle)
	has("markers", len(rs.markers))
	rs.mu.Unlock()
	return left
}

func TestStorm(t *testing.T) {
	seeds := uint64(20)
	if n, err := strconv.ParseUint(os.Getenv("SETTLE_STORMS"), 10, 32); err == nil {
		seeds = n
	}
	from, _ := strconv.ParseUint(os.Getenv("SETTLE_STORM"), 10, 32)
	for seed := from; seed < from+seeds; seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { rage(t, seed) })
		})
	}
}

func rage(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 7))
	pick := func(n ...int) int { return n[r.IntN(len(n))] }
	restarts, loseRetry, loseMain := false, false, false
	switch r.IntN(4) {
	case 0:
		restarts = true
	case 1:
		loseRetry = true
	case 2:
		loseRetry, loseMain = true, true
	}
	s := &storm{
		t: t, log: new(lockedLog), rand: rand.New(rand.NewPCG(seed, 8)),
		began: map[string]bool{}, ended: map[string]bool{}, sent: map[string]map[string]bool{}, excusing: loseMain,
	}
	options := broker.Options{MaxInflight: pick(0, 0, 3, 20), ReceiveMaximum: uint16(pick(1, 20, 65535))}
	s.withholds = options.ReceiveMaximum == 65535
	s.b = broker.New(options)
	defer s.b.Close()
	defer func() {
		if os.Getenv("SETTLE_STORM_LOG") != "" {
			t.Logf("%s", s.log.b.Bytes())
		}
	}()
	sink, err := New(Config{ClientID: "sink", Servers: []string{"mqtt://server"}, Logger: zerolog.Nop(),
		Dial: func(ctx context.Context, _ *url.URL) (net.Conn, error) { return s.b.Dial(ctx) }},
		Handle("dead", func(ctx context.Context, b []byte) Outcome {
			letter, ok := DeliveryFrom(ctx).DeadLetter()
			if !ok {
				t.Errorf("%s is no dead letter", b)
			}
			s.note(s.ended, letter.Route, string(b))
			return Ack()
		}))
	if err != nil {
		t.Fatal(err)
	}
	if err := sink.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sink.Stop(context.Background()) }()
	if err := sink.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.b.SetInterceptor(s.meddle)

	backlog, receive, retryReceive := pick(1, 2, 10, 500), pick(1, 5, 50, 1000), pick(2, 20, 65535)
	redelivery := Redelivery(0)
	if r.IntN(5) == 0 {
		redelivery = HandleAgain
	}
	start := func() *App {
		a := s.app(backlog, receive, retryReceive, redelivery)
		if err := a.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
		return a
	}
	a := start()
	ready := func() {
		s.mu.Lock()
		s.calm = true
		s.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		if err := a.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		s.calm = false
		s.mu.Unlock()
	}
	ready()
	n := 0
	publish := func() {
		n++
		kind := pick('a', 'a', 'b', 'b', 'c', 'c', 'z', 'y')
		payload := fmt.Sprintf("%q", fmt.Sprintf("%c%d", kind, n))
		if r.IntN(20) == 0 {
			payload = "{" + payload
		}
		m := broker.Message{
			Topic: fmt.Sprintf("%c/%d", kind, r.IntN(4)), Payload: []byte(payload), QoS: byte(1 + r.IntN(2)),
			UserProperties: []broker.UserProperty{{Name: MessageIDHeader, Value: strconv.Itoa(n)}},
		}
		if r.IntN(6) == 0 {
			m.Expiry, m.HasExpiry = 100_000, true
		}
		routes := map[int][]string{'a': {"copy", "both"}, 'b': {"batch"}, 'c': {"hold"}}[kind]
		s.mu.Lock()
		for _, rt := range routes {
			if s.sent[rt] == nil {
				s.sent[rt] = map[string]bool{}
			}
			s.sent[rt][payload] = true
		}
		s.mu.Unlock()
		if _, err := s.b.Publish(m); err != nil {
			t.Fatal(err)
		}
	}
	for range 60 {
		for range r.IntN(8) {
			publish()
		}
		sleep(time.Duration(r.IntN(pick(20, 500, 5000))) * time.Millisecond)
		switch r.IntN(8) {
		case 0:
			s.b.Cut("svc")
		case 1:
			s.b.Cut("svc-retry")
		case 2:
			if loseRetry {
				s.forget("svc-retry")
			}
			if loseMain && r.IntN(2) == 0 {
				s.forget("svc")
			}
		case 3:
			if restarts {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(pick(1, 100, 4000, 60_000))*time.Millisecond)
				var late *DrainError
				if err := a.Stop(ctx); err != nil && !errors.As(err, &late) && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Stop: %v", err)
				}
				cancel()
				<-a.Done()
				a = start()
			}
		}
	}
	s.mu.Lock()
	s.calm = true
	s.mu.Unlock()
	s.b.SetInterceptor(nil)
	missing := func() (missing []string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for route, ids := range s.sent {
			for id := range ids {
				if key := route + " " + id; !s.ended[key] && (!s.excusing || s.began[key]) {
					missing = append(missing, key)
				}
			}
		}
		return missing
	}
	calmed := time.Now()
	for time.Since(calmed) < 3*time.Hour && (len(missing()) > 0 || len(s.holds(a)) > 0) {
		sleep(time.Second)
		synctest.Wait()
	}
	if m := missing(); len(m) > 0 {
		t.Logf("restarts %t, sessions lost: retry %t, main %t", restarts, loseRetry, loseMain)
		t.Errorf("%d messages have not come to an end: %.20q", len(m), m)
	}
	if left := s.holds(a); len(left) > 0 {
		t.Errorf("the app still has %q", left)
	}
	if took := time.Since(calmed); took > 30*time.Minute {
		t.Errorf("it took %s to come to rest (backlog %d, receive %d, retry receive %d)", took, backlog, receive, retryReceive)
	}
	if err := a.Stop(context.Background()); err != nil {
		t.Errorf("Stop: %v", err)
	}
	synctest.Wait()
}
