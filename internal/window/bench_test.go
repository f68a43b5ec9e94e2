package window

import (
	"math/rand/v2"
	"sync"
	"testing"
)

// flow is a window in its steady state: size deliveries are open, and each round one arrives, one is settled and
// its acknowledgement is taken.
type flow struct {
	w       *Window
	entries []Entry
	due     []*Entry
	acks    []byte
	at      int
	idle    bool // a round in which nothing was acknowledged
}

func newFlow(size int, qos byte) *flow {
	f := &flow{w: New(Config{ReceiveMaximum: size + 1}), entries: make([]Entry, size+1)}
	f.w.Begin(1, false)
	for i := range f.entries {
		f.entries[i].Publish = publish(content{id: uint16(i + 1), qos: qos, text: 'a'})
	}
	for range size {
		f.arrive()
	}
	return f
}

func (f *flow) arrive() {
	e := &f.entries[f.at%len(f.entries)]
	e.At = int64(f.at)
	f.at++
	_, f.due = f.w.Arrive(e, f.due[:0])
}

func (f *flow) round() {
	f.arrive()
	oldest := &f.entries[f.at%len(f.entries)]
	due, stale := f.w.Settle(oldest)
	f.acks = f.w.TakeAcks(1, f.acks[:0])
	f.idle = f.idle || !due || stale || len(f.acks) == 0
	if oldest.QoS == 2 {
		f.w.Pubrel(oldest.PacketID)
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	for _, qos := range []byte{1, 2} {
		f := newFlow(100, qos)
		for range 200 {
			f.round()
		}
		if n := testing.AllocsPerRun(1000, f.round); n != 0 {
			t.Errorf("QoS %d: %v allocations a delivery", qos, n)
		}
		if f.idle {
			t.Errorf("QoS %d: the oldest was settled, and nothing was due", qos)
		}
	}
}

// TestConcurrentUse has lanes that settle, a writer and a reader at once, over several connections. The race
// detector watches; the order of the acknowledgements is checked.
func TestConcurrentUse(t *testing.T) {
	const perEpoch, lanes = 200, 4
	w := New(Config{ReceiveMaximum: perEpoch})
	entries := make(chan *Entry, perEpoch)
	var running sync.WaitGroup
	for range lanes {
		running.Go(func() {
			for e := range entries {
				w.Settle(e)
			}
		})
	}
	for epoch := uint64(1); epoch <= 20; epoch++ {
		w.Begin(epoch, epoch%5 != 1)
		stop, written := make(chan struct{}), make(chan []byte)
		running.Go(func() {
			var acks []byte
			for {
				acks = w.TakeAcks(epoch, acks)
				w.Unacknowledged()
				w.OldestAt()
				select {
				case <-stop:
					written <- acks
					return
				default:
				}
			}
		})
		var due []*Entry
		for id := uint16(1); id <= perEpoch; id++ {
			e := &Entry{Publish: publish(content{id: id, qos: 1, text: 'a', dup: rand.IntN(2) == 0})}
			_, due = w.Arrive(e, due[:0])
			for _, e := range due {
				entries <- e
			}
		}
		for _, e := range w.ReleaseParked(epoch, nil) {
			entries <- e
		}
		w.End()
		close(stop)
		last := 0
		for acks := <-written; len(acks) > 0; acks = acks[4:] {
			id := int(acks[2])<<8 | int(acks[3])
			if acks[0] != 0x40 || id <= last {
				t.Fatalf("epoch %d: %#x %d after %d", epoch, acks[0], id, last)
			}
			last = id
		}
	}
	close(entries)
	running.Wait()
}

func BenchmarkRound(b *testing.B) {
	for _, bench := range []struct {
		name string
		size int
		qos  byte
	}{{"QoS 1, 1 open", 1, 1}, {"QoS 1, 1000 open", 1000, 1}, {"QoS 2, 1000 open", 1000, 2}} {
		b.Run(bench.name, func(b *testing.B) {
			f := newFlow(bench.size, bench.qos)
			b.ReportAllocs()
			for b.Loop() {
				f.round()
			}
		})
	}
}

// BenchmarkRedelivery is a connection that shows again what 1,000 lanes hold.
func BenchmarkRedelivery(b *testing.B) {
	const size = 1000
	f := newFlow(size, 1)
	again := make([]Entry, size)
	for i := range again {
		again[i].Publish = publish(content{id: uint16(i + 1), qos: 1, text: 'a', dup: true})
	}
	b.ReportAllocs()
	epoch := uint64(1)
	for b.Loop() {
		epoch++
		f.w.Begin(epoch, true)
		for i := range again {
			if a, _ := f.w.Arrive(&again[i], nil); a != Adopted {
				b.Fatal(a)
			}
		}
	}
}
