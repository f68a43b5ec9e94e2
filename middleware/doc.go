// Package middleware has what most services put around their handlers: [Logging], [Correlation], [RateLimit] and [CircuitBreaker]. All
// of them serve single deliveries and batches alike, and none of them logs a payload.
//
//	app.Use(
//		middleware.Logging(log),
//		middleware.Correlation(log),
//		middleware.RateLimit(100),
//		middleware.CircuitBreaker(),
//	)
//
// The first one given is the outermost, and App.Use is outside of what a route has by settle.With. This order is a good one: every
// delivery is logged, with what the others made of it; what has to wait for the rate limiter is logged with its wait; and what comes through the
// circuit breaker has been paced before.
//
// One value of RateLimit or CircuitBreaker is one limiter, one breaker. Given to App.Use, or to several routes, it is shared by them, as it
// should be where they use the same database; call the function again for each where they should not share.
package middleware
