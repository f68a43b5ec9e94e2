package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/middleware"
)

func ExampleCircuitBreaker() {
	bill := func(context.Context, usage) settle.Outcome {
		fmt.Println("posting to the ledger")
		return settle.Retry(errLedgerDown)
	}
	app := newApp(settle.Handle("meters/+/usage", bill,
		settle.With(middleware.CircuitBreaker(
			middleware.FailuresToOpen(2),
			middleware.OpenFor(time.Minute),
			middleware.FailWhen(func(o settle.Outcome) bool { return errors.Is(o.Cause(), errLedgerDown) }),
		))))
	app.deliver("meters/42/usage", `{"kwh": 1}`, `{"kwh": 2}`, `{"kwh": 3}`, `{"kwh": 4}`)
	// Output:
	// posting to the ledger
	// posting to the ledger
}

// callee is a handler that answers with what a test sets.
type callee struct {
	outcome settle.Outcomes
	calls   int
}

func (c *callee) next(context.Context) settle.Outcomes {
	c.calls++
	return c.outcome
}

func (c *callee) says(o settle.Outcome) { c.outcome = settle.Every(o) }

// pass lets time pass, which in a bubble takes none.
func pass(d time.Duration) { <-time.After(d) }

func isOpen(o settle.Outcomes) bool { return errors.Is(o.At(0).Cause(), middleware.ErrCircuitOpen) }

func TestBreakerOpensAndCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ledger callee
		guarded := middleware.CircuitBreaker(middleware.FailuresToOpen(3), middleware.OpenFor(time.Minute))(ledger.next)
		call := func(o settle.Outcome) settle.Outcomes {
			ledger.says(o)
			return guarded(t.Context())
		}
		for _, o := range []settle.Outcome{settle.Retry(nil), settle.Retry(nil), settle.Ack(), settle.Retry(nil), settle.Retry(nil)} {
			call(o) // never three in a row
		}
		if got := call(settle.Retry(errLedgerDown)); isOpen(got) || ledger.calls != 6 {
			t.Fatalf("after %d calls: %v", ledger.calls, got.At(0))
		}
		pass(20 * time.Second)
		got := call(settle.Ack())
		delay, given := got.At(0).Delay()
		if !isOpen(got) || got.At(0).Kind() != settle.KindRetry || !given || delay < 40*time.Second || delay > 56*time.Second || ledger.calls != 6 {
			t.Fatalf("open since 20 s, after %d calls: %v", ledger.calls, got.At(0))
		}
		pass(40*time.Second + 1)
		if got = call(settle.Retry(nil)); isOpen(got) || ledger.calls != 7 {
			t.Fatalf("the probe, after %d calls: %v", ledger.calls, got.At(0))
		}
		if got = call(settle.Ack()); !isOpen(got) {
			t.Fatalf("after a probe that failed: %v", got.At(0))
		}
		pass(time.Minute + 1)
		if got = call(settle.Ack()); isOpen(got) {
			t.Fatalf("the second probe: %v", got.At(0))
		}
		call(settle.Retry(nil))
		if got = call(settle.Ack()); isOpen(got) || ledger.calls != 10 {
			t.Fatalf("closed, after %d calls: %v", ledger.calls, got.At(0))
		}
	})
}

// After exactly the delay that it was given a delivery is not turned away again.
func TestBreakerDelayIsEnough(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			var ledger callee
			ledger.says(settle.Retry(nil))
			guarded := middleware.CircuitBreaker(middleware.FailuresToOpen(1), middleware.OpenFor(time.Second))(ledger.next)
			guarded(t.Context())
			delay, _ := guarded(t.Context()).At(0).Delay()
			pass(delay)
			if isOpen(guarded(t.Context())) {
				t.Fatalf("turned away again after %s", delay)
			}
		})
	}
}

