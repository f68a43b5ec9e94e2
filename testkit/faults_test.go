package testkit_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/testkit"
)

// bubble runs a test of an app, which has not been started, on a server.
func bubble(t *testing.T, routes []settle.Route, test func(*testing.T, *testkit.Kit, *settle.App)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		app := quietApp(t, routes...)
		test(t, testkit.Attach(t, testkit.NewBroker(t), app), app)
	})
}

func start(t *testing.T, app *settle.App) {
	t.Helper()
	if err := app.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

var oneRoute = []settle.Route{settle.Handle("jobs", says(settle.Ack()))}

func retryRoute(o settle.Outcome) []settle.Route {
	return []settle.Route{settle.Handle("jobs", says(o), settle.RetryTo("again"), settle.DeadLetterTo("dead"))}
}

func TestRefuseConnect(t *testing.T) {
	bubble(t, oneRoute, func(t *testing.T, kit *testkit.Kit, app *settle.App) {
		accept := kit.Broker().RefuseConnect(0x86)
		start(t, app)
		kit.Until("the app says why it is not ready", func() bool {
			err := app.Ready()
			return err != nil && strings.Contains(err.Error(), "0x86")
		})
		accept()
		kit.Until("the app is ready", func() bool { return app.Ready() == nil })
	})
}

func TestRefuseSubscribe(t *testing.T) {
	bubble(t, oneRoute, func(t *testing.T, kit *testkit.Kit, app *settle.App) {
		kit.Broker().RefuseSubscribe("jobs", 0x87)
		start(t, app)
		kit.Until("the app names the filter", func() bool {
			err := app.Ready()
			return err != nil && strings.Contains(err.Error(), `"jobs"`) && strings.Contains(err.Error(), "0x87")
		})
	})
}

func TestLowerGrant(t *testing.T) {
	bubble(t, oneRoute, func(t *testing.T, kit *testkit.Kit, app *settle.App) {
		undo := kit.Broker().LowerGrant("jobs", settle.AtMostOnce)
		start(t, app)
		kit.Until("the app names the filter", func() bool {
			err := app.Ready()
			return err != nil && strings.Contains(err.Error(), `"jobs"`) && strings.Contains(err.Error(), "QoS")
		})
		undo()
		kit.Until("the app is ready", func() bool { return app.Ready() == nil })
	})
}

// 0x10 is what a server answers when nobody subscribes: it has stored nothing.
func TestRefusePublishWithoutSubscribers(t *testing.T) {
	bubble(t, retryRoute(settle.Reject(errNo)), func(t *testing.T, kit *testkit.Kit, app *settle.App) {
		start(t, app)
		undo := kit.Broker().RefusePublish("dead", 0x10)
		kit.Publish("jobs", []byte("x"))
		if kit.Quiet(time.Minute) {
			t.Error("quiet, with a dead letter that nobody has")
		}
		if got := kit.Settlements("jobs"); len(got) != 1 || got[0].SentTo != "" || got[0].Acknowledged {
			t.Errorf("%v", got)
		}
		undo()
		kit.Published("dead", 1)
		if !kit.Quiet(time.Minute) {
			t.Error("not quiet")
		}
	})
}

// The server takes the copy and its answer is lost, so it is sent again: the duplicates carry one message id.
func TestWithholdAck(t *testing.T) {
	bubble(t, retryRoute(settle.Reject(errNo)), func(t *testing.T, kit *testkit.Kit, app *settle.App) {
		start(t, app)
		undo := kit.Broker().WithholdAck("dead")
		kit.Publish("jobs", nil)
		letters := kit.Published("dead", 2)
		first, _ := letters[0].Header("settle-message-id")
		second, _ := letters[1].Header("settle-message-id")
		if first == "" || first != second || letters[1].At().Sub(letters[0].At()) < 10*time.Second {
			t.Errorf("%q and %q", first, second)
		}
		if got := kit.Settlements("jobs")[0]; got.Acknowledged || got.SentTo != "" {
			t.Errorf("%v", got)
		}
		undo()
		if got := kit.Settled("jobs", 1)[0]; !got.Acknowledged || got.SentTo != "dead" {
			t.Errorf("%v", got)
		}
	})
}

func TestAnswerLate(t *testing.T) {
	for _, qos := range []settle.QoS{0, 1, 2} {
		t.Run("QoS "+qos.String(), func(t *testing.T) {
			bubble(t, retryRoute(settle.Reject(errNo)), func(t *testing.T, kit *testkit.Kit, app *settle.App) {
				start(t, app)
				kit.Broker().AnswerLate("dead", 7*time.Second)
				began := time.Now()
				kit.Publish("jobs", nil, qos)
				got := kit.Settled("jobs", 1)[0] // waits for the answer
				if took := time.Since(began); took < 7*time.Second || took > 8*time.Second || got.SentTo != "dead" {
					t.Errorf("after %s: %v", took, got)
				}
			})
		})
	}
}

func TestDropPackets(t *testing.T) {
	bubble(t, oneRoute, func(t *testing.T, kit *testkit.Kit, app *settle.App) {
		start(t, app)
		kit.Until("the app is ready", func() bool { return app.Ready() == nil })
		undo := kit.Broker().DropPackets()
		began := time.Now()
		kit.Until("the app has noticed", func() bool { return app.Ready() != nil })
		if took := time.Since(began); took > 45*time.Second+time.Millisecond { // 1.5 keep-alives
			t.Errorf("it took %s", took)
		}
		undo()
		kit.Publish("jobs", nil)
		kit.Settled("jobs", 1)
	})
}

func TestSend(t *testing.T) {
	bubble(t, oneRoute, func(t *testing.T, kit *testkit.Kit, app *settle.App) {
		start(t, app)
		kit.Publish("jobs", nil)
		kit.Settled("jobs", 1)
		kit.Broker().Send("svc", []byte{0x30, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}) // no Remaining Length
		kit.Until("the app complains", func() bool { return strings.Contains(strings.Join(kit.Wire(), "\n"), "DISCONNECT 0x81") })
		kit.Publish("jobs", nil)
		kit.Settled("jobs", 2)
	})
}

func TestHoldClock(t *testing.T) {
	for name, held := range map[string]bool{"held": true, "running": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, oneRoute, func(t *testing.T, kit *testkit.Kit, app *settle.App) {
				start(t, app)
				kit.Until("the app is ready", func() bool { return app.Ready() == nil })
				b := kit.Broker()
				accept := b.RefuseConnect(0x88)
				kit.CutConnection()
				release := func() {}
				if held {
					release = b.HoldClock()
				}
				b.Publish("jobs", nil, settle.Expiry(time.Minute))
				kit.Quiet(time.Hour) // nothing but time passes
				release()
				accept()
				kit.Until("the app is ready", func() bool { return app.Ready() == nil })
				kit.Quiet(time.Minute)
				if got := len(kit.Settlements("jobs")) == 1; got != held {
					t.Errorf("delivered: %t", got)
				}
			})
		})
	}
}

