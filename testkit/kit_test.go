package testkit_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/testkit"
)

var errNo = errors.New("no")

// A wait that ends without what it waits for fails, after its patience, and says what there was.
func TestWaitsThatFail(t *testing.T) {
	for _, c := range []struct {
		name string
		wait func(*testkit.Kit)
		want []string
	}{
		{
			"settled", func(k *testkit.Kit) { k.Settled("jobs", 2) },
			[]string{
				`not within 1m0s: 2 settlements of "jobs"; there are 1`, `jobs: attempt 1 at "jobs": ack, acknowledged, lane 0, payload "x"`,
				`published: 1`, `in flight: nothing`, `connection main (client id "svc"): up, number 1`, `the server about "svc": connected, subscribed to ["held" "hung" "jobs"], 0 messages queued`,
				`SUBSCRIBE id=1`, `> PUBACK id=1 0x00`,
			},
		},
		{
			"batches", func(k *testkit.Kit) { k.Batches("jobs", 1) },
			[]string{`not within 1m0s: 1 settled batches of "jobs"; there are 0`},
		},
		{
			"published", func(k *testkit.Kit) { k.Published("elsewhere/#", 1) },
			[]string{`not within 1m0s: 1 messages published to "elsewhere/#"; there are 0`, `"jobs" QoS 1, payload "x"`},
		},
		{
			"until", func(k *testkit.Kit) { k.Until("the moon is blue", func() bool { return false }) },
			[]string{"not within 1m0s: the moon is blue"},
		},
		{
			"a route that is not there", func(k *testkit.Kit) { k.Settled("job", 1) },
			[]string{`the app has no route "job"; it has ["held" "hung" "jobs"]`},
		},
		{
			"a topic that is none", func(k *testkit.Kit) { k.Publish("a/+", nil) },
			[]string{`publish to "a/+"`},
		},
		{
			"an acknowledgement behind a handler that hangs", func(k *testkit.Kit) {
				k.Publish("hung", nil)
				k.Publish("jobs", []byte("y"))
				k.Settled("jobs", 2)
			},
			[]string{`"jobs" has settled 2, but not all of them were acknowledged within 1m0s`, "1 settled whose acknowledgement waits for those before it", "1 in lanes, in handlers"},
		},
		{
			"an attempt of what is held", func(k *testkit.Kit) {
				k.Publish("held", nil)
				k.Settled("held", 2)
			},
			[]string{`not within 1m0s: 2 settlements of "held"; there are 1`, "retry after 1h0m0s: no, due after 1h0m0s, not acknowledged", "1 held for another attempt"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hang := make(chan struct{})
				began := time.Now()
				log, failed := run(t, func(t *fakeT) {
					t.Cleanup(func() { close(hang) })
					kit := testkit.Start(t, quietApp(t,
						settle.Handle("jobs", says(settle.Ack())),
						settle.Handle("held", says(settle.RetryAfter(time.Hour, errNo))),
						settle.Handle("hung", func(context.Context, []byte) settle.Outcome { <-hang; return settle.Ack() }, settle.Timeout(0)),
					))
					t.Cleanup(func() { // before the app is stopped
						if !t.Failed() {
							t.Errorf("it did not fail")
						}
					})
					kit.Publish("jobs", []byte("x"))
					kit.Settled("jobs", 1)
					began = time.Now()
					c.wait(kit.Within(time.Minute))
					t.Errorf("the test went on")
				})
				if !failed {
					t.Error("it did not fail")
				}
				if took := time.Since(began); took > 2*time.Minute {
					t.Errorf("it took %s", took)
				}
				for _, want := range c.want {
					if !strings.Contains(log, want) {
						t.Errorf("not in the log: %s", want)
					}
				}
				if t.Failed() || strings.Contains(log, "went on") || strings.Contains(log, "did not fail") {
					t.Errorf("the log:\n%s", log)
				}
			})
		})
	}
}

// In a bubble a wait lasts an hour; the standard library must go on saying where it runs.
func TestPatienceInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		log, failed := run(t, func(t *fakeT) {
			testkit.Start(t, quietApp(t, settle.Handle("jobs", says(settle.Ack())))).Settled("jobs", 1)
		})
		if took := time.Since(began); !failed || took < time.Hour || took > time.Hour+time.Second || !strings.Contains(log, "not within 1h0m0s") {
			t.Errorf("failed %t after %s: %s", failed, took, log)
		}
	})
}

