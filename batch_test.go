package settle_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/internal/broker/brokertest"
)

func texts(change func(*settle.Config)) func(*settle.Config) {
	return func(c *settle.Config) {
		c.Codecs = []settle.Codec{textCodec{}}
		if change != nil {
			change(c)
		}
	}
}

// sized is a batch handler that notes the sizes of its batches.
func sized(c *calls) func(context.Context, []text) settle.Outcomes {
	return func(_ context.Context, all []text) settle.Outcomes {
		c.note(strconv.Itoa(len(all)))
		return settle.Every(settle.Ack())
	}
}

func TestABatchClosesAtItsSize(t *testing.T) {
	for _, qos := range []byte{0, 1, 2} {
		t.Run(fmt.Sprintf("qos %d", qos), func(t *testing.T) {
			in(t, func(t *testing.T) {
				c := newCalls()
				f, main := up(t, texts(nil), settle.HandleBatch("a", sized(c), settle.QoS(qos), settle.BatchSize(4), settle.Linger(time.Hour)))
				main.send(numbered("a", qos, 1, 10)...)
				c.expect(t, "4", "4")
				main.send(numbered("a", qos, 11, 2)...)
				c.expect(t, "4", "4", "4")
				f.expectValue(`settle_batch_size{route="a"}`, 3)
			})
		})
	}
}

func TestABatchClosesWhenItsLingerIsOver(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		_, main := up(t, texts(nil), settle.HandleBatch("a", sized(c), settle.AtMostOnce))
		main.send(numbered("a", 0, 1, 1)...)
		pass(15 * time.Millisecond)
		main.send(numbered("a", 0, 2, 1)...) // does not prolong it
		pass(4 * time.Millisecond)
		c.expect(t)
		pass(2 * time.Millisecond)
		c.expect(t, "2")
	})
}

func TestLingerZeroHandsOverWhatIsThere(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		_, main := up(t, texts(nil), settle.HandleBatch("a", sized(c), settle.Linger(0), settle.BatchSize(10)))
		main.send(numbered("a", 1, 1, 3)...)
		c.expect(t, "3")
	})
}

// Batches and keys combine: a lane assembles its own.
func TestKeysAndBatches(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		_, main := up(t, texts(nil), settle.HandleBatch("a/+", func(ctx context.Context, all []text) settle.Outcomes {
			lanes := map[string]bool{}
			last := map[string]text{}
			for i, s := range all {
				k := settle.DeliveriesFrom(ctx)[i].Level(1)
				if len(s) < len(last[k]) || len(s) == len(last[k]) && s <= last[k] {
					t.Errorf("key %s: %s after %s", k, s, last[k])
				}
				last[k], lanes[k] = s, true
			}
			c.note(strconv.Itoa(len(all)))
			return settle.Every(settle.Ack())
		}, settle.Workers(4, settle.ByTopic), settle.BatchSize(8), settle.Linger(50*time.Millisecond)))
		var out []brokertest.Packet
		for i := 1; i <= 200; i++ {
			out = append(out, publish("a/"+strconv.Itoa(i%16), 1, uint16(i), strconv.Itoa(i)))
		}
		main.send(out...)
		pass(time.Second)
		main.expect(pubacks(1, 200)...)
		total := 0
		for _, s := range c.list() {
			n, _ := strconv.Atoi(s)
			total += n
		}
		if total != 200 || len(c.list()) > 50 {
			t.Errorf("%d in %d batches", total, len(c.list()))
		}
	})
}

func TestABatchOfRetriesAndFirstsTogether(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main := up(t, texts(nil), settle.HandleBatch("a", func(ctx context.Context, all []text) settle.Outcomes {
			each := make([]settle.Outcome, len(all))
			for i, d := range settle.DeliveriesFrom(ctx) {
				c.note(fmt.Sprintf("%s %d", all[i], d.Attempt()))
				each[i] = settle.Ack()
				if all[i] == "2" && d.Attempt() < 3 {
					each[i] = settle.Retry(errFails)
				}
			}
			return settle.Each(each...)
		}, settle.BatchSize(3), settle.Backoff(settle.Constant(time.Second))))
		main.send(numbered("a", 1, 1, 3)...)
		main.expect("PUBACK 1")
		pass(5 * time.Second)
		main.expect("PUBACK 2", "PUBACK 3")
		c.expect(t, "1 1", "2 1", "3 1", "2 2", "2 3")
		f.expectValue(`settle_inflight{route="a"}`, 0)
	})
}

func TestABatchThatIsAssembledWhenTheAppStops(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main := up(t, texts(nil),
			settle.HandleBatch("a", sized(c), settle.BatchSize(10), settle.Linger(time.Hour)))
		main.send(numbered("a", 0, 1, 3)...) // nobody else has them
		if err := f.stop(); err != nil {
			t.Error(err)
		}
		c.expect(t, "3")
		main.expect("DISCONNECT")
	})
}

func TestAllUndecodableCallsNoHandler(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		_, main := up(t, nil, settle.HandleBatch("a", func(context.Context, []report) settle.Outcomes {
			c.note("called")
			return settle.Every(settle.Ack())
		}, settle.BatchSize(2)))
		main.send(publish("a", 1, 1, "bad"), publish("a", 1, 2, "worse"))
		main.expect("PUBACK 1", "PUBACK 2")
		c.expect(t)
	})
}