func TestServerRestart(t *testing.T) {
	for name, keep := range map[string]bool{"keeping sessions": true, "losing sessions": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, retryRoute(settle.Reject(errNo)), func(t *testing.T, kit *testkit.Kit, app *settle.App) {
				start(t, app)
				kit.Until("the app is ready", func() bool { return app.Ready() == nil })
				accept := kit.Broker().RefuseConnect(0x88)
				kit.CutConnection()
				kit.Broker().Publish("jobs", nil)
				kit.Broker().Restart(keep)
				accept()
				kit.Until("the app is ready", func() bool { return app.Ready() == nil })
				kit.Quiet(time.Minute)
				if got := len(kit.Settlements("jobs")) == 1; got != keep {
					t.Errorf("what was queued has come: %t", got)
				}
				// The subscriptions are there again, to the dead letters too.
				kit.Publish("jobs", []byte("after"))
				if got := kit.Published("dead", 1); len(got) != 1 || !kit.Quiet(time.Minute) {
					t.Errorf("%v", got)
				}
			})
		})
	}
}

// Intercept is for whatever the other methods do not say: here, a cut at the very acknowledgement.
func TestIntercept(t *testing.T) {
	bubble(t, oneRoute, func(t *testing.T, kit *testkit.Kit, app *settle.App) {
		const puback = 4
		start(t, app)
		cut := false
		kit.Broker().Intercept(func(clientID string, toClient bool, p testkit.Packet) testkit.Verdict {
			if cut || toClient || p.Type != puback || clientID != "svc" {
				return testkit.Verdict{}
			}
			cut = true
			return testkit.Verdict{Drop: true, Cut: true}
		})
		kit.Publish("jobs", []byte("x"))
		got := kit.Settled("jobs", 2) // nobody can know that the server had not seen it
		if got[0].Delivery.Redelivered() || !got[1].Delivery.Redelivered() || string(got[1].Payload) != "x" {
			t.Errorf("%v", got)
		}
		if !kit.Quiet(time.Minute) || len(kit.Settlements("jobs")) != 2 {
			t.Error("it came once more")
		}
	})
}

