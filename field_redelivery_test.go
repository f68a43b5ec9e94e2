package settle_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/internal/broker/brokertest"
)

func TestK5_AKeysOrderHoldsOverACut(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main := up(t, nil, settle.Handle("a", func(ctx context.Context, b []byte) settle.Outcome {
			if string(b) == "5" {
				return c.wait(ctx, b)
			}
			return c.ack(ctx, b)
		}, settle.Workers(3, settle.ByKey)))
		var sent, dup []brokertest.Packet
		for i := range uint16(6) {
			p := publish("a", 1, i+1, fmt.Sprint(i+1), settle.PartitionKeyHeader, "k")
			sent, dup = append(sent, p), append(dup, again(p))
		}
		main.send(sent...)
		main.expect("PUBACK 1", "PUBACK 2", "PUBACK 3", "PUBACK 4")
		main.cut() // and the server has not read them

		main = f.main(true)
		main.send(dup[:4]...)
		main.expect() // they wait for proof
		main.send(dup[4], dup[5])
		main.expect("PUBACK 1", "PUBACK 2", "PUBACK 3", "PUBACK 4")
		c.expect(t, "1", "2", "3", "4", "5")
		c.release(settle.Ack())
		main.expect("PUBACK 5", "PUBACK 6")
		c.expect(t, "1", "2", "3", "4", "5", "6")
	})
}

// Without proof they are handled again, in order, before what comes after.
func TestK5_WhatIsNotProvedIsHandledAgainInOrder(t *testing.T) {
	for name, end := range map[string]func(main *peer){
		"a new message": func(main *peer) { main.send(publish("a", 1, 9, "new")) },
		"five seconds":  func(main *peer) { pass(5 * time.Second); main.send(publish("a", 1, 9, "new")) },
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T) {
				c := newCalls()
				f, main := up(t, nil, settle.Handle("a", c.ack), settle.Handle("b", c.wait, settle.Timeout(0)))
				one, two := publish("a", 1, 1, "1"), publish("a", 1, 2, "2")
				main.send(one, two, publish("b", 1, 3, "3"))
				main.expect("PUBACK 1", "PUBACK 2")
				main.cut()
				main = f.main(true)
				main.send(again(one), again(two))
				main.expect()
				end(main)
				var got []string
				for _, s := range c.list() {
					if s != "3" { // which runs at the same time
						got = append(got, s)
					}
				}
				if !slices.Equal(got, []string{"1", "2", "1", "2", "new"}) {
					t.Errorf("handled %q", got)
				}
				main.expect("PUBACK 1", "PUBACK 2", "PUBACK 9")
				c.release(settle.Ack())
				main.expect() // 3 was not shown again: the server does not have it
			})
		})
	}
}

func TestK11_AReusedIdentifierWithTheSameBytesIsHandled(t *testing.T) {
	same := publish("a", 1, 1, "same")
	t.Run("first sent now", func(t *testing.T) {
		in(t, func(t *testing.T) {
			c := newCalls()
			f, main := up(t, nil, settle.Handle("a", c.ack))
			main.send(same)
			main.expect("PUBACK 1")
			main.cut()
			main = f.main(true)
			main.send(same)
			main.expect("PUBACK 1")
			c.expect(t, "same", "same")
		})
	})
	t.Run("sent on the connection that was lost", func(t *testing.T) {
		in(t, func(t *testing.T) {
			c := newCalls()
			f, main := up(t, nil, settle.Handle("a", c.ack))
			main.send(same)
			main.expect("PUBACK 1")
			main.cut()
			main = f.main(true)
			main.send(again(same)) // nothing that we hold was sent after it: it may be another
			main.expect("PUBACK 1")
			c.expect(t, "same", "same")
		})
	})
	t.Run("sent after one that runs", func(t *testing.T) {
		in(t, func(t *testing.T) {
			c := newCalls()
			f, main := up(t, nil, settle.Handle("a", func(ctx context.Context, b []byte) settle.Outcome {
				if string(b) == "runs" {
					return c.wait(ctx, b)
				}
				return c.ack(ctx, b)
			}, settle.Workers(2)))
			runs := publish("a", 1, 2, "runs")
			main.send(same, runs)
			main.expect("PUBACK 1")
			main.cut()
			main = f.main(true)
			main.send(again(runs), again(same))
			c.expectAll(t, "same", "runs", "same")
			c.release(settle.Ack())
			main.expect("PUBACK 2", "PUBACK 1")
		})
	})
}

func TestWhatCarriesAnExpiryIsNeverAdopted(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main := up(t, nil, settle.Handle("a", c.wait, settle.Workers(2)))
		m := publish("a", 1, 1, "x")
		expiry := uint32(60)
		m.Properties.MessageExpiry = &expiry
		main.send(m)
		main.cut()
		main = f.main(true)
		main.send(again(m))
		c.expect(t, "x", "x")
		c.release(settle.Ack())
		c.release(settle.Ack())
		main.expect("PUBACK 1")
		f.expectValue("settle_stale_settlements_total", 1)
		f.expectValue("settle_adopted_total", 0)
	})
}

