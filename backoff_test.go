package settle

import (
	"math"
	"slices"
	"testing"
	"time"
)

func TestExponential(t *testing.T) {
	policy := Exponential(time.Second, time.Minute)
	for attempt, base := range map[int]time.Duration{
		math.MinInt: time.Second, 0: time.Second, 1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second, 6: 32 * time.Second,
		7: time.Minute, 8: time.Minute, 64: time.Minute, math.MaxInt: time.Minute,
	} {
		low, high := time.Duration(math.MaxInt64), time.Duration(0)
		for range 1000 {
			d := policy.Delay(attempt)
			low, high = min(low, d), max(high, d)
		}
		if low < base*8/10 || high > base*12/10 {
			t.Errorf("attempt %d: from %s to %s around %s", attempt, low, high, base)
		}
		// A thousand draws that leave out the outer halves of the spread would be a miracle, and a broken jitter is not.
		if low > base*9/10 || high < base*11/10 {
			t.Errorf("attempt %d: the jitter only reaches from %s to %s around %s", attempt, low, high, base)
		}
	}
}

func TestExponentialLimitIsReachedExactly(t *testing.T) {
	e := exponential{3 * time.Second, 10 * time.Second}
	var got []time.Duration
	for attempt := 1; attempt <= 4; attempt++ {
		got = append(got, e.base(attempt))
	}
	if want := []time.Duration{3 * time.Second, 6 * time.Second, 10 * time.Second, 10 * time.Second}; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if got := (exponential{1, math.MaxInt64}).base(math.MaxInt); got != math.MaxInt64 {
		t.Errorf("overflow: %d", got)
	}
}

func TestConstantIsExact(t *testing.T) {
	for _, attempt := range []int{1, 2, 1000} {
		if d := Constant(5 * time.Minute).Delay(attempt); d != 5*time.Minute {
			t.Errorf("attempt %d: %s", attempt, d)
		}
	}
}

type policyFunc func(int) time.Duration

func (f policyFunc) Delay(attempt int) time.Duration { return f(attempt) }

// A policy of the user's own can neither lose a delivery nor make it a hot loop.
func TestDelayOfUserPolicies(t *testing.T) {
	fixed := func(d time.Duration) BackoffPolicy { return policyFunc(func(int) time.Duration { return d }) }
	for name, c := range map[string]struct {
		policy   BackoffPolicy
		low, top time.Duration
	}{
		"as it says": {fixed(3 * time.Second), 3 * time.Second, 3 * time.Second},
		"zero":       {fixed(0), minDelay, minDelay},
		"negative":   {fixed(-time.Hour), minDelay, minDelay},
		"for ever":   {fixed(math.MaxInt64), maxDelay, 2 * maxDelay},
		"panic":      {policyFunc(func(int) time.Duration { panic("policy") }), 800 * time.Millisecond, 1200 * time.Millisecond},
		"nil":        {nil, 800 * time.Millisecond, 1200 * time.Millisecond},
	} {
		if d := delayOf(c.policy, 1); d < c.low || d > c.top {
			t.Errorf("%s: %s", name, d)
		}
	}
}
