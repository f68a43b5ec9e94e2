package middleware_test

import (
	"context"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/middleware"
)

// The first one given is the outermost, and what the app has is outside of what a route has. So here the circuit breaker turns the
// second delivery away, which is logged nevertheless.
func Example_order() {
	step := func(name string) settle.Middleware {
		return func(next settle.Next) settle.Next {
			return func(ctx context.Context) settle.Outcomes {
				fmt.Println(">", name)
				defer fmt.Println("<", name)
				return next(ctx)
			}
		}
	}
	bill := func(ctx context.Context, _ usage) settle.Outcome {
		zerolog.Ctx(ctx).Info().Msg("posting to the ledger") // by the logger of Correlation
		return settle.Retry(errLedgerDown)
	}
	app := newApp(settle.Handle("usage", bill,
		settle.With(step("route"), middleware.CircuitBreaker(middleware.FailuresToOpen(1), middleware.OpenFor(time.Hour))),
	))
	app.Use(middleware.Logging(terminal()), step("after Logging"))
	app.Use(middleware.Correlation(terminal()), middleware.RateLimit(100), step("after RateLimit"))
	app.deliver("usage", `{"kwh": 1.5}`, `{"kwh": 2}`)
	// Output:
	// > after Logging
	// > after RateLimit
	// > route
	// INF posting to the ledger message_id=m-1 route=usage
	// < route
	// < after RateLimit
	// < after Logging
	// WRN handled attempt=1 cause="ledger down" message_id=m-1 outcome=retry route=usage topic=usage
	// > after Logging
	// > after RateLimit
	// > route
	// < route
	// < after RateLimit
	// < after Logging
	// WRN handled attempt=1 cause="settle: the circuit breaker is open: what the handler needs has failed too often" message_id=m-2 outcome=retry route=usage topic=usage
}