func TestAnotherSessionUnderOurNameIsNotAdoptedFrom(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main := up(t, nil, settle.Handle("a", c.wait, settle.Workers(4)))
		one, two := publish("a", 1, 1, "1"), publish("a", 1, 2, "2")
		main.send(one, two)
		c.list()
		main.cut()
		main = f.main(true)
		// The first of a redelivery must be the oldest that we hold: a session restored from a backup begins elsewhere.
		main.send(again(two), again(one))
		if got := c.list(); len(got) != 4 {
			t.Errorf("handled %q", got)
		}
		f.expectValue("settle_adopted_total", 0)
		for range 4 {
			c.release(settle.Ack())
		}
		main.expect("PUBACK 2", "PUBACK 1")
		f.expectValue("settle_stale_settlements_total", 2)
	})
}

func TestHandleAgainAdoptsNothing(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main := up(t, func(c *settle.Config) { c.Redelivery = settle.HandleAgain }, settle.Handle("a", c.wait, settle.Workers(2)))
		m := publish("a", 1, 1, "x")
		main.send(m)
		main.cut()
		main = f.main(true)
		main.send(again(m))
		c.expect(t, "x", "x")
		c.release(settle.Ack())
		c.release(settle.Ack())
		main.expect("PUBACK 1")
		f.expectValue("settle_adopted_total", 0)
	})
}

// Rule 9: what we have is the only one there is.
func TestALostSessionLosesNothingThatWaits(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		var fail bool
		f, main := up(t, nil, settle.Handle("a", func(ctx context.Context, b []byte) settle.Outcome {
			if string(b) == "held" && settle.DeliveryFrom(ctx).Attempt() == 1 {
				return settle.Retry(errFails)
			}
			_ = fail
			return c.polite(ctx, b)
		}, settle.Backoff(settle.Constant(time.Minute))))
		main.send(publish("a", 1, 1, "held"), publish("a", 1, 2, "runs"), publish("a", 1, 3, "waits"), publish("a", 2, 4, "waits too"))
		main.cut()
		main = f.main(false)
		for range 3 {
			c.release(settle.Ack())
		}
		pass(time.Minute)
		c.release(settle.Ack())
		c.expect(t, "runs", "waits", "waits too", "held")
		main.expect()
		f.expectValue("settle_sessions_lost_total", 1)
		f.expectValue("settle_stale_settlements_total", 4)
		f.expectValue(`settle_inflight{route="a"}`, 0)
	})
}

func TestASettledDeliveryWhoseAckWasBlockedIsAdopted(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main := up(t, nil, settle.Handle("a", func(ctx context.Context, b []byte) settle.Outcome {
			if string(b) == "1" {
				return c.wait(ctx, b)
			}
			return c.ack(ctx, b)
		}, settle.Workers(2)))
		one, two := publish("a", 1, 1, "1"), publish("a", 1, 2, "2")
		main.send(one, two)
		main.expect() // 2 is settled, and waits for 1
		main.cut()
		main = f.main(true)
		main.send(again(one), again(two))
		c.release(settle.Ack())
		main.expect("PUBACK 1", "PUBACK 2")
		c.expectAll(t, "1", "2")
	})
}

func TestQoS2IsHandledOnceOverCuts(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main := up(t, nil, settle.Handle("a", c.ack, settle.ExactlyOnce))
		quiet := func(h *hooks) { h.pubrec = func(uint16) bool { return false } }
		main.set(quiet)
		m := publish("a", 2, 1, "x")
		main.send(m)
		main.expect("PUBREC 1")
		for range 2 {
			main.cut()
			main = f.main(true)
			main.set(quiet)
			main.send(again(m)) // it had not read the PUBREC
			main.expect("PUBREC 1")
		}
		main.cut()
		main = f.main(true)
		main.send(&packets.Pubrel{PacketID: 1}) // it had
		main.expect("PUBCOMP 1")
		main.send(&packets.Pubrel{PacketID: 1}) // and asks again
		main.expect("PUBCOMP 1 0x92")
		c.expect(t, "x")
		main.send(m) // another message
		main.took()
		c.expect(t, "x", "x")
		// A whole epoch that shows it neither by PUBLISH nor by PUBREL has forgotten it, and so do we.
		main.set(quiet)
		main.send(publish("a", 2, 2, "y"))
		main.expect("PUBREC 2")
		main.cut()
		main = f.main(true)
		main.cut()
		main = f.main(true)
		main.send(again(publish("a", 2, 2, "y")))
		main.took()
		c.expect(t, "x", "x", "y", "y")
	})
}

func TestADifferentServerIsNotAdoptedFrom(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main := up(t, func(c *settle.Config) { c.Servers = []string{"mqtt://one", "mqtt://two"} }, settle.Handle("a", c.wait, settle.Workers(2)))
		m := publish("a", 1, 1, "x")
		main.send(m)
		f.refuse(func(host string) error {
			if host == "one" {
				return errors.New("down")
			}
			return nil
		})
		main.cut()
		main = f.next(false)
		if main.URL.Host != "two" {
			t.Fatal(main.URL)
		}
		main.accept(true)
		main.send(again(m))
		c.expect(t, "x", "x")
		c.release(settle.Ack())
		c.release(settle.Ack())
		main.expect("PUBACK 1")
	})
}

func TestWhatNoRouteWantsIsAcknowledgedAlsoWhenItWasParked(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main := up(t, nil, settle.Handle("a", c.wait, settle.Timeout(0)))
		stray := publish("b", 1, 1, "stray")
		main.send(stray, publish("a", 1, 2, "x"))
		main.expect("PUBACK 1")
		main.cut()
		main = f.main(true)
		main.send(again(stray))
		main.expect()
		pass(5 * time.Second)
		main.expect("PUBACK 1")
		c.release(settle.Ack())
	})
}
