package settle_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/settlemq/settle"
)

func TestH1_StopNeverUnsubscribesNorExpiresTheSession(t *testing.T) {
	in(t, func(t *testing.T) {
		f, main, second := upBoth(t, nil, settle.Handle("a", newCalls().ack, settle.RetryTo("r")))
		if err := f.stop(); err != nil {
			t.Error(err)
		}
		for _, p := range []*peer{main, second} {
			p.expect("DISCONNECT")
			if p.sessionExpiry != nil {
				t.Errorf("DISCONNECT with Session Expiry %d", *p.sessionExpiry)
			}
		}
	})
}

func TestH2_WhatRunsFinishesAndWhatWaitsIsLeftToTheSession(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main := up(t, nil, settle.Handle("a", c.wait), settle.Handle("b", c.wait))
		main.send(publish("a", 1, 1, "runs"), publish("a", 1, 2, "waits"), publish("b", 1, 3, "runs too"), publish("b", 1, 4, "waits too"))
		c.expectAll(t, "runs", "runs too")
		stopped := make(chan error, 1)
		go func() { stopped <- f.stop() }()
		synctest.Wait()
		main.send(publish("a", 1, 5, "late"))
		if err := f.Ready(); !errors.Is(err, settle.ErrStopping) {
			t.Errorf("ready while it stops: %v", err)
		}
		c.release(settle.Ack())
		c.release(settle.Ack())
		c.release(settle.Ack()) // "waits" is handled, because "runs too" stands behind it and would be handled again
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		c.expectAll(t, "runs", "runs too", "waits")
		main.expect("PUBACK 1", "PUBACK 2", "PUBACK 3", "DISCONNECT")
		if !main.gone() {
			t.Error("the connection is open")
		}
		select {
		case <-f.Done():
		default:
			t.Error("Done is open")
		}
		if f.Err() != nil {
			t.Error(f.Err())
		}
	})
}

func TestH2_StopWaitsForCopiesAndDeadLettersUnderWay(t *testing.T) {
	in(t, func(t *testing.T) {
		f, main, _ := upBoth(t, nil, settle.Handle("a", func(_ context.Context, b []byte) settle.Outcome {
			if string(b) == "dead" {
				return settle.Reject(errFails)
			}
			return settle.Retry(errFails)
		}, settle.RetryTo("r"), settle.DeadLetterTo("dead")))
		hold := make(chan struct{})
		main.set(func(h *hooks) { h.hold = hold })
		main.send(publish("a", 1, 1, "dead"), publish("a", 1, 2, "retry"))
		main.took()
		stopped := make(chan error, 1)
		go func() { stopped <- f.stop() }()
		pass(time.Second)
		main.expect()
		close(hold)
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		main.expect("PUBACK 1", "PUBACK 2", "DISCONNECT")
	})
}

func TestStopHandlesWhatNobodyElseHas(t *testing.T) {
	for name, test := range map[string]struct {
		expiry time.Duration
		qos    byte
		lost   bool // the session, while it waits
		want   bool
	}{
		"QoS 0":                         {0, 0, false, true},
		"QoS 1":                         {0, 1, false, false},
		"QoS 2":                         {0, 2, false, false},
		"QoS 1, no session":             {-1, 1, false, true},
		"QoS 1, the session is gone":    {0, 1, true, true},
		"QoS 0, the connection is gone": {0, 0, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				c := newCalls()
				f, main := up(t, func(c *settle.Config) { c.SessionExpiry = test.expiry },
					settle.Handle("a", c.wait, settle.QoS(test.qos)))
				main.send(publish("a", test.qos, 1, "runs"), publish("a", test.qos, 2, "waits"), publish("a", test.qos, 3, "waits"))
				if test.lost {
					main.cut()
					f.main(false)
				}
				stopped := make(chan error, 1)
				go func() { stopped <- f.stop() }()
				synctest.Wait()
				want := []string{"runs"}
				c.release(settle.Ack())
				if test.want {
					c.release(settle.Ack())
					c.release(settle.Ack())
					want = append(want, "waits", "waits")
				}
				if err := <-stopped; err != nil {
					t.Error(err)
				}
				c.expect(t, want...)
			})
		})
	}
}

func TestStopHandlesHoldsThatNobodyElseHas(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main := up(t, nil, settle.Handle("a", failing(c, 1), settle.AtLeastOnce, settle.Backoff(settle.Constant(time.Hour))))
		main.send(publish("a", 0, 0, "alone"), publish("a", 1, 1, "the server has it"))
		pass(time.Minute)
		if err := f.stop(); err != nil {
			t.Error(err)
		}
		c.expect(t, "alone 1", "the server has it 1", "alone 2")
		main.expect("DISCONNECT")
	})
}

func TestStopTellsHandlersWhenTheTimeIsUp(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		causes := make(chan error, 1)
		f, main := up(t, func(c *settle.Config) { c.ShutdownTimeout = 3 * time.Second },
			settle.Handle("a", func(ctx context.Context, _ []byte) settle.Outcome {
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return settle.Retry(context.Cause(ctx))
			}, settle.MaxAttempts(1), settle.DeadLetterTo("dead")), settle.Handle("b", c.ack))
		main.send(publish("a", 1, 1, "x"))
		began := time.Now()
		if err := f.stop(); err != nil {
			t.Error(err)
		}
		if cause := <-causes; !errors.Is(cause, settle.ErrStopping) {
			t.Errorf("the context ended with %v", cause)
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("it took %s", took)
		}
		main.expect("DISCONNECT") // no attempt was spent: no dead letter, no acknowledgement
	})
}

