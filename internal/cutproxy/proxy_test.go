package cutproxy_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/settlemq/settle/internal/cutproxy"
	"github.com/settlemq/settle/internal/loopback"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 10 * time.Second

// bench is a proxy before a listener whose accepted connections the test holds as the server's ends.
type bench struct {
	t        *testing.T
	proxy    *cutproxy.Proxy
	accepted chan *net.TCPConn
}

func newBench(t *testing.T) *bench {
	t.Helper()
	l, err := loopback.Listen()
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := cutproxy.New("mqtt://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, proxy: proxy, accepted: make(chan *net.TCPConn, 10)}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.AcceptTCP()
			if err != nil {
				return
			}
			b.accepted <- conn
		}
	})
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
	return b
}

// connect returns both ends of a connection through the proxy, after a byte went each way.
func (b *bench) connect() (client, server *net.TCPConn) {
	b.t.Helper()
	client = b.dial()
	server = b.serverEnd()
	send(b.t, client, "?")
	expect(b.t, server, "?")
	send(b.t, server, "!")
	expect(b.t, client, "!")
	return client, server
}

func (b *bench) dial() *net.TCPConn {
	b.t.Helper()
	conn, err := net.DialTimeout("tcp", b.proxy.Addr(), patience)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.own(conn.(*net.TCPConn))
}

func (b *bench) serverEnd() *net.TCPConn {
	b.t.Helper()
	select {
	case conn := <-b.accepted:
		return b.own(conn)
	case <-time.After(patience):
		b.t.Fatal("the server was not connected to")
		return nil
	}
}

func (b *bench) own(conn *net.TCPConn) *net.TCPConn {
	b.t.Helper()
	b.t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		b.t.Fatal(err)
	}
	return conn
}

func send(t *testing.T, conn net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(conn, s); err != nil {
		t.Fatalf("send %q: %v", s, err)
	}
}

func expect(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Fatalf("received %q, %v; want %q", got[:n], err, want)
	}
}

// expectEnd wants the stream to end after the bytes of want: well where end is nil, else by that error.
func expectEnd(t *testing.T, conn net.Conn, want string, end error) {
	t.Helper()
	got, err := io.ReadAll(conn)
	if string(got) != want || !errors.Is(err, end) {
		t.Errorf("received %q to the end, %v; want %q, %v", got, err, want, end)
	}
}

// expectSilence wants nothing to arrive for a moment, not even an end.
func expectSilence(t *testing.T, conn net.Conn) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read %d bytes, %v; want silence", n, err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
}

func TestPassesBothWaysAndHalfClose(t *testing.T) {
	b := newBench(t)
	client, server := b.connect()
	big := strings.Repeat("0123456789", 100_000)
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := io.WriteString(client, big); err != nil {
			t.Error(err)
		}
		if err := client.CloseWrite(); err != nil {
			t.Error(err)
		}
	})
	expectEnd(t, server, big, nil)
	wg.Wait()
	send(t, server, "still here") // the other half lives
	if err := server.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	expectEnd(t, client, "still here", nil)
	if got := b.proxy.Stats().Bytes; got != [2]int64{1_000_001, 11} {
		t.Errorf("passed on %v", got)
	}
}

func TestCutEndsBothSidesOfAll(t *testing.T) {
	b := newBench(t)
	c1, s1 := b.connect()
	c2, s2 := b.connect()
	if n := b.proxy.Cut(); n != 2 {
		t.Errorf("cut %d connections, want 2", n)
	}
	for _, conn := range []net.Conn{c1, s1, c2, s2} {
		expectEnd(t, conn, "", nil)
	}
	if n := b.proxy.Cut(); n != 0 {
		t.Errorf("cut %d connections more", n)
	}
	b.connect() // life goes on
	if got := b.proxy.Stats(); got.Accepted != 3 || got.Cut != 2 || got.Open != 1 || got.Failed != 0 {
		t.Errorf("%+v", got)
	}
}

func TestResetIsSeenAsOne(t *testing.T) {
	b := newBench(t)
	client, server := b.connect()
	if n := b.proxy.Reset(); n != 1 {
		t.Errorf("reset %d connections, want 1", n)
	}
	expectEnd(t, client, "", syscall.ECONNRESET)
	expectEnd(t, server, "", syscall.ECONNRESET)
}

