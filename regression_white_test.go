package settle

import (
	"context"
	"testing"
	"time"
)

func reviewApp(t *testing.T, cfg Config, routes ...Route) *App {
	t.Helper()
	cfg.ClientID, cfg.Servers = "svc", []string{"mqtt://server"}
	a, err := New(cfg, routes...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func reviewDelivery(a *App, rt *route, payload int) *Delivery {
	m := a.main.newArrival()
	m.Frame.Bytes = make([]byte, payload)
	d := &m.first
	d.init(m, rt, 1)
	m.left.Store(1)
	return d
}

// What is dropped before it stands in the queue is put into it all the same, and stays there while the lane is busy.
func TestDroppedQoS0LeavesTheQueue(t *testing.T) {
	a := reviewApp(t, Config{QoS0Queue: 1}, Handle("a", func(context.Context, []byte) Outcome { return Ack() }, AtMostOnce))
	rt := a.routes[0]
	for range 1000 {
		var c chain
		for range 10 {
			c.push(reviewDelivery(a, rt, 10))
		}
		a.enqueue(rt.lanes[0].queue, c)
	}
	if n := rt.lanes[0].len(); n > 1 {
		t.Errorf("%d deliveries stand in a queue bounded to 1", n)
	}
}

// A held delivery at QoS 0 for which there is no room is dropped at once, and its timer with it.
func TestDroppedQoS0HoldKeepsNoTimer(t *testing.T) {
	a := reviewApp(t, Config{QoS0Queue: 1}, Handle("a", func(context.Context, []byte) Outcome { return Ack() }, AtMostOnce))
	rt := a.routes[0]
	if !a.qos0.reserve(reviewDelivery(a, rt, 10)) { // a copy that is being published
		t.Fatal("no room")
	}
	for range 100 {
		a.holds.hold(reviewDelivery(a, rt, 10), time.Hour)
	}
	if n := a.holds.set.len(); n > 0 {
		t.Errorf("%d timers for deliveries that were dropped", n)
	}
	a.holds.set.close()
}

func TestQoS0BytesFitOnePayload(t *testing.T) {
	const size = 1000
	a := reviewApp(t, Config{MaxPayload: size, QoS0Bytes: size}, Handle("a", func(context.Context, []byte) Outcome { return Ack() }, AtMostOnce))
	rt := a.routes[0]
	var c chain
	c.push(reviewDelivery(a, rt, size+10))
	a.enqueue(rt.lanes[0].queue, c)
	if rt.lanes[0].take(nil) == nil {
		t.Error("a payload of MaxPayload does not fit into QoS0Bytes = MaxPayload, which Config says it does")
	}
}