func TestStopPastItsDeadlineCountsWhatStillRan(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main := up(t, func(c *settle.Config) { c.ShutdownTimeout = 5 * time.Second },
			settle.Handle("a", c.wait, settle.Workers(3)), settle.Handle("one", c.wait, settle.AtLeastOnce),
			settle.Handle("hold", func(context.Context, []byte) settle.Outcome { return settle.Retry(errFails) }, settle.Backoff(settle.Constant(time.Hour))))
		main.send(numbered("a", 1, 1, 3)...)
		main.send(publish("one", 0, 0, "runs"), publish("one", 0, 0, "waits"), publish("one", 0, 0, "waits"), publish("hold", 1, 9, "held"))
		began := time.Now()
		err := f.stop()
		var drain *settle.DrainError
		if !errors.As(err, &drain) {
			t.Fatalf("Stop returned %v", err)
		}
		if drain.Running != 4 || drain.Waiting != 2 || drain.Held != 1 || drain.Unconfirmed != 0 || drain.Unsent != 0 {
			t.Errorf("counted %+v", drain)
		}
		if took := time.Since(began); took < 5*time.Second || took > 10*time.Second {
			t.Errorf("it took %s", took)
		}
		main.expect("DISCONNECT")
		ran := len(c.list())
		for range 4 {
			c.release(settle.Ack()) // late
		}
		main.expect()
		if got := c.list(); len(got) != ran {
			t.Errorf("handlers were called after Stop had returned: %q", got[ran:])
		}
	})
}

func TestStopIsBoundedByItsContext(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main := up(t, func(c *settle.Config) { c.ShutdownTimeout = time.Hour }, settle.Handle("a", c.wait, settle.Timeout(0)))
		main.send(publish("a", 1, 1, "x"))
		f.stopped = true
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		err := f.Stop(ctx)
		var drain *settle.DrainError
		if !errors.As(err, &drain) || drain.Running != 1 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Stop returned %v", err)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("it took %s", took)
		}
		c.release(settle.Ack())
	})
}

func TestStopReportsCopiesThatWereNotConfirmed(t *testing.T) {
	in(t, func(t *testing.T) {
		f, main := up(t, func(c *settle.Config) { c.ShutdownTimeout = time.Second },
			settle.Handle("a", func(context.Context, []byte) settle.Outcome { return settle.Reject(errFails) }, settle.DeadLetterTo("dead")))
		main.set(func(h *hooks) { h.publish = func(*packets.Publish) (byte, bool) { return 0, false } })
		main.send(publish("a", 1, 1, "x"))
		err := f.stop()
		var drain *settle.DrainError
		if !errors.As(err, &drain) || drain.Unconfirmed != 1 {
			t.Errorf("Stop returned %v", err)
		}
		got := main.took()
		if slices.Contains(got, "PUBACK 1") || got[len(got)-1] != "DISCONNECT" {
			t.Errorf("sent %q", got)
		}
	})
}

func TestStopFromAHandlerAndTwice(t *testing.T) {
	in(t, func(t *testing.T) {
		var f *field
		fromHandler := make(chan error, 1)
		f, main := up(t, func(c *settle.Config) { c.ShutdownTimeout = 5 * time.Second },
			settle.Handle("a", func(context.Context, []byte) settle.Outcome {
				short, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				fromHandler <- f.Stop(short)
				return settle.Ack()
			}))
		f.stopped = true
		main.send(publish("a", 1, 1, "x"))
		pass(10 * time.Second)
		if err := <-fromHandler; err == nil {
			t.Error("Stop returned before its own handler did")
		}
		first, second := f.stop(), f.stop()
		if first == nil != (second == nil) || first != nil && first.Error() != second.Error() {
			t.Errorf("two calls returned %v and %v", first, second)
		}
		select {
		case <-f.Done():
		default:
			t.Error("Done is open")
		}
		if got := main.took(); got[len(got)-1] != "DISCONNECT" {
			t.Errorf("sent %q", got)
		}
	})
}

func TestStopFromAGoroutineOfAHandler(t *testing.T) {
	in(t, func(t *testing.T) {
		var f *field
		stopped := make(chan error, 1)
		f, main := up(t, nil, settle.Handle("a", func(context.Context, []byte) settle.Outcome {
			go func() { stopped <- f.stop() }()
			return settle.Ack()
		}))
		main.send(publish("a", 1, 1, "x"))
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		main.expect("PUBACK 1", "DISCONNECT")
	})
}

func TestStopWithoutAConnection(t *testing.T) {
	in(t, func(t *testing.T) {
		f := prepare(t, nil, settle.Handle("a", newCalls().ack))
		f.refuseDials(errors.New("down"))
		if err := f.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		began := time.Now()
		if err := f.stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// A server that does not close its side is waited for ShutdownTimeout, no more: one that does has read every acknowledgement.
func TestK4_StopReadsToTheEndOfTheStream(t *testing.T) {
	in(t, func(t *testing.T) {
		f, main := up(t, nil, settle.Handle("a", newCalls().ack))
		main.set(func(h *hooks) { h.stay = true })
		began := time.Now()
		stopped := make(chan error, 1)
		go func() { stopped <- f.stop() }()
		synctest.Wait()
		main.expect("DISCONNECT")
		main.write(publish("a", 1, 1, "still arriving")) // read, and left to the session
		err := <-stopped
		if took := time.Since(began); err != nil || took < 9900*time.Millisecond || took > 10500*time.Millisecond {
			t.Errorf("%v after %s", err, took)
		}
		main.expect()
	})
}
