package field_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/testkit"
)

// Fifty topics, with retries and dead letters, and not one in a label: routes have names.
func TestI1_TopicsAreNoLabels(t *testing.T) {
	in(t, func(t *testing.T) {
		const n = 50
		c := newCalls()
		s := begin(t, testkit.NewBroker(t), nil, settle.Handle("meters/+/usage", c.failing(1),
			settle.Name("usage"), settle.RetryTo("svc/retry"), settle.DeadLetterTo("svc/dead"), settle.Backoff(settle.Constant(time.Millisecond))))
		series := func() (all []string) {
			families, err := s.metrics.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, family := range families {
				for _, m := range family.GetMetric() {
					all = append(all, family.GetName()+fmt.Sprint(m.GetLabel()))
				}
			}
			return all
		}
		s.publish("meters/first/usage", 1, "x")
		s.publish("nobody/asked", 1, "x")
		s.quiet()
		before := len(series())
		for i := range n {
			s.publish(fmt.Sprintf("meters/%d/usage", i), 1, "x")
		}
		s.quiet()
		after := series()
		if len(after) != before {
			t.Errorf("%d series after one message, %d after %d", before, len(after), n+1)
		}
		for _, m := range after {
			if strings.Contains(m, "meters/") || strings.Contains(m, "svc/") {
				t.Errorf("a topic in %s", m)
			}
		}
		s.expect(`settle_settled_total{outcome="ack",route="usage"}`, n+1)
	})
}

// All that can go wrong with secrets at hand, at the most talkative log level. None of them is in the log, in health, in a header, or in what
// a failed test shows of the wire.
func TestI2_SecretsAreRedacted(t *testing.T) {
	in(t, func(t *testing.T) {
		const payload, password, query = "p4yl0ad", "s3cret", "t0ken"
		wrong := 2
		b := testkit.NewBroker(t, testkit.Options{Authenticate: func(_, _ string, got []byte) byte {
			if wrong--; wrong >= 0 || string(got) != password {
				return 0x86
			}
			return 0
		}})
		s := attach(t, b, func(c *settle.Config) {
			c.Servers = []string{"wss://bob:" + password + "@server?token=" + query}
			c.Logger = c.Logger.Level(zerolog.TraceLevel)
		}, settle.Handle("a", func(_ context.Context, r report) settle.Outcome {
			switch r.Meter {
			case "panic":
				panic(payload)
			case "reject":
				return settle.Reject(errFails)
			}
			return settle.Drop("")
		}, settle.DeadLetterTo("dead"), settle.MaxAttempts(1)))
		s.launch()
		s.Until("refused", func() bool { return s.app.Ready() != nil && strings.Contains(s.app.Ready().Error(), "0x86") })
		told := []string{s.app.Ready().Error()}
		s.ready()
		s.publish("a", 1, payload, `{"meter":"panic"}`, `{"meter":["`+payload+`"]}`, `{"meter":"reject","x":"`+payload+`"}`)
		s.publish("nobody", 1, payload)
		s.quiet()
		s.CutConnection()
		s.ready()
		b.Send("svc", []byte("\x30\xff\xff\xff\xff"+payload))
		s.Until("it has complained", func() bool { return len(s.wire("svc", "> DISCONNECT")) == 1 })
		told = append(told, fmt.Sprint(s.app.Ready()))
		s.ready()
		for _, letter := range s.Published("dead", 4) {
			told = append(told, header(letter, "settle-reason"))
		}
		s.stop()
		told = append(told, s.log.String())
		all := strings.Join(told, "\n")
		for _, secret := range []string{payload, password, query} {
			if i := strings.Index(all, secret); i >= 0 {
				t.Errorf("%s is told: %s", secret, all[max(0, i-200):min(len(all), i+50)])
			}
		}
		for _, line := range s.Wire() {
			if strings.Contains(line, password) {
				t.Errorf("the wire log has the password: %s", line)
			}
		}
		if !strings.Contains(all, `"level":"debug"`) {
			t.Error("nothing was logged at debug level")
		}
	})
}

// Connected is not working. Readiness and liveness are two things, and what is not ready says when there last was a delivery and
// an acknowledgement, and how old the oldest delivery is.
func TestI3_ConnectedIsNotWorking(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		b := testkit.NewBroker(t)
		slow := b.Intercept(func(_ string, toClient bool, p testkit.Packet) testkit.Verdict {
			if !toClient || p.Type != typeSuback {
				return testkit.Verdict{}
			}
			return testkit.Verdict{Hold: 5 * time.Second}
		})
		s := attach(t, b, nil, settle.Handle("a", c.wait, settle.Timeout(0)))
		s.launch()
		pass(time.Second)
		s.expect("settle_connected", 1)
		s.unready("main connection is subscribing")
		if err := s.app.Live(); err != nil {
			t.Error(err)
		}
		s.ready()
		slow()

		s.publish("a", 1, "x", "y")
		pass(7 * time.Second)
		c.release(t, settle.Ack())
		pass(5 * time.Second)
		b.RefuseConnect(0x88)
		s.CutConnection()
		s.unready("last delivery 12s ago", "last acknowledgement 5s ago", "oldest unacknowledged delivery 12s old", "without a DISCONNECT")
		if err := s.app.Live(); err != nil {
			t.Error(err)
		}
		s.expect("settle_window_unacked", 1)
		c.release(t, settle.Ack())
	})
}

// Our own DISCONNECT is no error: not of Stop, not of the app, and not in the log.
func TestI4_OurOwnDisconnectIsNoError(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		s := begin(t, testkit.NewBroker(t), nil, settle.Handle("a", c.ack, settle.RetryTo("r"), settle.DeadLetterTo("dead")))
		s.publish("a", 1, "x")
		s.quiet()
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
		if err := s.app.Err(); err != nil {
			t.Error(err)
		}
		s.sent("DISCONNECT", "DISCONNECT 0x00")
		for _, level := range []string{`"level":"error"`, `"level":"warn"`, `"error"`} {
			if strings.Contains(s.log.String(), level) {
				t.Errorf("a stop in good order is logged with %s: %s", level, s.log)
			}
		}
	})
}
