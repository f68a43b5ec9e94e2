package main

import (
	"context"
	"net"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/middleware"
)

// newService is the service: two handlers and what becomes of what they cannot handle.
func newService(b *Billing, server, clientID string, dial dialFunc, registry prometheus.Registerer, log zerolog.Logger) (*settle.App, error) {
	app, err := settle.New(settle.Config{
		Name:          "billing",
		Servers:       []string{server},
		ClientID:      clientID,
		SessionExpiry: time.Hour, // what the server keeps for us while we are away
		Dial:          dial,
		Logger:        log,
		Metrics:       registry,
	}, routes(b, clientID)...)
	if err != nil {
		return nil, err
	}
	app.Use(middleware.Correlation(log))
	return app, nil
}

func routes(b *Billing, clientID string) []settle.Route {
	return []settle.Route{
		settle.Handle(usageFilter, b.bill,
			settle.Name("usage"),
			settle.ExactlyOnce,
			settle.Workers(8, settle.ByKey), // the reports of a meter in their order, those of different meters at once
			settle.Timeout(10*time.Second),
			settle.RetryTo(retryTopic(clientID)),
			settle.Backoff(settle.Exponential(time.Second, time.Minute)),
			settle.MaxAttempts(5),
			settle.DeadLetterTo(deadTopic(clientID)),
		),
		settle.HandleBatch(powerFilter, b.draw,
			settle.Name("power"),
			settle.AtMostOnce, // the next sample is better than an old one
			settle.BatchSize(64),
		),
	}
}

// dialFunc is the type of settle.Config.Dial.
type dialFunc = func(ctx context.Context, server *url.URL) (net.Conn, error)
