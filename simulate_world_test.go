package settle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/settlemq/settle/internal/broker"
)

// world is where a schedule runs: the in-process server, one process after the other with an app, and the account. It lives in a
// testing/synctest bubble.
type world struct {
	t       *testing.T
	s       *schedule
	b       *broker.Broker
	account *account
	handle  func(ctx context.Context, p *process, d *Delivery, f fate, alone bool) Outcome
	fates   map[int][]fate // of the messages
	started time.Time

	mu    sync.Mutex
	rules []*rule
	calm  bool

	alive     *process
	processes []*process
	wakes     time.Time      // when the next process begins, where none is alive
	guests    sync.WaitGroup // who take sessions over
}

// rule is an opMeddle under way.
type rule struct {
	step

	skip, count int
}

// process is a consumer: what dies with it is the app and what it knows.
type process struct {
	w    *world
	n    int
	app  *App
	dead bool             // guarded by the account's lock, as had is
	had  map[*matter]bool // what it has read, or published a copy of

	mu    sync.Mutex
	wires map[*tap]struct{}
}

func (p *process) isDead() bool {
	p.w.account.mu.Lock()
	defer p.w.account.mu.Unlock()
	return p.dead
}

func (p *process) knows(m *matter) {
	if p != nil {
		p.had[m] = true
	}
}

func (p *process) know(w *tap) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wires[w] = struct{}{}
}

func (p *process) forget(w *tap) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.wires, w)
}

func (p *process) connections() []*tap {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.wires))
}

func (p *process) dial(ctx context.Context, _ *url.URL) (net.Conn, error) {
	if p.isDead() {
		return nil, errDead
	}
	c, err := p.w.b.Dial(ctx)
	if err != nil {
		return nil, err
	}
	return &tap{Conn: c, p: p, shown: map[string]bool{}, names: map[uint16]string{}}, nil
}

// begin starts a process.
func (w *world) begin() {
	p := &process{w: w, n: len(w.processes) + 1, had: map[*matter]bool{}, wires: map[*tap]struct{}{}}
	p.app = w.app(p)
	w.processes = append(w.processes, p)
	w.alive = p
	w.account.mu.Lock()
	w.account.process = p
	w.account.mu.Unlock()
	if err := p.app.Start(context.Background()); err != nil {
		w.t.Fatal(err)
	}
}

// kill ends a process as SIGKILL does. What is left of its app hears and says nothing any more.
func (w *world) kill() {
	p := w.alive
	w.alive = nil
	w.account.died(p)
	for _, c := range p.connections() {
		_ = c.Close()
	}
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	go func() { _ = p.app.Stop(gone) }()
}

// stop ends a process as SIGTERM does.
func (w *world) stop(patience time.Duration) {
	p := w.alive
	w.alive = nil
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var late *DrainError
	if err := p.app.Stop(ctx); err != nil && !errors.As(err, &late) && !errors.Is(err, context.DeadlineExceeded) {
		w.account.fail("Stop: %v", err)
	}
	<-p.app.Done()
	w.account.died(p)
}

// meddle is the network, and the server's moods.
func (w *world) meddle(client string, dir broker.Direction, p broker.Packet) (v broker.Verdict) {
	if !strings.HasPrefix(client, "svc") {
		return v
	}
	v = w.verdict(client, dir, p)
	lives := true
	if wait := max(v.Hold, v.Late); wait > 0 && dir == broker.FromClient { // here, to know whether it still arrives
		v.Hold, v.Late = 0, 0
		sleep(wait)
		session, _ := w.b.Session(client)
		lives = session.Connected
	}
	switch {
	case dir == broker.ToClient:
		w.account.gave(client, p)
	case lives && !v.Drop && v.Refuse == 0:
		w.account.took(client, p)
	}
	return v
}

func (w *world) verdict(client string, dir broker.Direction, p broker.Packet) (v broker.Verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.calm {
		return v
	}
	for i, r := range w.rules {
		if r.Client != client || r.Out != (dir == broker.FromClient) || r.Type != "" && r.Type != broker.TypeName(p.Type) {
			continue
		}
		if r.skip > 0 {
			r.skip--
			continue
		}
		if r.count--; r.count == 0 {
			w.rules = slices.Delete(w.rules, i, i+1)
		}
		return r.Verdict.of(p)
	}
	return v
}

