package mosquitto

import (
	"errors"
	"os"
)

// RequireEnv is the environment variable that, set to "require", makes a missing server a failure instead of a skip. CI sets it.
const RequireEnv = "SETTLE_LIVE"

// TB is what Require needs of a testing.TB. The demo uses this package too and should not have testing linked in.
type TB interface {
	Helper()
	Cleanup(fn func())
	Failed() bool
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// Require starts a server for a test and closes it when the test is over, with the end of its log shown if the test failed. Where
// mosquitto is not installed the test is skipped with the command that installs it, or fails if RequireEnv is set to "require".
// At most one Options may be given.
func Require(t TB, options ...Options) *Server {
	t.Helper()
	var o Options
	switch len(options) {
	case 0:
	case 1:
		o = options[0]
	default:
		t.Fatalf("mosquitto.Require: %d Options given, at most one makes sense", len(options))
	}
	s, err := Start(o)
	switch {
	case errors.Is(err, ErrMissing) && os.Getenv(RequireEnv) == "require":
		t.Fatalf("%v (%s=require forbids to skip)", err, RequireEnv)
	case errors.Is(err, ErrMissing):
		t.Skipf("needs a real server, but %v", err)
	case err != nil:
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the log of %s:\n%s", s.URL(), s.Log())
		}
		if err := s.Close(); err != nil {
			t.Errorf("mosquitto: close: %v", err)
		}
	})
	return s
}
