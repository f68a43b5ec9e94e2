package settle_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/settlemq/settle"
)

func TestD8_TheRetainFlagStaysOffCopies(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		_, main, second := upBoth(t, nil, settle.Handle("a", func(ctx context.Context, _ []byte) settle.Outcome {
			d := settle.DeliveryFrom(ctx)
			c.note(fmt.Sprintf("%d retained %t", d.Attempt(), d.Retained()))
			if d.Attempt() > 1 {
				return settle.Reject(errFails)
			}
			return settle.Retry(errFails)
		}, settle.RetryTo("r"), settle.DeadLetterTo("dead"), settle.Backoff(settle.Constant(time.Second))))
		circle(main, second, 0, "r")
		p := publish("a", 1, 1, "x")
		p.Retain = true
		main.send(p)
		pass(5 * time.Second)
		c.expect(t, "1 retained true", "2 retained true")
		for _, topic := range []string{"r", "dead"} {
			for _, p := range main.published(topic) {
				if p.Retain || user(p, "settle-retained") != "1" {
					t.Errorf("to %s: retain %t, header %q", topic, p.Retain, user(p, "settle-retained"))
				}
			}
		}
	})
}

func TestACopyKeepsTheMessage(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main, second := upBoth(t, nil, settle.Handle("a/+", func(ctx context.Context, b []byte) settle.Outcome {
			d := settle.DeliveryFrom(ctx)
			var headers []string
			for k, v := range d.Headers() {
				headers = append(headers, k+"="+v)
			}
			c.note(fmt.Sprint(d.Topic(), " ", string(b), " ", d.Attempt(), " ", headers, " ", d.ContentType(), " ", d.ResponseTopic(), " ", string(d.CorrelationData()), " ", d.Route(), " ", d.Level(1)))
			if d.Attempt() < 3 {
				return settle.RetryAfter(20*time.Second, errors.New("ledger\ndown"))
			}
			return settle.Reject(errFails)
		}, settle.Name("usage"), settle.RetryTo("r"), settle.DeadLetterTo("dead")))
		p := publish("a/b", 1, 1, "payload", "k", "1", "site", "north", "k", "2", "settle-attempt", "7", "settle-original-topic", "forged", "settle-unknown", "x", "k", "1", "message-id", "m-1")
		format, expiry := byte(1), uint32(100)
		p.Properties.PayloadFormat, p.Properties.MessageExpiry = &format, &expiry
		p.Properties.ContentType, p.Properties.ResponseTopic, p.Properties.CorrelationData = "text/x", "answers", []byte("corr")
		main.send(p)
		copied := main.published("r")
		if len(copied) != 1 {
			t.Fatalf("%d copies", len(copied))
		}
		at := time.Now()
		checkCopy := func(got *packets.Publish, attempt string, expiry uint32) {
			t.Helper()
			pr := got.Properties
			if string(got.Payload) != "payload" || got.QoS != 1 || got.Retain || *pr.PayloadFormat != 1 || pr.ContentType != "text/x" || pr.ResponseTopic != "answers" || string(pr.CorrelationData) != "corr" {
				t.Errorf("the copy is %s", got)
			}
			var own, others []string
			for _, u := range pr.User {
				if strings.HasPrefix(u.Key, "settle-") {
					own = append(own, u.Key+"="+u.Value)
				} else {
					others = append(others, u.Key+"="+u.Value)
				}
			}
			if fmt.Sprint(others) != "[k=1 site=north k=2 k=1 message-id=m-1]" {
				t.Errorf("user properties %q", others)
			}
			for _, want := range []string{"settle-message-id=m-1", "settle-attempt=" + attempt, "settle-original-topic=a/b", "settle-route=usage", "settle-owner=svc"} {
				if !slices.Contains(own, want) {
					t.Errorf("no %s in %q", want, own)
				}
			}
			if slices.Contains(own, "settle-unknown=x") || slices.Contains(own, "settle-attempt=7") || slices.Contains(own, "settle-original-topic=forged") {
				t.Errorf("a forged header is on the copy: %q", own)
			}
			if expiry > 0 && (pr.MessageExpiry == nil || *pr.MessageExpiry != expiry) || expiry == 0 && pr.MessageExpiry != nil {
				t.Errorf("expiry %v, want %d", pr.MessageExpiry, expiry)
			}
		}
		checkCopy(copied[0], "1", 100)
		if got := user(copied[0], "settle-reason"); got != "ledger down" {
			t.Errorf("settle-reason %q", got)
		}
		if got := user(copied[0], "settle-delay-ms"); got != "20000" {
			t.Errorf("settle-delay-ms %s", got)
		}
		if due, err := time.Parse(time.RFC3339, user(copied[0], "settle-not-before")); err != nil || due.Sub(at) < 19*time.Second || due.Sub(at) > 20*time.Second {
			t.Errorf("settle-not-before %v %v", due, err)
		}

		// It waits on the server for five seconds, and here for fifteen.
		pass(5 * time.Second)
		back := comeBack(copied[0], 1)
		left := uint32(95)
		properties := *back.Properties
		properties.MessageExpiry = &left
		back.Properties = &properties
		second.send(back)
		pass(14 * time.Second)
		if got := c.list(); len(got) != 1 {
			t.Fatalf("handled %q", got)
		}
		f.expectValue(`settle_retry_waiting{route="usage"}`, 1)
		pass(time.Second)
		copied = main.published("r")
		if len(copied) != 2 {
			t.Fatalf("%d copies", len(copied))
		}
		checkCopy(copied[1], "2", 80)
		if user(copied[0], "settle-copy-id") == user(copied[1], "settle-copy-id") {
			t.Error("two attempts have one copy id")
		}
		second.expect("PUBACK 1")
		second.send(comeBack(copied[1], 2))
		pass(21 * time.Second)
		dead := main.published("dead")
		if len(dead) != 1 {
			t.Fatalf("%d dead letters", len(dead))
		}
		checkCopy(dead[0], "3", 0)
		if user(dead[0], "settle-reason") != "it fails" {
			t.Errorf("settle-reason %q", user(dead[0], "settle-reason"))
		}
		line := "a/b payload %d [k=1 site=north k=2 k=1 message-id=m-1] text/x answers corr usage b"
		c.expect(t, fmt.Sprintf(line, 1), fmt.Sprintf(line, 2), fmt.Sprintf(line, 3))
	})
}

