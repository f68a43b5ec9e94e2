package mosquitto_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/paho"
	"go.uber.org/goleak"

	"github.com/settlemq/settle/internal/loopback"
	"github.com/settlemq/settle/internal/mosquitto"
)

// childEnv makes the test binary a program that starts a server, prints its address and waits to be killed.
const childEnv = "SETTLE_TEST_MOSQUITTO_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		s, err := mosquitto.Start(mosquitto.Options{})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		_, _ = fmt.Fprintln(os.Stdout, s.Addr(), s.Dir())
		select {}
	}
	goleak.VerifyTestMain(m)
}

func TestLiveStartAndClose(t *testing.T) {
	s := mosquitto.Require(t)
	if want := "mqtt://127.0.0.1:" + strconv.Itoa(s.Port()); s.URL() != want {
		t.Errorf("URL is %s, want %s", s.URL(), want)
	}
	if s.Port() < 20000 || s.Port() > 32000 {
		t.Errorf("port %d may be given to an outgoing connection", s.Port())
	}
	connect(t, s, &paho.Connect{ClientID: "a", CleanStart: true})
	dir := s.Dir()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
	if conn, err := net.Dial("tcp4", s.Addr()); err == nil {
		t.Errorf("somebody listens after Close: %v", conn.Close())
	}
	if err := s.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if err := s.Restart(); err == nil {
		t.Error("Restart after Close was possible")
	}
}

func TestLiveSessionOutlivesStopAndRestart(t *testing.T) {
	s := mosquitto.Require(t, mosquitto.Options{Persistence: true})
	first := s.PID()
	connect(t, s, &paho.Connect{ClientID: "keeper", Properties: sessionExpiry()})
	if err := s.StopCleanly(); err != nil {
		t.Fatal(err)
	}
	if err := s.StopCleanly(); err != nil {
		t.Fatalf("second StopCleanly: %v", err)
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	if s.PID() == first {
		t.Error("the same process")
	}
	if ack := connect(t, s, &paho.Connect{ClientID: "keeper", Properties: sessionExpiry()}); !ack.SessionPresent {
		t.Error("the session is gone after StopCleanly and Restart")
	}
}

func TestLiveKillLosesWhatWasNotSaved(t *testing.T) {
	s := mosquitto.Require(t, mosquitto.Options{Persistence: true})
	connect(t, s, &paho.Connect{ClientID: "keeper", Properties: sessionExpiry()})
	s.Kill()
	s.Kill()
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	if ack := connect(t, s, &paho.Connect{ClientID: "keeper", Properties: sessionExpiry()}); ack.SessionPresent {
		t.Error("the session is there after SIGKILL with nothing saved")
	}
}

func TestLiveSaveEachChangeOutlivesKill(t *testing.T) {
	s := mosquitto.Require(t, mosquitto.Options{Persistence: true, SaveEachChange: true})
	client, _ := dialClient(t, s, &paho.Connect{ClientID: "keeper", Properties: sessionExpiry()})
	subscribe := &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: "a", QoS: 1}}}
	if _, err := client.Subscribe(t.Context(), subscribe); err != nil {
		t.Fatal(err)
	}
	awaitFile(t, filepath.Join(s.Dir(), "mosquitto.db"))
	s.Kill()
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	if ack := connect(t, s, &paho.Connect{ClientID: "keeper", Properties: sessionExpiry()}); !ack.SessionPresent {
		t.Errorf("the session is gone although each change is saved; log:\n%s", s.Log())
	}
}

func TestLiveRestartTenTimesWithAConnectionOpen(t *testing.T) {
	s := mosquitto.Require(t)
	port := s.Port()
	for range 10 {
		conn, err := net.Dial("tcp4", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() }) // open across the restart, so that the port is in TIME_WAIT or FIN_WAIT
		s.Kill()
		if err := s.Restart(); err != nil {
			t.Fatal(err)
		}
		if s.Port() != port {
			t.Fatalf("port %d became %d", port, s.Port())
		}
	}
	if err := s.Restart(); err != nil { // while it runs
		t.Fatal(err)
	}
}