func TestCutAfter(t *testing.T) {
	tests := []struct {
		name      string
		n         int64
		direction cutproxy.Direction
		send      []string
		want      string
	}{
		{"in the middle of a write", 4, cutproxy.ToServer, []string{"abcdefg"}, "abcd"},
		{"to the client", 4, cutproxy.ToClient, []string{"abcdefg"}, "abcd"},
		{"at the end of a write", 7, cutproxy.ToServer, []string{"abcdefg"}, "abcdefg"},
		{"over two writes", 9, cutproxy.ToServer, []string{"abcdefg", "hijk"}, "abcdefghi"},
		{"nothing at all", 0, cutproxy.ToServer, []string{"a"}, ""},
		{"less than nothing", -1, cutproxy.ToServer, []string{"a"}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t)
			client, server := b.connect()
			from, to := client, server
			if test.direction == cutproxy.ToClient {
				from, to = server, client
			}
			replaced := b.proxy.CutAfter(1, test.direction)
			done := b.proxy.CutAfter(test.n, test.direction)
			send(t, to, "the other way") // does not count
			expect(t, from, "the other way")
			for i, s := range test.send {
				if i > 0 {
					expect(t, to, test.want[:len(test.send[0])]) // so that the proxy sees two writes
				}
				send(t, from, s)
			}
			if len(test.send) > 1 {
				expectEnd(t, to, test.want[len(test.send[0]):], nil)
			} else {
				expectEnd(t, to, test.want, nil)
			}
			select {
			case <-done:
			case <-time.After(patience):
				t.Fatal("the channel was not closed")
			}
			select {
			case <-replaced:
				t.Error("a cut that was replaced says that it happened")
			default:
			}
			expectEnd(t, from, "", nil)
			if got := b.proxy.Stats().Cut; got != 1 {
				t.Errorf("cut %d connections, want 1", got)
			}
			b.connect() // it cuts once
		})
	}
}

func TestCutAfterCountsAllConnectionsAndCutsAll(t *testing.T) {
	b := newBench(t)
	c1, s1 := b.connect()
	c2, s2 := b.connect()
	done := b.proxy.CutAfter(5, cutproxy.ToServer)
	send(t, c1, "abc")
	expect(t, s1, "abc")
	send(t, c2, "defg")
	expectEnd(t, s2, "de", nil)
	expectEnd(t, s1, "", nil)
	<-done
	if got := b.proxy.Stats().Cut; got != 2 {
		t.Errorf("cut %d connections, want 2", got)
	}
}

func TestStallIsSilentAndResumeBreaksWhatLost(t *testing.T) {
	b := newBench(t)
	client, server := b.connect()
	untouched, untouchedServer := b.connect()
	b.proxy.Stall()
	send(t, client, "lost")
	send(t, server, "lost as well")
	expectSilence(t, server)
	expectSilence(t, client)
	send(t, client, "and no error") // for as long as it lasts
	late := b.dial()                // taken, as by a full backlog, and silent
	send(t, late, "anybody?")
	lateServer := b.serverEnd()
	expectSilence(t, lateServer)
	if got := b.proxy.Stats(); got.Vanished[cutproxy.ToServer] != int64(len("lost"+"and no error"+"anybody?")) || got.Open != 3 || got.Cut != 0 {
		t.Errorf("%+v", got)
	}

	b.proxy.Resume()
	for _, conn := range []net.Conn{client, server, late, lateServer} {
		expectEnd(t, conn, "", syscall.ECONNRESET)
	}
	send(t, untouched, "goes on")
	expect(t, untouchedServer, "goes on")
	b.connect()
}

func TestStallKeepsTheEndOfAStreamFromTheOtherSide(t *testing.T) {
	tests := map[string]func(*net.TCPConn) error{
		"closed": (*net.TCPConn).Close,
		"reset": func(c *net.TCPConn) error {
			return errors.Join(c.SetLinger(0), c.Close())
		},
	}
	for name, end := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			client, server := b.connect()
			b.proxy.Stall()
			if err := end(client); err != nil {
				t.Fatal(err)
			}
			expectSilence(t, server)
			send(t, server, "are you there?") // the client is gone, and the server cannot know
			expectSilence(t, server)
			b.proxy.Resume()
			expectEnd(t, server, "", syscall.ECONNRESET)
		})
	}
}

