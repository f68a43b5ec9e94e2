package hostile_test

import (
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/settlemq/settle/internal/hostile"
)

// TestHeapDoesNotGrow sends the same cases again and again: those that the App goes on after, and those that cost it its connection. What
// is in use after a round is what was in use after the round before.
func TestHeapDoesNotGrow(t *testing.T) {
	const rounds, most = 4, 512 << 10
	var ph *phase
	for i := range phases {
		if phases[i].name == "with deliveries open" {
			ph = &phases[i]
		}
	}
	var cases []hostile.Case
	for _, c := range hostile.Cases(hostile.Server, topics[0]) {
		if len(cases) < 6000 && len(c.Bytes) < 1000 { // a large frame is in some buffer until the next one comes
			cases = append(cases, c)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.up()
		var used [rounds]uint64
		for round := range used {
			for i := round % 2; i < len(cases); i += 7 * stride {
				r.run(ph, &cases[i], i%2 == 1)
			}
			r.forget()
			runtime.GC()
			runtime.GC()
			var stats runtime.MemStats
			runtime.ReadMemStats(&stats)
			used[round] = stats.HeapAlloc
		}
		t.Logf("%d cases a round; heap in use: %d KiB", len(cases)/(7*stride), [rounds]uint64{used[0] >> 10, used[1] >> 10, used[2] >> 10, used[3] >> 10})
		if used[rounds-1] > used[1]+most {
			t.Errorf("the heap has grown from %d to %d bytes", used[1], used[rounds-1])
		}
		r.stop()
	})
}

// forget drops the server's side of connections that are over.
func (r *rig) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := r.peers[:0]
	for _, p := range r.peers {
		if p == r.main || p == r.second {
			kept = append(kept, p)
			continue
		}
		_ = p.Close()
		<-p.done
	}
	clear(r.peers[len(kept):])
	r.peers = kept
}