// Clocks may disagree: a copy's wait is bounded by what we asked for.
func TestACopysWaitIsBoundedByOurOwnDelay(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		_, _, second := upBoth(t, nil, settle.Handle("a", failing(c, 0), settle.RetryTo("r")))
		second.send(publish("r", 1, 1, "future", "settle-copy-id", "1", "settle-owner", "svc", "settle-attempt", "4", "settle-route", "a",
			"settle-not-before", time.Now().Add(time.Hour).Format(time.RFC3339), "settle-delay-ms", "2000"))
		second.send(publish("r", 1, 2, "past", "settle-copy-id", "2", "settle-owner", "svc", "settle-attempt", "x", "settle-route", "a",
			"settle-not-before", "nonsense", "settle-delay-ms", "-5"))
		c.expect(t, "past 2")
		pass(1900 * time.Millisecond)
		c.expect(t, "past 2")
		pass(200 * time.Millisecond)
		c.expect(t, "past 2", "future 5")
		second.expect("PUBACK 1", "PUBACK 2")
	})
}

func TestForgedHeadersOnTheMainConnectionAreIgnored(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main, _ := upBoth(t, nil, settle.Handle("a", func(ctx context.Context, b []byte) settle.Outcome {
			d := settle.DeliveryFrom(ctx)
			_, shown := d.Header("settle-attempt")
			c.note(fmt.Sprintf("%s %d %s %t/%t", b, d.Attempt(), d.Topic(), shown, d.MessageID() == "forged"))
			return settle.Ack()
		}, settle.RetryTo("r"), settle.DeadLetterTo("dead"), settle.MaxAttempts(3)))
		main.send(publish("a", 1, 1, "x", "settle-attempt", "99", "settle-original-topic", "z", "settle-message-id", "forged", "settle-not-before", "2100-01-01T00:00:00Z"))
		c.expect(t, "x 1 a false/false")
		main.expect("PUBACK 1")
		main.send(publish("a", 1, 2, "y", "settle-copy-id", "forged"))
		c.expect(t, "x 1 a false/false", "y 1 a false/false")
		main.expect("PUBACK 2")
		f.expectValue("settle_unmatched_total", 0)
	})
}

