package mosquitto_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/settlemq/settle/internal/mosquitto"
)

// verdict is a TB that stops at Fatalf and Skipf as a testing.T does, and keeps what was said.
type verdict struct {
	failed, skipped string
	cleanups        []func()
	logged          []string
}

type stopped struct{}

func (*verdict) Helper()            {}
func (v *verdict) Cleanup(f func()) { v.cleanups = append(v.cleanups, f) }
func (v *verdict) Failed() bool     { return v.failed != "" }
func (v *verdict) Logf(format string, args ...any) {
	v.logged = append(v.logged, fmt.Sprintf(format, args...))
}
func (v *verdict) Errorf(format string, args ...any) { v.failed = fmt.Sprintf(format, args...) }
func (v *verdict) Fatalf(format string, args ...any) {
	v.failed = fmt.Sprintf(format, args...)
	panic(stopped{})
}
func (v *verdict) Skipf(format string, args ...any) {
	v.skipped = fmt.Sprintf(format, args...)
	panic(stopped{})
}

// judge runs Require against a verdict.
func judge(options ...mosquitto.Options) (v *verdict) {
	v = &verdict{}
	defer func() {
		if r := recover(); r != nil && r != any(stopped{}) {
			panic(r)
		}
	}()
	mosquitto.Require(v, options...)
	return v
}

func TestRequireWithoutServer(t *testing.T) {
	restore := mosquitto.HideBinary()
	defer restore()

	t.Setenv("PATH", t.TempDir())
	t.Setenv(mosquitto.RequireEnv, "")
	if v := judge(); v.failed != "" || !strings.Contains(v.skipped, "apt-get install -y mosquitto") {
		t.Errorf("skipped %q, failed %q; want a skip that says how to get it", v.skipped, v.failed)
	}

	t.Setenv(mosquitto.RequireEnv, "require")
	if v := judge(); v.skipped != "" || !strings.Contains(v.failed, "apt-get install -y mosquitto") {
		t.Errorf("skipped %q, failed %q; want a failure that says how to get it", v.skipped, v.failed)
	}
}

func TestRequireTwoOptions(t *testing.T) {
	if v := judge(mosquitto.Options{}, mosquitto.Options{}); !strings.Contains(v.failed, "2 Options") {
		t.Errorf("failed %q", v.failed)
	}
}

func TestLiveRequireShowsTheLogOfAFailure(t *testing.T) {
	requireBinary(t)
	v := judge()
	if v.failed != "" || len(v.cleanups) != 1 {
		t.Fatalf("%+v", v)
	}
	v.Errorf("the test failed")
	v.cleanups[0]()
	if len(v.logged) != 1 || !strings.Contains(v.logged[0], "running") {
		t.Errorf("logged %q", v.logged)
	}
}
