package loopback_test

import (
	"net"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"github.com/settlemq/settle/internal/loopback"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestListenStaysBelowTheEphemeralPorts(t *testing.T) {
	for range 50 {
		l, err := loopback.Listen()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
		addr, ok := l.Addr().(*net.TCPAddr)
		if !ok || !addr.IP.IsLoopback() || addr.Port < 20000 || addr.Port > 32000 {
			t.Fatalf("listens on %v", l.Addr())
		}
	}
}

func TestFreePortCanBeTaken(t *testing.T) {
	port, err := loopback.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
