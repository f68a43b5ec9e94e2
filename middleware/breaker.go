package middleware

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/settlemq/settle"
)

// ErrCircuitOpen is the cause of the Retry that a [CircuitBreaker] answers with instead of calling the handler.
var ErrCircuitOpen = errors.New("settle: the circuit breaker is open: what the handler needs has failed too often")

// CircuitBreaker spares what handlers depend on while it fails. After a run of failures ([FailuresToOpen]) it opens: handlers are not called, and
// deliveries are answered with RetryAfter the rest of the time that it stays open ([OpenFor]), with [ErrCircuitOpen] as the cause. Then it lets a
// few through ([Probes]): if they succeed it closes, if one fails it opens again. Those that come while the probes run are answered as
// if it had just opened. The delays are spread over a quarter more, so that not all come back in the same instant.
//
// What is a failure is for [FailWhen] to say; by default it is a Retry, so a panic and a timeout too unless their policies say otherwise. Drop and
// Reject are about the message and not about what the handler needs: they are successes. What never reached a handler, because it was
// undecodable or oversize, and what was answered because the app stops, counts as neither. A batch is one call: it failed when some
// of it did and nothing of it succeeded. A handler that is still running when its timeout is over has failed then, whatever it returns later.
//
// Without a retry topic a delivery waits in the window meanwhile, so in an outage the window fills and the server waits. With one it is copied to that topic. Either
// way it spends an attempt: let settle.MaxAttempts times OpenFor outlast the longest outage, or leave attempts unlimited, or
// use [WaitWhileOpen].
//
// All that share the returned middleware share the breaker: give one to the routes that share a database, with settle.With. CircuitBreaker
// panics if an option makes no sense.
func CircuitBreaker(options ...BreakerOption) settle.Middleware {
	b := &breaker{openFor: 30 * time.Second, failures: 5, probes: 1, failed: isRetry}
	for _, o := range options {
		o(b)
	}
	b.circuit = gobreaker.NewTwoStepCircuitBreaker[settle.Outcomes](gobreaker.Settings{
		MaxRequests:   b.probes,
		Timeout:       b.openFor,
		ReadyToTrip:   func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= b.failures },
		IsExcluded:    func(err error) bool { return errors.Is(err, errNeither) },
		OnStateChange: func(_ string, _, to gobreaker.State) { b.changed(to) },
	})
	return b.wrap
}

// BreakerOption is an option of a [CircuitBreaker]. Its implementations are this package's.
type BreakerOption func(*breaker)

// FailuresToOpen sets after how many failures without a success between them the breaker opens. At least 1. Defaults to 5.
func FailuresToOpen(n int) BreakerOption {
	if n < 1 {
		panic(fmt.Sprintf("settle: middleware.FailuresToOpen(%d): must be at least 1", n))
	}
	return func(b *breaker) { b.failures = clamp(n) }
}

// OpenFor sets how long the breaker stays open before it tries again. Above 0. Defaults to 30 s.
func OpenFor(d time.Duration) BreakerOption {
	if d <= 0 {
		panic(fmt.Sprintf("settle: middleware.OpenFor(%s): must be above 0", d))
	}
	return func(b *breaker) { b.openFor = d }
}

// Probes sets how many calls are let through at once when the breaker has been open, and how many of them must succeed in a row for it to
// close. At least 1. Defaults to 1.
func Probes(n int) BreakerOption {
	if n < 1 {
		panic(fmt.Sprintf("settle: middleware.Probes(%d): must be at least 1", n))
	}
	return func(b *breaker) { b.probes = clamp(n) }
}

// FailWhen sets which outcomes are failures. Only outcomes of handlers are asked about. It must not block, and may be called from several goroutines at once. Defaults to
// every Retry and the zero Outcome:
//
//	middleware.FailWhen(func(o settle.Outcome) bool { return errors.Is(o.Cause(), errLedgerDown) })
func FailWhen(failed func(settle.Outcome) bool) BreakerOption {
	if failed == nil {
		panic("settle: middleware.FailWhen(nil): leave it out for the default")
	}
	return func(b *breaker) { b.failed = failed }
}

