package broker

import "time"

// clock is the broker's time: package time's, less what it was held for. Everything that a server does by itself after some
// time goes by it. Guarded by the broker's lock.
type clock struct {
	behind time.Duration // how far it has fallen behind
	held   time.Time     // since when it stands still; zero when it runs
	alarms map[*alarm]struct{}
}

// alarm is something to be done at a time, with the broker's lock held.
type alarm struct {
	at    time.Time // on the broker's clock
	do    func()
	timer *time.Timer
}

func (b *Broker) now() time.Time {
	if !b.clock.held.IsZero() {
		return b.clock.held.Add(-b.clock.behind)
	}
	return time.Now().Add(-b.clock.behind)
}

// arm has do called after d. The lock is held, here and there.
func (b *Broker) arm(d time.Duration, do func()) *alarm {
	if b.closed {
		return nil
	}
	a := &alarm{at: b.now().Add(d), do: do}
	b.clock.alarms[a] = struct{}{}
	b.wind(a)
	return a
}

// wind starts an alarm's timer, unless the clock stands still.
func (b *Broker) wind(a *alarm) {
	if b.clock.held.IsZero() {
		b.wg.Add(1) // for the timer's goroutine; Done by it, or by whoever stops it
		a.timer = time.AfterFunc(a.at.Sub(b.now()), func() { b.ring(a) })
	}
}

func (b *Broker) ring(a *alarm) {
	defer b.wg.Done()
	b.mu.Lock()
	defer b.unlock()
	if _, armed := b.clock.alarms[a]; !armed || a.at.After(b.now()) {
		return // disarmed, or the clock was held, and whoever lets it go winds the alarm again
	}
	b.disarm(a) // a second timer too, should the clock have been held and let go while this one waited for the lock
	a.do()
}

// disarm is for nil too.
func (b *Broker) disarm(a *alarm) {
	if a == nil {
		return
	}
	delete(b.clock.alarms, a)
	b.unwind(a)
}

func (b *Broker) unwind(a *alarm) {
	if a.timer != nil && a.timer.Stop() {
		b.wg.Done()
	}
	a.timer = nil
}

// HoldClock makes the server's clock stand still: nothing expires, no keep-alive ends, no will is due. The function that it
// returns lets the clock go on from where it stood. Holding a held clock changes nothing.
func (b *Broker) HoldClock() (release func()) {
	b.mu.Lock()
	defer b.unlock()
	if !b.clock.held.IsZero() {
		return func() {}
	}
	b.clock.held = time.Now()
	for a := range b.clock.alarms {
		b.unwind(a)
	}
	return func() {
		b.mu.Lock()
		defer b.unlock()
		if b.clock.held.IsZero() {
			return
		}
		b.clock.behind += time.Since(b.clock.held)
		b.clock.held = time.Time{}
		for a := range b.clock.alarms {
			b.wind(a)
		}
	}
}
