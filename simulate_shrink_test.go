package settle

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	tries         = 3                // of a candidate, as goroutines run in whatever order they like
	shrinkingTime = 20 * time.Second // after which what has been reached has to do
)

// shrink leaves steps out of a failing schedule for as long as it fails without them (Zeller's ddmin), then makes simpler what is left.
func shrink(s *schedule, fails func(*schedule) bool) *schedule {
	end := time.Now().Add(shrinkingTime)
	still := func(steps []step) bool {
		for range tries {
			if time.Now().After(end) {
				return false
			}
			if fails(&schedule{s.Seed, s.Setup, steps}) {
				return true
			}
		}
		return false
	}
	steps := s.Steps
	for size := (len(steps) + 1) / 2; size > 0; {
		smaller := false
		for at := 0; at < len(steps); {
			without := slices.Concat(steps[:at], steps[min(at+size, len(steps)):])
			if still(without) {
				steps, smaller = without, true
			} else {
				at += size
			}
		}
		switch {
		case size > 1:
			size /= 2
		case !smaller:
			size = 0
		}
	}
	for i := range steps {
		for _, simpler := range steps[i].simpler() {
			with := slices.Clone(steps)
			with[i] = simpler
			if still(with) {
				steps = with
				break
			}
		}
	}
	return &schedule{s.Seed, s.Setup, steps}
}

// simpler are steps that may do instead of one, the simplest first.
func (st step) simpler() (out []step) {
	if len(st.Fates) > 0 || st.Expiry > 0 || st.Bad {
		plain := st
		plain.Fates, plain.Expiry, plain.Bad = nil, 0, false
		out = append(out, plain)
		if st.Expiry > 0 {
			plain = st
			plain.Expiry = 0
			out = append(out, plain)
		}
		if len(st.Fates) > 0 {
			plain = st
			plain.Fates = st.Fates[:len(st.Fates)-1]
			out = append(out, plain)
		}
	}
	return out
}

// keep writes a schedule where tests find it, and returns the file's name.
func (s *schedule) keep() (string, error) {
	name := filepath.Join("testdata", "simulate", fmt.Sprint(s.Seed, ".json"))
	if err := os.MkdirAll(filepath.Dir(name), 0o750); err != nil {
		return name, err
	}
	return name, os.WriteFile(name, []byte(s.String()), 0o600)
}

func readSchedule(name string) (*schedule, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	s := &schedule{}
	return s, json.Unmarshal(b, s) //nolint:musttag // the fields have their own names
}
