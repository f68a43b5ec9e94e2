package settle_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/internal/broker/brokertest"
)

// numbered are n PUBLISHes with the identifiers and payloads from first on.
func numbered(topic string, qos byte, first, n int) []brokertest.Packet {
	out := make([]brokertest.Packet, 0, n)
	for i := first; i < first+n; i++ {
		out = append(out, publish(topic, qos, uint16(i), strconv.Itoa(i)))
	}
	return out
}

// pubacks are the PUBACKs for identifiers from first on.
func pubacks(first, n int) []string {
	out := make([]string, 0, n)
	for i := first; i < first+n; i++ {
		out = append(out, "PUBACK "+strconv.Itoa(i))
	}
	return out
}

func TestB1_AHandlerThatHangsDoesNotStopTheFlow(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main, second := upBoth(t, func(c *settle.Config) { c.ReceiveMaximum = 10 },
			settle.Handle("a", func(ctx context.Context, b []byte) settle.Outcome {
				if string(b) == "1" && settle.DeliveryFrom(ctx).Attempt() == 1 {
					return c.wait(ctx, b)
				}
				return c.ack(ctx, b)
			}, settle.RetryTo("svc/retry"), settle.Backoff(settle.Constant(time.Second))))
		circle(main, second, 0, "svc/retry")
		main.send(numbered("a", 1, 1, 10)...)
		pass(29 * time.Second)
		main.expect()
		c.expect(t, "1")
		if age := f.value("settle_window_oldest_seconds"); age < 29 || age > 30 {
			t.Errorf("oldest %v s", age)
		}
		f.expectValue("settle_window_unacked", 10)
		pass(1100 * time.Millisecond)
		main.expect(append([]string{"PUBLISH svc/retry q1 1"}, pubacks(1, 10)...)...)
		main.send(numbered("a", 1, 11, 10)...)
		main.expect(pubacks(11, 10)...)
		pass(time.Second)
		second.expect("PUBACK 1")
		if got := c.list(); len(got) != 21 || !slices.Contains(got[1:], "1") {
			t.Errorf("handled %q", got)
		}
		f.expectValue("settle_window_oldest_seconds", 0)
		c.release(settle.Ack()) // late: a counted no-op
		main.expect()
		f.expectValue("settle_stale_settlements_total", 1)
	})
}

func TestB3_AcknowledgementsLeaveInTheOrderOfArrival(t *testing.T) {
	in(t, func(t *testing.T) {
		const n = 300 // the server keeps to no window: Mosquitto 2.0.11 was seen to overrun it
		_, main := up(t, func(c *settle.Config) { c.ReceiveMaximum = 10 },
			settle.Handle("a", func(context.Context, []byte) settle.Outcome {
				sleep(rand.N(100 * time.Millisecond))
				return settle.Ack()
			}, settle.Workers(16), settle.ExactlyOnce))
		var out []brokertest.Packet
		var wantAcks, wantRecs []string
		for i := 1; i <= n; i++ {
			qos := byte(1 + rand.N(2))
			out = append(out, publish("a", qos, uint16(i), ""))
			if qos == 1 {
				wantAcks = append(wantAcks, fmt.Sprintf("PUBACK %d", i))
			} else {
				wantRecs = append(wantRecs, fmt.Sprintf("PUBREC %d", i))
			}
		}
		main.send(out...)
		pass(time.Minute)
		var acks, recs []string
		for _, s := range main.took() {
			switch {
			case strings.HasPrefix(s, "PUBACK"):
				acks = append(acks, s)
			case strings.HasPrefix(s, "PUBREC"):
				recs = append(recs, s)
			}
		}
		if !slices.Equal(acks, wantAcks) {
			t.Errorf("PUBACKs %q", acks)
		}
		if !slices.Equal(recs, wantRecs) {
			t.Errorf("PUBRECs %q", recs)
		}
	})
}

