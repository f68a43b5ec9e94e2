package conformance

import (
	"context"
	"fmt"
	"net"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"
)

// Dialer opens a connection to the server under test. Its connections can be closed for writing alone, as TCP's can.
type Dialer func(ctx context.Context) (net.Conn, error)

// Server is a server under test.
type Server struct {
	// Dial reaches the server. The checks run side by side, as waiting takes real time.
	Dial Dialer
	// Each, in place of Dial, calls check with a dialer, once for each check: to give it a server of its own, in a bubble for example.
	Each func(t *testing.T, check func(t *testing.T, dial Dialer))
	// Lag is how long after the acknowledgement of a PUBLISH the message may still be on its way to a subscriber's connection. Zero
	// is for a server that has queued it by then.
	Lag time.Duration
	// Complete makes a check that does not apply a failure: the server is configured so that all do.
	Complete bool
	// Deviations are the checks that are known to fail.
	Deviations []Deviation
}

// Deviation is a check that a server is known to fail.
type Deviation struct {
	Check  string // the check's name, without its section
	Seen   string // stands in the failure's text
	Reason string // what the server does instead, and what Settle does about it
}

// check is one thing that Settle relies on.
type check struct {
	section string // of the standard
	name    string
	run     func(p *probe)
}

// checks are the suite, in the order of the standard's sections as far as its parts allow.
func checks() []check {
	return slices.Concat(
		connectChecks, sessionChecks, keepAliveChecks, willChecks,
		windowChecks, redeliveryChecks, outboundQoS2Checks, inboundQoS2Checks, publishChecks, expiryChecks,
		subscribeChecks, filterChecks, retainedChecks, sharedChecks,
		limitChecks, malformedChecks(), disconnectChecks,
	)
}

// Run runs the suite, a subtest for each check.
func Run(t *testing.T, s Server) {
	all := checks()
	declared := make(map[string]*Deviation, len(s.Deviations))
	for i := range s.Deviations {
		d := &s.Deviations[i]
		if !slices.ContainsFunc(all, func(c check) bool { return c.name == d.Check }) {
			t.Errorf("a deviation is declared from %q, and there is no such check", d.Check)
		}
		declared[d.Check] = d
	}
	probes := make([]*probe, len(all))
	for i := range all {
		probes[i] = &probe{lag: s.Lag, prefix: fmt.Sprintf("conformance-%d", i), done: make(chan struct{})}
	}
	if s.Dial != nil {
		go sideBySide(t.Context(), s.Dial, all, probes)
	}
	for i, c := range all {
		p := probes[i]
		report := func(t *testing.T) {
			t.Helper()
			if p.inapplicable != "" && !s.Complete {
				t.Skip(p.inapplicable)
			}
			if problem := judge(p.failure+p.inapplicable, declared[c.name]); problem != "" {
				t.Error(problem)
			} else if p.failure != "" {
				t.Logf("deviates, as declared: %s\n%s", p.failure, declared[c.name].Reason)
			}
		}
		t.Run(c.section+" "+c.name, func(t *testing.T) {
			if s.Dial != nil {
				<-p.done
				report(t)
				return
			}
			s.Each(t, func(t *testing.T, dial Dialer) {
				p.done = make(chan struct{}) // of the bubble
				p.try(t.Context(), dial, c.run)
				report(t)
			})
		})
	}
}

// abreast is how many checks run side by side.
const abreast = 16

// sideBySide runs checks, and ends with the last of them.
func sideBySide(ctx context.Context, dial Dialer, all []check, probes []*probe) {
	free := make(chan struct{}, abreast)
	for i, c := range all {
		free <- struct{}{}
		go func() {
			probes[i].try(ctx, dial, c.run)
			<-free
		}()
	}
}

// judge holds what a check has found against what was declared, and returns what is wrong, "" for nothing.
func judge(failure string, declared *Deviation) (problem string) {
	switch {
	case failure == "" && declared == nil:
		return ""
	case failure == "":
		return "passes, but a deviation is declared: " + declared.Reason
	case declared == nil:
		return failure
	case declared.Seen == "" || !strings.Contains(failure, declared.Seen):
		return fmt.Sprintf("%s\na deviation is declared, but another one: %q", failure, declared.Seen)
	}
	return ""
}

// try runs a check on a goroutine of its own, which a failure ends, and closes the connections that the check has opened.
func (p *probe) try(ctx context.Context, dial Dialer, run func(*probe)) {
	defer close(p.done)
	p.ctx, p.dial = ctx, dial
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() {
			if r := recover(); r != nil {
				p.failure = fmt.Sprintf("panic: %v\n%s", r, debug.Stack())
			}
		}()
		run(p)
	}()
	<-ended
	for _, c := range p.peers {
		c.close()
	}
}
