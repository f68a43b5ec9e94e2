package settle

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// BackoffPolicy says how long a delivery waits after a failed attempt. [Exponential] and [Constant] make the usual
// ones; a program may bring its own.
//
// Delay is called from several goroutines at once, must not block, and gets the number of attempts made so far, 1 after
// the first. A result below a millisecond counts as a millisecond, so that a failing delivery never becomes a hot loop;
// a Delay that panics counts as the default policy.
type BackoffPolicy interface {
	Delay(attempt int) time.Duration
}

// Exponential waits first after the first failed attempt, twice as long after each further one, and never longer
// than limit. Each wait is then drawn from ±20 % around that, so that deliveries that failed together do not come back
// together: a single wait may exceed limit by a fifth.
//
// first must be at least a millisecond and limit at least first; [New] refuses anything else. The default of a route is
// Exponential(time.Second, 5*time.Minute).
func Exponential(first, limit time.Duration) BackoffPolicy { return exponential{first, limit} }

// Constant waits d after every failed attempt, exactly: there is no jitter. d must be at least a millisecond; [New]
// refuses anything else.
func Constant(d time.Duration) BackoffPolicy { return constant(d) }

var defaultBackoff = Exponential(time.Second, 5*time.Minute)

// minDelay is the shortest wait between two attempts.
const minDelay = time.Millisecond

type exponential struct{ first, limit time.Duration }

func (e exponential) Delay(attempt int) time.Duration {
	base := e.base(attempt)
	spread := base / 5
	if spread <= 0 {
		return base
	}
	return base - spread + rand.N(2*spread+1)
}

// base is the wait before jitter. The doubling stops at the limit, so it cannot overflow.
func (e exponential) base(attempt int) time.Duration {
	d := e.first
	for i := 1; i < attempt && d < e.limit; i++ {
		if d > e.limit/2 {
			return e.limit
		}
		d *= 2
	}
	return min(d, e.limit)
}

func (e exponential) check() string {
	switch {
	case e.first < minDelay:
		return "the first wait must be at least 1ms: " + noUnit
	case e.limit < e.first:
		return "the longest wait must not be shorter than the first"
	case e.limit > maxDelay:
		return fmt.Sprintf("the longest wait must be at most %s", maxDelay)
	}
	return ""
}

func (e exponential) String() string { return fmt.Sprintf("Exponential(%s, %s)", e.first, e.limit) }

type constant time.Duration

func (c constant) Delay(int) time.Duration { return time.Duration(c) }

func (c constant) check() string {
	switch {
	case time.Duration(c) < minDelay:
		return "the wait must be at least 1ms: " + noUnit
	case time.Duration(c) > maxDelay:
		return fmt.Sprintf("the wait must be at most %s", maxDelay)
	}
	return ""
}

func (c constant) String() string { return fmt.Sprintf("Constant(%s)", time.Duration(c)) }

// maxDelay keeps waits plus jitter far from the end of time.Duration. Ten years is a mistake, not a wait.
const maxDelay = 10 * 365 * 24 * time.Hour

// delayOf asks a policy, which may be the user's code, so that nothing that it does costs a delivery.
func delayOf(policy BackoffPolicy, attempt int) (d time.Duration) {
	switch policy.(type) {
	case exponential, constant:
		d = policy.Delay(attempt)
	default:
		if _, _, returned := contained(func() { d = policy.Delay(attempt) }); !returned {
			d = defaultBackoff.Delay(attempt)
		}
	}
	return min(max(d, minDelay), maxDelay+maxDelay/5)
}
