package mosquitto

import (
	"strings"
	"testing"
)

// HideBinary lets an external test see a machine without mosquitto.
func HideBinary() (restore func()) {
	was := sbin
	sbin = nil
	return func() { sbin = was }
}

func TestConfig(t *testing.T) {
	tests := []struct {
		name string
		o    Options
		root bool
		want string
	}{
		{"zero", Options{}, false, `
log_dest stderr
allow_anonymous true
persistence false
listener 2000 127.0.0.1
`},
		{"everything", Options{
			Persistence: true, SaveEachChange: true, MaxInflight: 20, MaxQueued: NoLimit,
			Users: map[string]string{"u": "p"}, Lines: []string{"log_type all", "max_packet_size 100"},
		}, true, `
user root
log_dest stderr
allow_anonymous false
password_file /d/passwords
persistence true
persistence_location /d/
autosave_on_changes true
autosave_interval 1
max_inflight_messages 20
max_queued_messages 0
listener 2000 127.0.0.1
log_type all
max_packet_size 100
`},
		{"anonymous beside users", Options{Users: map[string]string{"u": "p"}, AllowAnonymous: true}, false, `
log_dest stderr
allow_anonymous true
password_file /d/passwords
persistence false
listener 2000 127.0.0.1
`},
		{"saving needs persistence", Options{SaveEachChange: true}, false, `
log_dest stderr
allow_anonymous true
persistence false
listener 2000 127.0.0.1
`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got, want := test.o.config("/d", 2000, test.root), strings.TrimPrefix(test.want, "\n"); got != want {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

func TestPasswords(t *testing.T) {
	got, err := passwords(map[string]string{"b": "secret", "a": "secret"})
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(got, "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "a:$7$101$") || !strings.HasPrefix(lines[1], "b:$7$101$") {
		t.Fatalf("got %q", lines)
	}
	if lines[0][1:] == lines[1][1:] {
		t.Error("one salt for two users")
	}
	for _, bad := range []string{"", "a:b", "a\nb"} {
		if _, err := passwords(map[string]string{bad: "x"}); err == nil || strings.Contains(err.Error(), "x\"") {
			t.Errorf("user %q: %v", bad, err)
		}
	}
}

func TestTail(t *testing.T) {
	l := &tail{}
	write := func(s string) {
		t.Helper()
		if n, err := l.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatal(n, err)
		}
	}
	isClosed := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	write("1: mosquitto version 2.0.11 running\n") // of a run that nobody waits for
	running := l.awaitRunning()
	write("2: mosquitto version 2.0.11 starting\n3: mosquitto vers")
	write("ion 2.0.11 run")
	if isClosed(running) {
		t.Fatal("told too early")
	}
	write("ning\n4: more\n")
	if !isClosed(running) {
		t.Fatal("not told")
	}
	again := l.awaitRunning()
	write("5: mosquitto version 2.0.11 terminating\n")
	if isClosed(again) {
		t.Fatal("told at its end")
	}
	write(strings.Repeat("x", tailSize) + "end")
	if got := l.String(); len(got) != tailSize || !strings.HasSuffix(got, "xend") {
		t.Errorf("%d bytes kept", len(got))
	}
}
