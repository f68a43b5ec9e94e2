// Package link keeps one MQTT 5 session connected: it dials, subscribes, publishes, and dials again, over as many network
// connections as it takes. It knows nothing of handlers, windows or routes: what comes in goes to a [Receiver], what has to
// be acknowledged comes from an [AckSource].
package link

import (
	"context"
	"errors"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// ErrEnded says that the link has ended: Run has returned. It wraps the reason where there is one.
var ErrEnded = errors.New("the link has ended")

// errClosed is the cause of an end by Close.
var errClosed = errors.New("link: closed")

// Link is one MQTT session over as many connections as it takes. All its methods may be called from any goroutine, but Run
// once only.
type Link struct {
	cfg     Config
	out     *outbound
	strays  chan struct{}        // dials under way
	current atomic.Pointer[conn] // from CONNACK until the connection is lost; for whoever acknowledges
	done    chan struct{}        // closed when Run returns
	retired map[string]bool      // servers whose old filters have been given up; Run's alone
	sending sync.Mutex           // PUBLISHes reach the conn in the order of their identifiers; before out's lock, never held over I/O

	mu         sync.Mutex // of all below; never held over I/O or foreign code, and no other lock is taken under it
	state      State
	changed    chan struct{} // closed and made anew with each change of state
	epoch      *epoch        // from CONNACK until the connection is lost
	epochs     uint64
	lastServer string
	started    bool
	cancel     context.CancelCauseFunc // ends Run
	closing    bool
	retiring   bool    // Unsubscribe was called
	expiry     *uint32 // of Close
	status     Status
	err        error // what Run returned
}

// Status is what a link is doing, for health and metrics.
type Status struct {
	State        State
	Connected    bool      // a server has accepted the connection
	Granted      bool      // and granted every subscription: the link is up
	Epoch        uint64    // of this connection, or of the last one
	Server       string    // its URL without userinfo
	Since        time.Time // when State was entered
	LastReceived time.Time // when the last byte came, on any connection
	LastError    error     // why the last attempt or connection ended; nil if none has, or by Close
}

// New returns a link that does nothing until Run.
func New(cfg Config) *Link {
	return &Link{
		cfg:     cfg.withDefaults(),
		out:     newOutbound(),
		strays:  make(chan struct{}, maxStrays),
		done:    make(chan struct{}),
		changed: make(chan struct{}),
		retired: make(map[string]bool),
		status:  Status{Since: time.Now()},
	}
}

// Run dials, subscribes and dials again until the link is closed, which returns nil; until ctx ends, which drops the
// connection without ceremony and returns ctx's cause; or until an error says that the configuration is wrong. When it
// returns, everything that the link has started has ended, but for a user's dial function that does not mind its context.
func (l *Link) Run(ctx context.Context) (err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l.mu.Lock()
	if l.started {
		l.mu.Unlock()
		return errors.New("link: Run was called twice")
	}
	l.started, l.cancel = true, cancel
	if l.closing {
		cancel(errClosed)
	}
	l.mu.Unlock()
	defer func() { l.end(err) }()

	if len(l.cfg.Servers) == 0 {
		return errors.New("link: no server is configured")
	}
	next := policy{servers: len(l.cfg.Servers)}
	for ctx.Err() == nil {
		server := l.cfg.Servers[next.server]
		o := l.attempt(ctx, server)
		if ctx.Err() != nil {
			break
		}
		v := next.judge(o)
		l.report(server, o, v)
		if v.fatal {
			return o.err
		}
		if l.cfg.OnDown != nil {
			l.cfg.OnDown(o.err, v.wait)
		}
		sleep(ctx, v.wait)
	}
	if errors.Is(context.Cause(ctx), errClosed) {
		return nil
	}
	return context.Cause(ctx)
}

// end is the end of Run.
func (l *Link) end(err error) {
	l.out.close()
	l.mu.Lock()
	l.err = err
	l.moveTo(Ended)
	l.mu.Unlock()
	close(l.done)
}

// report logs what became of an attempt.
func (l *Link) report(server *url.URL, o outcome, v verdict) {
	l.mu.Lock()
	l.status.LastError = o.err
	if !v.fatal {
		l.moveTo(Waiting)
	}
	l.mu.Unlock()
	level, message := zerolog.WarnLevel, "connection failed"
	switch {
	case v.fatal:
		level, message = zerolog.ErrorLevel, "connection given up: the configuration is wrong"
	case v.suspected:
		message = "the server keeps closing this connection: perhaps another process uses the same client identifier"
	case o.accepted:
		message = "connection lost"
	}
	l.cfg.Logger.WithLevel(level).Err(o.err).Str("link", l.cfg.Name).Str("client_id", l.cfg.ClientID).Str("server", redact(server)).
		Dur("retry_in", v.wait).Msg(message)
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// moveTo changes the state, if it may, and wakes whoever waits for that. mu is held.
func (l *Link) moveTo(next State) bool {
	if !l.state.may(next) {
		return false
	}
	l.state = next
	l.status.State, l.status.Since = next, time.Now()
	l.status.Connected = next == Subscribing || next == Up
	l.status.Granted = next == Up
	close(l.changed)
	l.changed = make(chan struct{})
	return true
}

func (l *Link) move(next State) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.moveTo(next)
}

// Up reports whether the link is connected and every subscription is granted.
func (l *Link) Up() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state == Up
}

// WaitUp waits until the link is up. Its error is ctx's cause, or ErrEnded.
func (l *Link) WaitUp(ctx context.Context) error {
	for {
		l.mu.Lock()
		state, changed, err := l.state, l.changed, l.err
		l.mu.Unlock()
		switch state {
		case Up:
			return nil
		case Ended:
			return ended(err)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Status returns what the link is doing.
func (l *Link) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.status
	if c := l.current.Load(); c != nil {
		s.LastReceived = c.lastReceived()
	}
	return s
}

// Grant returns what the server granted on the present connection; false: there is none.
func (l *Link) Grant() (Grant, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.epoch == nil {
		return Grant{}, false
	}
	return l.epoch.grant, true
}

// FlushAcks writes the acknowledgements that are due, on the caller's goroutine unless somebody is writing, who then takes
// them along. It may wait for the network as long as a write may. The Receiver must not call it: see WakeWriter.
func (l *Link) FlushAcks() {
	if c := l.current.Load(); c != nil {
		c.flush(false)
	}
}

// WakeWriter has the acknowledgements that are due written by the writer's goroutine. It never waits.
func (l *Link) WakeWriter() {
	if c := l.current.Load(); c != nil {
		c.wakeWriter()
	}
}

// Writing reports whether something that was handed over, an acknowledgement for one, may not have been written yet. It is for
// tests: in production nothing needs to know.
func (l *Link) Writing() bool {
	c := l.current.Load()
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writing
}

// ended is ErrEnded with what Run returned.
func ended(err error) error {
	if err == nil {
		return ErrEnded
	}
	return errors.Join(ErrEnded, err)
}