func TestLiveUsers(t *testing.T) {
	const notAuthorized = 0x87
	s := mosquitto.Require(t, mosquitto.Options{Users: map[string]string{"billing": "pa:ss word"}})
	good := &paho.Connect{ClientID: "a", CleanStart: true, UsernameFlag: true, Username: "billing", PasswordFlag: true, Password: []byte("pa:ss word")}
	connect(t, s, good)
	wrong := *good
	wrong.Password = []byte("wrong")
	for name, packet := range map[string]*paho.Connect{"wrong password": &wrong, "anonymous": {ClientID: "b", CleanStart: true}} {
		if _, ack, err := tryClient(t, s, packet); err == nil || ack == nil || ack.ReasonCode != notAuthorized {
			t.Errorf("%s: CONNACK %+v, error %v; want reason code 0x87", name, ack, err)
		}
	}
}

func TestLiveAnonymousBesideUsers(t *testing.T) {
	s := mosquitto.Require(t, mosquitto.Options{Users: map[string]string{"billing": "x"}, AllowAnonymous: true})
	connect(t, s, &paho.Connect{ClientID: "a", CleanStart: true})
}

func TestLiveBadConfigurationIsQuoted(t *testing.T) {
	requireBinary(t)
	s, err := mosquitto.Start(mosquitto.Options{Lines: []string{"no_such_option 7"}})
	if err == nil {
		t.Fatalf("started: %v", s.Close())
	}
	if !strings.Contains(err.Error(), "no_such_option") {
		t.Errorf("does not name the line: %v", err)
	}
}

func TestLivePortTaken(t *testing.T) {
	requireBinary(t)
	l, err := loopback.Listen() // answers a dial, as another server would
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	addr, _ := l.Addr().(*net.TCPAddr)
	s, err := mosquitto.Start(mosquitto.Options{Port: addr.Port})
	if err == nil {
		t.Fatalf("another's listener was taken for the server: %v", s.Close())
	}
	if !strings.Contains(err.Error(), "the port is taken") {
		t.Error(err)
	}
}

func TestLiveOwnFolderIsKept(t *testing.T) {
	dir := t.TempDir()
	s := mosquitto.Require(t, mosquitto.Options{Dir: dir, Persistence: true})
	if err := s.StopCleanly(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "mosquitto.db")); err != nil {
		t.Error(err)
	}
}

// sessionExpiry asks for a session that is kept. Mosquitto 2.0.11 saves none that began with Clean Start, whatever its expiry, so the
// tests connect without.
func sessionExpiry() *paho.ConnectProperties {
	hour := uint32(3600)
	return &paho.ConnectProperties{SessionExpiryInterval: &hour}
}

// connect connects a client, which is disconnected without DISCONNECT when the test ends.
func connect(t *testing.T, s *mosquitto.Server, packet *paho.Connect) *paho.Connack {
	t.Helper()
	_, ack := dialClient(t, s, packet)
	return ack
}

func dialClient(t *testing.T, s *mosquitto.Server, packet *paho.Connect) (*paho.Client, *paho.Connack) {
	t.Helper()
	client, ack, err := tryClient(t, s, packet)
	if err != nil {
		t.Fatalf("connect: %v; log:\n%s", err, s.Log())
	}
	return client, ack
}

func tryClient(t *testing.T, s *mosquitto.Server, packet *paho.Connect) (*paho.Client, *paho.Connack, error) {
	t.Helper()
	conn, err := net.Dial("tcp4", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	client := paho.NewClient(paho.ClientConfig{Conn: conn})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	ack, err := client.Connect(ctx, packet)
	t.Cleanup(func() {
		_ = conn.Close()
		if err == nil {
			<-client.Done()
		}
	})
	return client, ack, err
}

func requireBinary(t *testing.T) {
	t.Helper()
	_, err := mosquitto.Find()
	switch {
	case err != nil && os.Getenv(mosquitto.RequireEnv) == "require":
		t.Fatal(err)
	case err != nil:
		t.Skip(err)
	}
}

func awaitFile(t *testing.T, path string) {
	t.Helper()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	deadline := time.After(15 * time.Second)
	for {
		if _, err := os.Stat(path); err == nil {
			return
		}
		select {
		case <-again.C:
		case <-deadline:
			t.Fatalf("%s did not come", path)
		}
	}
}
