// Package chaos runs consumers in processes of their own against a real Mosquitto, with a proxy before each that breaks its network, kills them,
// restarts the server, has their handlers fail in every way, and then audits what became of every message that the server had accepted.
//
// What happens, to whom and when is drawn from a seed before the run. What the kernel makes of it is not, so a seed gives the same plan and not the
// same run. docs/reliability.md tells how to read the result.
package chaos

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/settlemq/settle/internal/cutproxy"
	"github.com/settlemq/settle/internal/mosquitto"
)

// Options say what to run.
type Options struct {
	Seed     uint64
	Duration time.Duration // for which there are faults; longer, if need be, until Messages have been handled
	Messages int           // that the server is to accept at least
	Log      io.Writer     // of the consumers
	Journals string        // folder for the consumers' journals; none where empty
	Progress func(text string)

	careless bool          // a consumer acknowledges some messages without handling them
	quiet    time.Duration // see run.settle; zero for a minute
}

// Result is what a run has shown. Times are in nanoseconds.
type Result struct {
	Seed     uint64        `json:"seed"`
	Duration time.Duration `json:"duration"` // asked for
	Faulty   time.Duration `json:"faulty"`   // with faults
	Took     time.Duration `json:"took"`     // altogether

	Faults   map[Kind]int `json:"faults"`  // carried out
	Skipped  int          `json:"skipped"` // faults for which there was no time, because one before them had taken long
	Cuts     int          `json:"cuts"`    // faults that broke connections while their process lived
	Broken   int64        `json:"broken"`  // connections that the proxies broke
	Restarts int          `json:"restarts"`
	Kills    int          `json:"kills"`
	Repeats  int          `json:"repeats"` // messages that publishers sent again

	Account  Account  `json:"account"`
	Failures []string `json:"failures,omitempty"` // of the harness, or of what it started
	Plan     []Fault  `json:"plan"`               // as far as the run went
}

// run is one run.
type run struct {
	Options
	server  *mosquitto.Server
	book    *book
	began   time.Time // the faults
	keepers map[string]*keeper
	over    chan struct{} // closed when the faults are over

	calm sync.RWMutex // held by whoever breaks connections; the server is restarted while nobody does

	mu       sync.Mutex
	faults   map[Kind]int
	skipped  int
	repeats  int
	failures []string
}

// Run runs it. The error says that it could not be begun.
func Run(o Options) (*Result, error) {
	server, err := mosquitto.Start(mosquitto.Options{Persistence: true, MaxQueued: mosquitto.NoLimit, MaxInflight: 1000})
	if err != nil {
		return nil, err
	}
	defer func() { _ = server.Close() }()
	if o.Log == nil {
		o.Log = io.Discard
	}
	if o.quiet == 0 {
		o.quiet = time.Minute
	}
	began := time.Now()
	r := &run{
		Options: o, server: server, book: newBook(began), keepers: make(map[string]*keeper), over: make(chan struct{}), faults: make(map[Kind]int),
	}
	m, err := openMorgue(server.Addr(), r.book)
	if err != nil {
		return nil, err
	}
	defer m.close()
	defer r.close()
	if err := r.open(began); err != nil {
		return nil, err
	}
	r.began = time.Now()
	var publishing sync.WaitGroup
	for i := range streams {
		publishing.Go(func() { r.publish(&streams[i]) })
	}
	plan := r.storm(Draw(o.Seed, o.Duration))
	result := &Result{Seed: o.Seed, Duration: o.Duration, Faulty: time.Since(r.began), Plan: plan}
	close(r.over)
	publishing.Wait()
	r.settle()
	for _, k := range r.keepers {
		result.Broken += k.proxy.Stats().Cut
	}
	r.close()
	m.close()
	r.mu.Lock()
	defer r.mu.Unlock()
	result.Faults, result.Failures, result.Skipped, result.Repeats = r.faults, r.failures, r.skipped, r.repeats
	for kind, n := range r.faults {
		if kind.cuts() {
			result.Cuts += n
		}
	}
	result.Restarts, result.Kills = r.faults[Restart], r.faults[Kill]+r.faults[Terminate]
	result.Account = r.book.audit(o.Seed)
	if o.Journals != "" {
		if err := r.book.keep(o.Journals); err != nil {
			return nil, err
		}
	}
	result.Took = time.Since(began)
	return result, nil
}

func (r *run) fail(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *run) say(format string, args ...any) {
	if r.Progress != nil {
		r.Progress(fmt.Sprintf(format, args...))
	}
}

// open starts the consumers, and waits until each has been connected.
func (r *run) open(began time.Time) error {
	for i := range streams {
		for _, client := range streams[i].consumers {
			proxy, err := cutproxy.New(r.server.URL())
			if err != nil {
				return err
			}
			k := &keeper{stream: &streams[i], proxy: proxy, book: r.book, log: r.Log}
			k.config = consumerConfig{
				Seed: r.Seed, Began: began, Server: proxy.URL(), ClientID: client, Stream: k.stream.name, Careless: r.careless && client == "copies",
			}
			r.keepers[client] = k
			if err := k.start(); err != nil {
				return err
			}
		}
	}
	return r.await("the consumers are connected", func() bool {
		for _, k := range r.keepers {
			if !r.book.connected(k.stream, k.current().life) {
				return false
			}
		}
		return true
	})
}

// await asks again and again.
func (r *run) await(what string, there func() bool) error {
	if !within(patience, there) {
		return errors.New("not within " + patience.String() + ": " + what)
	}
	return nil
}

// within reports whether something has happened in so much time.
func within(limit time.Duration, there func() bool) bool {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(limit); !there(); {
		if time.Now().After(deadline) {
			return false
		}
		<-tick.C
	}
	return true
}

// publish keeps the consumers of a stream busy: at full load something always waits for their handlers, else next to nothing does. There is never more
// than their windows hold, for then Mosquitto 2.0.11 sends all that it has queued, whatever the window, lets the newest overtake, and after a restart
// sends again what it has had the PUBREC of.
func (r *run) publish(s *stream) {
	p := &publisher{stream: s, addr: r.server.Addr(), book: r.book, stop: r.over}
	p.may = func() int {
		if phase(time.Since(r.began), r.Duration) {
			return fullLoad - r.book.unreleased(s)
		}
		return thinLoad - r.book.unreleased(s)
	}
	if err := p.run(); err != nil {
		r.fail("%v", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.repeats += p.repeats
}

// settle waits until every message has come to its end and nothing is unacknowledged, or nothing more happens for quiet. Then it waits a little longer, for
// what comes twice.
func (r *run) settle() {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	messages, deliveries := r.book.unsettled()
	said, since, calm := time.Now(), time.Now(), time.Now()
	for time.Since(since) < r.quiet && time.Since(calm) < 3*time.Second {
		<-tick.C
		m, d := r.book.unsettled()
		if m != messages || d != deliveries {
			messages, deliveries, since = m, d, time.Now()
		}
		if m > 0 || d > 0 {
			calm = time.Now()
		}
		if time.Since(said) > 5*time.Second {
			said = time.Now()
			r.say("the faults are over; %d messages to settle, %d deliveries to acknowledge", m, d)
		}
	}
}

// close ends the consumers. A second close does nothing.
func (r *run) close() {
	for _, k := range r.keepers {
		k.mu.Lock()
		if k.cmd != nil {
			if err := k.end(Terminate); err != nil {
				r.fail("%v", err)
			} else if k.life.unclean {
				r.fail("%s did not drain at the end", k.config.ClientID)
			}
			k.cmd = nil
		}
		_ = k.proxy.Close()
		k.mu.Unlock()
	}
}
