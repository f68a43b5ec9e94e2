package settle

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

var errDown = errors.New("ledger down")

func TestOutcome(t *testing.T) {
	for _, c := range []struct {
		outcome Outcome
		kind    Kind
		cause   string // "" for nil
		delay   time.Duration
		delayed bool
		text    string
	}{
		{Outcome{}, KindInvalid, "", 0, false, "invalid"},
		{Ack(), KindAck, "", 0, false, "ack"},
		{Drop("negative usage"), KindDrop, "negative usage", 0, false, "drop: negative usage"},
		{Drop(""), KindDrop, "", 0, false, "drop"},
		{Retry(errDown), KindRetry, "ledger down", 0, false, "retry: ledger down"},
		{Retry(nil), KindRetry, "", 0, false, "retry"},
		{RetryAfter(time.Minute, errDown), KindRetry, "ledger down", time.Minute, true, "retry after 1m0s: ledger down"},
		{RetryAfter(0, nil), KindRetry, "", 0, true, "retry after 0s"},
		{RetryAfter(-time.Second, nil), KindRetry, "", 0, true, "retry after 0s"},
		{Reject(errDown), KindReject, "ledger down", 0, false, "reject: ledger down"},
		{Reject(nil), KindReject, "", 0, false, "reject"},
		{OrRetry(nil), KindAck, "", 0, false, "ack"},
		{OrRetry(errDown), KindRetry, "ledger down", 0, false, "retry: ledger down"},
	} {
		o := c.outcome
		if o.Kind() != c.kind || o.String() != c.text {
			t.Errorf("%s: kind %s, text %q", c.text, o.Kind(), o)
		}
		if cause := o.Cause(); (cause == nil) != (c.cause == "") || cause != nil && cause.Error() != c.cause {
			t.Errorf("%s: cause %v", c.text, cause)
		}
		if delay, delayed := o.Delay(); delay != c.delay || delayed != c.delayed {
			t.Errorf("%s: delay %s, %v", c.text, delay, delayed)
		}
	}
	if !errors.Is(Retry(fmt.Errorf("post: %w", errDown)).Cause(), errDown) {
		t.Error("the cause is not the handler's own error")
	}
}

func TestKindString(t *testing.T) {
	var got []string
	for k := range Kind(6) {
		got = append(got, k.String())
	}
	if want := []string{"invalid", "ack", "drop", "retry", "reject", "invalid"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func kinds(o Outcomes) string {
	var s []string
	for i, each := range o.All() {
		s = append(s, fmt.Sprintf("%d:%s", i, each.Kind()))
	}
	return strings.Join(s, " ")
}

func TestOutcomesResolve(t *testing.T) {
	for name, c := range map[string]struct {
		outcomes Outcomes
		n        int
		before   string
		after    string
		fault    string // "" for none
	}{
		"every":           {Every(Ack()), 3, "0:ack", "0:ack 1:ack 2:ack", ""},
		"every, of none":  {Every(Ack()), 0, "0:ack", "", ""},
		"every, invalid":  {Every(Outcome{}), 2, "0:invalid", "0:invalid 1:invalid", ""},
		"each":            {Each(Ack(), Drop("x")), 2, "0:ack 1:drop", "0:ack 1:drop", ""},
		"each, too few":   {Each(Ack(), Drop("x")), 3, "0:ack 1:drop", "0:ack 1:drop 2:invalid", "2 outcomes for 3 deliveries: the deliveries beyond them are retried"},
		"each, too many":  {Each(Ack(), Drop("x")), 1, "0:ack 1:drop", "0:ack", "2 outcomes for 1 deliveries: the surplus is ignored"},
		"each, none":      {Each(), 2, "", "0:invalid 1:invalid", "0 outcomes for 2 deliveries"},
		"each, of none":   {Each(), 0, "", "", ""},
		"zero":            {Outcomes{}, 2, "", "0:invalid 1:invalid", "0 outcomes for 2 deliveries"},
		"single delivery": {one(Reject(nil)), 1, "0:reject", "0:reject", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := kinds(c.outcomes); got != c.before {
				t.Errorf("before: %q", got)
			}
			resolved, err := c.outcomes.resolve(c.n)
			if (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
				t.Errorf("error: %v", err)
			}
			if got := kinds(resolved); got != c.after || resolved.Len() != c.n {
				t.Errorf("after: %q, %d", got, resolved.Len())
			}
			// Every layer of middleware resolves again; a fault is reported where it arose, once.
			again, err := resolved.resolve(c.n)
			if err != nil || kinds(again) != c.after {
				t.Errorf("again: %q, %v", kinds(again), err)
			}
			for _, i := range []int{-1, c.n} {
				if resolved.At(i).Kind() != KindInvalid {
					t.Errorf("At(%d) = %s", i, resolved.At(i))
				}
			}
		})
	}
}

func TestOutcomesAllStopsEarly(t *testing.T) {
	for i := range Each(Ack(), Ack(), Ack()).All() {
		if i == 1 {
			return
		}
	}
	t.Error("the loop did not reach the second outcome")
}

var sink Outcomes

func TestOutcomesAllocateNothing(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() {
		sink, _ = one(OrRetry(nil)).resolve(1)
		sink, _ = Every(Retry(errDown)).resolve(64)
		for i, o := range sink.All() {
			if o.Kind() != KindRetry || i > 63 {
				panic("not what Every was given")
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
