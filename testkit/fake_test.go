package testkit_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"

	"github.com/settlemq/settle"
)

// fakeT is a testing.TB whose failure is looked at.
type fakeT struct {
	testing.TB // for its private method: anything else that is called panics

	ctx context.Context

	mu       sync.Mutex
	failed   bool
	log      strings.Builder
	cleanups []func()
}

// run runs a test as the testing package does, and returns its log and whether it failed.
func run(t *testing.T, test func(*fakeT)) (log string, failed bool) {
	t.Helper()
	f := &fakeT{ctx: t.Context()}
	apart(func() { test(f) })
	f.end()
	return f.log.String(), f.failed
}

// end runs what the test has left for its end.
func (f *fakeT) end() {
	for _, cleanup := range slices.Backward(f.cleanups) {
		apart(cleanup)
	}
}

// apart calls a function that may end its goroutine.
func apart(part func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		part()
	}()
	<-done
}

func (f *fakeT) Helper()                  {}
func (f *fakeT) Context() context.Context { return f.ctx }
func (f *fakeT) Log(args ...any)          { f.note(fmt.Sprintln(args...), false) }
func (f *fakeT) Cleanup(c func())         { f.cleanups = append(f.cleanups, c) }

func (f *fakeT) Logf(format string, args ...any)   { f.note(fmt.Sprintf(format+"\n", args...), false) }
func (f *fakeT) Errorf(format string, args ...any) { f.note(fmt.Sprintf(format+"\n", args...), true) }

func (f *fakeT) Fatal(args ...any) {
	f.note(fmt.Sprintln(args...), true)
	runtime.Goexit()
}

func (f *fakeT) Fatalf(format string, args ...any) {
	f.note(fmt.Sprintf(format+"\n", args...), true)
	runtime.Goexit()
}

func (f *fakeT) note(text string, failed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log.WriteString(text)
	f.failed = f.failed || failed
}

func (f *fakeT) Failed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

// quietApp is an app of some routes that logs nothing.
func quietApp(t testing.TB, routes ...settle.Route) *settle.App {
	t.Helper()
	app, err := settle.New(settle.Config{ClientID: "svc", Servers: []string{"mqtt://somewhere"}, Logger: zerolog.Nop()}, routes...)
	if err != nil {
		t.Fatal(err)
	}
	return app
}

// says is a handler that always returns the same.
func says(o settle.Outcome) func(context.Context, []byte) settle.Outcome {
	return func(context.Context, []byte) settle.Outcome { return o }
}