// WaitWhileOpen makes deliveries wait in their lanes while the breaker is open, instead of answering them with RetryAfter: no attempt is spent and no retry copy
// is made, but a lane that waits does nothing else, and acknowledgements stop until the breaker lets it try again. The wait is no part of the handler's timeout and
// ends with the app.
func WaitWhileOpen() BreakerOption { return func(b *breaker) { b.waits = true } }

func clamp(n int) uint32 { return uint32(min(int64(n), 1<<31)) } //nolint:gosec // bounded in this line, and positive

type breaker struct {
	openFor  time.Duration
	failures uint32
	probes   uint32
	failed   func(settle.Outcome) bool
	waits    bool

	circuit *gobreaker.TwoStepCircuitBreaker[settle.Outcomes]
	opened  atomic.Pointer[time.Time] // when it opened last; nil while it is not open
}

func (b *breaker) changed(to gobreaker.State) {
	if to != gobreaker.StateOpen {
		b.opened.Store(nil)
		return
	}
	now := time.Now()
	b.opened.Store(&now)
}

func (b *breaker) wrap(next settle.Next) settle.Next {
	return func(ctx context.Context) settle.Outcomes {
		report, err := b.circuit.Allow()
		for err != nil {
			if !b.waits {
				return settle.Every(settle.RetryAfter(b.stayAway(b.openFor), ErrCircuitOpen))
			}
			if err = wait(ctx, b.stayAway(b.openFor/8)); err != nil { // a lane that waits should know soon how the probes went
				return settle.Every(settle.Retry(err))
			}
			report, err = b.circuit.Allow()
		}
		return b.call(ctx, next, report)
	}
}

// stayAway is how long to wait before the breaker is asked again: the rest of the time that it is open, or while its probes run as long as is
// given, and up to a quarter of OpenFor more.
func (b *breaker) stayAway(whileProbing time.Duration) time.Duration {
	left := whileProbing
	if at := b.opened.Load(); at != nil {
		left = max(b.openFor-time.Since(*at), 0)
	}
	// One more, as the breaker is open until its time is over, not only up to then.
	return left + 1 + rand.N(b.openFor/4+1)
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// call calls next, and reports once, however next ends. A breaker that waits for a probe's report would let nothing through any more.
func (b *breaker) call(ctx context.Context, next settle.Next, report func(error)) (outcomes settle.Outcomes) {
	var reported atomic.Bool
	once := func(err error) {
		if reported.CompareAndSwap(false, true) {
			report(err)
		}
	}
	// A handler may hang in the very call that fails, and not return for long.
	unwatch := context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), settle.ErrHandlerTimeout) {
			once(errFailed)
		}
	})
	returned := false
	defer func() {
		unwatch()
		if !returned { // a panic of a middleware or of FailWhen, or runtime.Goexit
			once(errFailed)
		}
	}()
	outcomes = next(ctx)
	verdict := b.judge(outcomes)
	returned = true
	once(verdict)
	return outcomes
}

var (
	errFailed  = errors.New("failed")
	errNeither = errors.New("says nothing about what handlers depend on")
)

// judge says what a call shows: nil for a success, errFailed or errNeither.
func (b *breaker) judge(outcomes settle.Outcomes) error {
	verdict := errNeither
	for _, o := range outcomes.All() {
		switch {
		case neither(o):
		case b.failed(o):
			verdict = errFailed
		default:
			return nil
		}
	}
	return verdict
}

// neither says that no handler, or no whole one, is behind an outcome.
func neither(o settle.Outcome) bool {
	var (
		undecodable *settle.DecodeError
		oversize    *settle.OversizeError
	)
	cause := o.Cause()
	return cause != nil && (errors.As(cause, &undecodable) || errors.As(cause, &oversize) || errors.Is(cause, settle.ErrStopping))
}

func isRetry(o settle.Outcome) bool {
	return o.Kind() == settle.KindRetry || o.Kind() == settle.KindInvalid
}
