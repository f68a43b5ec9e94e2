// Package cutproxy stands between a client and a server and breaks their connections on demand: closed, reset, cut after so many
// bytes, silent, or slow, as a network does. For tests and the demo; it listens on 127.0.0.1 only.
package cutproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/settlemq/settle/internal/loopback"
)

const dialTimeout = 5 * time.Second

// ErrClosed is what a Proxy answers after Close.
var ErrClosed = errors.New("cutproxy: closed")

// Direction tells the two halves of a connection apart.
type Direction uint8

const (
	// ToServer is what the client sends.
	ToServer Direction = iota
	// ToClient is what the server sends.
	ToClient
)

func (d Direction) String() string {
	if d == ToServer {
		return "to server"
	}
	return "to client"
}

// Stats counts what a Proxy has done since New.
type Stats struct {
	Accepted int64    // connections that clients opened
	Failed   int64    // of these, those for which the server could not be reached
	Cut      int64    // connections broken by Cut, Reset or CutAfter
	Open     int      // connections that are open now
	Bytes    [2]int64 // passed on, by Direction
	Vanished [2]int64 // thrown away by Stall, by Direction
}

// Proxy passes every connection that it accepts on to one server. All its methods may be called from anywhere at any time.
type Proxy struct {
	target string // host:port
	addr   *net.TCPAddr
	wg     sync.WaitGroup // accept loops and connections

	mu        sync.Mutex
	closed    bool
	listener  *net.TCPListener // nil while connections are refused
	conns     map[*pair]struct{}
	stalled   bool
	latency   time.Duration
	countdown [2]countdown
	stats     Stats
}

// countdown is an armed CutAfter; done is nil where none is. Once left is 0 the cut is due and nothing more passes.
type countdown struct {
	left int64
	done chan struct{}
	due  bool
}

// New listens on a free port and passes connections on to target, which is host:port or a URL whose host has a port. The server need
// not be there yet.
func New(target string) (*Proxy, error) {
	if u, err := url.Parse(target); err == nil && u.Host != "" {
		target = u.Host
	}
	_, port, err := net.SplitHostPort(target)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return nil, fmt.Errorf("cutproxy: target must be host:port or a URL with both: %w", err)
	}
	listener, err := loopback.Listen()
	if err != nil {
		return nil, err
	}
	addr := listener.Addr().(*net.TCPAddr) //nolint:forcetypeassert // a TCPListener's address is no other type
	p := &Proxy{target: target, addr: addr, listener: listener, conns: make(map[*pair]struct{})}
	p.wg.Go(func() { p.accept(listener) })
	return p, nil
}

// Addr is where to connect, as host:port. It never changes.
func (p *Proxy) Addr() string { return p.addr.String() }

// URL is Addr in the form that settle.Config.Servers takes: mqtt://127.0.0.1:port.
func (p *Proxy) URL() string { return "mqtt://" + p.Addr() }

// Stats returns the counters as they stand.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Open = len(p.conns)
	return s
}

// Cut closes all connections that it has accepted, at both ends, and returns how many there were. What the kernel had taken from the
// proxy still arrives, then the end of the stream; a peer that had sent more gets a reset.
func (p *Proxy) Cut() int { return p.cut(false) }

// Reset breaks all connections that it has accepted with a TCP reset at both ends, and returns how many there were. What was still under
// way is lost.
func (p *Proxy) Reset() int { return p.cut(true) }

func (p *Proxy) cut(reset bool) int {
	p.mu.Lock()
	pairs := p.take()
	p.stats.Cut += int64(len(pairs))
	p.mu.Unlock()
	severAll(pairs, reset)
	return len(pairs)
}

// take removes all connections, so that each is counted once. The caller holds mu and severs them after.
func (p *Proxy) take() []*pair {
	pairs := make([]*pair, 0, len(p.conns))
	for c := range p.conns {
		pairs = append(pairs, c)
	}
	clear(p.conns)
	return pairs
}

// CutAfter lets n more bytes pass in one direction, over all connections together, and then closes them all as Cut does. No byte
// beyond the n-th passes in that direction. The channel is closed when it has happened.
//
// One cut a direction may be armed at a time: another CutAfter takes its place, and the channel of the former is never closed. Zero
// bytes cut at the next byte that comes.
func (p *Proxy) CutAfter(n int64, d Direction) <-chan struct{} {
	done := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.countdown[d] = countdown{left: max(n, 0), done: done}
	return done
}

// Stall makes connections half-open, as when a cable is pulled: from now on every byte vanishes, and so does the end of a stream, while
// both ends see an open connection that takes what they write. Connections are still accepted, and hear nothing.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled = true
}

// Resume ends Stall. A connection that lost something is reset at both ends, for its stream has a hole; one that lost nothing goes on.
func (p *Proxy) Resume() {
	p.mu.Lock()
	p.stalled = false
	var broken []*pair
	for c := range p.conns {
		if c.lost {
			broken = append(broken, c)
			delete(p.conns, c)
		}
	}
	p.mu.Unlock()
	severAll(broken, true)
}

// Delay has what passes wait so long, in each direction of each connection, as on a slow network; zero ends it. What comes meanwhile
// waits behind it. What waits when a connection is broken is lost.
func (p *Proxy) Delay(latency time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency = latency
}

// Refuse closes the listener: to connect is refused by the kernel, as where no server runs. Open connections go on.
func (p *Proxy) Refuse() error {
	p.mu.Lock()
	listener := p.listener
	p.listener = nil
	p.mu.Unlock()
	if listener == nil {
		return nil
	}
	return listener.Close()
}

// Accept ends Refuse at the same address.
func (p *Proxy) Accept() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return ErrClosed
	case p.listener != nil:
		return nil
	}
	listener, err := net.ListenTCP("tcp4", p.addr)
	if err != nil {
		return fmt.Errorf("cutproxy: listen again: %w", err)
	}
	p.listener = listener
	p.wg.Go(func() { p.accept(listener) })
	return nil
}

// Close refuses new connections, resets the open ones and waits until nothing of the proxy runs any more. Further calls do nothing.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	listener := p.listener
	p.listener = nil
	pairs := p.take()
	p.mu.Unlock()
	var err error
	if listener != nil {
		err = listener.Close()
	}
	severAll(pairs, true)
	p.wg.Wait()
	return err
}

func (p *Proxy) accept(listener *net.TCPListener) {
	for {
		conn, err := listener.AcceptTCP()
		if err != nil {
			return // closed by Refuse or Close
		}
		p.mu.Lock()
		p.stats.Accepted++
		p.mu.Unlock()
		p.wg.Go(func() { p.serve(conn) })
	}
}

// serve owns one accepted connection until both its ends are closed.
func (p *Proxy) serve(client *net.TCPConn) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.target)
	cancel()
	if err != nil {
		p.mu.Lock()
		p.stats.Failed++
		p.mu.Unlock()
		abort(client)
		return
	}
	c := &pair{proxy: p, severed: make(chan struct{})}
	c.ends[ToServer] = server.(*net.TCPConn) //nolint:forcetypeassert // what dialling tcp gives
	c.ends[ToClient] = client
	p.mu.Lock()
	closed := p.closed
	if !closed {
		p.conns[c] = struct{}{}
	}
	p.mu.Unlock()
	if closed {
		c.sever(true)
		return
	}
	c.run()
}
