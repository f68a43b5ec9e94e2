package field_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/testkit"
)

// Two processes fight over one client identifier; the server says so, or just closes the older connection, as Mosquitto does. Each time it takes
// longer, the suspicion is in the log, and what is published is handled.
func TestG1_TwoProcessesUnderOneClientID(t *testing.T) {
	for name, test := range map[string]struct {
		silent    bool
		suspicion string
		most      float64 // connections of both in eleven minutes, where each backs off for half a minute once it knows
	}{
		"DISCONNECT 0x8E": {false, "another process uses this client identifier", 30},
		"just closed":     {true, "another process uses the same client identifier", 65}, // it has to lose some short ones to know
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				c := newCalls()
				b := testkit.NewBroker(t)
				if test.silent {
					b.Intercept(func(_ string, toClient bool, p testkit.Packet) testkit.Verdict {
						return testkit.Verdict{Drop: toClient && p.Type == typeDisconnect}
					})
				}
				one := begin(t, b, nil, settle.Handle("a", c.ack))
				two := attach(t, b, nil, settle.Handle("a", c.ack))
				two.launch()
				for i := range 10 {
					pass(time.Minute)
					b.Publish("a", fmt.Append(nil, i))
				}
				pass(time.Minute)
				accepted := one.value(`settle_connections_total{result="accepted"}`) + two.value(`settle_connections_total{result="accepted"}`)
				if accepted > test.most {
					t.Errorf("%v connections in eleven minutes, want %v at the most", accepted, test.most)
				}
				if !strings.Contains(one.log.String()+two.log.String(), test.suspicion) {
					t.Error("the suspicion is not in the log")
				}
				for _, s := range []*service{one, two} {
					if err := s.app.Live(); err != nil {
						t.Errorf("a fight over a client identifier is no reason to restart the process: %v", err)
					}
				}
				handled := c.list()
				slices.Sort(handled)
				if got := slices.Compact(handled); len(got) != 10 {
					t.Errorf("handled %q", got)
				}
			})
		})
	}
}

// A password is wrong until somebody sets it right. The app goes on asking for it, ever less often, says in health what is wrong, and does not give up.
func TestG3_CredentialsAreAskedForAgainEachTime(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		const refused = 8
		asked := 0
		var dials []time.Time
		b := testkit.NewBroker(t, testkit.Options{Authenticate: func(_, username string, password []byte) byte {
			dials = append(dials, time.Now())
			if username != "bob" || string(password) != fmt.Sprint(refused+1) {
				return 0x86
			}
			return 0
		}})
		s := attach(t, b, func(c *settle.Config) {
			c.Credentials = func(context.Context) (string, []byte, error) {
				asked++
				return "bob", fmt.Append(nil, asked), nil
			}
		}, settle.Handle("a", c.ack))
		s.launch()
		for i := range refused {
			s.Until("refused once more", func() bool { return s.value(`settle_connections_total{result="refused"}`) == float64(i+1) })
			s.unready("0x86")
			if err := s.app.Live(); err != nil {
				t.Error(err)
			}
		}
		s.ready()
		s.publish("a", 1, "x")
		s.quiet()
		c.expect(t, "x")
		for i := 1; i < len(dials); i++ { // 100 ms, doubled each time, ±20 %
			want := 100 * time.Millisecond << (i - 1)
			if wait := dials[i].Sub(dials[i-1]); wait < want*8/10 || wait > want*12/10+time.Millisecond {
				t.Errorf("dial %d came after %s, want about %s", i+1, wait, want)
			}
		}
		if len(dials) != refused+1 || asked != refused+1 {
			t.Errorf("%d dials, asked %d times", len(dials), asked)
		}
	})
}

// The server takes one publish at a time, and twenty fail at once. It would end the connection at the second.
func TestG7_TheServersReceiveMaximumIsNeverExceeded(t *testing.T) {
	in(t, func(t *testing.T) {
		const n = 20
		b := testkit.NewBroker(t, testkit.Options{ReceiveMaximum: 1})
		s := begin(t, b, nil, settle.Handle("a", says(settle.Reject(errFails)), settle.DeadLetterTo("dead"), settle.Workers(n)))
		b.AnswerLate("dead", 50*time.Millisecond)
		s.publish("a", 1, numbered(n)...)
		began := time.Now()
		for _, got := range s.Settled("a", n) {
			if got.SentTo != "dead" || !got.Acknowledged {
				t.Error(got)
			}
		}
		if took := time.Since(began); took < n*50*time.Millisecond {
			t.Errorf("it took %s: the answers were not waited for", took)
		}
		open, most := 0, 0
		for _, line := range s.wire("svc", "") {
			switch {
			case strings.HasPrefix(line, "> PUBLISH"):
				open++
			case strings.HasPrefix(line, "< PUBACK"):
				open--
			}
			most = max(most, open)
		}
		if most != 1 {
			t.Errorf("%d publishes were under way at once", most)
		}
		s.expect(`settle_dead_letters_total{result="confirmed",route="a"}`, n)
		s.connected(1)
	})
}

// The server takes the connection and never answers CONNECT. After ten seconds the app tries again. A dial that does not come that far is cut
// off as well, which package link holds: see the table.
func TestG8_AServerThatDoesNotAnswerConnect(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		b := testkit.NewBroker(t)
		answer := b.DropPackets()
		s := attach(t, b, nil, settle.Handle("a", c.ack))
		s.launch()
		pass(9900 * time.Millisecond)
		s.expect(`settle_connections_total{result="failed"}`, 0)
		s.unready("main connection is connecting")
		pass(200 * time.Millisecond)
		s.expect(`settle_connections_total{result="failed"}`, 1)
		pass(time.Minute)
		if n := s.value(`settle_connections_total{result="failed"}`); n < 4 {
			t.Errorf("%v dials in a minute", n)
		}
		answer()
		s.publish("a", 1, "x")
		s.quiet()
		c.expect(t, "x")
	})
}