func TestCutWhileStalled(t *testing.T) {
	b := newBench(t)
	client, server := b.connect()
	b.proxy.Stall()
	send(t, client, "lost")
	expectSilence(t, server)
	if n := b.proxy.Cut(); n != 1 {
		t.Errorf("cut %d connections, want 1", n)
	}
	expectEnd(t, client, "", nil)
	expectEnd(t, server, "", nil)
}

func TestDelay(t *testing.T) {
	const latency = 100 * time.Millisecond
	b := newBench(t)
	client, server := b.connect()
	b.proxy.Delay(latency)
	for _, d := range [][2]net.Conn{{client, server}, {server, client}} {
		began := time.Now()
		send(t, d[0], "late")
		expect(t, d[1], "late")
		if took := time.Since(began); took < latency {
			t.Errorf("it took %v, want %v", took, latency)
		}
	}
	b.proxy.Delay(0)
	send(t, client, "in time")
	expect(t, server, "in time")
}

func TestWhatWaitsIsLostWithItsConnection(t *testing.T) {
	for name, test := range map[string]struct {
		cut func(*cutproxy.Proxy) int
		end error
	}{
		"cut":   {(*cutproxy.Proxy).Cut, nil},
		"reset": {(*cutproxy.Proxy).Reset, syscall.ECONNRESET},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			client, server := b.connect()
			before := b.proxy.Stats().Bytes
			b.proxy.Delay(time.Hour)
			send(t, client, "never")
			expectSilence(t, server)
			test.cut(b.proxy)
			expectEnd(t, server, "", test.end)
			if got := b.proxy.Stats().Bytes; got != before {
				t.Errorf("%v bytes have passed, and before %v", got, before)
			}
		})
	}
}

func TestRefuseAndAccept(t *testing.T) {
	b := newBench(t)
	client, server := b.connect()
	for range 2 {
		if err := b.proxy.Refuse(); err != nil {
			t.Fatal(err)
		}
	}
	if conn, err := net.DialTimeout("tcp", b.proxy.Addr(), patience); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dialled %v, %v; want it refused", conn, err)
	}
	send(t, client, "goes on")
	expect(t, server, "goes on")
	addr := b.proxy.Addr()
	for range 2 {
		if err := b.proxy.Accept(); err != nil {
			t.Fatal(err)
		}
	}
	if b.proxy.Addr() != addr || b.proxy.URL() != "mqtt://"+addr {
		t.Errorf("%s became %s", addr, b.proxy.URL())
	}
	b.connect()
}

func TestServerThatIsNotThere(t *testing.T) {
	port, err := loopback.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := cutproxy.New(fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.DialTimeout("tcp", proxy.Addr(), patience)
	switch {
	case err == nil:
		expectEnd(t, conn, "", syscall.ECONNRESET)
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	case !errors.Is(err, syscall.ECONNRESET): // it may come before the dial returns
		t.Fatal(err)
	}
	if err := proxy.Close(); err != nil {
		t.Error(err)
	}
	if got := proxy.Stats(); got.Accepted != 1 || got.Failed != 1 || got.Open != 0 {
		t.Errorf("%+v", got)
	}
}

func TestClose(t *testing.T) {
	b := newBench(t)
	client, server := b.connect()
	for range 2 {
		if err := b.proxy.Close(); err != nil {
			t.Fatal(err)
		}
	}
	expectEnd(t, client, "", syscall.ECONNRESET)
	expectEnd(t, server, "", syscall.ECONNRESET)
	if err := b.proxy.Accept(); !errors.Is(err, cutproxy.ErrClosed) {
		t.Errorf("Accept after Close: %v", err)
	}
}

func TestCloseWithAWriteThatBlocks(t *testing.T) {
	b := newBench(t)
	client, _ := b.connect() // whose server reads nothing
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			if _, err := client.Write(make([]byte, 1<<20)); err != nil {
				return
			}
		}
	})
	for b.proxy.Stats().Bytes[cutproxy.ToServer] < 1<<16 {
		if err := t.Context().Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.proxy.Close(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
}

func TestTargetMustHaveAPort(t *testing.T) {
	for _, target := range []string{"", "localhost", "mqtt://localhost", "mqtt://"} {
		if p, err := cutproxy.New(target); err == nil {
			t.Errorf("%q: taken; %v", target, p.Close())
		}
	}
}

func TestDirectionString(t *testing.T) {
	if cutproxy.ToServer.String() != "to server" || cutproxy.ToClient.String() != "to client" {
		t.Error(cutproxy.ToServer, cutproxy.ToClient)
	}
}
