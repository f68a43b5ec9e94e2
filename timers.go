package settle

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// timerSet is timers that can be counted, and stopped all at once. Each stands for something that waits.
type timerSet[K comparable] struct {
	mu     sync.Mutex
	timers map[K]*time.Timer
	closed bool
}

// after calls f on a goroutine of its own when d is over, unless key is cancelled before, or the set closed. It reports
// whether the set takes it: a closed one does not.
func (s *timerSet[K]) after(d time.Duration, key K, f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if s.timers == nil {
		s.timers = make(map[K]*time.Timer)
	}
	s.timers[key] = time.AfterFunc(d, func() {
		if s.cancel(key) {
			f()
		}
	})
	return true
}

// cancel reports whether key was waiting.
func (s *timerSet[K]) cancel(key K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, waiting := s.timers[key]
	if waiting {
		t.Stop()
		delete(s.timers, key)
	}
	return waiting
}

// keys are what waits.
func (s *timerSet[K]) keys() []K {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.timers))
}

func (s *timerSet[K]) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.timers)
}

// close stops all timers, and any that comes later, and returns what waited.
func (s *timerSet[K]) close() []K {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	waiting := slices.Collect(maps.Keys(s.timers))
	for _, t := range s.timers {
		t.Stop()
	}
	clear(s.timers)
	return waiting
}
