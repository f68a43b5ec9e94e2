package field_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/testkit"
)

func window(n int) func(*settle.Config) {
	return func(c *settle.Config) { c.ReceiveMaximum = n }
}

// The first of a full window hangs. After the handler's timeout it goes the way of a retry, and the rest flows; the age of the oldest has shown it.
func TestB1_OneThatHangsDoesNotStopTheFlow(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		s := begin(t, testkit.NewBroker(t), window(10), settle.Handle("a", func(ctx context.Context, payload []byte) settle.Outcome {
			if string(payload) == "1" && settle.DeliveryFrom(ctx).Attempt() == 1 {
				return c.wait(ctx, payload)
			}
			return c.ack(ctx, payload)
		}, settle.RetryTo("svc/retry"), settle.Backoff(settle.Constant(time.Second))))
		s.publish("a", 1, numbered(20)...)
		pass(29 * time.Second)
		c.expect(t, "1")
		s.sent("PUB")
		if age := s.value("settle_window_oldest_seconds"); age < 29 || age > 30 {
			t.Errorf("the oldest is %v s old", age)
		}
		s.expect("settle_window_unacked", 10)

		s.quiet()
		c.expect(t, append(numbered(20), "1")...)
		s.sent("PUB", append([]string{`PUBLISH q1 "svc/retry" "1"`}, pubacks(1, 20)...)...)
		s.sentBy("svc-retry", "PUB", pubacks(1, 1)...)
		s.expect("settle_window_oldest_seconds", 0)
		c.release(t, settle.Ack()) // late: a counted no-op
		s.quiet()
		s.expect("settle_stale_settlements_total", 1)
		s.connected(2) // one of each
	})
}

// Handlers finish in any order; PUBACKs leave in the order of the deliveries at QoS 1, PUBRECs in that of QoS 2. The server would end the connection of a
// client that breaks it.
func TestB3_AcknowledgementsLeaveInTheOrderOfArrival(t *testing.T) {
	in(t, func(t *testing.T) {
		const n = 300
		s := begin(t, testkit.NewBroker(t, testkit.Options{WireLog: 10 * n}), window(50),
			settle.Handle("a", func(context.Context, []byte) settle.Outcome {
				<-time.After(rand.N(100 * time.Millisecond))
				return settle.Ack()
			}, settle.Workers(16), settle.ExactlyOnce))
		for i := range n {
			s.publish("a", settle.QoS(1+rand.N(2)), strconv.Itoa(i))
		}
		s.quiet()
		var want, got [3][]string // by QoS
		for _, line := range s.wire("svc", "") {
			switch f := strings.Fields(line); {
			case strings.HasPrefix(line, "< PUBLISH "):
				qos := f[3][1] - '0'
				want[qos] = append(want[qos], f[2])
			case strings.HasPrefix(line, "> PUBACK"):
				got[1] = append(got[1], strings.TrimPrefix(f[2], "id="))
			case strings.HasPrefix(line, "> PUBREC"):
				got[2] = append(got[2], strings.TrimPrefix(f[2], "id="))
			}
		}
		if len(want[1])+len(want[2]) != n || !slices.Equal(got[1], want[1]) || !slices.Equal(got[2], want[2]) {
			t.Errorf("PUBACK %q for %q; PUBREC %q for %q", got[1], want[1], got[2], want[2])
		}
		s.connected(1)
	})
}

// A server that does not keep to the window, as Mosquitto 2.0.11: what is too much is taken in, handled and acknowledged, in order.
func TestB3_AnOverrunIsTakenIn(t *testing.T) {
	in(t, func(t *testing.T) {
		const most, over = 10, 300
		c := newCalls()
		s := begin(t, testkit.NewBroker(t, testkit.Options{WireLog: 2000}), window(most), settle.Handle("a", func(ctx context.Context, payload []byte) settle.Outcome {
			if string(payload) == "1" {
				return c.wait(ctx, payload)
			}
			return c.ack(ctx, payload)
		}))
		s.publish("a", 1, numbered(most)...)
		c.expect(t, "1")
		for i := most; i < most+over; i++ { // with identifiers that the server has not in use
			s.Broker().Send("svc", encoded(t, &packets.Publish{Topic: "a", QoS: 1, PacketID: uint16(i + 1), Payload: []byte(strconv.Itoa(i + 1)), Properties: &packets.Properties{}}))
		}
		pass(time.Second)
		s.expect("settle_window_unacked", most+over)
		c.release(t, settle.Ack())
		s.quiet()
		c.expect(t, numbered(most+over)...)
		s.sent("PUB", pubacks(1, most+over)...)
		s.connected(1)
	})
}