// In real time it ends as soon as it is told to.
func TestPatienceInRealTime(t *testing.T) {
	began := time.Now()
	log, failed := run(t, func(t *fakeT) {
		testkit.Start(t, quietApp(t, settle.Handle("jobs", says(settle.Ack())))).Within(50*time.Millisecond).Settled("jobs", 1)
	})
	if took := time.Since(began); !failed || took < 50*time.Millisecond || took > 4*time.Second || !strings.Contains(log, "not within 50ms") {
		t.Errorf("failed %t after %s: %s", failed, took, log)
	}
}

// An app that cannot get ready fails its test at once where it ends by itself, with the reason.
func TestStartThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, failed := run(t, func(t *fakeT) {
			server := testkit.NewBroker(t)
			server.RefuseSubscribe("jobs", 0x87)
			testkit.StartOn(t, server, quietApp(t, settle.Handle("jobs", says(settle.Ack()))))
		})
		if !failed || !strings.Contains(log, "did not get ready") || !strings.Contains(log, "0x87") {
			t.Errorf("failed %t:\n%s", failed, log)
		}
	})
}

// A handler that ignores the end of its context is a fault of the test.
func TestHandlerThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		log, failed := run(t, func(t *fakeT) {
			t.Cleanup(func() { close(hang) })
			called := make(chan struct{})
			kit := testkit.Start(t, quietApp(t, settle.Handle("hung", func(context.Context, []byte) settle.Outcome {
				close(called)
				<-hang
				return settle.Ack()
			})))
			kit.Publish("hung", nil)
			<-called
		})
		if !failed || !strings.Contains(log, "handlers did not return") {
			t.Errorf("failed %t:\n%s", failed, log)
		}
	})
}

// A test that passes logs nothing.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, failed := run(t, func(t *fakeT) {
			kit := testkit.Start(t, quietApp(t, settle.Handle("jobs", says(settle.Retry(errNo)))))
			kit.Publish("jobs", nil)
			kit.Settled("jobs", 1)
			kit.CutConnection()
		})
		if failed || log != "" {
			t.Errorf("failed %t:\n%s", failed, log)
		}
	})
}

// What a settlement says, outcome by outcome.
func TestSettlementFacts(t *testing.T) {
	outcomes := map[string]settle.Outcome{
		"ack": settle.Ack(), "drop": settle.Drop("old"), "retry": settle.Retry(errNo), "reject": settle.Reject(errNo), "later": settle.RetryAfter(time.Hour, errNo),
	}
	for _, c := range []struct {
		name         string
		qos          settle.QoS
		payload      string
		kind         settle.Kind
		sentTo       string
		acknowledged bool
		due          time.Duration
	}{
		{"ack", 0, "ack", settle.KindAck, "", false, 0},
		{"ack", 1, "ack", settle.KindAck, "", true, 0},
		{"ack", 2, "ack", settle.KindAck, "", true, 0},
		{"drop", 1, "drop", settle.KindDrop, "", true, 0},
		{"reject", 0, "reject", settle.KindReject, "dead", false, 0},
		{"reject", 1, "reject", settle.KindReject, "dead", true, 0},
		{"reject", 2, "reject", settle.KindReject, "dead", true, 0},
		{"retry", 0, "retry", settle.KindRetry, "again", false, time.Minute},
		{"retry", 1, "retry", settle.KindRetry, "again", true, time.Minute},
		{"retry", 2, "later", settle.KindRetry, "again", true, time.Hour},
		{"unnamed", 1, "?", settle.KindRetry, "again", true, time.Minute},
	} {
		t.Run(c.name+" QoS "+c.qos.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				type word string
				kit := testkit.Start(t, quietApp(t, settle.Handle("a/+", func(_ context.Context, w word) settle.Outcome { return outcomes[string(w)] },
					settle.Name("words"), settle.ExactlyOnce, settle.RetryTo("again"), settle.Backoff(settle.Constant(time.Minute)), settle.DeadLetterTo("dead"))))
				began := time.Now()
				kit.Publish("a/b", word(c.payload), c.qos, settle.MessageID("m-1"))
				got := kit.Settled("words", 1)[0]
				switch {
				case got.Route != "words", got.Topic != "a/b", got.MessageID != "m-1", string(got.Payload) != `"`+c.payload+`"`, got.Body != word(c.payload),
					got.Outcome.Kind() != c.kind, got.Attempt != 1, got.Lane != 0, got.SentTo != c.sentTo, got.Acknowledged != c.acknowledged,
					got.At.Sub(began) > time.Second, got.Delivery.QoS() != c.qos,
					c.due == 0 != got.Due.IsZero(), c.due > 0 && got.Due.Sub(got.At).Round(time.Second) != c.due:
					t.Errorf("%+v: %s", got, got)
				}
				if c.sentTo == "" {
					return
				}
				if copied := kit.Published(c.sentTo, 1)[0]; string(copied.Payload()) != `"`+c.payload+`"` || copied.QoS() != settle.AtLeastOnce {
					t.Errorf("the copy: %q at QoS %s", copied.Payload(), copied.QoS())
				}
			})
		})
	}
}

