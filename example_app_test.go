package settle_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"
	"go.uber.org/fx"

	"github.com/settlemq/settle"
)

// The life of a service in one call: it ends, drained, on SIGTERM or SIGINT.
func ExampleApp_Run() { //nolint:testableexamples // it needs a server
	bill := func(ctx context.Context, u usage) settle.Outcome { return settle.OrRetry(post(ctx, u)) }
	app, err := settle.New(
		settle.Config{Servers: []string{"mqtt://localhost:1883"}, ClientID: "billing-0"},
		settle.Handle("meters/+/usage", bill, settle.RetryTo("billing/retry"), settle.DeadLetterTo("billing/dead")),
	)
	if err == nil {
		err = app.Run(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Start, WaitReady and Stop are Run in steps, for a program that has more to do.
func ExampleApp_Start() { //nolint:testableexamples // it needs a server
	run := func(ctx context.Context, app *settle.App) error {
		if err := app.Start(ctx); err != nil {
			return err
		}
		if err := app.WaitReady(ctx); err != nil { // connected, and every subscription granted
			return err
		}
		select {
		case <-ctx.Done():
		case <-app.Done(): // the server says that the configuration is wrong, for instance
		}
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		return errors.Join(app.Err(), app.Stop(drain))
	}
	_ = run
}

// A publish waits for the server's answer, and its error tells what became of the message.
func ExampleApp_Publish() { //nolint:testableexamples // it needs a server
	report := func(ctx context.Context, app *settle.App, u usage) error {
		err := app.Publish(ctx, "meters/"+u.Meter+"/usage", u, settle.ExactlyOnce,
			settle.PartitionKey(u.Meter), settle.MessageID(u.Meter+"-2026-11-30"), settle.Expiry(24*time.Hour))
		var refused *settle.ServerError
		switch {
		case errors.Is(err, settle.ErrNotConnected):
			return fmt.Errorf("not sent, and can be published again: %w", err)
		case errors.Is(err, settle.ErrUnconfirmed):
			return fmt.Errorf("perhaps sent: publish it again under the same message id: %w", err)
		case errors.As(err, &refused):
			return fmt.Errorf("the server does not want it, code 0x%02X: %w", refused.Code, err)
		}
		return err
	}
	_ = report
}

// A handler publishes through its context, so it needs no App at hand.
func ExamplePublish() {
	double := func(ctx context.Context, u usage) settle.Outcome {
		u.KWh *= 2
		return settle.OrRetry(settle.Publish(ctx, "doubled/"+u.Meter, u))
	}
	_ = settle.Handle("meters/+/usage", double)

	// Outside of an app there is nothing to publish with.
	err := settle.Publish(context.Background(), "doubled/42", usage{Meter: "42"})
	fmt.Println(errors.Is(err, settle.ErrNotConnected))
	// Output: true
}

// A request carries a response topic and correlation data; Reply answers with both.
func ExampleReply() {
	quote := func(ctx context.Context, u usage) settle.Outcome {
		err := settle.Reply(ctx, u.KWh*0.31)
		if errors.Is(err, settle.ErrNoResponseTopic) {
			return settle.Drop("nobody asked")
		}
		return settle.OrRetry(err)
	}
	fmt.Println(quote(context.Background(), usage{}))
	// Output: drop: nobody asked
}

// Replicas of one service share a subscription: the server sends each message to one of them. Each has a client id of its own that
// stays with it.
func ExampleShared() {
	bill := func(context.Context, usage) settle.Outcome { return settle.Ack() }
	_, err := settle.New(
		settle.Config{Servers: []string{"mqtt://localhost"}, ClientID: "billing-" + os.Getenv("ORDINAL")},
		settle.Handle("meters/+/usage", bill, settle.Shared("billing"), settle.RetryTo("billing/retry")),
	)
	fmt.Println(err)
	// Output: <nil>
}

// A replica that is not to come back gives its sessions up when they are empty.
func ExampleApp_Retire() { //nolint:testableexamples // it needs a server
	scaleDown := func(ctx context.Context, app *settle.App) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
		defer cancel()
		return app.Retire(ctx) // an error: not empty yet, and kept
	}
	_ = scaleDown
}

// Metrics go to a registry, and probes to two handlers: a lost connection makes an app not ready, but no less alive.
func ExampleApp_Ready() {
	registry := prometheus.NewRegistry()
	app, err := settle.New(
		settle.Config{Name: "billing", Servers: []string{"mqtt://localhost"}, ClientID: "billing-0", Metrics: registry, Logger: zerolog.Nop()},
		settle.Handle("meters/+/usage", func(context.Context, usage) settle.Outcome { return settle.Ack() }),
	)
	if err != nil {
		panic(err)
	}
	probe := func(check func() error) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if err := check(); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
			}
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/livez", probe(app.Live))
	mux.Handle("/readyz", probe(app.Ready))
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))

	fmt.Println(app.Live())
	fmt.Println(app.Ready() != nil)
	// Output:
	// <nil>
	// true
}

// billing is a program's own type, which fx constructs.
type billing struct{}

func newBilling() *billing { return &billing{} }

func (*billing) bill(context.Context, usage) settle.Outcome { return settle.Ack() }

// In a program that is built with fx, the app is made of the routes that constructors return, and lives with the program.
func ExampleProvideRoute() {
	err := fx.ValidateApp(
		fx.Provide(newBilling, func() settle.Config {
			return settle.Config{Servers: []string{"mqtt://localhost"}, ClientID: "billing-0"}
		}),
		settle.Module,
		settle.ProvideRoute(func(b *billing) settle.Route { return settle.Handle("meters/+/usage", b.bill) }),
	)
	fmt.Println(err)
	// Output: <nil>
}