// A batch cannot be larger than the window, and it is closed when the window is full: with what other routes have, or with what is held.
func TestB4_ABatchClosesWhenTheWindowIsFull(t *testing.T) {
	batch := func(context.Context, []string) settle.Outcomes { return settle.Every(settle.Ack()) }
	t.Run("larger than the window", func(t *testing.T) {
		_, err := settle.New(settle.Config{ClientID: "c", Servers: []string{"mqtt://s"}, ReceiveMaximum: 10}, settle.HandleBatch("a", batch, settle.BatchSize(11)))
		var invalid *settle.ConfigError
		if !errors.As(err, &invalid) || !strings.HasSuffix(invalid.Field, "BatchSize") {
			t.Error(err)
		}
	})
	for name, other := range map[string]settle.Route{
		"shared with another batch": settle.HandleBatch("b", func(ctx context.Context, all []string) settle.Outcomes {
			<-time.After(time.Second) // or there would be room again
			return batch(ctx, all)
		}, settle.BatchSize(8), settle.Linger(time.Hour)),
		"full of holds": settle.Handle("b", says(settle.RetryAfter(time.Minute, errFails))),
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				s := begin(t, testkit.NewBroker(t), window(10), other, settle.HandleBatch("a", batch, settle.BatchSize(8), settle.Linger(time.Hour)))
				began := time.Now()
				for range 6 {
					s.Publish("b", "x")
				}
				for range 3 {
					s.Publish("a", "x")
				}
				synctest.Wait()
				if n := len(s.Settlements("a")); n > 0 {
					t.Fatalf("%d settled before the window was full", n)
				}
				s.Publish("a", "x")
				synctest.Wait()
				if n := len(s.Settlements("a")); n != 4 || time.Since(began) > 0 {
					t.Errorf("%d settled after %s", n, time.Since(began))
				}
				if got := s.Batches("a", 1)[0]; len(got) != 4 {
					t.Errorf("a batch of %d", len(got))
				}
			})
		})
	}
}

// Without a retry topic a failure is held, and handled again after its backoff, unaided: no reconnect, nothing sent again. Also a whole window of them.
func TestB5_AFailureWithoutARetryTopicIsHandledAgainUnaided(t *testing.T) {
	for _, most := range []int{1, 10} {
		for _, qos := range []settle.QoS{1, 2} {
			t.Run(fmt.Sprintf("window %d, qos %s", most, qos), func(t *testing.T) {
				in(t, func(t *testing.T) {
					c := newCalls()
					s := begin(t, testkit.NewBroker(t), window(most), settle.Handle("a", c.failing(1), qos, settle.Backoff(settle.Constant(time.Minute))))
					s.publish("a", qos, numbered(most+1)...)
					pass(59 * time.Second)
					s.sent("PUB")
					s.expect(`settle_held{route="a"}`, float64(most))
					s.quiet()
					for _, got := range s.Settlements("a") {
						if !got.Acknowledged {
							t.Error(got)
						}
					}
					if n := len(c.list()); n != 2*(most+1) {
						t.Errorf("%d calls", n)
					}
					for _, line := range s.wire("svc", "< PUBLISH") {
						if strings.Contains(line, "dup") {
							t.Errorf("sent again: %s", line)
						}
					}
					s.connected(1)
				})
			})
		}
	}
}

// A reason code of 0x80 or more is no negative acknowledgement, for nothing would be sent again: whatever becomes of a delivery, its answer says 0x00.
func TestB6_NoReasonCodeIsUsedToRetry(t *testing.T) {
	in(t, func(t *testing.T) {
		outcomes := []settle.Outcome{settle.Ack(), settle.Drop("no"), settle.Reject(errFails), settle.Retry(errFails), {}}
		s := begin(t, testkit.NewBroker(t), nil, settle.Handle("a", func(ctx context.Context, payload []byte) settle.Outcome {
			if settle.DeliveryFrom(ctx).Attempt() > 1 {
				return settle.Ack()
			}
			i, _ := strconv.Atoi(string(payload))
			return outcomes[i%len(outcomes)]
		}, settle.ExactlyOnce))
		s.publish("a", 1, numbered(20)...)
		s.publish("a", 2, numbered(20)...)
		s.quiet()
		var want []string
		for id := 1; id <= 20; id++ {
			want = append(want, acks(1, id)...)
		}
		s.sent("PUBACK", want...)
		if got := s.wire("svc", "> PUBREC"); len(got) != 20 {
			t.Errorf("%q", got)
		}
		for _, line := range s.wire("svc", "> PUB") {
			if !strings.HasSuffix(line, " 0x00") {
				t.Errorf("sent %s", line)
			}
		}
		s.expect(`settle_acks_total{code="0x00"}`, 40)
	})
}

