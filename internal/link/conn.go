package link

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/settlemq/settle/internal/wire"
)

// conn is one network connection as paho's net.Conn and sync.Locker, and the place where its inbound and outbound halves
// meet the wire: reader.go and writer.go.
//
// Its goroutines are paho's reader, which calls Read, and the writer, which run starts. It ends by Close, at once or after
// a farewell: part queues a DISCONNECT, the writer sends it, closes the write side, and the reader reads on to EOF.
type conn struct {
	net.Conn // the connection itself; its Read, Write and Close are not for paho

	receiver     Receiver
	acks         AckSource
	accept       func(wire.Connack) (Session, error) // judges CONNACK and numbers the epoch; called by the reader
	opened       time.Time
	writeTimeout time.Duration
	drainTimeout time.Duration

	// The reader's alone.
	scanner *wire.Scanner
	rest    []byte // of a frame that paho is reading
	passed  bool   // something was handed to the Receiver since its last Flush

	epoch     atomic.Uint64 // 0 until CONNACK has accepted the connection
	delivered atomic.Bool   // a PUBLISH has come
	draining  atomic.Bool   // what comes in goes nowhere
	received  atomic.Int64  // when the last byte came, in nanoseconds since opened
	sent      atomic.Int64  // when the last byte went

	wake       chan struct{} // holds one: there is something to write
	done       chan struct{} // closed by Close
	readerGone chan struct{} // closed when no Read runs or will
	writerGone chan struct{} // closed when nothing is written any more and the connection itself is closed
	farewell   chan struct{} // closed when the DISCONNECT has been written

	mu      sync.Mutex // of all below; never held over I/O or foreign code
	closed  bool
	cause   error // the first reason to end
	reading bool
	pending []byte        // whole frames that wait for the writer, but while Lock is held
	spare   []byte        // the other buffer
	writing bool          // somebody is in flush
	more    bool          // he shall look again
	goodbye []byte        // the DISCONNECT that ends it; nothing is appended after it is set
	said    bool          // farewell is closed
	room    chan struct{} // closed when the writer has taken what waits; nil: no publisher waits for that
	timer   *time.Timer   // aborts a farewell that takes too long

	deadline time.Time // of writes, as it was set last; belongs to whoever is writing
}

// errGone is what the parts of a closed connection say. Why it was closed is its cause.
var errGone = errors.New("link: the connection is closed")

func newConn(raw net.Conn, cfg *Config, accept func(wire.Connack) (Session, error)) *conn {
	c := &conn{
		Conn: raw, receiver: cfg.Receiver, acks: cfg.Acks, accept: accept,
		opened:       time.Now(),
		writeTimeout: max(time.Duration(cfg.KeepAlive)*time.Second, minWriteTimeout),
		drainTimeout: cfg.DrainTimeout,
		wake:         make(chan struct{}, 1),
		done:         make(chan struct{}),
		readerGone:   make(chan struct{}),
		writerGone:   make(chan struct{}),
		farewell:     make(chan struct{}),
	}
	c.scanner = wire.NewScanner(timedReader{c}, cfg.Limits)
	go c.run()
	return c
}

// fail ends the connection at once. The first cause stands.
func (c *conn) fail(cause error) {
	c.because(cause)
	_ = c.Close()
}

// abort ends the connection at once, a farewell that is under way included.
func (c *conn) abort(cause error) {
	c.because(cause)
	_ = c.Close()
	_ = c.Conn.Close()
}

func (c *conn) because(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause == nil {
		c.cause = cause
	}
}

// why returns the first reason for the end.
func (c *conn) why() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause
}

// part ends the connection with a DISCONNECT after everything that is due: the write side is closed behind it, and what
// the server still sends is read past until it closes too, for a socket that is closed with bytes arriving is reset, and
// takes the last acknowledgements and the DISCONNECT with it. It returns at once. patience bounds the time until the
// DISCONNECT is written; 0: somebody else does.
func (c *conn) part(disconnect []byte, cause error, patience time.Duration) {
	c.draining.Store(true)
	c.leave(disconnect, cause, patience)
}

// leave is part without the wait for the server's end, for a server that has broken the protocol.
func (c *conn) leave(disconnect []byte, cause error, patience time.Duration) {
	c.mu.Lock()
	if c.cause == nil {
		c.cause = cause
	}
	if c.goodbye != nil || c.closed {
		c.mu.Unlock()
		return
	}
	c.goodbye = disconnect
	if patience > 0 {
		c.arm(patience)
	}
	c.mu.Unlock()
	c.wakeWriter()
}

// arm closes the connection itself after a while. mu is held.
func (c *conn) arm(after time.Duration) {
	if c.timer != nil {
		c.timer.Stop()
	}
	c.timer = time.AfterFunc(after, func() { c.abort(errGone) })
}

// Close ends the connection: Read and Write fail from here on. A DISCONNECT that is due is still written, within the time
// that it was given. It never waits.
func (c *conn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	close(c.done)
	if !c.reading {
		close(c.readerGone)
	}
	due := c.goodbye != nil && !c.said
	c.mu.Unlock()
	if due {
		return nil // the writer closes the connection itself
	}
	return c.Conn.Close()
}

// join waits until neither half runs any more. The connection has been closed, or will be.
func (c *conn) join() {
	<-c.writerGone
	<-c.readerGone
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil {
		c.timer.Stop()
	}
}

// closeWrite closes the write side, where the connection can: TCP, TLS.
func (c *conn) closeWrite() {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}
