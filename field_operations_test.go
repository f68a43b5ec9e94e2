package settle_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/settlemq/settle"
)

func TestH6_TheConnectionIsDialledLast(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f := prepare(t, nil, settle.Handle("a", c.ack))
		order := newCalls()
		f.Use(func(next settle.Next) settle.Next { order.note("middleware built"); return next })
		pass(time.Minute)
		if f.dialled() != 0 {
			t.Error("New dials")
		}
		f.refuse(func(string) error { order.note("dial"); return errors.New("down") })
		if err := f.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := order.list(); got[0] != "middleware built" || got[1] != "dial" {
			t.Errorf("the order was %q", got)
		}
	})
}

func TestI1_TopicsAreNoLabels(t *testing.T) {
	in(t, func(t *testing.T) {
		f, main, second := upBoth(t, nil, settle.Handle("meters/+/usage", failing(newCalls(), 1), settle.Name("usage"), settle.RetryTo("r"), settle.DeadLetterTo("dead"), settle.Backoff(settle.Constant(time.Millisecond))))
		circle(main, second, 0, "r")
		for i := range uint16(50) {
			main.send(publish(fmt.Sprintf("meters/%d/usage", i), 1, i+1, "x"))
		}
		pass(time.Second)
		for _, m := range gather(t, f.metrics) {
			if strings.Contains(m, "meters/") {
				t.Errorf("a topic in %s", m)
			}
		}
		f.expectValue(`settle_settled_total{outcome="ack",route="usage"}`, 50)
	})
}

func gather(t *testing.T, registry *prometheus.Registry) []string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, family := range families {
		for _, m := range family.GetMetric() {
			all = append(all, family.GetName()+m.String())
		}
	}
	return all
}

func TestI2_SecretsStayOutOfLogsAndErrors(t *testing.T) {
	in(t, func(t *testing.T) {
		const payload, password, userinfo = "p4yl0ad", "s3cret", "us3rinf0"
		f := prepare(t, func(c *settle.Config) {
			c.Servers = []string{"mqtt://bob:" + userinfo + "@server?token=" + userinfo}
			c.Logger = c.Logger.Level(zerolog.TraceLevel)
		}, settle.Handle("a", func(_ context.Context, r report) settle.Outcome {
			switch r.Meter {
			case "panic":
				panic(payload)
			case "publish":
				return settle.Reject(errFails)
			}
			return settle.Drop("")
		}, settle.DeadLetterTo("dead"), settle.MaxAttempts(1)))
		f.refuseDials(errors.New("down"))
		if err := f.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		down := f.Ready()
		f.refuseDials(nil)
		main := f.next(false)
		if string(main.connect.Password) != userinfo {
			t.Errorf("password %q", main.connect.Password)
		}
		main.write(&packets.Connack{ReasonCode: 0x86, Properties: &packets.Properties{ReasonString: "bad"}})
		main = f.main(false)
		main.send(publish("a", 1, 1, payload), publish("a", 1, 2, `{"meter":"panic"}`), publish("a", 1, 3, `{"meter":"`+payload+`","kwh":"`+payload+`"}`),
			publish("a", 1, 4, `{"meter":"publish"}`), publish("nobody", 1, 5, payload))
		pass(time.Second)
		main.cut()
		main = f.main(true)
		main.SendRaw([]byte("\x30\xff\xff\xff\xff" + payload))
		pass(time.Minute)
		told := []string{f.log.String(), fmt.Sprint(down, f.Ready())}
		for _, p := range main.published("dead") {
			told = append(told, user(p, "settle-reason"))
		}
		all := strings.Join(told, "\n")
		for _, secret := range []string{payload, password, userinfo} {
			if i := strings.Index(all, secret); i >= 0 {
				t.Errorf("%s is in %s", secret, all[max(0, i-200):min(len(all), i+50)])
			}
		}
	})
}