func TestBreakerWhatCounts(t *testing.T) {
	undecodable := &settle.DecodeError{ContentType: "x", Err: errors.New("x")}
	const success, failure, neither = "success", "failure", "neither"
	for name, test := range map[string]struct {
		outcomes settle.Outcomes
		want     string
	}{
		"ack":                      {settle.Every(settle.Ack()), success},
		"drop":                     {settle.Every(settle.Drop("old")), success},
		"reject":                   {settle.Every(settle.Reject(errors.New("no"))), success},
		"retry":                    {settle.Every(settle.Retry(nil)), failure},
		"retry after":              {settle.Every(settle.RetryAfter(time.Hour, nil)), failure},
		"zero":                     {settle.Every(settle.Outcome{}), failure},
		"panic":                    {settle.Every(settle.Retry(&settle.PanicError{Value: 1})), failure},
		"timeout":                  {settle.Every(settle.Retry(settle.ErrHandlerTimeout)), failure},
		"undecodable":              {settle.Every(settle.Reject(undecodable)), neither},
		"undecodable, retried":     {settle.Every(settle.Retry(fmt.Errorf("later: %w", undecodable))), neither},
		"oversize":                 {settle.Every(settle.Reject(&settle.OversizeError{Size: 2, Limit: 1})), neither},
		"stopping":                 {settle.Every(settle.Retry(settle.ErrStopping)), neither},
		"batch, one good":          {settle.Each(settle.Retry(nil), settle.Ack(), settle.Retry(nil)), success},
		"batch, none good":         {settle.Each(settle.Retry(nil), settle.Reject(undecodable)), failure},
		"batch, only undecodables": {settle.Each(settle.Reject(undecodable), settle.Reject(undecodable)), neither},
	} {
		t.Run(name, func(t *testing.T) {
			var ledger callee
			guarded := middleware.CircuitBreaker(middleware.FailuresToOpen(2))(ledger.next)
			ledger.says(settle.Retry(nil))
			guarded(t.Context())
			ledger.outcome = test.outcomes
			guarded(t.Context()) // a failure opens it; a success lets the count begin anew
			ledger.says(settle.Retry(nil))
			before := isOpen(guarded(t.Context()))
			after := isOpen(guarded(t.Context()))
			got := success
			switch {
			case before:
				got = failure
			case after:
				got = neither
			}
			if got != test.want {
				t.Errorf("counts as %s, want %s", got, test.want)
			}
		})
	}
}

func TestBreakerFailWhen(t *testing.T) {
	var ledger callee
	ledger.says(settle.Reject(errLedgerDown))
	guarded := middleware.CircuitBreaker(middleware.FailuresToOpen(1),
		middleware.FailWhen(func(o settle.Outcome) bool { return errors.Is(o.Cause(), errLedgerDown) }))(ledger.next)
	guarded(t.Context())
	if !isOpen(guarded(t.Context())) {
		t.Error("still closed")
	}
}

func TestBreakerProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan settle.Outcome)
		calls := make(chan struct{}, 10)
		guarded := middleware.CircuitBreaker(middleware.FailuresToOpen(1), middleware.OpenFor(time.Minute), middleware.Probes(2))(
			func(context.Context) settle.Outcomes {
				calls <- struct{}{}
				return settle.Every(<-answer)
			})
		got := make(chan settle.Outcomes)
		call := func() { go func() { got <- guarded(context.Background()) }() }
		call()
		answer <- settle.Retry(nil)
		<-got
		pass(time.Minute + 1)
		call()
		call()
		synctest.Wait()
		call()
		if third := <-got; !isOpen(third) {
			t.Errorf("a third probe: %v", third.At(0))
		} else if delay, _ := third.At(0).Delay(); delay < time.Minute {
			t.Errorf("to come back in %s, while probes run", delay)
		}
		answer <- settle.Ack()
		<-got
		answer <- settle.Ack()
		<-got
		call()
		call()
		call()
		synctest.Wait()
		if len(calls) != 6 {
			t.Errorf("%d calls, want 6: two good probes close it", len(calls))
		}
		for range 3 {
			answer <- settle.Ack()
			<-got
		}
	})
}