// Deliveries that two lanes settle come in the order in which they came up, whichever is settled first.
func TestOrderOfSettlements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		second := make(chan struct{})
		kit := testkit.Start(t, quietApp(t, settle.Handle("jobs", func(_ context.Context, b []byte) settle.Outcome {
			if string(b) == "2" {
				close(second)
			} else {
				<-second
			}
			return settle.Ack()
		}, settle.Workers(2))))
		kit.Publish("jobs", []byte("1"))
		kit.Publish("jobs", []byte("2"))
		if got := kit.Settled("jobs", 2); string(got[0].Payload) != "1" || string(got[1].Payload) != "2" || got[0].Lane == got[1].Lane {
			t.Errorf("%v", got)
		}
	})
}

// A held delivery's attempts come in their turn, and what is settled behind it need not have been acknowledged.
func TestHeldDeliveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kit := testkit.Start(t, quietApp(t, settle.Handle("jobs", func(ctx context.Context, b []byte) settle.Outcome {
			if string(b) == "1" && settle.DeliveryFrom(ctx).Attempt() == 1 {
				return settle.RetryAfter(time.Minute, errNo)
			}
			return settle.Ack()
		})))
		kit.Publish("jobs", []byte("1"))
		kit.Publish("jobs", []byte("2"))
		got := kit.Settled("jobs", 2)
		if got[0].Due.Sub(got[0].At) != time.Minute || got[0].Acknowledged || got[1].Acknowledged {
			t.Errorf("while it is held: %v", got)
		}
		got = kit.Settled("jobs", 3)
		if string(got[2].Payload) != "1" || got[2].Attempt != 2 || got[2].At.Sub(got[0].At) != time.Minute {
			t.Errorf("when it was due: %v", got)
		}
		for _, s := range got {
			if !s.Acknowledged {
				t.Errorf("not acknowledged: %v", s)
			}
		}
	})
}

// Two routes on one filter are named apart by their names and together by the filter.
func TestRoutesByNameAndFilter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kit := testkit.Start(t, quietApp(t,
			settle.Handle("a/+", says(settle.Ack()), settle.Name("first")),
			settle.Handle("a/+", says(settle.Drop("no")), settle.Name("second"))))
		kit.Publish("a/b", nil)
		if both := kit.Settled("a/+", 2); both[0].Route == both[1].Route || !both[0].Acknowledged || !both[1].Acknowledged {
			t.Errorf("%v", both)
		}
		if got := kit.Settled("second", 1)[0]; got.Outcome.Kind() != settle.KindDrop {
			t.Errorf("%v", got)
		}
	})
}

// Batches come with the outcome of each element, what could not be decoded included.
func TestBatchesWithOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kit := testkit.Start(t, quietApp(t, settle.HandleBatch("n", func(_ context.Context, numbers []int) settle.Outcomes {
			each := make([]settle.Outcome, len(numbers))
			for i, n := range numbers {
				if each[i] = settle.Ack(); n%2 == 1 {
					each[i] = settle.Drop("odd")
				}
			}
			return settle.Each(each...)
		}, settle.BatchSize(3), settle.DeadLetterTo("dead"))))
		for _, text := range []string{"1", "{", "2", "3"} {
			kit.Publish("n", []byte(text))
		}
		batches := kit.Batches("n", 2)
		want := [][]settle.Kind{{settle.KindDrop, settle.KindReject, settle.KindAck}, {settle.KindDrop}}
		for i, batch := range batches {
			for j, s := range batch {
				if len(batch) != len(want[i]) || s.Outcome.Kind() != want[i][j] || !s.Acknowledged {
					t.Errorf("batch %d: %v", i, batch)
				}
			}
		}
		if batches[0][2].Body != 2 || batches[0][1].Body != nil || batches[0][1].SentTo != "dead" {
			t.Errorf("%v", batches[0])
		}
	})
}
