package field_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settlemq/settle"
)

// buffer is a log that may be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *buffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *buffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// calls write down what handlers are called with, and hold calls until the test lets them go.
type calls struct {
	mu   sync.Mutex
	seen []string
	gate chan settle.Outcome
}

func newCalls() *calls { return &calls{gate: make(chan settle.Outcome)} }

func (c *calls) note(s string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, s)
}

// list is what was called so far.
func (c *calls) list() []string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.seen)
}

// expect wants handlers to have been called with these, in this order.
func (c *calls) expect(t *testing.T, want ...string) {
	t.Helper()
	if got := c.list(); !slices.Equal(got, want) {
		t.Errorf("handled %q, want %q", got, want)
	}
}

// expectAll is expect where lanes run at once.
func (c *calls) expectAll(t *testing.T, want ...string) {
	t.Helper()
	got, want := c.list(), slices.Clone(want)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("handled %q, want %q", got, want)
	}
}

// ack is a handler that notes its payload and acknowledges.
func (c *calls) ack(_ context.Context, payload []byte) settle.Outcome {
	c.note(string(payload))
	return settle.Ack()
}

// wait is a handler that notes its payload and waits for its outcome, whatever its context says.
func (c *calls) wait(ctx context.Context, payload []byte) settle.Outcome {
	c.note(string(payload))
	select {
	case o := <-c.gate:
		return o
	case <-time.After(10 * time.Hour): // the test has failed, and its bubble must come to an end
		return settle.Retry(context.Cause(ctx))
	}
}

// release lets one waiting handler return.
func (c *calls) release(t *testing.T, o settle.Outcome) {
	t.Helper()
	select {
	case c.gate <- o:
	case <-time.After(time.Second):
		t.Fatal("no handler waits to be released")
	}
	synctest.Wait()
}

// failing is a handler that notes payload and attempt, and fails the first n attempts.
func (c *calls) failing(n int) func(context.Context, []byte) settle.Outcome {
	return func(ctx context.Context, payload []byte) settle.Outcome {
		attempt := settle.DeliveryFrom(ctx).Attempt()
		c.note(fmt.Sprintf("%s %d", payload, attempt))
		if attempt <= n {
			return settle.Retry(errFails)
		}
		return settle.Ack()
	}
}

// says is a handler that always returns the same.
func says(o settle.Outcome) func(context.Context, []byte) settle.Outcome {
	return func(context.Context, []byte) settle.Outcome { return o }
}
