package mosquitto_test

import (
	"bufio"
	"errors"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/settlemq/settle/internal/mosquitto"
)

// The kernel kills the server when the thread that started it ends. That thread must not be the caller's.
func TestLiveOutlivesTheThreadOfStart(t *testing.T) {
	requireBinary(t)
	type result struct {
		s   *mosquitto.Server
		err error
	}
	started := make(chan result)
	onThreadThatEnds(func() {
		s, err := mosquitto.Start(mosquitto.Options{})
		started <- result{s, err}
	})
	r := <-started
	if r.err != nil {
		t.Fatal(r.err)
	}
	defer func() {
		if err := r.s.Close(); err != nil {
			t.Error(err)
		}
	}()
	conn, err := net.Dial("tcp4", r.s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the server ended with the thread that called Start: %v", err)
	}
}

// onThreadThatEnds runs f on a thread that ends when f has returned. Go ends the thread of a goroutine that is still locked to it, but not
// the first thread of a process: that one is held meanwhile.
func onThreadThatEnds(f func()) {
	go func() {
		runtime.LockOSThread()
		if syscall.Gettid() != os.Getpid() {
			f()
			return
		}
		done := make(chan struct{})
		onThreadThatEnds(func() {
			defer close(done)
			f()
		})
		<-done
		runtime.UnlockOSThread()
	}()
}

func TestLiveDiesWithItsParent(t *testing.T) {
	requireBinary(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(self)
	child.Env = append(os.Environ(), childEnv+"=1")
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the child said nothing: %v, %v", err, child.Wait())
	}
	addr, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
	defer func() { _ = os.RemoveAll(dir) }() // the child cannot
	conn, err := net.Dial("tcp4", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := child.Wait(); err == nil {
		t.Error("killed, yet it ended well")
	}
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the server outlived its parent: %v", err)
	}
}
