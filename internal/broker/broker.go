package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"
)

// ErrClosed is what a broker that was closed answers.
var ErrClosed = errors.New("the in-process server is closed")

// Broker is an MQTT 5 server. Its methods are for any number of goroutines.
type Broker struct {
	opts  Options
	start time.Time

	mu        sync.Mutex
	sessions  map[string]*session
	groups    map[string]*group // by the filter of SUBSCRIBE, "$share/…" included
	retained  map[string]*message
	tree      tree
	conns     map[*conn]struct{}
	listeners map[net.Listener]struct{}
	intercept Interceptor
	clock     clock
	assigned  int // Client Identifiers
	closed    bool
	logs      logs

	// What is done when the lock is released.
	woken   []*conn  // to be written to
	stale   []*group // whose queue somebody may have room for
	toClose []net.Conn
	lines   []string

	// Memory that route uses again and again.
	matches []*subscription
	targets []target
	marks   uint64

	wg sync.WaitGroup // every goroutine
}

// New returns a server without connections. Close ends it.
func New(o Options) *Broker {
	return &Broker{
		opts:      o.withDefaults(),
		start:     time.Now(),
		sessions:  make(map[string]*session),
		groups:    make(map[string]*group),
		retained:  make(map[string]*message),
		conns:     make(map[*conn]struct{}),
		listeners: make(map[net.Listener]struct{}),
		clock:     clock{alarms: make(map[*alarm]struct{})},
		logs:      logs{byClient: make(map[string]*wireLog)},
	}
}

// unlock releases the lock, after and before it does what must wait for that.
func (b *Broker) unlock() {
	for len(b.stale) > 0 {
		g := b.stale[len(b.stale)-1]
		b.stale = b.stale[:len(b.stale)-1]
		g.serve()
	}
	for i, c := range b.woken {
		b.woken[i] = nil
		c.woken = false
		if !b.closed && !c.closed && !c.writing {
			c.writing = true
			b.wg.Add(1)
			go c.write()
		}
	}
	b.woken = b.woken[:0]
	toClose, lines := b.toClose, b.lines
	b.toClose, b.lines = nil, nil
	b.mu.Unlock()
	for _, nc := range toClose {
		_ = nc.Close()
	}
	for _, line := range lines {
		b.opts.Logf("%s", line)
	}
}

// logf has a line logged when the lock is released.
func (b *Broker) logf(format string, args ...any) {
	if b.opts.Logf != nil {
		b.lines = append(b.lines, fmt.Sprintf(format, args...))
	}
}

// Serve serves a connection that somebody has accepted, and returns when it has ended. It closes the connection.
func (b *Broker) Serve(nc net.Conn) {
	if c := b.welcome(nc); c != nil {
		defer b.wg.Done()
		c.read()
	}
}

// welcome returns a connection that is to be read, and counted by wg; or nil if the server is closed.
func (b *Broker) welcome(nc net.Conn) *conn {
	b.mu.Lock()
	defer b.unlock()
	if b.closed {
		b.toClose = append(b.toClose, nc)
		return nil
	}
	c := &conn{b: b, nc: nc, gone: make(chan struct{}), maximumPacket: 0xFFFFFFFF}
	c.alarm = b.arm(connectPatience, func() {
		b.logf("a connection sent no CONNECT within %s", connectPatience)
		c.close()
	})
	b.conns[c] = struct{}{}
	b.wg.Add(1)
	return c
}

// Dial returns the client's end of a new connection to the server: a pipe as [Pipe] makes them. A connection has a goroutine only
// while there is something to read or to write: ten thousand idle ones cost little.
func (b *Broker) Dial(ctx context.Context) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	client, server := newPipe()
	c := b.welcome(server)
	if c == nil {
		return nil, ErrClosed
	}
	b.wg.Done()
	server.in.notify = func() {
		b.mu.Lock()
		defer b.unlock()
		if !b.closed {
			b.wg.Go(func() { c.readPipe(server) })
		}
	}
	return client, nil
}

// Listen accepts TCP connections on an address, "127.0.0.1:0" for one, until the server is closed. It returns the address.
func (b *Broker) Listen(ctx context.Context, address string) (net.Addr, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.unlock()
	if b.closed {
		_ = l.Close()
		return nil, ErrClosed
	}
	b.listeners[l] = struct{}{}
	b.wg.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			if c := b.welcome(nc); c != nil {
				go func() {
					defer b.wg.Done()
					c.read()
				}()
			}
		}
	})
	return l.Addr(), nil
}

