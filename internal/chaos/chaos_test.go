package chaos

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle/internal/mosquitto"
)

// short runs a small storm: enough to see that all parts work together. The figures are those of `make chaos`.
func short(t *testing.T, careless bool) *Result {
	t.Helper()
	if _, err := mosquitto.Find(); err != nil {
		if os.Getenv(mosquitto.RequireEnv) == "require" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	r, err := Run(Options{Seed: 5, Duration: 6 * time.Second, Messages: 4000, careless: careless, quiet: 10 * time.Second})
	if errors.Is(err, mosquitto.ErrMissing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("examples:\n%s", strings.Join(r.Account.Examples, "\n"))
		}
	})
	return r
}

func TestLiveStorm(t *testing.T) {
	r := short(t, false)
	for _, failure := range r.Failures {
		t.Error(failure)
	}
	for _, f := range r.Account.mustBeZero() {
		if f.N > 0 {
			t.Errorf("%s: %d", f.What, f.N)
		}
	}
	if a := &r.Account; a.Messages < 4000 || r.Cuts == 0 || r.Restarts == 0 || r.Kills == 0 || a.Copies == 0 || a.Dead == 0 {
		t.Errorf("too little happened: %+v", r)
	}
	var table strings.Builder
	r.Table(&table, "Mosquitto")
	if !strings.Contains(table.String(), "out of order within a key") {
		t.Errorf("the table is\n%s", table.String())
	}
}

// A consumer that acknowledges some messages without handling them is found out.
func TestLiveStormFindsACarelessConsumer(t *testing.T) {
	r := short(t, true)
	if a := &r.Account; a.Lost == 0 || a.AckTooEarly == 0 {
		t.Errorf("lost %d, acknowledged too early %d", a.Lost, a.AckTooEarly)
	}
	if len(r.Shortfalls(Least{})) == 0 {
		t.Error("and yet all is well")
	}
}
