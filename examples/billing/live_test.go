package main

import (
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/settlemq/settle/internal/mosquitto"
)

// The whole program, with a ledger that fails often, on a connection that is cut.
func TestBalances(t *testing.T)     { balances(t, embedded) }
func TestLiveBalances(t *testing.T) { balances(t, mosquitto.Require(t).URL()) }

func balances(t *testing.T, server string) {
	t.Helper()
	var out strings.Builder
	balanced, err := run(t.Context(), options{
		server: server, clientID: "billing-test", http: "127.0.0.1:0", duration: 4 * time.Second, meters: 50, cuts: 3, fail: 0.2, patience: 30 * time.Second, logLevel: zerolog.Disabled,
	}, &screen{out: &out, began: time.Now()})
	t.Log(out.String())
	if err != nil || !balanced {
		t.Errorf("balanced %t, %v", balanced, err)
	}
	for _, want := range []string{"connection cut, 3 of 3", "connected again and subscribed", "Balanced: every report"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q", want)
		}
	}
}

// A server that is not there is an error, and leaves nothing running.
func TestLiveNoServer(t *testing.T) {
	server := mosquitto.Require(t)
	url := server.URL()
	server.Kill()
	var out strings.Builder
	balanced, err := run(t.Context(), options{
		server: url, clientID: "billing-test", duration: time.Second, meters: 1, patience: 300 * time.Millisecond, logLevel: zerolog.Disabled,
	}, &screen{out: &out, began: time.Now()})
	if err == nil || balanced || !strings.Contains(err.Error(), "no MQTT 5 server has let us in") {
		t.Errorf("balanced %t, %v", balanced, err)
	}
}
