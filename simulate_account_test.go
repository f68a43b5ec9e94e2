package settle

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// An account knows of each message what the server holds of it, what the process has read of it, and which handlers were called with
// it. From that follows what is owed, and why something may come twice: docs/guarantees.md, "What is handled twice, and why".
type account struct {
	mu        sync.Mutex
	setup     setup
	process   *process // the one that lives; nil between two
	originals map[string]*original
	matters   map[string]*matter
	copyOf    map[string]*matter
	sent      map[string]time.Time         // publishes that the server took and no process has seen answered in time
	asked     map[string]string            // which of them a client's identifier stands for
	pending   map[string]stored            // publishes that the server has not answered, by client and identifier
	shown     map[string]map[uint16]string // what an identifier of a client stands for
	taken     map[string]bool              // acknowledgements that the server was about to handle
	last      map[string]int               // the latest message of a key whose first handling has begun
	twice     map[string]int               // by cause
	problems  []string
}

// original is a published message.
type original struct {
	*step
	onServer bool // in the main session
	lost     bool // with the main session
	matters  []*matter
}

// matter is one message at one route.
type matter struct {
	*original
	route    string
	copies   map[string]int // how many the server holds, by their ids: one that is moved behind others is there twice for a while
	copyLost bool           // with the retry session
	seen     bool           // by some process
	calls    []call
	ended    bool              // a handler succeeded, or the server has stored a dead letter
	excused  bool              // a session was lost that held it, and no process had it
	facts    map[string]int    // what happened since it was seen first that explains that it comes again, and how often
	due      map[int]time.Time // before which an attempt must not begin
}

type call struct{ process, attempt int }

// stored is what a publish is once the server has confirmed it.
type stored struct {
	m      *matter
	copyID string // "" for a dead letter
}

func newAccount(s setup) *account {
	return &account{
		setup: s, originals: map[string]*original{}, matters: map[string]*matter{}, copyOf: map[string]*matter{}, sent: map[string]time.Time{}, asked: map[string]string{}, taken: map[string]bool{},
		pending: map[string]stored{}, shown: map[string]map[uint16]string{"svc": {}, "svc-retry": {}}, last: map[string]int{}, twice: map[string]int{},
	}
}

func (a *account) problem(format string, args ...any) {
	a.problems = append(a.problems, fmt.Sprintf(format, args...))
}

// fail is problem for those who do not hold the lock.
func (a *account) fail(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.problem(format, args...)
}

// filters are those of the routes that owe an end to a message. QoS 0 owes nothing.
var filters = map[string]string{"copy": "a/+", "both": "a/#", "batch": "b/+", "hold": "c/+"}

// publish enters a message that is about to be published to a session with subscriptions; withdraw takes it out again where none wanted it.
func (a *account) publish(st *step, subscriptions []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := &original{step: st, onServer: true}
	for route, filter := range filters {
		if filter[:1] != st.Kind || !slices.Contains(subscriptions, filter) {
			continue
		}
		m := &matter{original: o, route: route, copies: map[string]int{}, facts: map[string]int{}, due: map[int]time.Time{}}
		o.matters = append(o.matters, m)
		a.matters[route+" "+st.payload()] = m
	}
	if len(o.matters) > 0 {
		a.originals[st.payload()] = o
	}
}

func (a *account) withdraw(st *step) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for route := range filters {
		delete(a.matters, route+" "+st.payload())
	}
	delete(a.originals, st.payload())
}

// fact notes what may explain that a message comes again.
func (m *matter) fact(what string) {
	if m.seen {
		m.facts[what]++
	}
}

// held tells whether the server has the message, or a copy of it for the route.
func (m *matter) held() bool { return m.onServer || m.copied() }

func (m *matter) copied() bool {
	for _, n := range m.copies {
		if n > 0 {
			return true
		}
	}
	return false
}

// begin enters that a handler is called, and what it will do.
func (a *account) begin(p *process, d *Delivery, f fate) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.matters[d.Route()+" "+string(d.Payload())]
	if m == nil || p.dead {
		return
	}
	if len(m.calls) == 0 && d.Attempt() == 1 && m.route != "hold" {
		a.inOrder(m)
	}
	again := m.ended
	for _, c := range m.calls {
		again = again || c.attempt >= d.Attempt()
	}
	if again {
		for why := range m.facts {
			a.twice[why]++
		}
		if a.twice["all"]++; len(m.facts) == 0 {
			a.problem("%s: %s comes twice at attempt %d, and nothing explains it", m.route, m.payload(), d.Attempt())
		}
	}
	m.calls = append(m.calls, call{p.n, d.Attempt()})
	a.asOften(m, d.Attempt())
	a.inTime(p, m, d, f)
}

