package window

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"reflect"
	"slices"
	"testing"
)

// explorer goes through everything that can happen in a small world, depth first. A world that was met
// before is not entered again.
type explorer struct {
	worlds []*world // by depth: the world there, kept to be written over
	can    [][]step
	met    map[[2]uint64]struct{}
	key    []byte
	seeds  [2]maphash.Seed
	seen   *tally
	quiet  int
}

func explore(s *scenario, seen *tally) (*explorer, error) {
	x := &explorer{met: map[[2]uint64]struct{}{}, seen: seen, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
	w := newWorld(s, x.seen)
	w.published = len(w.messages)
	w.server = session{exists: true, subscribed: true, queue: inOrder(len(w.messages))}
	x.worlds = append(x.worlds, w)
	first := x.enter(0)
	return x, first
}

func (x *explorer) enter(depth int) error {
	w := x.worlds[depth]
	x.key = w.appendKey(x.key[:0])
	hash := [2]uint64{maphash.Bytes(x.seeds[0], x.key), maphash.Bytes(x.seeds[1], x.key)}
	if _, was := x.met[hash]; was {
		return nil
	}
	x.met[hash] = struct{}{}
	if w.quiet() {
		x.quiet++
	}
	if len(x.worlds) == depth+1 {
		x.worlds = append(x.worlds, newWorld(w.scenario, x.seen))
	}
	if len(x.can) == depth {
		x.can = append(x.can, nil)
	}
	x.can[depth] = w.possible(x.can[depth][:0])
	for _, s := range x.can[depth] {
		next := x.worlds[depth+1]
		next.copyFrom(w)
		if err := next.step(s); err != nil {
			return err
		}
		if err := x.enter(depth + 1); err != nil {
			return err
		}
	}
	return nil
}

// copyFrom makes w what from is, reusing what w has.
func (w *world) copyFrom(from *world) {
	w.messages = append(w.messages[:0], from.messages...)
	w.published, w.tainted, w.everTainted = from.published, from.tainted, from.everTainted
	w.server.copyFrom(&from.server)
	w.snapshot.copyFrom(&from.snapshot)
	w.toClient, w.toServer = append(w.toClient[:0], from.toClient...), append(w.toServer[:0], from.toServer...)
	w.connection, w.epoch, w.process, w.restores, w.losses = from.connection, from.epoch, from.process, from.restores, from.losses
	w.unread, w.restored, w.newest, w.spent, w.err = from.unread, from.restored, from.newest, from.spent, from.err
	for i := range w.lanes {
		w.lanes[i] = append(w.lanes[i][:0], from.lanes[i]...)
	}
	for q := range w.expect {
		w.expect[q] = append(w.expect[q][:0], from.expect[q]...)
	}
	w.history = append(w.history[:0], from.history...)
	for len(w.deliveries) < len(from.deliveries) {
		w.deliveries = append(w.deliveries, new(delivery))
	}
	w.deliveries = w.deliveries[:len(from.deliveries)]
	twin := func(e *Entry) *Entry {
		if e == nil {
			return nil
		}
		return &w.deliveries[e.At].Entry
	}
	for i, d := range from.deliveries {
		*w.deliveries[i] = *d
		w.deliveries[i].prev, w.deliveries[i].next = twin(d.prev), twin(d.next)
	}
	copyWindow(w.win, from.win, twin, w.identifiers)
}

// windowFields is how many fields copyWindow and appendKey know of.
const windowFields = 15

func TestWindowFields(t *testing.T) {
	if n := reflect.TypeFor[Window]().NumField(); n != windowFields {
		t.Errorf("Window has %d fields: copyWindow and appendKey know %d", n, windowFields)
	}
}

func copyWindow(w, from *Window, twin func(*Entry) *Entry, maxID uint16) {
	w.config, w.epoch, w.before, w.online = from.config, from.epoch, from.before, from.online
	w.trusted, w.proved = from.trusted, from.proved
	w.certain, w.settled, w.parked, w.receivedNow = from.certain, from.settled, from.parked, from.receivedNow
	w.pubcomps = append(w.pubcomps[:0], from.pubcomps...)
	for q := 1; q <= 2; q++ {
		w.live[q] = list{twin(from.live[q].head), twin(from.live[q].tail), from.live[q].len}
		w.unseen[q] = list{twin(from.unseen[q].head), twin(from.unseen[q].tail), from.unseen[q].len}
	}
	for id := uint16(1); id <= maxID; id++ {
		s := w.slot(id)
		*s = *from.slot(id)
		s.entry = twin(s.entry)
	}
}

// appendKey appends what two worlds have to have in common to have one future.
func (w *world) appendKey(k []byte) []byte {
	bit := func(bs ...bool) {
		var b byte
		for _, on := range bs {
			b <<= 1
			if on {
				b |= 1
			}
		}
		k = append(k, b)
	}
	// Of an epoch only its age matters, up to what makes it too old.
	age := func(epoch uint64) byte {
		if epoch == 0 {
			return 9
		}
		return byte(min(w.epoch-epoch, 3))
	}
	win := w.win
	k = append(k, byte(w.connection), byte(w.newest+1), byte(win.parked), byte(win.receivedNow), byte(win.certain[1]), byte(win.certain[2]))
	bit(win.online, win.trusted[1], win.trusted[2], win.proved[1], win.proved[2], w.unread, w.restored)
	for _, n := range w.spent {
		k = append(k, byte(n))
	}
	for kind, n := range w.budget {
		if n == unlimited {
			k[len(k)-len(w.spent)+kind] = 0
		}
	}
	for _, m := range w.messages {
		bit(m.dispatched > 0, m.settled, m.excused, m.parked == w.epoch, m.process == w.process, m.restores == w.restores)
		k = append(k, age(m.shown), age(m.holding))
	}
	for _, s := range [2]*session{&w.server, &w.snapshot} {
		bit(s.exists, s.subscribed)
		k = append(k, byte(s.last), byte(len(s.inflight)), byte(len(s.queue)))
		for _, f := range s.inflight {
			k = append(k, byte(f.id), byte(f.message))
			bit(f.released, f.reused)
		}
		for _, m := range s.queue {
			k = append(k, byte(m))
		}
	}
	for _, wire := range [2][]packet{w.toClient, w.toServer} {
		k = append(k, byte(len(wire)))
		for _, p := range wire {
			k = append(k, byte(p.kind), byte(p.id), byte(p.message))
			bit(p.dup, p.present)
		}
	}
	for q := 1; q <= 2; q++ {
		k = append(k, byte(len(w.expect[q])))
		for _, e := range w.expect[q] {
			k = append(k, byte(e.id), byte(e.message))
		}
		for _, l := range [2]*list{&win.live[q], &win.unseen[q]} {
			k = append(k, byte(l.len))
			for e := l.head; e != nil; e = e.next {
				d := w.deliveries[e.At]
				k = append(k, byte(d.message), byte(e.PacketID), byte(e.state), byte(d.why))
			}
		}
	}
	for id := uint16(1); id <= w.identifiers; id++ {
		s := win.slot(id)
		k = append(k, byte(s.memory), age(s.epoch))
		if s.memory != entered {
			k = binary.LittleEndian.AppendUint64(k, s.digest)
		}
	}
	k = append(k, win.pubcomps...)
	for _, l := range w.lanes {
		k = append(k, 0xFF, byte(len(l)))
		for _, i := range l {
			d := w.deliveries[i]
			// Which of a message's deliveries it is can be told by its identifier and by whether it is gone.
			k = append(k, byte(d.message), byte(d.PacketID))
			bit(d.state == gone)
		}
	}
	return k
}

// qualities are all the ways to publish n messages at QoS 1 and 2.
func qualities(n int) [][]byte {
	if n == 0 {
		return [][]byte{nil}
	}
	var all [][]byte
	for _, shorter := range qualities(n - 1) {
		all = append(all, append(shorter[:n-1:n-1], 1), append(shorter[:n-1:n-1], 2))
	}
	return all
}

// family is a kind of small worlds, explored for each QoS and with either way to give identifiers away.
type family struct {
	name                       string
	messages, receiveMaximum   int
	spare                      uint16 // identifiers beyond the Receive Maximum
	cuts                       int
	budget                     map[stepKind]int // what may happen besides
	expires                    []int            // messages that carry an expiry
	handleAgain, texts, oneQoS bool
	unread                     bool // CONNACK may be lost after a restore
	beyondHelp                 int  // acknowledgements of what was not handled, because of that
	long                       bool // left out where time is short
}

var families = []family{
	{name: "two", messages: 2, receiveMaximum: 2, cuts: 3},
	{name: "two, window of one", messages: 2, receiveMaximum: 1, spare: 1, cuts: 3},
	{name: "three", messages: 3, receiveMaximum: 3, cuts: 2},
	{name: "three, window of two", messages: 3, receiveMaximum: 2, cuts: 2},
	{name: "three, two texts", messages: 3, receiveMaximum: 2, cuts: 2, texts: true},
	{name: "four", messages: 4, receiveMaximum: 3, cuts: 2, long: true},
	{name: "four of QoS 1, three cuts", messages: 4, receiveMaximum: 3, cuts: 3, oneQoS: true, long: true},
	{name: "three, three cuts", messages: 3, receiveMaximum: 3, cuts: 3, long: true},
	{name: "five of QoS 1", messages: 5, receiveMaximum: 3, spare: 1, cuts: 2, oneQoS: true, long: true},
	{name: "repeats", messages: 3, receiveMaximum: 2, cuts: 1, budget: map[stepKind]int{stepRepeat: 1}},
	{name: "repeats and two cuts", messages: 2, receiveMaximum: 2, cuts: 2, budget: map[stepKind]int{stepRepeat: 2}},
	{name: "session lost", messages: 3, receiveMaximum: 2, cuts: 2, budget: map[stepKind]int{stepLose: 1}},
	{name: "restored", messages: 2, receiveMaximum: 2, cuts: 2, budget: map[stepKind]int{stepSnapshot: 1, stepRestore: 1, stepWait: 1}},
	{name: "restored, three", messages: 3, receiveMaximum: 2, cuts: 2, long: true,
		budget: map[stepKind]int{stepSnapshot: 1, stepRestore: 1, stepWait: 1}},
	{name: "restored and CONNACK lost", messages: 3, receiveMaximum: 2, cuts: 2, long: true, unread: true, beyondHelp: 62,
		budget: map[stepKind]int{stepSnapshot: 1, stepRestore: 1}},
	{name: "first expires", messages: 3, receiveMaximum: 2, cuts: 2, expires: []int{0}, budget: map[stepKind]int{stepExpire: 1}},
	{name: "second expires", messages: 3, receiveMaximum: 2, cuts: 2, expires: []int{1}, budget: map[stepKind]int{stepExpire: 1}},
	{name: "all expire", messages: 3, receiveMaximum: 2, cuts: 2, expires: []int{0, 1, 2}, budget: map[stepKind]int{stepExpire: 1}},
	{name: "expiry and repeats", messages: 2, receiveMaximum: 2, cuts: 2, expires: []int{0}, budget: map[stepKind]int{stepExpire: 1, stepRepeat: 1}},
	{name: "killed", messages: 3, receiveMaximum: 2, cuts: 2, budget: map[stepKind]int{stepKill: 1}},
	{name: "handle again", messages: 3, receiveMaximum: 2, cuts: 2, handleAgain: true},
}

// worlds are those of a family.
func (f family) worlds() map[string]*scenario {
	all := map[string]*scenario{}
	for _, qos := range qualities(f.messages) {
		one := bytes.IndexByte(qos, 2) < 0
		if f.oneQoS && !one {
			continue
		}
		for _, lowest := range []bool{false, true} {
			if brief() && !(lowest && (one || bytes.Equal(qos, []byte{1, 2, 1, 2}[:len(qos)]))) {
				continue
			}
			s := &scenario{
				receiveMaximum: f.receiveMaximum, serverMaximum: f.receiveMaximum, identifiers: uint16(f.receiveMaximum) + f.spare,
				lowestFree: lowest, lanes: 2, keepQueue: true, liveCONNACK: !f.unread, handleAgain: f.handleAgain,
			}
			for i, q := range qos {
				m := message{id: i, qos: q, text: 1, key: i, expires: slices.Contains(f.expires, i)}
				if f.texts {
					m.text += byte(i % 2)
				}
				s.messages = append(s.messages, m)
			}
			for _, k := range []stepKind{stepSend, stepToClient, stepToServer, stepSettle, stepTake, stepConnect} {
				s.budget[k] = unlimited
			}
			s.budget[stepCut] = f.cuts
			for k, n := range f.budget {
				s.budget[k] = n
			}
			all[fmt.Sprintf("QoS %v, lowest free %t", qos, lowest)] = s
		}
	}
	return all
}

// TestExhaustive goes through every order of everything in small worlds.
func TestExhaustive(t *testing.T) {
	states, steps := 0, 0
	for _, f := range families {
		t.Run(f.name, func(t *testing.T) {
			if f.long && brief() {
				t.Skip("takes seconds: run without -short and -race")
			}
			met, quiet, seen := 0, 0, &tally{}
			for name, s := range f.worlds() {
				x, err := explore(s, seen)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				met, quiet = met+len(x.met), quiet+x.quiet
			}
			states, steps = states+met, steps+seen.steps
			if seen.unread > f.beyondHelp {
				t.Errorf("%d losses by a restore, where %d cannot be helped", seen.unread, f.beyondHelp)
			}
			t.Logf("%d states, %d of them quiet; %v", met, quiet, seen)
		})
	}
	t.Logf("%d states and %d steps in all", states, steps)
}