// Close cuts every connection, ends every session without a will, and returns when every goroutine has ended. A second Close waits too.
func (b *Broker) Close() {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		for a := range b.clock.alarms {
			b.disarm(a)
		}
		for l := range b.listeners {
			_ = l.Close() // does not wait
		}
		for c := range b.conns {
			if c.session != nil {
				c.session.conn, c.session = nil, nil
			}
			c.close()
		}
	}
	b.unlock()
	b.wg.Wait()
}

// Cut drops a client's connection without DISCONNECT, as a broken network does, and tells whether there was one.
func (b *Broker) Cut(clientID string) bool {
	b.mu.Lock()
	defer b.unlock()
	s := b.sessions[clientID]
	if s == nil || s.conn == nil {
		return false
	}
	s.conn.cut("cut by the test")
	return true
}

// Disconnect sends a client DISCONNECT with a reason code, ends its connection, and tells whether there was one.
func (b *Broker) Disconnect(clientID string, code byte) bool {
	b.mu.Lock()
	defer b.unlock()
	s := b.sessions[clientID]
	if s == nil || s.conn == nil {
		return false
	}
	s.conn.end(code, "")
	return true
}

// Send sends bytes to a client, whatever they are, and tells whether it is connected. They come between two packets.
func (b *Broker) Send(clientID string, raw []byte) bool {
	b.mu.Lock()
	defer b.unlock()
	s := b.sessions[clientID]
	if s == nil || s.conn == nil {
		return false
	}
	s.conn.tampered = true
	s.conn.late = append(s.conn.late, slices.Clone(raw))
	b.wake(s.conn)
	return true
}

// Publish publishes a message as the server itself. It returns how many sessions and shared groups have a filter that matches, and an
// error where the topic is none or a queue is full that the message belongs in.
func (b *Broker) Publish(m Message) (matched int, err error) {
	msg, err := m.encode()
	if err != nil {
		return 0, fmt.Errorf("the topic %w", err)
	}
	b.mu.Lock()
	defer b.unlock()
	if b.closed {
		return 0, ErrClosed
	}
	msg.begin(b.now())
	matched, refused := b.route(msg)
	if refused {
		return matched, errors.New("a queue that the message belongs in is full")
	}
	return matched, nil
}

// SessionInfo is what the server knows of a session.
type SessionInfo struct {
	Connected     bool
	Expiry        uint32   // Session Expiry Interval in seconds; 0xFFFFFFFF for never
	Subscriptions []string // filters, "$share/…" included, sorted
	Queued        int      // messages that wait to be sent, at any QoS
	SharedQueued  int      // messages that wait in the shared groups that the session is a member of
	Inflight      int      // messages sent and not answered for good
	Inbound       int      // QoS 2 messages from the client that it has not released
	Unwritten     int      // bytes that wait to be written to the client
	Dropped       uint64   // messages lost to full queues, their expiry, or the client's Maximum Packet Size
}

// Session tells about a client's session, and whether there is one.
func (b *Broker) Session(clientID string) (SessionInfo, bool) {
	b.mu.Lock()
	defer b.unlock()
	s := b.sessions[clientID]
	if s == nil {
		return SessionInfo{}, false
	}
	s.dropped += s.queued.expire(b.now())
	info := SessionInfo{
		Connected: s.conn != nil, Expiry: s.expiry,
		Queued: s.queued.n + s.queuedZero.n, Inflight: s.sent.n + s.released.n, Inbound: len(s.inbound), Dropped: s.dropped,
	}
	for name := range s.subscriptions {
		info.Subscriptions = append(info.Subscriptions, name)
	}
	slices.Sort(info.Subscriptions)
	for _, sub := range s.shares {
		g := sub.group
		g.dropped += g.queued.expire(b.now())
		info.SharedQueued += g.queued.n
	}
	if c := s.conn; c != nil {
		info.Unwritten = len(c.out)
		for _, p := range c.late {
			info.Unwritten += len(p)
		}
	}
	return info, true
}

// Sessions returns the Client Identifiers of all sessions, sorted.
func (b *Broker) Sessions() []string {
	b.mu.Lock()
	defer b.unlock()
	out := make([]string, 0, len(b.sessions))
	for id := range b.sessions {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}
