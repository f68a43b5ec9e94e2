package settle_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"

	"github.com/settlemq/settle"
	"github.com/settlemq/settle/internal/broker/brokertest"
)

func TestE2_ASharedRouteNeedsASession(t *testing.T) {
	for qos, ok := range map[settle.QoS]bool{0: true, 1: false, 2: false} {
		_, err := settle.New(settle.Config{ClientID: "c", Servers: []string{"mqtt://s"}, SessionExpiry: -1},
			settle.Handle("a", newCalls().ack, settle.Shared("g"), qos))
		var invalid *settle.ConfigError
		if ok != (err == nil) || err != nil && !errors.As(err, &invalid) {
			t.Errorf("qos %d: %v", qos, err)
		}
	}
}

func TestE3_RetireUnsubscribesDrainsAndEndsTheSessions(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main, second := upBoth(t, nil, settle.Handle("a", failing(c, 1), settle.Shared("g"), settle.RetryTo("r"), settle.Backoff(settle.Constant(10*time.Second))))
		circle(main, second, 0, "r")
		main.send(publish("a", 1, 1, "x"))
		main.took()
		retired := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			retired <- f.Retire(ctx)
		}()
		pass(100 * time.Millisecond)
		main.expect("UNSUBSCRIBE $share/g/a")
		second.expect() // what is on its way round is waited for
		main.send(publish("a", 1, 2, "backlog"))
		var err error
		select {
		case err = <-retired:
		case <-time.After(10 * time.Minute):
			t.Fatal("Retire has not returned")
		}
		if err != nil {
			t.Error(err)
		}
		c.expect(t, "x 1", "backlog 1", "x 2", "backlog 2")
		main.expect("PUBLISH r q1 backlog", "PUBACK 2", "DISCONNECT")
		second.expect("PUBACK 1", "PUBACK 2", "UNSUBSCRIBE $share/g/r", "DISCONNECT")
		for _, p := range []*peer{main, second} {
			p.mu.Lock()
			e := p.sessionExpiry
			p.mu.Unlock()
			if e == nil || *e != 0 {
				t.Errorf("DISCONNECT with Session Expiry %v", e)
			}
		}
	})
}

func TestE3_ARetireThatIsCutShortKeepsTheSessions(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		f, main := up(t, nil, settle.Handle("a", c.polite, settle.Timeout(0)))
		main.send(publish("a", 1, 1, "x"))
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := f.Retire(ctx); err == nil || !strings.Contains(err.Error(), "are kept") {
			t.Errorf("Retire returned %v", err)
		}
		main.expect("UNSUBSCRIBE a", "DISCONNECT")
		if main.sessionExpiry != nil {
			t.Error("the session was ended")
		}
	})
}

// identified adds subscription identifiers, of which the packets package knows one only.
func identified(p *packets.Publish, ids ...int) raw {
	b := brokertest.Bytes(p)
	if len(b) > 100 {
		panic("too long for this")
	}
	// fixed header 2, topic, identifier, then the property length in one byte
	at := 2 + 2 + len(p.Topic)
	if p.QoS > 0 {
		at += 2
	}
	var extra []byte
	for _, id := range ids {
		extra = append(extra, 0x0B)
		extra = binary.AppendUvarint(extra, uint64(id))
	}
	out := slices.Insert(slices.Clone(b), at+1, extra...)
	out[1] += byte(len(extra))
	out[at] += byte(len(extra))
	return raw(out)
}

func TestE5_OverlappingFiltersRunEachRouteOnce(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		note := func(name string) func(context.Context, []byte) settle.Outcome {
			return func(_ context.Context, b []byte) settle.Outcome { c.note(name + " " + string(b)); return settle.Ack() }
		}
		f := begin(t, nil,
			settle.Handle("a/#", note("hash")),
			settle.Handle("a/+", note("plus"), settle.ExactlyOnce),
			settle.Handle("a/+", note("twin"), settle.Name("twin")))
		main := f.next(false)
		ids := map[string]int{}
		main.set(func(h *hooks) {
			h.subscribe = func(s *packets.Subscribe) []byte {
				ids[s.Subscriptions[0].Topic] = *s.Properties.SubscriptionIdentifier
				return []byte{s.Subscriptions[0].QoS}
			}
		})
		main.accept(false)
		if got := main.history(); !slices.Equal(got, []string{"SUBSCRIBE a/# q1", "SUBSCRIBE a/+ q2"}) {
			t.Errorf("subscribed with %q", got)
		}
		hash, plus := ids["a/#"], ids["a/+"]
		if hash == 0 || plus == 0 || hash == plus {
			t.Fatalf("identifiers %v", ids)
		}
		check := func(name string, id uint16, p raw, want ...string) {
			t.Helper()
			c.mu.Lock()
			c.seen = nil
			c.mu.Unlock()
			main.send(p)
			c.expectAll(t, want...)
			if got := main.took(); len(got) == 0 || !strings.HasSuffix(got[0], fmt.Sprint(" ", id)) {
				t.Errorf("%s: sent %q", name, got)
			}
		}
		check("one copy for one subscription", 1, identified(publish("a/b", 1, 1, "1"), hash), "hash 1")
		check("and one for the other", 2, identified(publish("a/b", 2, 2, "1"), plus), "plus 1", "twin 1")
		check("one for both", 3, identified(publish("a/b", 2, 3, "2"), plus, hash), "hash 2", "plus 2", "twin 2")
		check("an identifier twice", 4, identified(publish("a/b", 1, 4, "3"), hash, hash), "hash 3")
		check("no identifier", 5, raw(brokertest.Bytes(publish("a/b", 1, 5, "4"))), "hash 4", "plus 4", "twin 4")
		check("an older release's", 6, identified(publish("a/b", 1, 6, "5"), 77), "hash 5", "plus 5", "twin 5")
		check("one that does not fit the topic", 7, identified(publish("a/b/c", 1, 7, "6"), plus), "hash 6")
		f.expectValue("settle_window_unacked", 0)
	})
}

// A message that several routes have is acknowledged when all have settled it.
func TestE5_AcknowledgedWhenAllRoutesHaveSettled(t *testing.T) {
	in(t, func(t *testing.T) {
		c := newCalls()
		_, main := up(t, nil, settle.Handle("a/#", c.wait), settle.Handle("a/+", c.ack))
		main.send(publish("a/b", 1, 1, "x"))
		c.expect(t, "x", "x")
		main.expect()
		c.release(settle.Ack())
		main.expect("PUBACK 1")
	})
}