func TestK2_K9_WhatTheServerMustGrant(t *testing.T) {
	zero, none, one := uint32(0), byte(0), byte(1)
	for name, test := range map[string]struct {
		granted packets.Properties
		options []settle.RouteOption
		want    string
	}{
		"no session":      {packets.Properties{SessionExpiryInterval: &zero}, []settle.RouteOption{settle.RetryTo("r")}, "Session Expiry"},
		"no QoS 1":        {packets.Properties{MaximumQOS: &none}, []settle.RouteOption{settle.AtMostOnce, settle.RetryTo("r")}, "Maximum QoS"},
		"no QoS 1, dead":  {packets.Properties{MaximumQOS: &none}, []settle.RouteOption{settle.AtMostOnce, settle.DeadLetterTo("d")}, "Maximum QoS"},
		"no QoS 2":        {packets.Properties{MaximumQOS: &one}, []settle.RouteOption{settle.ExactlyOnce}, "Maximum QoS"},
		"no session, q 1": {packets.Properties{SessionExpiryInterval: &zero}, nil, "Session Expiry"},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				f := begin(t, nil, settle.Handle("a", newCalls().ack, append(test.options, settle.Name("bill"))...))
				main := f.next(false)
				main.write(&packets.Connack{Properties: &test.granted})
				select {
				case <-f.Done():
					if err := f.Err(); err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "bill") && test.want != "Session Expiry" {
						t.Errorf("the app ended with %v", err)
					}
				case <-time.After(time.Minute):
					t.Error("the app has not ended")
				}
				if f.Live() == nil || f.Ready() == nil {
					t.Errorf("live %v, ready %v", f.Live(), f.Ready())
				}
			})
		})
	}
}

func TestK7_AReplicasCopiesAreItsOwn(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, _, second := upBoth(t, nil, settle.Handle("a", failing(c, 0), settle.RetryTo("r")))
		second.send(publish("r", 1, 1, "theirs", "settle-copy-id", "1", "settle-owner", "other", "settle-attempt", "1", "settle-route", "a"))
		second.send(publish("r", 1, 2, "ours", "settle-copy-id", "2", "settle-owner", "svc", "settle-attempt", "1", "settle-route", "a"))
		second.send(publish("r", 1, 3, "a stranger's"))
		pass(time.Second)
		c.expect(t, "ours 2", "a stranger's 1")
		second.expect("PUBACK 1", "PUBACK 2", "PUBACK 3")
		f.expectValue("settle_unmatched_total", 1)
	})
}

func TestK7_InAGroupAnyMemberHandlesACopy(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		_, _, second := upBoth(t, nil, settle.Handle("a", failing(c, 0), settle.RetryTo("r"), settle.Shared("g")))
		if got := second.history(); !slices.Equal(got, []string{"SUBSCRIBE $share/g/r q1"}) {
			t.Errorf("subscribed with %q", got)
		}
		second.send(publish("r", 1, 1, "theirs", "settle-copy-id", "1", "settle-owner", "other", "settle-attempt", "1", "settle-route", "a"))
		c.expect(t, "theirs 2")
		second.expect("PUBACK 1")
	})
}

func TestK10_CopiesUnderAnOldTopicAreNotAcknowledgedAway(t *testing.T) {
	old := func(id uint16, route string) *packets.Publish {
		return publish("old/retry", 1, id, "x", "settle-copy-id", "1", "settle-owner", "svc", "settle-attempt", "2", "settle-route", route, "settle-original-topic", "a", "settle-message-id", "m")
	}
	t.Run("dead letters", func(t *testing.T) {
		in(t, func(t *testing.T) {
			c := newCalls()
			f := begin(t, nil, settle.Handle("a", c.ack, settle.RetryTo("new/retry"), settle.DeadLetterTo("dead")))
			main, second := f.main(true), f.next(true)
			second.accept(true)
			main.set(func(h *hooks) { h.publish = nil })
			second.send(old(1, "a"))
			main.took()
			second.expect("PUBACK 1")
			dead := main.published("dead")
			if len(dead) != 1 || user(dead[0], "settle-attempt") != "2" || user(dead[0], "settle-message-id") != "m" || user(dead[0], "settle-original-topic") != "a" {
				t.Fatalf("dead letters %v", dead)
			}
			f.expectLogged("no route's retry topic")
			c.expect(t)
		})
	})
	t.Run("held", func(t *testing.T) {
		in(t, func(t *testing.T) {
			c := newCalls()
			f := begin(t, nil, settle.Handle("a", c.ack, settle.RetryTo("new/retry")))
			_, second := f.main(true), f.second(true)
			second.send(old(1, "a"), old(2, "gone"))
			pass(time.Hour)
			second.expect()
			f.expectLogged("it is held")
			c.expect(t)
		})
	})
}

