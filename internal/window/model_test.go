package window

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// mode is a family of scenarios.
type mode struct {
	name                                                    string
	lose, restore, kill, expiry, liveExpiry, again, overrun bool
	repeats                                                 bool
	unread                                                  bool // restored servers whose CONNACK is never read
}

var modes = []mode{
	{name: "cuts"},
	{name: "B8 repeats", repeats: true},
	{name: "sessions lost", lose: true, repeats: true},
	{name: "killed", kill: true},
	{name: "expiry", expiry: true, repeats: true},
	{name: "expiry on a live connection", expiry: true, liveExpiry: true},
	{name: "restored", restore: true},
	{name: "restored and CONNACK lost", restore: true, unread: true},
	{name: "overrun", overrun: true},
	{name: "handle again", again: true, lose: true, kill: true},
	{name: "everything", lose: true, restore: true, kill: true, expiry: true, repeats: true},
}

// weights of what happens, by kind of step.
var weights = [steps]int{
	stepPublish: 3, stepSend: 8, stepToClient: 10, stepToServer: 6, stepSettle: 6, stepHold: 1, stepTake: 5, stepCut: 1, stepConnect: 4,
	stepLose: 1, stepSnapshot: 1, stepRestore: 1, stepKill: 1, stepExpire: 1, stepRepeat: 1, stepWait: 1,
}

// chance draws a number from lo to hi. It is rapid's, which shrinks what fails, or plain random numbers, which are
// a hundred times faster.
type chance func(lo, hi int) int

func (c chance) yes() bool { return c(0, 1) == 1 }

func drawScenario(draw chance, m mode) *scenario {
	s := &scenario{
		receiveMaximum: draw(1, 6),
		lowestFree:     draw.yes(),
		lanes:          draw(1, 4),
		handleAgain:    m.again,
		liveExpiry:     m.liveExpiry,
		liveCONNACK:    !m.unread,
		calm:           draw(1, 5),
	}
	s.serverMaximum = s.receiveMaximum
	if m.overrun {
		s.serverMaximum += draw(1, 4)
	}
	s.identifiers = uint16(s.serverMaximum + draw(0, 3))
	both, texts := draw.yes(), draw(1, 2)
	n, expiring := draw(1, 24), draw(0, 2)
	for i := range n {
		next := message{id: i, qos: 1, text: byte(draw(1, texts)), key: draw(0, 3)}
		if both && draw.yes() {
			next.qos = 2
		}
		next.expires = m.expiry && draw(0, 2) <= expiring
		s.messages = append(s.messages, next)
	}
	for i := range s.budget {
		s.budget[i] = unlimited
	}
	for k, on := range map[stepKind]bool{
		stepLose: m.lose, stepSnapshot: m.restore, stepRestore: m.restore, stepKill: m.kill, stepExpire: m.expiry, stepRepeat: m.repeats,
	} {
		if !on {
			s.budget[k] = 0
		}
	}
	if m.repeats {
		s.budget[stepRepeat] = 6
	}
	return s
}

// TestModel lets chance drive worlds and checks every step.
func TestModel(t *testing.T) {
	for _, m := range modes {
		t.Run(m.name, func(t *testing.T) {
			seen := &tally{}
			rapid.Check(t, func(t *rapid.T) {
				numbers := map[[2]int]*rapid.Generator[int]{}
				draw := func(lo, hi int) int {
					g := numbers[[2]int{lo, hi}]
					if g == nil {
						g = rapid.IntRange(lo, hi)
						numbers[[2]int{lo, hi}] = g
					}
					return g.Draw(t, "n")
				}
				if err := runModel(draw, m, seen); err != nil {
					t.Fatal(err)
				}
			})
			seed := rand.Uint64()
			runs := 4_000
			if brief() {
				runs = 1_000
			}
			for i := range uint64(runs) {
				r := rand.New(rand.NewPCG(seed, i))
				if err := runModel(func(lo, hi int) int { return lo + r.IntN(hi-lo+1) }, m, seen); err != nil {
					t.Fatalf("seed %d, %d: %v", seed, i, shrink(err))
				}
			}
			t.Log(seen)
			// What was not met was not tested.
			for what, n := range map[string]int{
				"adoptions": seen.arrivals[Adopted], "parked": seen.arrivals[Parked], "answered": seen.arrivals[Answered],
				"proved": seen.proved, "cuts while parked": seen.cutParked,
			} {
				if n == 0 && !brief() && (!m.again || what == "answered") {
					t.Errorf("no %s", what)
				}
			}
		})
	}
}

func runModel(draw chance, m mode, seen *tally) error {
	w := newWorld(drawScenario(draw, m), seen)
	seen.runs++
	if m.again {
		w.order = func(n int) []int {
			order := inOrder(n)
			for i := range order {
				j := draw(i, n-1)
				order[i], order[j] = order[j], order[i]
			}
			return order
		}
	}
	var can []step
	for range draw(50, 300) {
		if w.published == len(w.messages) && w.quiet() {
			break
		}
		can = w.possible(can[:0])
		total := 0
		for _, s := range can {
			total += w.weight(s)
		}
		at := draw(0, total-1)
		for _, s := range can {
			if at -= w.weight(s); at < 0 {
				if err := w.step(s); err != nil {
					return err
				}
				break
			}
		}
	}
	return w.finish()
}

// finish is how every run ends: the network holds, and everything is handled.
func (w *world) finish() error {
	var can []step
	for range 5_000 {
		can = w.possible(can[:0])
		next, found := step{}, false
		for _, s := range can {
			switch s.kind {
			case stepSend, stepToClient, stepToServer, stepSettle, stepTake, stepConnect:
				next, found = s, true
			case stepWait:
				if w.quiet() {
					next, found = s, true
				}
			}
		}
		if !found {
			if !w.quiet() {
				return &failure{errors.New("STALL: nothing can happen, and not all is done"), w}
			}
			return nil
		}
		if err := w.step(next); err != nil {
			return err
		}
	}
	return &failure{errors.New("STALL: it never ends"), w}
}

// weight is how likely s is.
func (w *world) weight(s step) int {
	switch s.kind {
	case stepCut, stepLose, stepSnapshot, stepRestore, stepKill, stepExpire, stepRepeat, stepWait:
		return weights[s.kind]
	}
	return w.calm * weights[s.kind]
}

func (w *world) step(s step) error {
	w.seen.steps++
	w.history = append(w.history, s)
	w.do(s)
	if err := w.check(); err != nil {
		return &failure{err, w}
	}
	return nil
}

// failure is what went wrong, and the world in which it did.
type failure struct {
	err error
	w   *world
}

func (f *failure) Error() string { return f.err.Error() + "\n" + f.w.String() }

// shrink leaves away what is not needed to fail.
func shrink(err error) error {
	var f *failure
	if !errors.As(err, &f) || f.w.handleAgain {
		return err
	}
	for again := true; again; {
		again = false
		for i := len(f.w.history) - 1; i >= 0; i-- { //nolint:modernize // the history changes on the way
			if i >= len(f.w.history) {
				continue
			}
			history := append(append([]step(nil), f.w.history[:i]...), f.w.history[i+1:]...)
			var shorter *failure
			if errors.As(replay(f.w.scenario, history), &shorter) && len(shorter.w.history) < len(f.w.history) {
				f, again = shorter, true
			}
		}
	}
	return f
}

// replay does what can be done of history.
func replay(s *scenario, history []step) error {
	w := newWorld(s, &tally{})
	for _, next := range history {
		if slices.Contains(w.possible(nil), next) {
			if err := w.step(next); err != nil {
				return err
			}
		}
	}
	return w.finish()
}
