package testkit

import (
	"time"
)

const (
	realPatience   = 5 * time.Second
	bubblePatience = time.Hour // fake, and long enough for the ten attempts of a route with defaults
)

func (k *Kit) wait() time.Duration {
	switch {
	case k.patience > 0:
		return k.patience
	case inBubble():
		return bubblePatience
	}
	return realPatience
}

// Not everything that a wait can depend on reports its changes: the server's state does not, nor does what a test asks for itself.
// So a wait looks again after each report, soon at first and then ever less often; in a bubble, where time stands still until
// nothing moves, the first such look sees all that the report has led to.
const (
	firstLook    = 20 * time.Microsecond
	realInterval = 5 * time.Millisecond
)

// await waits until done, for the Kit's patience at most, and says whether it was.
func (k *Kit) await(done func() bool) bool {
	deadline := time.Now().Add(k.wait())
	longest := realInterval
	if inBubble() {
		longest = forever
	}
	pulse := &k.rec.pulse
	pulse.waiting.Add(1)
	defer pulse.waiting.Add(-1)
	look := time.NewTimer(0)
	defer look.Stop()
	interval := firstLook
	for {
		changed := pulse.next()
		if done() {
			return true
		}
		left := time.Until(deadline)
		if left <= 0 {
			return false
		}
		look.Reset(min(interval, left))
		select {
		case <-changed:
			interval = firstLook
		case <-look.C:
			interval = min(2*interval, longest)
		}
	}
}

// Until waits until a condition holds, and fails the test if it does not in time; what says what was waited for. It is for what
// the other methods cannot ask. The condition is looked at again and again, so it must be quick.
func (k *Kit) Until(what string, condition func() bool) {
	k.t.Helper()
	if !k.await(condition) {
		k.fail("not within %s: %s", k.wait(), what)
	}
}

// fail ends the test with an account of what there is.
func (k *Kit) fail(format string, args ...any) {
	k.t.Helper()
	k.t.Fatalf("testkit: "+format+"\n%s", append(args, k.account())...)
}
