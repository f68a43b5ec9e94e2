package settle_test

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/settlemq/settle"
)

func TestAnAppRunsOnce(t *testing.T) {
	in(t, func(t *testing.T) {
		f, _ := up(t, nil, settle.Handle("a", newCalls().ack))
		if err := f.Start(t.Context()); !errors.Is(err, settle.ErrClosed) {
			t.Errorf("a second Start returned %v", err)
		}
		if err := f.stop(); err != nil {
			t.Error(err)
		}
		if err := f.Start(t.Context()); !errors.Is(err, settle.ErrClosed) {
			t.Errorf("Start after Stop returned %v", err)
		}
		if err := f.WaitReady(t.Context()); err == nil {
			t.Error("WaitReady after Stop returned nil")
		}
	})
}

func TestStopBeforeStart(t *testing.T) {
	in(t, func(t *testing.T) {
		f := prepare(t, nil, settle.Handle("a", newCalls().ack))
		if err := f.Ready(); err == nil || !strings.Contains(err.Error(), "not been started") {
			t.Errorf("ready: %v", err)
		}
		if err := f.WaitReady(t.Context()); err == nil {
			t.Error("WaitReady before Start returned nil")
		}
		if err := f.stop(); err != nil {
			t.Error(err)
		}
		<-f.Done()
		if err := f.Start(t.Context()); !errors.Is(err, settle.ErrClosed) {
			t.Errorf("Start returned %v", err)
		}
	})
}

func TestWaitReadySaysWhatIsMissing(t *testing.T) {
	in(t, func(t *testing.T) {
		f := prepare(t, nil, settle.Handle("a", newCalls().ack))
		f.refuseDials(errors.New("no route to host"))
		if err := f.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		err := f.WaitReady(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no route to host") {
			t.Errorf("WaitReady returned %v", err)
		}
		// It is waited for again, and the second connection too.
		f.refuseDials(nil)
		waited := make(chan error, 1)
		go func() { waited <- f.WaitReady(context.Background()) }()
		synctest.Wait()
		f.main(false)
		if err := <-waited; err != nil {
			t.Error(err)
		}
	})
}

func TestAFatalRefusalEndsTheApp(t *testing.T) {
	in(t, func(t *testing.T) {
		f := begin(t, nil, settle.Handle("a", newCalls().ack))
		waited := make(chan error, 1)
		go func() { waited <- f.WaitReady(context.Background()) }()
		f.next(false).write(&packets.Connack{ReasonCode: 0x85, Properties: &packets.Properties{}})
		<-f.Done()
		if err := f.Err(); err == nil || !strings.Contains(err.Error(), "0x85") {
			t.Errorf("it ended with %v", err)
		}
		if err := <-waited; err == nil || !strings.Contains(err.Error(), "0x85") {
			t.Errorf("WaitReady returned %v", err)
		}
		if f.Live() == nil || f.Ready() == nil {
			t.Error(f.Live(), f.Ready())
		}
		if err := f.Publish(context.Background(), "a", nil); !errors.Is(err, settle.ErrNotConnected) {
			t.Errorf("Publish returned %v", err)
		}
	})
}

// What the server had delivered before the app ended by itself is settled in good order.
func TestAFatalEndDrains(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f := begin(t, nil, settle.Handle("a", c.wait, settle.RetryTo("r")))
		main := f.main(false)
		main.send(publish("a", 1, 1, "x"))
		f.next(true).write(&packets.Connack{ReasonCode: 0x85, Properties: &packets.Properties{}})
		synctest.Wait()
		c.release(settle.Ack())
		<-f.Done()
		main.expect("PUBACK 1", "DISCONNECT")
		if f.Err() == nil {
			t.Error("no reason")
		}
	})
}

// Run minds signals, which cannot be had in a bubble: these tests are in real time, on pipes.
func TestRun(t *testing.T) {
	for name, end := range map[string]func(cancel func()){
		"context": func(cancel func()) { cancel() },
		"SIGTERM": func(func()) { _ = syscall.Kill(syscall.Getpid(), syscall.SIGTERM) },
		"SIGINT":  func(func()) { _ = syscall.Kill(syscall.Getpid(), syscall.SIGINT) },
	} {
		t.Run(name, func(t *testing.T) {
			called := make(chan struct{})
			let := make(chan struct{})
			f := prepare(t, nil, settle.Handle("a", func(context.Context, []byte) settle.Outcome {
				close(called)
				<-let
				return settle.Ack()
			}))
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			ran := make(chan error, 1)
			go func() { ran <- f.Run(ctx) }()
			main := f.next(false)
			acked := make(chan struct{})
			main.set(func(h *hooks) {
				h.came = func(line string) {
					if line == "PUBACK 1" {
						close(acked)
					}
				}
			})
			main.write(&packets.Connack{Properties: &packets.Properties{}}, publish("a", 1, 1, "x"))
			<-called
			end(cancel)
			close(let)
			select {
			case err := <-ran:
				if err != nil {
					t.Errorf("Run returned %v", err)
				}
			case <-time.After(30 * time.Second):
				t.Fatal("Run has not returned")
			}
			select {
			case <-acked: // before DISCONNECT, or the peer would have gone
			case <-time.After(30 * time.Second):
				t.Error("what ran when the signal came was not acknowledged")
			}
			<-f.Done()
		})
	}
}
