package settle

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/settlemq/settle/internal/broker"
)

// result is what a run of a schedule has shown.
type result struct {
	problems  []string
	published int
	excused   int            // lost with a session, before any process had it
	twice     map[string]int // by cause
}

// simulate runs a schedule in a bubble of its own. How a handler carries its fate out can be replaced.
func simulate(t *testing.T, s *schedule, handle func(context.Context, *process, *Delivery, fate, bool) Outcome) (r result) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil { // as synctest does where goroutines are left
			r.problems = append(r.problems, fmt.Sprint(p))
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, s: s, account: newAccount(s.Setup), handle: handle, started: time.Now(), fates: map[int][]fate{}}
		for _, st := range s.Steps {
			w.fates[st.ID] = st.Fates
		}
		w.run()
		r = w.result()
	})
	return r
}

func (w *world) run() {
	w.b = broker.New(broker.Options{MaxInflight: w.s.Setup.MaxInflight, ReceiveMaximum: uint16(w.s.Setup.ServerReceives), WireLog: -1})
	defer w.b.Close()
	defer w.sink()()
	w.b.SetInterceptor(w.meddle)
	w.begin()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	if err := w.alive.app.WaitReady(ctx); err != nil {
		w.t.Fatal(err)
	}
	began := time.Now()
	for i := range w.s.Steps {
		st := &w.s.Steps[i]
		w.await(began.Add(time.Duration(st.At)))
		before := time.Now()
		if w.perform(st); st.Op == opJump || st.Op == opStop { // what follows keeps its distance
			began = began.Add(time.Since(before))
		}
	}
	if w.alive == nil {
		w.await(w.wakes)
	}
	w.settle()
}

// sink subscribes to the dead letters, which are not stored where nobody does. The account has them from the wire.
func (w *world) sink() (stop func()) {
	sink, err := New(Config{
		ClientID: "sink", Servers: []string{"mqtt://server"}, Logger: zerolog.Nop(), KeepAlive: keepAlive,
		Dial: func(ctx context.Context, _ *url.URL) (net.Conn, error) { return w.b.Dial(ctx) },
	}, Handle("dead", func(ctx context.Context, b []byte) Outcome {
		if _, ok := DeliveryFrom(ctx).DeadLetter(); !ok {
			w.account.fail("%s is no dead letter", b)
		}
		return Ack()
	}))
	if err != nil {
		w.t.Fatal(err)
	}
	if err := sink.Start(context.Background()); err != nil {
		w.t.Fatal(err)
	}
	if err := sink.WaitReady(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	return func() { _ = sink.Stop(context.Background()) }
}

// settle lets nothing go wrong any more, and waits until everything has come to its end.
func (w *world) settle() {
	w.mu.Lock()
	w.calm = true
	w.mu.Unlock()
	for _, c := range w.alive.connections() {
		c.spare()
	}
	w.guests.Wait()
	sleep(time.Minute) // the app notices what its connections have been through
	calmed, app := time.Now(), w.alive.app
	owed := func() []string { return w.account.missing(time.Since(w.started)) }
	for time.Since(calmed) < 3*time.Hour && (len(owed()) > 0 || len(leftIn(app)) > 0) {
		sleep(time.Second)
		synctest.Wait()
	}
	if m := owed(); len(m) > 0 {
		slices.Sort(m)
		w.account.fail("%d messages have not come to an end: %.20q", len(m), m)
	}
	if left := leftIn(app); len(left) > 0 {
		w.account.fail("the app still has %q", left)
	}
	if took := time.Since(calmed); took > 30*time.Minute {
		w.account.fail("it took %s to come to rest", took)
	}
	if err := app.Stop(context.Background()); err != nil {
		w.account.fail("Stop: %v", err)
	}
	for _, p := range w.processes {
		<-p.app.Done()
	}
	synctest.Wait()
}

func (w *world) result() result {
	a := w.account
	a.mu.Lock()
	defer a.mu.Unlock()
	r := result{problems: a.problems, published: len(a.originals), twice: maps.Clone(a.twice)}
	for _, m := range a.matters {
		if m.excused && !m.ended {
			r.excused++
		}
	}
	return r
}
