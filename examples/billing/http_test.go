package main

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// state is what an app says of itself.
type state struct{ live, ready error }

func (s *state) Live() error  { return s.live }
func (s *state) Ready() error { return s.ready }

func TestHTTP(t *testing.T) {
	registry := prometheus.NewRegistry()
	settled := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "settled_total", Help: "h"}, []string{"route", "outcome"})
	registry.MustRegister(settled)
	settled.WithLabelValues("usage", "ack").Add(3)
	settled.WithLabelValues("usage", "retry").Add(2)
	settled.WithLabelValues("power", "ack").Add(7)

	app := &state{ready: errors.New("no connection")}
	address, stop, err := serve(t.Context(), "127.0.0.1:0", handler(app, registry))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/livez":   "200 ok\n",
		"/readyz":  "503 no connection\n",
		"/metrics": `settled_total{outcome="ack",route="power"} 7`,
		"/":        "404",
	} {
		response, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if got := response.Status[:4] + string(body); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	if _, _, err := serve(t.Context(), address, nil); err == nil {
		t.Error("two servers on one address")
	}
	if err := stop(t.Context()); err != nil {
		t.Error(err)
	}

	r, err := read(registry)
	if err != nil {
		t.Fatal(err)
	}
	for want, labels := range map[int64][]string{12: nil, 5: {"route", "usage"}, 2: {"route", "usage", "outcome", "retry"}, 0: {"route", "none"}} {
		if got := r.sum("settled_total", labels...); got != want {
			t.Errorf("sum of %q is %d, want %d", labels, got, want)
		}
	}
	if got := r.sum("nothing"); got != 0 {
		t.Errorf("a metric that is not there is %d", got)
	}
}