// Whatever becomes of a probe, the breaker hears of it; else it would never close.
func TestBreakerProbeThatDoesNotReturn(t *testing.T) {
	for name, end := range map[string]func(){
		"panic":  func() { panic("no") },
		"goexit": runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				next := func(context.Context) settle.Outcomes { return settle.Every(settle.Retry(nil)) }
				guarded := middleware.CircuitBreaker(middleware.FailuresToOpen(1), middleware.OpenFor(time.Second))(
					func(ctx context.Context) settle.Outcomes { return next(ctx) })
				guarded(t.Context())
				pass(time.Second + 1)
				next = func(context.Context) settle.Outcomes { end(); return settle.Outcomes{} }
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { _ = recover() }()
					guarded(context.Background())
				}()
				<-done
				next = acks
				pass(time.Second + 1)
				if o := guarded(t.Context()); isOpen(o) {
					t.Errorf("it lets nothing through any more: %v", o.At(0))
				}
			})
		})
	}
}

// A handler that hangs has failed when its timeout is over, not when it returns.
func TestBreakerHandlerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var calls atomic.Int32
		app := newScripted(t, settle.Handle("a", func(context.Context, []byte) settle.Outcome {
			calls.Add(1)
			<-release
			return settle.Ack()
		}, settle.Timeout(time.Second), settle.OnTimeout(settle.Reject),
			settle.With(middleware.CircuitBreaker(middleware.FailuresToOpen(1), middleware.OpenFor(time.Hour)))))
		app.start(1)
		app.send("a", "hangs")
		<-app.acked // rejected by its timeout
		app.send("a", "turned away")
		app.await(1)
		if n := calls.Load(); n != 1 {
			t.Errorf("%d calls while the first one hangs, want 1", n)
		}
		close(release)
		app.await(1)
		app.stop()
	})
}

func TestBreakerWaitWhileOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ledger callee
		ledger.says(settle.Retry(nil))
		guarded := middleware.CircuitBreaker(middleware.FailuresToOpen(1), middleware.OpenFor(time.Minute), middleware.WaitWhileOpen())(ledger.next)
		guarded(t.Context())
		ledger.says(settle.Ack())
		began := time.Now()
		if o := guarded(t.Context()).At(0); o.Kind() != settle.KindAck {
			t.Error(o)
		}
		if waited := time.Since(began); waited <= time.Minute || waited > 76*time.Second {
			t.Errorf("waited %s", waited)
		}

		ledger.says(settle.Retry(nil))
		guarded(t.Context())
		errWhy := errors.New("why")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(errWhy) })
		if o := guarded(ctx).At(0); o.Kind() != settle.KindRetry || !errors.Is(o.Cause(), errWhy) {
			t.Errorf("when the context ends: %v", o)
		}
	})
}

// A batch is turned away as a whole, and middleware further out sees an outcome for each element.
func TestBreakerBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := make(chan int, 10)
		app := newScripted(t, settle.HandleBatch("a", func(context.Context, []usage) settle.Outcomes {
			return settle.Every(settle.Retry(errLedgerDown))
		}, settle.Linger(time.Second), settle.Backoff(settle.Constant(time.Hour))))
		app.Use(func(next settle.Next) settle.Next {
			return func(ctx context.Context) settle.Outcomes {
				o := next(ctx)
				for _, each := range o.All() {
					if each.Kind() != settle.KindRetry {
						t.Error(each)
					}
				}
				seen <- o.Len()
				return o
			}
		}, middleware.CircuitBreaker(middleware.FailuresToOpen(1), middleware.OpenFor(time.Hour)))
		app.start(1)
		for range 2 {
			app.sendAtOnce("a", `{"kwh":1}`, `{"kwh":2}`, `{"kwh":3}`)
			app.await(1)
			if n := <-seen; n != 3 {
				t.Errorf("%d outcomes for 3 elements", n)
			}
		}
		app.stop()
	})
}

func TestBreakerPanics(t *testing.T) {
	for name, wrong := range map[string]func(){
		"FailuresToOpen(0)": func() { middleware.FailuresToOpen(0) },
		"OpenFor(0s)":       func() { middleware.OpenFor(0) },
		"Probes(-1)":        func() { middleware.Probes(-1) },
		"FailWhen(nil)":     func() { middleware.FailWhen(nil) },
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); len(got) < len(name) || got[:len("settle: middleware.")+len(name)] != "settle: middleware."+name {
					t.Errorf("%s: %s", name, got)
				}
			}()
			wrong()
		}()
	}
}
