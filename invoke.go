package settle

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/settlemq/settle/internal/mutant"
)

// buildChain puts the route's middleware around decoding and handler; the first given is the outermost.
func (rt *route) buildChain(outer []Middleware) {
	rt.chain = rt.handle
	for _, layer := range slices.Backward(slices.Concat(outer, rt.middleware)) {
		rt.chain = rt.counted(layer(rt.chain))
	}
}

// counted makes what a middleware returns one outcome for each delivery, so that those around it see as many.
func (rt *route) counted(next Next) Next {
	return func(ctx context.Context) Outcomes {
		outcomes := next(ctx)
		if r := runFrom(ctx); r != nil {
			return rt.checked(outcomes, r.size())
		}
		return outcomes
	}
}

// handle is the innermost Next: it decodes, starts the handler's timeout and calls the handler. Whatever goes wrong in it
// comes out as an outcome, so middleware sees it.
func (rt *route) handle(ctx context.Context) Outcomes {
	r := runFrom(ctx)
	if r == nil {
		panic(errNoRun(rt.name))
	}
	if r.one == nil {
		return rt.callMany(ctx, r)
	}
	if err := rt.oversize(r.one); err != nil {
		return one(rt.ask(rt.onOversize, err))
	}
	return one(rt.callOne(ctx, r))
}

func (rt *route) callOne(ctx context.Context, r *run) (outcome Outcome) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if v := recover(); v != nil { // else it is runtime.Goexit, which the lane sees
			if mutant.LeakOnPanic { // there is no outcome, so there is nothing to settle
				r.one.settled.Store(true)
			}
			outcome = rt.ask(rt.onPanic, &PanicError{Delivery: r.one, Value: v, Stack: debug.Stack()})
		}
	}()
	outcome, err := rt.one(ctx, r)
	returned = true
	if err != nil {
		return rt.ask(rt.policyFor(err), err)
	}
	return outcome
}

func (rt *route) oversize(d *Delivery) error {
	if size := d.arrival.Frame.Oversize; size > 0 {
		return &OversizeError{Delivery: d, Size: size, Limit: rt.app.config.MaxPayload}
	}
	return nil
}

func (rt *route) policyFor(fault error) func(error) Outcome {
	switch fault.(type) { //nolint:errorlint // as they were made here, not what they may wrap
	case *OversizeError:
		return rt.onOversize
	case *PanicError:
		return rt.onPanic
	}
	return rt.onDecode
}

// ask lets a policy decide about a fault. A policy is user code: if it panics, calls runtime.Goexit or gives no outcome, the delivery is retried.
func (rt *route) ask(policy func(error) Outcome, fault error) (outcome Outcome) {
	value, stack, returned := contained(func() { outcome = policy(fault) })
	if returned {
		return outcome
	}
	rt.app.log.Error().Str("route", rt.name).Str("panic", fmt.Sprintf("%T", value)).Bytes("stack", stack).
		Msg("a policy for faults panicked, or called runtime.Goexit; the delivery is retried")
	return Retry(fault)
}

// contained calls user code that is called seldom on a goroutine of its own, which alone it can end.
func contained(f func()) (value any, stack []byte, returned bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if !returned {
				value, stack = recover(), debug.Stack()
			}
		}()
		f()
		returned = true
	}()
	<-done
	return value, stack, returned
}

// panicked is the outcomes of a run that ended in a panic outside the handler, or in runtime.Goexit.
func (rt *route) panicked(r *run, value any, stack []byte) Outcomes {
	each := make([]Outcome, 0, r.size())
	for _, d := range r.all() {
		each = append(each, rt.ask(rt.onPanic, &PanicError{Delivery: d, Value: value, Stack: stack}))
	}
	return Each(each...)
}

// timedOut settles the deliveries of a run whose handler has outlived its timeout.
func (rt *route) timedOut(r *run) {
	for _, d := range r.all() {
		d.settle(rt.ask(rt.onTimeout, &TimeoutError{Delivery: d, After: rt.timeout}))
	}
}