// Every handler publishes at once, at any QoS, over a pipe without a buffer: no end waits for the other.
func TestB7_HandlersPublishOverAnUnbufferedPipe(t *testing.T) {
	for _, qos := range []settle.QoS{0, 1, 2} {
		t.Run("qos "+qos.String(), func(t *testing.T) {
			in(t, func(t *testing.T) {
				n := scaled(300)
				s := begin(t, testkit.NewBroker(t, testkit.Options{WireLog: 10 * n}), nil, settle.Handle("a", func(ctx context.Context, payload []byte) settle.Outcome {
					return settle.OrRetry(settle.Publish(ctx, "out", payload, qos))
				}, settle.Workers(32)))
				s.publish("a", 1, numbered(n)...)
				s.quiet()
				var got []string
				for _, m := range s.Published("out", n) {
					got = append(got, string(m.Payload()))
				}
				slices.Sort(got)
				if want := slices.Sorted(slices.Values(numbered(n))); !slices.Equal(got, want) {
					t.Errorf("published %q", got)
				}
				s.sent("PUBACK", pubacks(1, n)...)
				s.expect(`settle_settled_total{outcome="ack",route="a"}`, float64(n))
				s.connected(1)
			})
		})
	}
}

// The server sends what is not acknowledged again on a connection that lives. It runs once, and is acknowledged once.
func TestB8_ARepetitionOnALiveConnectionRunsOnce(t *testing.T) {
	for _, qos := range []settle.QoS{1, 2} {
		t.Run("qos "+qos.String(), func(t *testing.T) {
			in(t, func(t *testing.T) {
				c := newCalls()
				b := testkit.NewBroker(t)
				s := begin(t, b, nil, settle.Handle("a", c.wait, qos, settle.Timeout(0), settle.Workers(2)))
				var repetition []byte
				undo := b.Intercept(func(_ string, toClient bool, p testkit.Packet) testkit.Verdict {
					if !toClient || p.Type != typePublish {
						return testkit.Verdict{}
					}
					repetition = again(p.Bytes)
					return testkit.Verdict{Send: repetition}
				})
				s.publish("a", qos, "x")
				pass(time.Minute)
				b.Send("svc", repetition)
				c.expect(t, "x")
				undo()
				c.release(t, settle.Ack())
				s.quiet()
				if qos == settle.AtLeastOnce { // one that had left before the acknowledgement came
					b.Send("svc", repetition)
					s.quiet()
				}
				s.publish("a", qos, "y")
				c.release(t, settle.Ack())
				s.quiet()
				c.expect(t, "x", "y")
				s.sent("PUB", append(acks(qos, 1), acks(qos, 2)...)...)
				s.connected(1)
			})
		})
	}
}

// There is no ticker that acknowledgements wait for.
func TestB10_AcknowledgementsLeaveAtOnce(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		b := testkit.NewBroker(t)
		s := begin(t, b, nil, settle.Handle("a", c.wait))
		var came time.Time
		b.Intercept(func(_ string, toClient bool, p testkit.Packet) testkit.Verdict {
			if !toClient && p.Type == typePuback {
				came = time.Now()
			}
			return testkit.Verdict{}
		})
		s.publish("a", 1, "x")
		c.expect(t, "x")
		pass(10 * time.Millisecond)
		returned := time.Now()
		c.release(t, settle.Ack())
		s.Settled("a", 1)
		if !came.Equal(returned) {
			t.Errorf("the acknowledgement came %s after the handler had returned", came.Sub(returned))
		}
	})
}

// What is finished when the app stops is acknowledged before DISCONNECT, and does not run again.
func TestB10_StopFlushesBeforeDisconnect(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		b := testkit.NewBroker(t)
		s := begin(t, b, nil, settle.Handle("a", c.wait, settle.Workers(3)))
		s.publish("a", 1, numbered(3)...)
		c.expectAll(t, numbered(3)...)
		stopped := make(chan error, 1)
		go func() { stopped <- s.Stop() }()
		synctest.Wait()
		for range 3 {
			c.release(t, settle.Ack())
		}
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		s.sent("", append([]string{s.wire("svc", "> CONNECT")[0][2:], s.wire("svc", "> SUBSCRIBE")[0][2:]}, append(pubacks(1, 3), "DISCONNECT 0x00")...)...)

		s = begin(t, b, nil, settle.Handle("a", c.ack))
		s.publish("a", 1, "next")
		s.quiet()
		if got := c.list(); !slices.Equal(got[3:], []string{"next"}) {
			t.Errorf("the next process handled %q", got[3:])
		}
	})
}