func TestB4_ABatchClosesWhenTheWindowIsFull(t *testing.T) {
	batches := func(sizes *calls) func(context.Context, []text) settle.Outcomes {
		return func(_ context.Context, all []text) settle.Outcomes {
			sizes.note(strconv.Itoa(len(all)))
			return settle.Every(settle.Ack())
		}
	}
	t.Run("larger than the window", func(t *testing.T) {
		_, err := settle.New(settle.Config{ClientID: "c", Servers: []string{"mqtt://s"}, ReceiveMaximum: 10},
			settle.HandleBatch("a", batches(newCalls()), settle.BatchSize(11)))
		var invalid *settle.ConfigError
		if !errors.As(err, &invalid) || !strings.HasSuffix(invalid.Field, "BatchSize") {
			t.Error(err)
		}
	})
	t.Run("full", func(t *testing.T) {
		in(t, func(t *testing.T) {
			c, sizes := newCalls(), newCalls()
			slow := func(ctx context.Context, all []text) settle.Outcomes {
				sizes.note(strconv.Itoa(len(all)))
				return settle.Every(c.wait(ctx, nil))
			}
			_, main := up(t, func(c *settle.Config) { c.ReceiveMaximum, c.Codecs = 10, []settle.Codec{textCodec{}} },
				settle.HandleBatch("a", slow, settle.BatchSize(8), settle.Linger(time.Hour)),
				settle.HandleBatch("b", slow, settle.BatchSize(8), settle.Linger(time.Hour)))
			main.send(numbered("a", 1, 1, 6)...)
			main.expect()
			sizes.expect(t)
			main.send(numbered("b", 1, 7, 4)...) // 10: neither can grow
			sizes.expectAll(t, "4", "6")
			c.release(settle.Ack())
			c.release(settle.Ack())
			main.expect(pubacks(1, 10)...)
		})
	})
	t.Run("full of holds", func(t *testing.T) {
		in(t, func(t *testing.T) {
			sizes := newCalls()
			_, main := up(t, func(c *settle.Config) { c.ReceiveMaximum, c.Codecs = 10, []settle.Codec{textCodec{}} },
				settle.HandleBatch("a", batches(sizes), settle.BatchSize(8), settle.Linger(time.Hour)),
				settle.Handle("h", func(context.Context, []byte) settle.Outcome { return settle.RetryAfter(time.Minute, errFails) }))
			main.send(numbered("h", 1, 1, 6)...)
			main.send(numbered("a", 1, 7, 3)...)
			sizes.expect(t)
			main.send(numbered("a", 1, 10, 1)...)
			sizes.expect(t, "4")
		})
	})
}

func TestB5_AFailureWithoutARetryTopicIsHandledAgainUnaided(t *testing.T) {
	for _, window := range []int{1, 10} {
		for _, qos := range []byte{1, 2} {
			t.Run(fmt.Sprintf("window %d, qos %d", window, qos), func(t *testing.T) {
				in(t, func(t *testing.T) {
					c := newCalls()
					f, main := up(t, func(c *settle.Config) { c.ReceiveMaximum = window },
						settle.Handle("a", func(ctx context.Context, b []byte) settle.Outcome {
							c.note(string(b))
							if settle.DeliveryFrom(ctx).Attempt() == 1 {
								return settle.Retry(errFails)
							}
							return settle.Ack()
						}, settle.QoS(qos), settle.Backoff(settle.Constant(time.Minute))))
					main.send(numbered("a", qos, 1, window)...)
					pass(59 * time.Second)
					main.expect()
					f.expectValue(`settle_held{route="a"}`, float64(window))
					pass(2 * time.Second)
					if got := main.took(); len(got) != window*int(qos) {
						t.Errorf("sent %q", got)
					}
					if got := c.list(); len(got) != 2*window {
						t.Errorf("handled %q", got)
					}
					main.send(numbered("a", qos, 100, 1)...)
					pass(2 * time.Minute)
					f.expectValue("settle_window_unacked", 0)
				})
			})
		}
	}
}

func TestAWindowFullOfHoldsIsLoggedWithItsRoutes(t *testing.T) {
	in(t, func(t *testing.T) {
		f, main := up(t, func(c *settle.Config) { c.ReceiveMaximum = 4 },
			settle.Handle("a", func(context.Context, []byte) settle.Outcome { return settle.Retry(errFails) },
				settle.Name("bookkeeping"), settle.Backoff(settle.Constant(time.Hour))))
		main.send(numbered("a", 1, 1, 4)...)
		pass(time.Minute)
		f.expectValue(`settle_held{route="bookkeeping"}`, 4)
		found := false
		for line := range strings.Lines(f.log.String()) {
			found = found || strings.Contains(line, "window") && strings.Contains(line, "bookkeeping") && !strings.Contains(line, "dead-letter")
		}
		if !found {
			t.Error("a window full of holds is not logged")
		}
	})
}

func TestB6_NoReasonCodeIsUsedToRetry(t *testing.T) {
	in(t, func(t *testing.T) {
		outcomes := []settle.Outcome{settle.Ack(), settle.Drop("no"), settle.Reject(errFails), settle.Retry(errFails)}
		f, main := up(t, nil, settle.Handle("a", func(ctx context.Context, b []byte) settle.Outcome {
			d := settle.DeliveryFrom(ctx)
			if d.Attempt() > 1 {
				return settle.Ack()
			}
			i, _ := strconv.Atoi(string(b))
			return outcomes[i%len(outcomes)]
		}, settle.ExactlyOnce))
		main.send(numbered("a", 1, 1, 20)...)
		main.send(numbered("a", 2, 21, 20)...)
		pass(time.Minute)
		for _, s := range main.took() {
			if strings.Contains(s, "0x") {
				t.Errorf("sent %s", s)
			}
		}
		f.expectValue(`settle_acks_total{code="0x00"}`, 40)
	})
}

