package testkit

import (
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestDefaultPatience(t *testing.T) {
	if got := new(Kit).wait(); got != 5*time.Second {
		t.Errorf("%s in real time", got)
	}
	synctest.Test(t, func(t *testing.T) {
		if got := new(Kit).wait(); got != time.Hour {
			t.Errorf("%s in a bubble", got)
		}
	})
	if got := (&Kit{shared: &shared{}}).Within(time.Minute).wait(); got != time.Minute {
		t.Errorf("%s within a minute", got)
	}
}

// What nobody reports is seen all the same; in a bubble without waking up again and again.
func TestUnreportedChange(t *testing.T) {
	check := func(t *testing.T, after time.Duration, most int) {
		t.Helper()
		k := &Kit{shared: &shared{rec: newRecorder(nil)}, patience: time.Hour}
		began, looks := time.Now(), 0
		if !k.await(func() bool { looks++; return time.Since(began) >= after }) {
			t.Error("it was not seen")
		}
		if looks > most {
			t.Errorf("looked %d times", looks)
		}
	}
	check(t, 20*time.Millisecond, 100)
	synctest.Test(t, func(t *testing.T) { check(t, 30*time.Minute, 100) })
}

// A wait is over at once when what it waits for is reported.
func TestReportedChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &Kit{shared: &shared{rec: newRecorder(nil)}, patience: time.Hour}
		var came atomic.Bool
		began := time.Now()
		time.AfterFunc(20*time.Minute, func() { came.Store(true); k.rec.pulse.beat() })
		if !k.await(came.Load) || time.Since(began) != 20*time.Minute {
			t.Errorf("after %s", time.Since(began))
		}
	})
}

// A server that is not there is an error with the reason, and no password.
func TestLiveServerMissing(t *testing.T) {
	s := &live{url: &url.URL{Scheme: "mqtt", Host: "127.0.0.1:1", User: url.UserPassword("me", "secret")}}
	err := s.connect(newRecorder(nil), 500*time.Millisecond) // a refusal comes at once, unless the machine is busy
	s.detach()
	if err == nil || !strings.Contains(err.Error(), "refused") || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
}