// perform does what a step says.
func (w *world) perform(st *step) {
	switch st.Op {
	case opPublish:
		w.publish(st)
	case opCut:
		w.b.Cut(st.Client)
	case opSever:
		if w.alive != nil {
			for _, c := range w.alive.connections() {
				c.severIf(st.Client, st.Out, st.Skip)
			}
		}
	case opMeddle:
		w.mu.Lock()
		w.rules = append(w.rules, &rule{step: *st, skip: st.Skip, count: st.Count})
		w.mu.Unlock()
	case opLose:
		w.b.Cut(st.Client)
		w.guest(st.Client, true, 0)
	case opTakeover:
		if s, _ := w.b.Session(st.Client); len(s.Subscriptions) > 0 { // one that a guest began would pass for ours, and hide that ours was lost
			w.guest(st.Client, false, time.Duration(st.For))
		}
	case opServer:
		w.b.Restart(st.Keep)
		if !st.Keep {
			w.account.serverForgot()
		}
	case opKill:
		if w.alive != nil {
			w.kill()
			w.wakes = time.Now().Add(time.Duration(st.For))
		}
	case opStop:
		if w.alive != nil {
			w.stop(time.Duration(st.For))
			w.begin()
		}
	case opJump:
		release := func() {}
		if st.Keep {
			release = w.b.HoldClock()
		}
		sleep(time.Duration(st.For))
		release()
	}
}

func (w *world) publish(st *step) {
	m := broker.Message{
		Topic: fmt.Sprintf("%s/%d", st.Kind, st.Key), Payload: []byte(st.payload()), QoS: st.QoS,
		UserProperties: []broker.UserProperty{{Name: MessageIDHeader, Value: strconv.Itoa(st.ID)}},
	}
	if st.Expiry > 0 {
		m.Expiry, m.HasExpiry = uint32(time.Duration(st.Expiry)/time.Second), true
	}
	session, _ := w.b.Session("svc") // which may be in the middle of subscribing
	w.account.publish(st, session.Subscriptions)
	if matched, err := w.b.Publish(m); err != nil {
		w.t.Fatal(err)
	} else if matched == 0 {
		w.account.withdraw(st)
	}
}

// guest is somebody else under our client identifier: they take the session over, and leave it or end it.
func (w *world) guest(client string, clean bool, stays time.Duration) {
	c, err := w.b.Dial(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	flags, expiry := byte(0), []byte{5, 0x11, 0, 0, 14, 16} // an hour
	if clean {
		flags, expiry = 2, []byte{0}
	}
	connect := slices.Concat([]byte{broker.CONNECT << 4, byte(12 + len(expiry) + len(client)), 0, 4, 'M', 'Q', 'T', 'T', 5, flags, 0, 0},
		expiry, []byte{0, byte(len(client))}, []byte(client))
	if _, err = c.Write(connect); err == nil {
		_, err = c.Read(make([]byte, 100))
	}
	if stays == 0 {
		_ = c.Close()
		return
	}
	w.guests.Go(func() {
		timer := time.AfterFunc(stays, func() { _ = c.Close() })
		defer timer.Stop()
		for b := make([]byte, 1000); err == nil; {
			_, err = c.Read(b)
		}
		_ = c.Close()
	})
}

// await sleeps until a time of the schedule, and starts the next process when it is due.
func (w *world) await(at time.Time) {
	if w.alive == nil && !w.wakes.After(at) {
		sleep(time.Until(w.wakes))
		w.begin()
	}
	sleep(time.Until(at))
}

func (w *world) logger() zerolog.Logger {
	if os.Getenv("SETTLE_SIMULATE_LOG") == "" {
		return zerolog.Nop()
	}
	return zerolog.New(zerolog.ConsoleWriter{Out: w.t.Output(), NoColor: true, TimeFormat: "15:04:05.000"}).Level(zerolog.DebugLevel).Hook(stamp{})
}

// stamp adds the bubble's time to what is logged.
type stamp struct{}

func (stamp) Run(e *zerolog.Event, _ zerolog.Level, _ string) { e.Time("time", time.Now()) }