func TestB7_HandlersPublishOverAnUnbufferedPipe(t *testing.T) {
	for _, qos := range []settle.QoS{0, 1, 2} {
		t.Run(fmt.Sprintf("qos %d", qos), func(t *testing.T) {
			in(t, func(t *testing.T) {
				const n = 300
				f, main := up(t, nil, settle.Handle("a", func(ctx context.Context, b []byte) settle.Outcome {
					return settle.OrRetry(settle.Publish(ctx, "out", b, qos))
				}, settle.Workers(32)))
				main.send(numbered("a", 1, 1, n)...)
				pass(time.Second)
				if got := len(main.published("out")); got != n {
					t.Errorf("%d published", got)
				}
				acks := slices.DeleteFunc(main.took(), func(s string) bool { return !strings.HasPrefix(s, "PUBACK") })
				if !slices.Equal(acks, pubacks(1, n)) {
					t.Errorf("acknowledged %q", acks)
				}
				f.expectValue(`settle_settled_total{outcome="ack",route="a"}`, n)
			})
		})
	}
}

func TestB10_AcknowledgementsLeaveAtOnce(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		_, main := up(t, nil, settle.Handle("a", c.wait))
		began := time.Now()
		main.send(publish("a", 1, 1, "x"))
		c.release(settle.Ack())
		synctest.Wait() // and no time passes
		main.mu.Lock()
		got := slices.Clone(main.came)
		main.mu.Unlock()
		if len(got) == 0 || got[len(got)-1] != "PUBACK 1" || time.Since(began) != 0 {
			t.Errorf("sent %q after %s", got, time.Since(began))
		}
	})
}

func TestB10_StopFlushesBeforeDisconnect(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main := up(t, nil, settle.Handle("a", c.wait, settle.Workers(3)))
		main.send(numbered("a", 1, 1, 3)...)
		c.list()
		stopped := make(chan error)
		go func() { stopped <- f.stop() }()
		synctest.Wait()
		for range 3 {
			c.release(settle.Ack())
		}
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		main.expect("PUBACK 1", "PUBACK 2", "PUBACK 3", "DISCONNECT")
	})
}

func TestC1_ASlowHandlerDoesNotStarveKeepAlive(t *testing.T) {
	in(t, func(t *testing.T) {
		f, main := up(t, func(c *settle.Config) { c.KeepAlive, c.ReceiveMaximum = 5*time.Second, 10 },
			settle.Handle("a", func(context.Context, []byte) settle.Outcome {
				sleep(29 * time.Second)
				return settle.Ack()
			}))
		main.send(numbered("a", 1, 1, 10)...)
		for range 300 {
			pings := main.pinged()
			pass(7500 * time.Millisecond) // a server waits one and a half times as long
			sent := main.took()
			if main.pinged() == pings && len(sent) == 0 {
				t.Fatal("a server would have dropped the connection")
			}
			for range sent {
				main.send(publish("a", 1, uint16(100+pings), "x"))
			}
		}
		if f.dialled() != 1 {
			t.Errorf("%d connections", f.dialled())
		}
	})
}

func (p *peer) pinged() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pings
}

func TestG7_RetriesKeepToTheServersReceiveMaximum(t *testing.T) {
	in(t, func(t *testing.T) {
		one := uint16(1)
		f := begin(t, nil, settle.Handle("a", func(context.Context, []byte) settle.Outcome { return settle.Reject(errFails) },
			settle.DeadLetterTo("dead"), settle.Workers(20)))
		main := f.next(false)
		var mu sync.Mutex
		open, most := 0, 0
		main.set(func(h *hooks) {
			h.publish = func(c *packets.Publish) (byte, bool) {
				mu.Lock()
				open++
				most = max(most, open)
				mu.Unlock()
				time.AfterFunc(50*time.Millisecond, func() {
					mu.Lock()
					open--
					mu.Unlock()
					main.write(&packets.Puback{PacketID: c.PacketID})
				})
				return 0, false
			}
		})
		main.write(&packets.Connack{Properties: &packets.Properties{ReceiveMaximum: &one}})
		synctest.Wait()
		main.send(numbered("a", 1, 1, 20)...)
		pass(2 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if most != 1 {
			t.Errorf("%d publishes were under way at once", most)
		}
		f.expectValue(`settle_dead_letters_total{result="confirmed",route="a"}`, 20)
		f.expectValue("settle_window_unacked", 0)
	})
}
