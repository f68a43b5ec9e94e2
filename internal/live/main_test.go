// Package live_test runs apps against Mosquitto processes of its own, through the public API alone: what they lose when connections are cut,
// servers restarted and processes killed. Its tests are named after FIELD_REPORTS.md where a report is behind them.
package live_test

import (
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if config := os.Getenv(childEnv); config != "" {
		os.Exit(runChild(config))
	}
	goleak.VerifyTestMain(m)
}

// patience bounds every wait for something that is to happen soon. It is long because other packages' tests keep the machine busy.
const patience = 30 * time.Second

// await returns when condition holds. It is asked again and again, so it must be cheap, and may be called from the test's goroutine alone.
func await(t testing.TB, what string, condition func() bool) {
	t.Helper()
	awaitFor(t, patience, what, condition)
}

func awaitFor(t testing.TB, limit time.Duration, what string, condition func() bool) {
	t.Helper()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	for !condition() {
		select {
		case <-again.C:
		case <-deadline.C:
			t.Fatalf("did not happen in %v: %s", limit, what)
		}
	}
}

// receive takes one value of a channel.
func receive[T any](t testing.TB, from <-chan T, what string) T {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	select {
	case v := <-from:
		return v
	case <-deadline.C:
		t.Fatalf("did not come in %v: %s", patience, what)
		panic("unreachable")
	}
}
