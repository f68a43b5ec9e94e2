package field_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/testkit"
)

// A window full of handlers that take six keep-alives. The server would cut a client that is silent for one and a half.
func TestC1_SlowHandlersDoNotStarveTheKeepAlive(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		s := begin(t, testkit.NewBroker(t), func(c *settle.Config) { c.KeepAlive, c.ReceiveMaximum = 5*time.Second, 10 },
			settle.Handle("a", func(ctx context.Context, payload []byte) settle.Outcome {
				<-time.After(30 * time.Second)
				return c.ack(ctx, payload)
			}, settle.Timeout(time.Minute)))
		s.publish("a", 1, numbered(25)...)
		for range 24 {
			pass(30 * time.Second)
			if err := s.app.Ready(); err != nil {
				t.Fatal(err)
			}
		}
		s.quiet()
		c.expect(t, numbered(25)...)
		s.connected(1)
		if got := s.wire("svc", "> PINGREQ"); len(got) < 25*30/5*2/3 {
			t.Errorf("%d pings", len(got))
		}
	})
}

// Five thousand messages for a slow handler: there is no goroutine a message, and no more than the window is here. That the memory of a million is flat
// is held where nothing but the app takes any, by TestC2_AMillionDeliveriesThroughASlowHandlerInFlatMemory of package settle.
func TestC2_NoGoroutineAMessage(t *testing.T) {
	in(t, func(t *testing.T) {
		const most = 100
		n := scaled(5000)
		s := begin(t, testkit.NewBroker(t), window(most), settle.Handle("a", func(context.Context, []byte) settle.Outcome {
			<-time.After(time.Millisecond)
			return settle.Ack()
		}, settle.Workers(4)))
		before, grown := goroutines(), 0
		check := func() {
			grown = max(grown, goroutines()-before)
			if here := s.value(`settle_inflight{route="a"}`); here > most {
				t.Errorf("%v deliveries are here", here)
			}
		}
		for i := range n {
			s.publish("a", 1, "x")
			if i%1000 == 0 {
				check()
			}
		}
		for s.value(`settle_settled_total{outcome="ack",route="a"}`) < float64(n) {
			pass(500 * time.Millisecond)
			check()
		}
		s.quiet()
		if grown > 20 {
			t.Errorf("%d goroutines more", grown)
		}
	})
}

// QoS 0 knows no window. A flood is bounded: the oldest go and are counted, and the connection is served.
func TestC3_AFloodAtQoS0IsBounded(t *testing.T) {
	in(t, func(t *testing.T) {
		const bound = 100
		n := scaled(5000)
		c := newCalls()
		s := begin(t, testkit.NewBroker(t, testkit.Options{WireLog: 2 * n}),
			func(c *settle.Config) { c.ReceiveMaximum, c.QoS0Queue, c.KeepAlive = 10, bound, 5*time.Second },
			settle.Handle("a", c.wait, settle.AtMostOnce, settle.Timeout(0)))
		s.publish("a", 0, "first")
		c.expect(t, "first")
		s.publish("a", 0, numbered(n)...)
		pass(time.Minute)
		if got := s.wire("svc", "< PINGRESP"); len(got) < 8 {
			t.Errorf("%d PINGRESP", len(got))
		}
		s.expect(`settle_qos0_dropped_total{route="a"}`, float64(n-bound))
		s.expect(`settle_inflight{route="a"}`, bound+1)
		for range bound + 1 {
			c.release(t, settle.Ack())
		}
		s.quiet()
		c.expect(t, append([]string{"first"}, numbered(n)[n-bound:]...)...)
		s.connected(1)
	})
}

// A full queue on the server drops the newest, after its publisher was told that all is well. Nothing here can see it: so the guide for
// operators says it.
func TestC4_AServersFullQueueCannotBeSeen(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		b := testkit.NewBroker(t, testkit.Options{QueueLimit: 5, QueuePolicy: testkit.DropNewest})
		begin(t, b, nil, settle.Handle("a", c.ack)).stop()
		publisher := begin(t, b, func(c *settle.Config) { c.ClientID = "publisher" }, settle.Handle("elsewhere", c.ack))
		for _, p := range numbered(8) {
			if err := publisher.app.Publish(t.Context(), "a", []byte(p)); err != nil {
				t.Errorf("%s: %v", p, err)
			}
		}
		s := begin(t, b, nil, settle.Handle("a", c.ack))
		s.quiet()
		c.expect(t, numbered(5)...)
		s.expect("settle_sessions_lost_total", 0)
		s.expect("settle_unmatched_total", 0)
		for _, guide := range []string{"operations", "guarantees"} {
			text, err := os.ReadFile("../../docs/" + guide + ".md")
			if err != nil || !strings.Contains(string(text), "max_queued_messages") {
				t.Errorf("%s.md does not say it: %v", guide, err)
			}
		}
	})
}