func TestI3_ConnectedIsNotWorking(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f := begin(t, nil, settle.Handle("a", c.wait, settle.Timeout(0)))
		main := f.next(false)
		var asked *packets.Subscribe
		main.set(func(h *hooks) { h.subscribe = func(s *packets.Subscribe) []byte { asked = s; return nil } })
		main.accept(false)
		if err := f.Ready(); err == nil || !strings.Contains(err.Error(), "main connection is subscribing") {
			t.Errorf("connected, and not subscribed: %v", err)
		}
		f.expectValue("settle_connected", 1)
		main.write(&packets.Suback{PacketID: asked.PacketID, Reasons: []byte{1}})
		synctest.Wait()
		if f.Ready() != nil || f.Live() != nil {
			t.Error(f.Ready(), f.Live())
		}
		pass(time.Second)
		main.send(publish("a", 1, 1, "x"), publish("a", 1, 2, "y"))
		pass(7 * time.Second)
		c.release(settle.Ack())
		pass(5 * time.Second)
		f.refuseDials(errors.New("down"))
		main.cut()
		err := f.Ready()
		if err == nil {
			t.Fatal("ready")
		}
		for _, fact := range []string{"last delivery 12s ago", "last acknowledgement 5s ago", "oldest unacknowledged delivery 12s old", "without a DISCONNECT"} {
			if !strings.Contains(err.Error(), fact) {
				t.Errorf("%q does not say %q", err, fact)
			}
		}
		c.release(settle.Ack())
	})
}

func TestI4_OurOwnDisconnectIsNoError(t *testing.T) {
	in(t, func(t *testing.T) {
		f, _ := up(t, nil, settle.Handle("a", newCalls().ack, settle.DeadLetterTo("d")))
		if err := f.stop(); err != nil || f.Err() != nil {
			t.Error(err, f.Err())
		}
		for _, level := range []string{`"level":"error"`, `"level":"warn"`} {
			if strings.Contains(f.log.String(), level) {
				t.Errorf("a stop in good order is logged: %s", f.log)
			}
		}
	})
}

func TestG1_ATakeoverBacksOffLongAndSaysSo(t *testing.T) {
	in(t, func(t *testing.T) {
		f, main := up(t, nil, settle.Handle("a", newCalls().ack))
		main.write(&packets.Disconnect{ReasonCode: 0x8E, Properties: &packets.Properties{}})
		began := time.Now()
		f.main(true)
		if took := time.Since(began); took < 20*time.Second {
			t.Errorf("back after %s", took)
		}
		f.expectLogged("another process uses this client identifier")
	})
}

func TestG3_CredentialsAreAskedForAgainAndTheStateIsVisible(t *testing.T) {
	in(t, func(t *testing.T) {
		asked := 0
		f := begin(t, func(c *settle.Config) {
			c.Credentials = func(context.Context) (string, []byte, error) {
				asked++
				return "bob", fmt.Append(nil, asked), nil
			}
		}, settle.Handle("a", newCalls().ack))
		began := time.Now()
		for i := range 8 {
			main := f.next(false)
			if string(main.connect.Password) != fmt.Sprint(i+1) {
				t.Errorf("password %s at attempt %d", main.connect.Password, i+1)
			}
			main.write(&packets.Connack{ReasonCode: 0x86, Properties: &packets.Properties{}})
			synctest.Wait()
			if err := f.Ready(); err == nil || !strings.Contains(err.Error(), "0x86") {
				t.Errorf("ready: %v", err)
			}
			if f.Live() != nil || f.Err() != nil {
				t.Error(f.Live(), f.Err())
			}
		}
		if took := time.Since(began); took < 8*time.Second || took > 20*time.Second {
			t.Errorf("eight attempts took %s", took) // 0.1 + 0.2 + ... + 6.4, jittered
		}
		f.expectValue(`settle_connections_total{result="refused"}`, 8)
		f.main(false)
		f.ready()
	})
}

func TestARefusedSubscriptionIsNotReady(t *testing.T) {
	for name, code := range map[string]byte{"refused": 0x87, "a lower QoS": 0} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				f := begin(t, nil, settle.Handle("a/#", newCalls().ack))
				main := f.next(false)
				main.set(func(h *hooks) { h.subscribe = func(*packets.Subscribe) []byte { return []byte{code} } })
				main.accept(false)
				if err := f.Ready(); err == nil || !strings.Contains(err.Error(), "a/#") {
					t.Errorf("ready: %v", err)
				}
				f.main(false)
				f.ready()
			})
		})
	}
}
