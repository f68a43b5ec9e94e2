package settle

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestSimulate runs the schedules of some seeds: of the first twenty, or for as long as SETTLE_SIMULATE says of fresh ones, or the one of
// SETTLE_SIMULATE_SEED. `make simulate` sets these.
func TestSimulate(t *testing.T) {
	if text := os.Getenv("SETTLE_SIMULATE_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		checkSeed(t, seed, new(tally))
		return
	}
	if text := os.Getenv("SETTLE_SIMULATE"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		fresh(t, d)
		return
	}
	sum := new(tally)
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { checkSeed(t, seed, sum) })
	}
	t.Log(sum)
}

// fresh runs schedules of fresh seeds, on all cores, until the time is up or one of them fails.
func fresh(t *testing.T, d time.Duration) {
	t.Helper()
	sum, began := new(tally), time.Now()
	t.Run("fresh", func(t *testing.T) {
		for core := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint("core ", core), func(t *testing.T) {
				t.Parallel()
				for time.Since(began) < d && !t.Failed() {
					checkSeed(t, rand.Uint64N(1<<40), sum)
				}
			})
		}
	})
	t.Logf("%.0f schedules a minute: %s", float64(sum.schedules)/time.Since(began).Minutes(), sum)
}

// checkSeed runs the schedule of a seed. One that fails is shrunk and kept.
func checkSeed(t *testing.T, seed uint64, sum *tally) {
	t.Helper()
	s := expand(seed)
	r := simulate(t, s, carryOut)
	sum.add(r)
	if len(r.problems) == 0 {
		return
	}
	t.Errorf("seed %d:\n\t%s", seed, strings.Join(r.problems, "\n\t"))
	small := shrink(s, func(s *schedule) bool { return sameKind(simulate(t, s, carryOut), r) })
	name, err := small.keep()
	if err != nil {
		t.Error(err)
	}
	t.Errorf("it fails with %d of its %d steps too, which are kept as %s:\n%s", len(small.Steps), len(s.Steps), name, small)
}

// sameKind tells whether two runs fail in the same way.
func sameKind(a, b result) bool {
	for _, one := range a.problems {
		for _, other := range b.problems {
			if kindOf(one) == kindOf(other) {
				return true
			}
		}
	}
	return false
}

// kindOf is what is left of a problem without the names and numbers in it.
func kindOf(problem string) string {
	for _, kind := range []string{"nothing explains it", "out of order", "have not come to an end", "still has", "to come to rest", "is dead after", "Stop", "is no dead letter", "UNSUBSCRIBE"} {
		if strings.Contains(problem, kind) {
			return kind
		}
	}
	return "other"
}

// TestSimulateKept runs the schedules that were once found to fail, and shrunk.
func TestSimulateKept(t *testing.T) {
	names, err := filepath.Glob(cmp.Or(os.Getenv("SETTLE_SIMULATE_FILES"), "testdata/simulate/*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			s, err := readSchedule(name)
			if err != nil {
				t.Fatal(err)
			}
			for range tries {
				if r := simulate(t, s, carryOut); len(r.problems) > 0 {
					t.Fatalf("%s", strings.Join(r.problems, "\n"))
				}
			}
		})
	}
}

// TestSimulateShrinks breaks a handler, which says now and then that it has done what it has not. It has to be found, and with few steps.
func TestSimulateShrinks(t *testing.T) {
	lies := func(ctx context.Context, p *process, d *Delivery, f fate, alone bool) Outcome {
		if f.Do == "later" && d.Attempt() > 1 {
			return Ack() // without the work
		}
		return carryOut(ctx, p, d, f, alone)
	}
	fails := func(s *schedule) bool {
		return sameKind(simulate(t, s, lies), result{problems: []string{"have not come to an end"}})
	}
	for seed := range uint64(20) {
		s := expand(seed)
		if !fails(s) {
			continue
		}
		small := shrink(s, fails)
		t.Logf("%d of %d steps:\n%s", len(small.Steps), len(s.Steps), small)
		if len(small.Steps) > 3 {
			t.Errorf("shrunk to %d steps, want 3 at the most", len(small.Steps))
		}
		return
	}
	t.Error("a handler that loses messages was not found")
}

// tally adds up what runs have shown.
type tally struct {
	mu                            sync.Mutex
	schedules, published, excused int
	twice                         map[string]int
}

func (s *tally) add(r result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.schedules++
	s.published += r.published
	s.excused += r.excused
	if s.twice == nil {
		s.twice = make(map[string]int)
	}
	for why, n := range r.twice {
		s.twice[why] += n
	}
}

func (s *tally) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	twice := maps.Clone(s.twice)
	all := twice["all"]
	delete(twice, "all")
	return fmt.Sprintf("%d schedules, %d messages, %d lost with a session alone, %d handled twice, explained by %v", s.schedules, s.published, s.excused, all, twice)
}
