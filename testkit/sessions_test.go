package testkit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

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

// A test's start and stop take less than five milliseconds, where nothing else takes the processor's time: one of many has to find it free.
func TestStartAndStopAreQuick(t *testing.T) {
	const limit, tries = 5 * time.Millisecond, 500
	quickest := time.Hour
	for i := 0; i < tries && quickest > limit; i++ {
		began := time.Now()
		run(t, func(t *fakeT) {
			testkit.Start(t, quietApp(t, settle.Handle("jobs", says(settle.Ack()), settle.RetryTo("again"), settle.DeadLetterTo("dead"))))
		})
		quickest = min(quickest, time.Since(began))
	}
	if quickest > limit {
		t.Errorf("the quickest of %d took %s", tries, quickest)
	}
}

// In a group the copies of one member may come to another, and both come to rest all the same. Without a group a copy that does not come back is one that is lost.
func TestQuietWithCopiesThatDoNotComeBack(t *testing.T) {
	t.Run("to another member", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := testkit.NewBroker(t)
			member := func(id string) *testkit.Kit {
				app, err := settle.New(settle.Config{ClientID: id, Servers: []string{"mqtt://somewhere"}, Logger: zerolog.Nop()},
					settle.Handle("jobs", again, settle.Shared("workers"), settle.RetryTo("again"), settle.Backoff(settle.Constant(time.Second))))
				if err != nil {
					t.Fatal(err)
				}
				return testkit.StartOn(t, b, app)
			}
			one, two := member("one"), member("two")
			for range 11 {
				b.Publish("jobs", nil)
			}
			if !one.Quiet(time.Hour) || !two.Quiet(time.Hour) {
				t.Error("not quiet")
			}
			if n := len(one.Settlements("jobs")) + len(two.Settlements("jobs")); n != 22 {
				t.Errorf("%d settlements", n)
			}
		})
	})
	t.Run("lost to a queue's limit", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := testkit.NewBroker(t, testkit.Options{MaxInflight: 1, QueueLimit: 1})
			kit := testkit.StartOn(t, b, quietApp(t, settle.Handle("jobs", again, settle.RetryTo("again"), settle.Backoff(settle.Constant(time.Second)))))
			deliver := b.Intercept(func(clientID string, toClient bool, p testkit.Packet) testkit.Verdict {
				return testkit.Verdict{Drop: clientID == "svc-retry" && toClient && p.Type == 3} // PUBLISH
			})
			for i := range 3 {
				kit.Publish("jobs", nil)
				kit.Settled("jobs", i+1)
			}
			deliver()
			b.Cut("svc-retry")
			kit.Settled("jobs", 5) // the third copy found the queue full
			if kit.Quiet(time.Second) {
				t.Error("quiet, with a copy that is lost")
			}
			kit.Settled("jobs", 6) // the marker behind it has come back without it, so it was published again
			if !kit.Quiet(time.Minute) || len(kit.Settlements("jobs")) != 6 {
				t.Errorf("not quiet: %v", kit.Settlements("jobs"))
			}
		})
	})
}

// again is a handler that fails the first attempt.
func again(ctx context.Context, _ []byte) settle.Outcome {
	if settle.DeliveryFrom(ctx).Attempt() == 1 {
		return settle.Retry(errNo)
	}
	return settle.Ack()
}
