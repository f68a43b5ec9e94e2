package middleware

import (
	"context"
	"fmt"
	"math"
	"time"

	"golang.org/x/time/rate"

	"github.com/settlemq/settle"
)

// RateLimit lets perSecond deliveries through in a second, a fraction of one too, and makes the others wait. A batch counts as many as it holds, and an
// attempt counts as well as a first delivery. What waits is not lost: at QoS 1 and 2 the window fills and the server waits; at
// QoS 0 the route's queue drops the oldest, as it does for any handler that is too slow.
//
// Deliveries are spread over the second. After a pause at most a tenth of a second's worth goes through at once, and at least one; so in any second
// it is perSecond and a tenth more. A batch waits until all of it fits.
//
// The wait is no part of the handler's timeout, which begins further in. When the app's shutdown time is over while a delivery waits, it is
// answered with Retry, which then holds it for the next process and spends no attempt.
//
// All that share the returned middleware share the limit: all routes, with App.Use. It applies to this process alone. RateLimit panics if
// perSecond is not a positive number.
func RateLimit(perSecond float64) settle.Middleware {
	if !(perSecond > 0) || math.IsInf(perSecond, 1) {
		panic(fmt.Sprintf("settle: middleware.RateLimit(%v): the rate must be a positive number", perSecond))
	}
	// More than one at once, or timers that fire a little late would keep high rates from being reached.
	burst := int(min(max(1, perSecond/10), math.MaxInt32))
	limiter := rate.NewLimiter(rate.Limit(perSecond), burst)
	return func(next settle.Next) settle.Next {
		return func(ctx context.Context) settle.Outcomes {
			if err := take(ctx, limiter, max(len(settle.DeliveriesFrom(ctx)), 1)); err != nil {
				return settle.Every(settle.Retry(err))
			}
			return next(ctx)
		}
	}
}

// take waits for n tokens, which may be more than the limiter gives at once. The error is why ctx ended, or that it would end before.
func take(ctx context.Context, limiter *rate.Limiter, n int) error {
	for n > 0 {
		part := min(n, limiter.Burst())
		// The context of a delivery costs something once somebody waits for it. Where nobody has to wait, it does not.
		if !limiter.AllowN(time.Now(), part) {
			if err := limiter.WaitN(ctx, part); err != nil {
				if cause := context.Cause(ctx); cause != nil {
					return cause
				}
				return err
			}
		}
		n -= part
	}
	return nil
}
