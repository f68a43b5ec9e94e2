package testkit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/testkit"
)

// Quiet sees what is held, what waits as a copy, what is queued on the server, and that there is nothing.
func TestQuiet(t *testing.T) {
	for _, c := range []struct {
		name    string
		qos     settle.QoS
		outcome settle.Outcome
		options []settle.RouteOption
		quiet   bool
	}{
		{"acknowledged", 1, settle.Ack(), nil, true},
		{"handled at QoS 0", 0, settle.Ack(), nil, true},
		{"held", 1, settle.RetryAfter(time.Hour, errNo), nil, false},
		{"held at QoS 0", 0, settle.RetryAfter(time.Hour, errNo), nil, false},
		{"waiting", 1, settle.RetryAfter(time.Hour, errNo), []settle.RouteOption{settle.RetryTo("again")}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				kit := testkit.Start(t, quietApp(t, settle.Handle("jobs", says(c.outcome), c.options...)))
				kit.Publish("jobs", nil, c.qos)
				began := time.Now()
				if got := kit.Quiet(time.Minute); got != c.quiet {
					t.Errorf("quiet: %t", got)
				}
				if took := time.Since(began); c.quiet && took > time.Second {
					t.Errorf("it took %s to say so", took)
				}
			})
		})
	}
	t.Run("queued on the server", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			kit := testkit.Start(t, quietApp(t, settle.Handle("jobs", says(settle.Ack()))))
			if err := kit.Stop(); err != nil {
				t.Fatal(err)
			}
			if !kit.Quiet(time.Minute) {
				t.Error("a stopped app with an empty session is not quiet")
			}
			kit.Broker().Publish("jobs", nil)
			if kit.Quiet(time.Minute) {
				t.Error("quiet, with a message in the session")
			}
		})
	})
	t.Run("cut off", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			kit := testkit.Start(t, quietApp(t, settle.Handle("jobs", says(settle.Ack()))))
			undo := kit.Broker().RefuseConnect(0x88)
			kit.CutConnection()
			if kit.Quiet(time.Minute) {
				t.Error("quiet without a connection")
			}
			undo()
			if !kit.Quiet(10 * time.Minute) {
				t.Error("not quiet with a connection")
			}
		})
	})
}

// A delivery whose session is lost while it is handled will never be acknowledged, and is not waited for.
func TestSessionLostMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, called := make(chan struct{}), make(chan struct{})
		app := quietApp(t, settle.Handle("jobs", func(context.Context, []byte) settle.Outcome {
			close(called)
			<-release
			return settle.Ack()
		}))
		kit := testkit.Start(t, app)
		kit.Publish("jobs", nil)
		<-called
		kit.Broker().Restart(false)
		kit.Until("the app is connected again", func() bool { return app.Ready() == nil && len(kit.Wire()) > 8 })
		close(release)
		if got := kit.Within(time.Minute).Settled("jobs", 1)[0]; got.Acknowledged || got.Outcome.Kind() != settle.KindAck {
			t.Errorf("%v", got)
		}
	})
}

// Settled waits until the server has handled the acknowledgement: a cut right after it brings nothing back, to whichever process. In real time, where
// a cut can come between any two steps.
func TestSettledMeansAcknowledged(t *testing.T) {
	server := testkit.NewBroker(t)
	for i := range 100 {
		kit := testkit.StartOn(t, server, quietApp(t, settle.Handle("jobs", says(settle.Ack()), settle.ExactlyOnce)))
		kit.Publish("jobs", []byte{byte(i)}, settle.QoS(1+i%2))
		if got := kit.Settled("jobs", 1)[0]; got.Payload[0] != byte(i) || !got.Acknowledged {
			t.Fatalf("in round %d: %v", i, got)
		}
		server.Cut("svc")
		_ = kit.Stop() // it may say that its DISCONNECT was not sent
	}
}

// The server has read the acknowledgement, and takes its time to handle it.
func TestSettledWaitsForTheServer(t *testing.T) {
	bubble(t, oneRoute, func(t *testing.T, kit *testkit.Kit, app *settle.App) {
		start(t, app)
		kit.Broker().Intercept(func(_ string, toClient bool, p testkit.Packet) testkit.Verdict {
			if toClient || p.Type != 4 { // PUBACK
				return testkit.Verdict{}
			}
			return testkit.Verdict{Hold: time.Second}
		})
		kit.Publish("jobs", nil)
		began := time.Now()
		kit.Settled("jobs", 1)
		if took := time.Since(began); took < time.Second || took > 2*time.Second {
			t.Errorf("after %s", took)
		}
	})
}

// A queue of one message: the oldest goes.
func TestQueuePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testkit.NewBroker(t, testkit.Options{QueueLimit: 1, QueuePolicy: testkit.DropOldest})
		kit := testkit.StartOn(t, b, quietApp(t, oneRoute...))
		if err := kit.Stop(); err != nil {
			t.Fatal(err)
		}
		b.Publish("jobs", []byte("1"))
		b.Publish("jobs", []byte("2"))
		kit = testkit.StartOn(t, b, quietApp(t, oneRoute...))
		if got := kit.Settled("jobs", 1)[0]; string(got.Payload) != "2" || !kit.Quiet(time.Minute) || len(kit.Settlements("jobs")) != 1 {
			t.Errorf("%v", kit.Settlements("jobs"))
		}
	})
}

// A test's start and stop take less than five milliseconds, where nothing else takes the processor's time.
func TestStartAndStopAreQuick(t *testing.T) {
	quickest := time.Hour
	for range 20 {
		began := time.Now()
		run(t, func(t *fakeT) {
			testkit.Start(t, quietApp(t, settle.Handle("jobs", says(settle.Ack()), settle.RetryTo("again"), settle.DeadLetterTo("dead"))))
		})
		quickest = min(quickest, time.Since(began))
	}
	if quickest > 5*time.Millisecond {
		t.Errorf("the quickest of twenty took %s", quickest)
	}
}
