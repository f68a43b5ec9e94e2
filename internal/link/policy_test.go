package link

import (
	"errors"
	"testing"
	"time"

	"github.com/settlemq/settle/internal/wire"
)

func TestStates(t *testing.T) {
	all := []State{Idle, Dialling, Connecting, Subscribing, Up, Draining, Waiting, Ended}
	// A row says what may follow: d, c, s, u, r(draining), w, e.
	rows := map[State]string{
		Idle: "de", Dialling: "cwe", Connecting: "srwe", Subscribing: "urwe", Up: "rwe", Draining: "we", Waiting: "de", Ended: "",
	}
	letters := map[State]rune{Dialling: 'd', Connecting: 'c', Subscribing: 's', Up: 'u', Draining: 'r', Waiting: 'w', Ended: 'e'}
	for _, from := range all {
		for _, to := range all {
			want := false
			for _, letter := range rows[from] {
				want = want || letter == letters[to]
			}
			l := New(Config{})
			l.state = from
			before := l.changed
			if got := l.move(to); got != want {
				t.Errorf("%s to %s: %t", from, to, got)
			}
			if want != (l.state == to && l.changed != before) && from != to {
				t.Errorf("%s to %s: now %s", from, to, l.state)
			}
			if s := l.Status(); s.Granted != (l.state == Up) && want {
				t.Errorf("%s to %s: %+v", from, to, s)
			}
		}
	}
}

func TestPolicy(t *testing.T) {
	plain := errors.New("reset")
	refuse := func(code byte) outcome { return outcome{err: &ConnectError{Code: code}} }
	lost := func(err error, lasted time.Duration) outcome {
		return outcome{err: err, accepted: true, granted: true, lasted: lasted}
	}
	delivered := func(o outcome) outcome { o.delivered = true; return o }
	ended := func(code byte) error { return &DisconnectError{Code: code} }
	type step struct {
		o      outcome
		wait   time.Duration // nominal; -1: fatal
		server int           // the next
	}
	const long = longBackoff
	const second = time.Second
	tests := []struct {
		name    string
		servers int
		steps   []step
	}{
		{"doubling to 30 s", 1, []step{
			{outcome{err: plain}, second / 10, 0}, {outcome{err: plain}, second / 5, 0}, {refuse(0x86), second * 2 / 5, 0},
			{lost(plain, second), second * 4 / 5, 0}, {outcome{err: plain}, second * 8 / 5, 0}, {outcome{err: plain}, second * 16 / 5, 0},
			{outcome{err: plain}, second * 32 / 5, 0}, {outcome{err: plain}, second * 64 / 5, 0}, {outcome{err: plain}, second * 128 / 5, 0},
			{outcome{err: plain}, 30 * second, 0}, {outcome{err: plain}, 30 * second, 0},
			{delivered(lost(plain, second)), second / 10, 0}, {outcome{err: plain}, second / 5, 0},
			{lost(plain, time.Minute), second / 10, 0},
		}},
		{"a delivery without a grant resets nothing", 1, []step{
			{outcome{err: plain}, second / 10, 0}, {outcome{err: &SubscribeError{Code: 0x87}, accepted: true, delivered: true}, second / 5, 0},
			{delivered(lost(&wire.Error{Code: 0x81}, second)), second * 2 / 5, 0},
		}},
		{"in turn", 3, []step{
			{outcome{err: plain}, 0, 1}, {outcome{err: plain}, 0, 2}, {outcome{err: plain}, second / 10, 0}, {outcome{err: plain}, 0, 1},
			{lost(plain, second), second / 5, 1}, {outcome{err: plain}, 0, 2}, {outcome{err: plain}, 0, 0}, {outcome{err: plain}, second * 2 / 5, 1},
		}},
		{"use another server", 2, []step{
			{refuse(0x9C), 0, 1}, {delivered(lost(ended(0x9D), second)), second / 10, 0}, {lost(ended(0x89), time.Hour), 0, 1},
			{refuse(0x88), second / 10, 0}, {lost(ended(0x89), second), 0, 1}, {lost(ended(0x89), second), second / 5, 0},
		}},
		{"use another server, and there is none", 1, []step{{refuse(0x9C), second / 10, 0}, {refuse(0x9D), second / 5, 0}}},
		{"taken over", 2, []step{
			{delivered(lost(ended(0x8E), second)), long, 0}, {lost(ended(0x8E), time.Hour), long, 0}, {outcome{err: plain}, 0, 1},
		}},
		{"banned", 1, []step{{refuse(0x8A), long, 0}, {lost(ended(0x98), second), long, 0}}},
		{"suspected", 1, []step{
			{delivered(lost(errServerClosed, second)), second / 10, 0}, {delivered(lost(errServerClosed, second)), second / 10, 0},
			{delivered(lost(errServerClosed, second)), long, 0}, {delivered(lost(errServerClosed, second)), long, 0},
			{delivered(lost(errServerClosed, suspectAge)), second / 10, 0},
			{delivered(lost(errServerClosed, second)), second / 10, 0}, {delivered(lost(plain, second)), second / 10, 0},
			{delivered(lost(errServerClosed, second)), second / 10, 0}, {delivered(lost(errServerClosed, second)), second / 10, 0},
		}},
		{"fatal", 1, []step{{refuse(0x84), -1, 0}}},
		{"fatal, by the caller's judgement, at any time", 1, []step{
			{delivered(lost(plain, second)), second / 10, 0}, {outcome{err: fatalError{plain}, accepted: true}, -1, 0},
		}},
		{"not fatal any more", 2, []step{{lost(plain, second), second / 10, 0}, {refuse(0x85), 0, 1}, {refuse(0x9B), second / 5, 0}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := policy{servers: test.servers}
			for i, step := range test.steps {
				v := p.judge(step.o)
				if v.fatal != (step.wait < 0) {
					t.Fatalf("step %d: fatal %t", i, v.fatal)
				}
				if step.wait >= 0 && (v.wait < step.wait*4/5 || v.wait > step.wait*6/5) {
					t.Errorf("step %d: wait %s, want about %s", i, v.wait, step.wait)
				}
				if p.server != step.server {
					t.Errorf("step %d: server %d, want %d", i, p.server, step.server)
				}
			}
		})
	}
}

func TestErrorsSayWhatHappened(t *testing.T) {
	tests := []struct {
		err  error
		want string
	}{
		{&ConnectError{Code: 0x87, Server: "mqtt://one", Reason: "no\nentry"}, `mqtt://one refused the connection: not authorized (0x87): "no\nentry"`},
		{&ConnectError{Code: 0xF0, Server: "mqtt://one"}, `mqtt://one refused the connection: reason (0xF0)`},
		{&DisconnectError{Code: 0x8B}, `the server disconnected: server shutting down (0x8B)`},
		{&DisconnectError{Code: 0x8E}, `the session was taken over (0x8E): another process uses this client identifier`},
		{&LimitError{Topic: "t", Limit: "server's Maximum QoS", Value: 2, Most: 1}, `publish to "t": 2 exceeds the server's Maximum QoS of 1`},
	}
	for _, test := range tests {
		if got := test.err.Error(); got != test.want {
			t.Errorf("got %s, want %s", got, test.want)
		}
	}
	if Up.String() != "up" || Ended.String() != "ended" {
		t.Error("the states have the wrong names")
	}
}
