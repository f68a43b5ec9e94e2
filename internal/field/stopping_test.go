package field_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/testkit"
)

// A stop neither unsubscribes nor ends a session: what is published meanwhile waits, copies too.
func TestH1_AStopKeepsTheOfflineQueue(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		b := testkit.NewBroker(t)
		route := settle.Handle("a", c.failing(1), settle.RetryTo("r"), settle.Backoff(settle.Constant(time.Minute)))
		s := begin(t, b, nil, route)
		s.publish("a", 1, "before")
		s.Until("its copy waits", func() bool { return s.value(`settle_retry_waiting{route="a"}`) == 1 })
		s.stop()
		for _, id := range []string{"svc", "svc-retry"} {
			s.sentBy(id, "UNSUBSCRIBE")
			s.sentBy(id, "DISCONNECT", "DISCONNECT 0x00")
		}
		b.Publish("a", []byte("while stopped"))
		pass(30 * time.Minute)
		s = begin(t, b, nil, route)
		s.quiet()
		c.expectAll(t, "before 1", "before 2", "while stopped 1", "while stopped 2")
	})
}

// SIGTERM comes while a handler works. The handler finishes, its delivery is acknowledged, then comes DISCONNECT; the next process handles what this one had
// not begun, and nothing twice. In real time, for signals come from outside of any bubble.
func TestH2_WhatRunsAtSIGTERMIsFinishedAndAcknowledged(t *testing.T) {
	b := testkit.NewBroker(t)
	var handled []string // by one handler at a time
	began, goOn := make(chan struct{}, 3), make(chan struct{})
	s := attach(t, b, nil, settle.Handle("a", func(_ context.Context, payload []byte) settle.Outcome {
		handled = append(handled, string(payload))
		began <- struct{}{}
		<-goOn
		return settle.Ack()
	}))
	ended := make(chan error, 1)
	go func() { ended <- s.app.Run(t.Context()) }()
	s.publish("a", 1, numbered(3)...)
	<-began
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.Until("it stops", func() bool { return errors.Is(s.app.Ready(), settle.ErrStopping) })
	s.sent("PUB")
	close(goOn)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	s.sent("PUBACK", pubacks(1, len(handled))...)
	if epoch := s.epoch("svc", 0); epoch[len(epoch)-1] != "> DISCONNECT 0x00" {
		t.Errorf("the end: %q", epoch)
	}
	s = begin(t, b, nil, settle.Handle("a", func(_ context.Context, payload []byte) settle.Outcome {
		handled = append(handled, string(payload))
		return settle.Ack()
	}))
	s.quiet()
	if !slices.Equal(handled, numbered(3)) {
		t.Errorf("handled %q", handled)
	}
}

// A thousand reconnects of both connections leave no goroutine.
func TestH4_NoGoroutineIsLeftByReconnects(t *testing.T) {
	in(t, func(t *testing.T) {
		n := scaled(1000)
		b := testkit.NewBroker(t, testkit.Options{WireLog: 20})
		s := begin(t, b, nil, settle.Handle("a", says(settle.Ack()), settle.RetryTo("r")))
		before := goroutines()
		for range n {
			s.publish("a", 1, "x") // a delivery keeps the backoff short
			s.quiet()
			s.CutConnection()
			s.ready()
		}
		pass(time.Minute)
		if after := goroutines(); after > before {
			t.Errorf("%d goroutines before, %d after", before, after)
		}
		s.connected(float64(2 * (n + 1)))
	})
}

// goroutines is how many there are in the bubble.
func goroutines() int {
	synctest.Wait()
	b := make([]byte, 4<<20)
	return strings.Count(string(b[:runtime.Stack(b, true)]), "synctest bubble")
}

// The server is killed and started ten times, with its sessions or without. The app consumes each time.
func TestH5_AServerRestartLeavesNoZombie(t *testing.T) {
	for _, keep := range []bool{true, false} {
		t.Run(fmt.Sprintf("sessions kept %t", keep), func(t *testing.T) {
			in(t, func(t *testing.T) {
				const n = 10
				c := newCalls()
				b := testkit.NewBroker(t)
				s := begin(t, b, nil, settle.Handle("a", c.ack))
				for i := range n {
					down := b.RefuseConnect(0x88)
					b.Restart(keep)
					pass(10 * time.Second)
					s.unready()
					down()
					s.ready()
					s.publish("a", 1, strconv.Itoa(i+1))
					s.quiet()
				}
				c.expect(t, numbered(n)...)
				lost := float64(n)
				if keep {
					lost = 0
				}
				s.expect("settle_sessions_lost_total", lost)
				s.connected(n + 1)
			})
		})
	}
}

// ledger is what a handler needs, and takes its time to get ready.
type ledger struct{ open bool }

func newLedger(lc fx.Lifecycle) *ledger {
	l := &ledger{}
	lc.Append(fx.Hook{OnStart: func(context.Context) error {
		<-time.After(5 * time.Second)
		l.open = true
		return nil
	}})
	return l
}

// A backlog waits on the server, and comes as soon as the app connects: which it does last, when all that its handlers need is ready.
func TestH6_TheConnectionIsDialledLast(t *testing.T) {
	in(t, func(t *testing.T) {
		b := testkit.NewBroker(t)
		begin(t, b, nil, settle.Handle("a", says(settle.Ack()))).stop()
		for _, p := range numbered(3) {
			b.Publish("a", []byte(p))
		}
		c := newCalls()
		var kit *testkit.Kit
		program := fxtest.New(t,
			fx.Supply(settle.Config{ClientID: "svc", Servers: []string{"mqtt://server"}, Logger: zerolog.Nop()}),
			settle.Module, testkit.Module(t), fx.Replace(b), fx.Populate(&kit),
			fx.Provide(newLedger),
			settle.ProvideRoute(func(l *ledger) settle.Route {
				return settle.Handle("a", func(_ context.Context, payload []byte) settle.Outcome {
					c.note(fmt.Sprintf("%s open %t", payload, l.open))
					return settle.Ack()
				})
			}))
		program.RequireStart()
		defer program.RequireStop()
		if !kit.Quiet(time.Minute) {
			t.Error("the app does not come to rest")
		}
		c.expect(t, "1 open true", "2 open true", "3 open true")
		connects := 0
		for _, line := range kit.Wire() {
			if strings.Contains(line, "> CONNECT ") {
				connects++
				if at := strings.TrimSpace(line); connects == 2 && !strings.HasPrefix(at, "5.0") {
					t.Errorf("it connected before the ledger was open: %s", at)
				}
			}
		}
		if connects != 2 {
			t.Errorf("%d connections", connects)
		}
	})
}