// asOften wants an attempt to begin once, and once more for each thing that happened which explains it.
func (a *account) asOften(m *matter, attempt int) {
	if attempt > maxAttempts {
		a.problem("%s: %s has attempt %d, and %d are allowed", m.route, m.payload(), attempt, maxAttempts)
	}
	calls, causes := 0, 0
	for _, c := range m.calls {
		if c.attempt == attempt {
			calls++
		}
	}
	for _, n := range m.facts {
		causes += n
	}
	if calls > 1+causes && causes > 0 { // without any it has been said
		a.problem("%s: %s has attempt %d more often than is explained: %d times, by %v", m.route, m.payload(), attempt, calls, m.facts)
	}
}

// inTime wants no attempt to begin before its wait is over. The wait begins when the attempt before returns, which is not before it has
// been slow; where several may have led to this one, the first counts. An app that stops does not wait with what nobody else has.
func (a *account) inTime(p *process, m *matter, d *Delivery, f fate) {
	attempt := d.Attempt()
	if due, known := m.due[attempt]; known && time.Now().Before(due) && !(errors.Is(p.app.Ready(), ErrStopping) && mustRun(d)) {
		a.problem("%s: %s has attempt %d too early, by %s", m.route, m.payload(), attempt, time.Until(due))
	}
	wait := shortestWait(attempt)
	if f.Do == "later" {
		wait = time.Duration(f.For)
	}
	next := time.Now().Add(time.Duration(f.Slow) + wait)
	if due, known := m.due[attempt+1]; !known || next.Before(due) {
		m.due[attempt+1] = next
	}
}

// shortestWait is the backoff after an attempt, less its jitter.
func shortestWait(attempt int) time.Duration {
	return min(firstBackoff<<(attempt-1), longestBackoff) * 4 / 5
}

func (a *account) inOrder(m *matter) {
	key := fmt.Sprint(m.route, " qos ", m.qos())
	if m.route != "both" { // which has one lane
		key += fmt.Sprint(" key ", m.Key)
	}
	if a.last[key] > m.ID {
		a.problem("%s: %s is first handled after %d, out of order", m.route, m.payload(), a.last[key])
	}
	a.last[key] = max(a.last[key], m.ID)
}

// qos is that of the delivery.
func (o *original) qos() byte {
	if o.Kind == "a" {
		return o.QoS
	}
	return 1
}

// end enters that a handler has succeeded.
func (a *account) end(p *process, d *Delivery) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if m := a.matters[d.Route()+" "+string(d.Payload())]; m != nil && !p.dead {
		m.ended = true
	}
}

func (a *account) timedOut(p *process, d *Delivery) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if m := a.matters[d.Route()+" "+string(d.Payload())]; m != nil && !p.dead {
		m.fact("handler timed out")
	}
}

// received enters what a process has read.
func (a *account) received(p *process, client string, s sighting) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p.dead {
		return
	}
	if o := a.originals[s.payload]; o != nil && client == "svc" {
		for _, m := range o.matters {
			m.seen = true
			p.knows(m)
		}
	} else if m := a.matters[s.route+" "+s.payload]; m != nil && client != "svc" {
		p.knows(m)
	}
}

// answered enters that a process has read the answer to a publish.
func (a *account) answered(client string, id uint16) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := client + " " + strconv.Itoa(int(id))
	if time.Since(a.sent[a.asked[key]]) < 10*time.Second { // or it has been given up
		delete(a.sent, a.asked[key])
	}
	delete(a.asked, key)
}

// ended enters what the end of a connection makes uncertain.
func (a *account) ended(w *tap) {
	a.mu.Lock()
	defer a.mu.Unlock()
	acked := map[string]bool{}
	for _, id := range w.acked {
		acked[w.names[id]] = true
	}
	each := func(m *matter, name string) {
		if acked[name] {
			m.fact("acknowledgement lost")
		}
		if w.session && !w.shown[name] && w.p.had[m] {
			m.fact("second cut")
		}
		if m.Expiry > 0 {
			m.fact("cut, with an expiry")
		}
		if a.setup.HandleAgain {
			m.fact("HandleAgain")
		}
	}
	for _, m := range a.matters {
		if w.client == "svc" && m.onServer {
			each(m, m.payload())
		}
		if w.client != "svc" {
			for id, n := range m.copies {
				for range n {
					each(m, id)
				}
			}
		}
	}
}

// died enters that a process and its memory are gone.
func (a *account) died(p *process) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p.dead = true
	if a.process == p {
		a.process = nil
	}
	for _, m := range a.matters {
		if m.onServer {
			m.fact("process ended")
		}
		for _, n := range m.copies { // each comes again
			for range n {
				m.fact("process ended")
			}
		}
		if !m.ended && (m.original.lost || m.copyLost) && !m.held() {
			m.excused = true
		}
	}
}

// missing are the matters that have not come to an end and should have.
func (a *account) missing(elapsed time.Duration) (missing []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, m := range a.matters {
		expired := m.Expiry > 0 && elapsed > time.Duration(m.At)+time.Duration(m.Expiry)
		if !m.ended && !m.excused && !expired {
			missing = append(missing, strings.ReplaceAll(key, `"`, ""))
		}
	}
	return missing
}
