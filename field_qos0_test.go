package settle_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/internal/broker/brokertest"
)

func TestC3_QoS0IsBoundedAndDropsTheOldest(t *testing.T) {
	in(t, func(t *testing.T) {
		const bound, n = 100, 20_000
		c := newCalls()
		f, main := up(t, func(c *settle.Config) { c.ReceiveMaximum, c.QoS0Queue, c.KeepAlive = 10, bound, 5*time.Second },
			settle.Handle("a", c.wait, settle.AtMostOnce, settle.Timeout(0)))
		main.send(publish("a", 0, 0, "first"))
		c.expect(t, "first")
		var out []brokertest.Packet
		for i := range n {
			out = append(out, publish("a", 0, 0, strconv.Itoa(i)))
		}
		main.send(out...)
		pings := main.pinged()
		pass(time.Minute)
		if main.pinged() < pings+10 || f.dialled() != 1 {
			t.Errorf("%d pings, %d connections", main.pinged()-pings, f.dialled())
		}
		f.expectValue(`settle_qos0_dropped_total{route="a"}`, n-bound)
		f.expectValue(`settle_inflight{route="a"}`, bound+1)
		want := []string{"first"}
		for i := n - bound; i < n; i++ {
			want = append(want, strconv.Itoa(i))
		}
		for range bound + 1 {
			c.release(settle.Ack())
		}
		c.expect(t, want...)
		main.expect()
	})
}

func TestC3_QoS0IsBoundedInBytes(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main := up(t, func(c *settle.Config) { c.MaxPayload, c.QoS0Bytes = 64<<10, 256<<10 },
			settle.Handle("a", c.wait, settle.AtMostOnce, settle.Timeout(0)))
		main.send(publish("a", 0, 0, "first"))
		for range 100 {
			main.send(publish("a", 0, 0, strings.Repeat("x", 62<<10)))
		}
		f.expectValue(`settle_qos0_dropped_total{route="a"}`, 96)
		for range 5 {
			c.release(settle.Ack())
		}
		if got := len(c.list()); got != 5 {
			t.Errorf("%d handled", got)
		}
	})
}

// The bound is shared by all queues, and one route's flood cannot grow beyond it.
func TestC3_QoS0RetriesStayWithinTheBound(t *testing.T) {
	in(t, func(t *testing.T) {
		const bound, n = 50, 1000
		f, main := up(t, func(c *settle.Config) { c.QoS0Queue = bound },
			settle.Handle("a", func(context.Context, []byte) settle.Outcome { return settle.Retry(errFails) },
				settle.AtMostOnce, settle.Backoff(settle.Constant(time.Hour))))
		for i := range n {
			main.send(publish("a", 0, 0, strconv.Itoa(i)))
		}
		if held := f.value(`settle_held{route="a"}`); held > bound {
			t.Errorf("%v deliveries at QoS 0 are held, the bound is %d", held, bound)
		}
		if f.value(`settle_qos0_dropped_total{route="a"}`) < n-bound-1 {
			t.Error("drops are not counted")
		}
	})
}

func TestC3_AFloodOnOneRouteDoesNotStarveAnother(t *testing.T) {
	in(t, func(t *testing.T) {
		slow, fast := newCalls(), newCalls()
		f, main := up(t, func(c *settle.Config) { c.QoS0Queue = 50 },
			settle.Handle("slow", slow.polite, settle.AtMostOnce, settle.Timeout(0)),
			settle.Handle("fast", fast.ack, settle.AtMostOnce))
		for i := range 60 {
			main.send(publish("slow", 0, 0, strconv.Itoa(i)))
		}
		for i := range 5 {
			main.send(publish("fast", 0, 0, strconv.Itoa(i)))
		}
		fast.expect(t, "0", "1", "2", "3", "4")
		f.expectValue(`settle_qos0_dropped_total{route="fast"}`, 0)
		slow.expect(t, "0")
		slow.release(settle.Ack())
		if got := slow.list(); len(got) != 2 || got[1] < "10" {
			t.Errorf("handled %q: the oldest were to be dropped", got)
		}
	})
}
