package chaos

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/settlemq/settle/internal/cutproxy"
)

// storm carries the plan out, until the time is over and there were messages enough, and returns what was begun of it.
func (r *run) storm(plan []Fault) []Fault {
	var under sync.WaitGroup
	defer under.Wait()
	said := time.Now()
	for i, f := range plan {
		for time.Since(r.began) < f.At {
			if r.enough() {
				return slices.Clone(plan[:i])
			}
			<-time.After(min(time.Until(r.began.Add(f.At)), 50*time.Millisecond))
		}
		under.Go(func() { r.attempt(f) })
		if time.Since(said) > 5*time.Second {
			said = time.Now()
			r.say("%3.0f s: %d messages accepted", time.Since(r.began).Seconds(), r.book.accepted())
		}
	}
	r.fail("the plan was over before %d messages were accepted", r.Messages)
	return plan
}

// enough says that the faults may end: only when the last of what was published at full load has met as many of them as the rest.
func (r *run) enough() bool {
	return time.Since(r.began) >= r.Duration && r.book.accepted() >= r.Messages
}

// late is how long after its time a fault is carried out at the latest: one before it may have taken long.
const late = 1500 * time.Millisecond

func (r *run) attempt(f Fault) {
	done, err := r.carryOut(f)
	if err != nil {
		r.fail("%s: %v", f, err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if done {
		r.faults[f.Kind]++
	} else {
		r.skipped++
	}
}

func (r *run) carryOut(f Fault) (done bool, err error) {
	if f.Kind == Restart {
		return true, r.restart()
	}
	k := r.keepers[f.Consumer]
	if !within(late, k.mu.TryLock) {
		return false, nil
	}
	defer k.mu.Unlock()
	if f.Kind == Kill || f.Kind == Terminate {
		k.orderly = 0
		if err := k.end(f.Kind); err != nil {
			return false, err
		}
		return true, k.start()
	}
	return true, r.breakWire(k, f)
}

// breakWire carries out a fault of a consumer's network.
func (r *run) breakWire(k *keeper, f Fault) error {
	if k.orderly > 0 && (f.Kind == Cut || f.Kind == Truncate) {
		f.Kind = Reset // see wire
	}
	r.awaitCalm(k)
	switch f.Kind {
	case Reset:
		r.cut(k, func() { k.proxy.Reset() })
	case Slow:
		k.proxy.Delay(f.For)
		pause(5 * f.For)
		r.cut(k, func() { k.proxy.Reset() })
		k.proxy.Delay(0)
	case Cut:
		r.cut(k, func() { k.proxy.Cut() })
		k.orderly++
		return nil
	case Truncate:
		r.cut(k, func() { r.truncate(k, f) })
		k.orderly++
		return nil
	case Early:
		k.proxy.Reset()
		cutAfter(k.proxy, f.Bytes, cutproxy.ToClient)
		k.proxy.Reset()
	case Stall:
		k.proxy.Stall()
		pause(f.For)
		k.proxy.Resume()
	case Delay:
		k.proxy.Delay(f.For / 20)
		pause(f.For)
		k.proxy.Delay(0)
		return nil
	case Refuse:
		if err := k.proxy.Refuse(); err != nil {
			return err
		}
		k.proxy.Reset()
		pause(f.For)
		k.orderly = 0
		return k.proxy.Accept()
	}
	k.orderly = 0
	return nil
}

func (r *run) truncate(k *keeper, f Fault) {
	direction := cutproxy.ToClient
	if f.ToServer {
		direction = cutproxy.ToServer
	}
	if !cutAfter(k.proxy, f.Bytes, direction) {
		k.proxy.Cut()
	}
}

// cutAfter reports whether so many bytes came in time: there may not be so much to say.
func cutAfter(p *cutproxy.Proxy, n int64, d cutproxy.Direction) bool {
	select {
	case <-p.CutAfter(n, d):
		return true
	case <-time.After(time.Second):
		p.CutAfter(math.MaxInt64, d)
		return false
	}
}

// cut breaks a consumer's connections while the server is not being restarted: two losses in a row are an early second cut, which has a time of
// its own.
func (r *run) cut(k *keeper, how func()) {
	r.calm.RLock()
	defer r.calm.RUnlock()
	r.awaitCalm(k)
	how()
}

// awaitCalm waits, at full load, until a consumer's connection has shown again what the one before it had left. It does not wait for ever: what
// comes of a cut that is early all the same is counted like everything else.
func (r *run) awaitCalm(k *keeper) {
	if !phase(time.Since(r.began), r.Duration) && r.book.unreleased(k.stream) < fullEnough {
		return
	}
	within(10*time.Second, func() bool {
		p := k.current()
		return p.ended() || r.book.caughtUp(p.life)
	})
}

func pause(d time.Duration) { <-time.After(d) }

// restart stops the server cleanly and starts it again.
func (r *run) restart() error {
	r.calm.Lock()
	defer r.calm.Unlock()
	for _, k := range r.keepers {
		if !k.mu.TryLock() { // its network is silent or refuses, or it is being killed
			continue
		}
		r.awaitCalm(k)
		if k.orderly > 1 { // see wire
			k.proxy.Reset()
			k.orderly = 0
		}
		k.orderly++
		k.mu.Unlock()
	}
	if err := r.server.StopCleanly(); err != nil {
		return err
	}
	return r.server.Restart()
}
