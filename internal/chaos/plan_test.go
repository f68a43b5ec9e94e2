package chaos

import (
	"slices"
	"testing"
	"time"
)

func TestASeedGivesItsPlan(t *testing.T) {
	if !slices.Equal(Draw(7, time.Minute), Draw(7, time.Minute)) {
		t.Error("one seed, two plans")
	}
	if slices.Equal(Draw(7, time.Minute), Draw(8, time.Minute)) {
		t.Error("two seeds, one plan")
	}
}

// Each seed's first minute has more than what Minute asks for, as some faults come to nothing.
func TestAMinuteHasEnoughFaults(t *testing.T) {
	for seed := range uint64(200) {
		counts := make(map[Kind]int)
		cuts := 0
		for _, f := range Draw(seed, time.Minute) {
			if f.At >= time.Minute {
				break
			}
			counts[f.Kind]++
			if f.Kind.cuts() {
				cuts++
			}
			if f.Kind == Early && phase(f.At, time.Minute) {
				t.Errorf("seed %d: %s at full load", seed, f)
			}
		}
		least := Minute(0, time.Minute)
		if cuts < least.Cuts*11/10 || counts[Restart] <= least.Restarts || counts[Kill]+counts[Terminate] <= least.Kills {
			t.Errorf("seed %d: %v", seed, counts)
		}
	}
}

func TestAPlanIsInItsOrder(t *testing.T) {
	at := func(a, b Fault) int { return int(a.At - b.At) }
	if plan := Draw(1, 10*time.Second); !slices.IsSortedFunc(plan, at) || plan[len(plan)-1].At < 30*time.Second {
		t.Errorf("the last of %d is %s", len(plan), plan[len(plan)-1])
	}
}

// Each kind of fate has its share of the messages, and no stream has one that would be shared by a batch.
func TestFatesAreDealtOut(t *testing.T) {
	for i := range streams {
		s := &streams[i]
		counts := make(map[fate]int)
		for n := range uint32(100_000) {
			counts[fateOf(1, s, n)]++
		}
		for f := plain; f <= hopeless; f++ {
			if shared := s.batch && (f == panicsOnce || f == hangsOnce); (counts[f] == 0) != shared {
				t.Errorf("%s: %d of 100,000 %s", s.name, counts[f], f)
			}
		}
		if counts[plain] < 97_000 {
			t.Errorf("%s: only %d of 100,000 plain", s.name, counts[plain])
		}
	}
}
