package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// health is what the probes ask; settle.App answers.
type health interface {
	Live() error  // nil, or why the process should be started anew
	Ready() error // nil, or why it does not consume at the moment
}

func handler(app health, metrics prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.Handle("GET /livez", probe(app.Live))
	mux.Handle("GET /readyz", probe(app.Ready))
	return mux
}

func probe(ask func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if err := ask(); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = fmt.Fprintln(w, err) // whoever asked may have gone
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	}
}

// serve answers on address, and returns the one that it has got and how to stop.
func serve(ctx context.Context, address string, h http.Handler) (got string, stop func(context.Context) error, err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return "", nil, fmt.Errorf("-http: %w", err)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	stop = func(ctx context.Context) error {
		err := server.Shutdown(ctx)
		if served := <-done; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
		return err
	}
	return listener.Addr().String(), stop, nil
}
