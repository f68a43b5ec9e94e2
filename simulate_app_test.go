package settle

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
)

const (
	maxAttempts                  = 6
	firstBackoff, longestBackoff = 20 * time.Millisecond, 30 * time.Second
	keepAlive                    = 10 * time.Minute // so that hours pass in few steps
)

// app has routes of every kind.
func (w *world) app(p *process) *App {
	backoff := Backoff(Exponential(firstBackoff, longestBackoff))
	dead := []RouteOption{DeadLetterTo("dead"), MaxAttempts(maxAttempts), backoff, Timeout(3 * time.Second)}
	with := func(more ...RouteOption) []RouteOption { return append(more, dead...) }
	setup := w.s.Setup
	cfg := Config{
		ClientID: "svc", Servers: []string{"mqtt://server"}, Logger: w.logger(), Dial: p.dial,
		ReceiveMaximum: setup.Receive, RetryReceiveMaximum: setup.RetryReceive, RetryBacklog: setup.Backlog, QoS0Queue: 10,
		KeepAlive:       keepAlive,
		ShutdownTimeout: 5 * time.Second,
	}
	if setup.HandleAgain {
		cfg.Redelivery = HandleAgain
	}
	a, err := New(cfg,
		Handle("a/+", p.one, with(Name("copy"), ExactlyOnce, Workers(3, ByTopic), RetryTo("retry/a"))...),
		HandleBatch("b/+", p.many, with(Name("batch"), RetryTo("retry/b"), BatchSize(min(8, setup.Receive)), Workers(2, func(d *Delivery) string {
			if d.Level(1) == "0" && len(d.Payload())%7 == 0 {
				panic(errSimulated)
			}
			return d.Level(1)
		}))...),
		Handle("c/+", p.one, with(Name("hold"), Workers(2))...),
		Handle("a/#", p.one, with(Name("both"), ExactlyOnce)...),
		Handle("z/+", p.one, with(Name("zero"), AtMostOnce, RetryTo("retry/z"))...),
		Handle("y/+", p.one, with(Name("zero hold"), AtMostOnce)...),
	)
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

var errSimulated = errors.New("the handler fails")

func sleep(d time.Duration) {
	<-time.After(d) // the bubble's time
}

// goexit keeps the linter from saying that what follows it is dead.
func goexit() { runtime.Goexit() }

func (p *process) one(ctx context.Context, _ []byte) Outcome {
	d := DeliveryFrom(ctx)
	defer p.watch(ctx, d)()
	return p.handle(ctx, d, true)
}

func (p *process) many(ctx context.Context, all []string) Outcomes {
	each := make([]Outcome, len(all))
	defer p.watch(ctx, DeliveriesFrom(ctx)...)()
	for i, d := range DeliveriesFrom(ctx) {
		each[i] = p.handle(ctx, d, false)
	}
	return Each(each...)
}

// watch tells the account when the handler's time is up.
func (p *process) watch(ctx context.Context, all ...*Delivery) (stop func()) {
	end := context.AfterFunc(ctx, func() {
		for _, d := range all {
			if errors.Is(context.Cause(ctx), ErrHandlerTimeout) {
				p.w.account.timedOut(p, d)
			}
		}
	})
	return func() { end() }
}

// handle is what all handlers do with one delivery.
func (p *process) handle(ctx context.Context, d *Delivery, alone bool) Outcome {
	f := p.w.fate(d)
	p.w.account.begin(p, d, f)
	sleep(time.Duration(f.Slow))
	out := p.w.handle(ctx, p, d, f, alone)
	return out
}

// fate is what the schedule wants of an attempt.
func (w *world) fate(d *Delivery) fate {
	var id int
	if _, err := fmt.Sscan(d.MessageID(), &id); err == nil {
		if fates := w.fates[id]; d.Attempt() <= len(fates) {
			return fates[d.Attempt()-1]
		}
	}
	return fate{Do: "ack"}
}

// carryOut does what a fate says. What ends a handler in another way than by returning is for those of single deliveries, who are alone.
func carryOut(ctx context.Context, p *process, d *Delivery, f fate, alone bool) Outcome {
	switch f.Do {
	case "retry":
		return Retry(errSimulated)
	case "later":
		return RetryAfter(time.Duration(f.For), errSimulated)
	case "reject":
		return Reject(errSimulated)
	case "zero":
		return Outcome{}
	}
	if alone {
		switch f.Do {
		case "panic":
			panic(errSimulated)
		case "goexit":
			goexit()
		case "hang":
			<-ctx.Done()
		case "late":
			<-ctx.Done()
			if errors.Is(context.Cause(ctx), ErrHandlerTimeout) {
				sleep(time.Duration(f.For))
				return Ack() // too late
			}
		}
	}
	if ctx.Err() != nil {
		return Retry(context.Cause(ctx))
	}
	p.w.account.end(p, d)
	return Ack()
}

// leftIn names what an app still has.
func leftIn(a *App) (left []string) {
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
	rs.mu.Lock()
	has("dues", rs.due.len())
	has("slots", rs.slots)
	has("copies out", len(rs.out))
	has("copies waiting", len(rs.waiting))
	has("copies idle", rs.idle)
	has("markers", len(rs.markers))
	rs.mu.Unlock()
	return left
}