// Of several faults that concern a packet the latest decides, and each can be undone alone.
func TestFaultsCombine(t *testing.T) {
	bubble(t, oneRoute, func(t *testing.T, kit *testkit.Kit, app *settle.App) {
		start(t, app)
		kit.Until("the app is ready", func() bool { return app.Ready() == nil })
		first := kit.Broker().RefusePublish("a/#", 0x87)
		second := kit.Broker().RefusePublish("a/b", 0x97)
		expect := func(want byte) {
			t.Helper()
			var refused *settle.ServerError
			err := app.Publish(t.Context(), "a/b", nil)
			if errors.As(err, &refused) != (want != 0) || want != 0 && refused.Code != want {
				t.Errorf("%v, want 0x%02X", err, want)
			}
		}
		expect(0x97)
		second()
		expect(0x87)
		first()
		expect(0)
		first() // again, to no effect
		expect(0)
	})
}

func TestOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		most, asked := byte(1), ""
		b := testkit.NewBroker(t, testkit.Options{MaximumQoS: &most, Authenticate: func(_, username string, _ []byte) byte {
			asked += username
			return 0
		}})
		app, err := settle.New(settle.Config{
			ClientID: "svc", Servers: []string{"mqtt://somewhere"}, Logger: zerolog.Nop(),
			Credentials: func(context.Context) (string, []byte, error) { return "me", []byte("secret"), nil },
		}, settle.Handle("jobs", says(settle.Reject(errNo)), settle.ExactlyOnce, settle.DeadLetterTo("dead")))
		if err != nil {
			t.Fatal(err)
		}
		kit := testkit.Attach(t, b, app)
		start(t, app)
		<-app.Done()
		if err := app.Err(); err == nil || !strings.Contains(err.Error(), "Maximum QoS 1") {
			t.Error(err)
		}
		if asked != "me" {
			t.Errorf("asked for %q", asked)
		}
		if log := strings.Join(kit.Wire(), "\n"); strings.Contains(log, "secret") {
			t.Errorf("the wire log tells the password:\n%s", log)
		}
	})
}

// Two members of a shared group on one server; the one that is cut off leaves its share to the other.
func TestTwoAppsOnOneServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testkit.NewBroker(t)
		member := func(id string) *testkit.Kit {
			app, err := settle.New(settle.Config{ClientID: id, Servers: []string{"mqtt://somewhere"}, Logger: zerolog.Nop()},
				settle.Handle("jobs", says(settle.Ack()), settle.Shared("workers")))
			if err != nil {
				t.Fatal(err)
			}
			return testkit.StartOn(t, b, app)
		}
		one, two := member("one"), member("two")
		for range 10 {
			b.Publish("jobs", nil)
		}
		if !one.Quiet(time.Minute) || !two.Quiet(time.Minute) {
			t.Fatal("not quiet")
		}
		if n, m := len(one.Settlements("jobs")), len(two.Settlements("jobs")); n != 5 || m != 5 {
			t.Errorf("%d and %d", n, m)
		}
		if err := one.Stop(); err != nil {
			t.Error(err)
		}
		for range 10 {
			b.Publish("jobs", nil)
		}
		two.Settled("jobs", 15)
	})
}

// What was retained before the app came is delivered as such.
func TestRetained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := testkit.NewBroker(t)
		b.Publish("jobs", []byte("old"), settle.Retain())
		kit := testkit.StartOn(t, b, quietApp(t, oneRoute...))
		if got := kit.Settled("jobs", 1)[0]; !got.Delivery.Retained() || string(got.Payload) != "old" {
			t.Errorf("%v", got)
		}
	})
}