func TestK14_AnotherServicesCopiesAreNoOriginals(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main, second := upBoth(t, nil, settle.Handle("meters/+/usage", failing(c, 1), settle.RetryTo("meters/retry/usage"), settle.Backoff(settle.Constant(time.Second))))
		if got := main.history(); !slices.Equal(got, []string{"SUBSCRIBE meters/+/usage q1"}) {
			t.Errorf("subscribed with %q", got)
		}
		main.send(publish("meters/other-retry/usage", 1, 1, "theirs", "settle-copy-id", "1", "settle-owner", "other", "settle-attempt", "1", "settle-route", "x",
			"settle-original-topic", "meters/1/usage"))
		main.send(publish("meters/retry/usage", 1, 2, "ours, by another publisher"))
		c.expect(t)
		main.expect("PUBACK 1", "PUBACK 2")
		f.expectValue("settle_unmatched_total", 2)

		circle(main, second, 0, "meters/retry/usage")
		main.send(publish("meters/7/usage", 1, 3, "x"))
		pass(5 * time.Second)
		c.expect(t, "x 1", "x 2")
		if got := main.published("meters/retry/usage"); len(got) != 1 {
			t.Error("copies go out over the main connection, so that they do not fill its queue")
		}
		// What the program publishes goes out over the other, or No Local would keep it from us.
		go func() { _ = f.Publish(context.Background(), "meters/7/usage", []byte("own")) }()
		synctest.Wait()
		if len(second.published("meters/7/usage")) != 1 || len(main.published("meters/7/usage")) != 0 {
			t.Error("the program's own message does not go out over the second connection")
		}
	})
}

func TestACopyBeyondTheServersMaximumPacketSize(t *testing.T) {
	for _, dead := range []bool{true, false} {
		t.Run(fmt.Sprintf("dead letters %t", dead), func(t *testing.T) {
			in(t, func(t *testing.T) {
				options := []settle.RouteOption{settle.RetryTo("r")}
				if dead {
					options = append(options, settle.DeadLetterTo("dead"))
				}
				f := begin(t, nil, settle.Handle("a", failing(newCalls(), 100), options...))
				main := f.next(false)
				limit := uint32(1000)
				main.write(&packets.Connack{Properties: &packets.Properties{MaximumPacketSize: &limit}})
				f.second(false)
				f.ready()
				main.send(publish("a", 1, 1, strings.Repeat("x", 2000)))
				pass(time.Minute)
				letters := main.published("dead")
				switch {
				case !dead:
					main.expect()
					f.expectValue("settle_window_unacked", 1)
				case len(letters) != 1 || len(letters[0].Payload) != 0 || !strings.Contains(user(letters[0], "settle-stub"), "2000 bytes"):
					t.Errorf("dead letters %v", letters)
				default:
					main.expect("PUBLISH dead q1 ", "PUBACK 1")
				}
			})
		})
	}
}

func TestQoS0CopiesThatFailAreCountedAsLost(t *testing.T) {
	in(t, func(t *testing.T) {
		f, main, _ := upBoth(t, nil, settle.Handle("a", failing(newCalls(), 100), settle.AtMostOnce, settle.RetryTo("r")))
		main.set(func(h *hooks) { h.publish = func(*packets.Publish) (byte, bool) { return 0x87, true } })
		main.send(publish("a", 0, 0, "x"))
		pass(time.Minute)
		main.expect("PUBLISH r q1 x")
		f.expectValue(`settle_retry_copies_total{result="refused",route="a"}`, 1)
		f.expectValue(`settle_inflight{route="a"}`, 0)
		f.expectLogged("it is lost")
	})
}
