package testkit

import (
	"net"
	"sync/atomic"

	"github.com/settlemq/settle/internal/broker"
)

// tap counts what passes through one connection to the in-process server, to know when the server has handled all that the app has written: it
// has when it asks for more. A Write that has returned says only that it was read.
type tap struct {
	pulse   *pulse
	sent    atomic.Int64
	handled atomic.Int64
	closed  atomic.Bool // by the app
}

// newTap returns the two ends of a connection.
func newTap(p *pulse) (t *tap, app, server net.Conn) {
	t = &tap{pulse: p}
	app, server = broker.Pipe()
	return t, &appEnd{app, t}, &serverEnd{Conn: server, tap: t}
}

// caughtUp says that the server has handled all that was written.
func (t *tap) caughtUp() bool { return t.closed.Load() || t.handled.Load() == t.sent.Load() }

// closeWriter is what broker.Pipe's ends can do besides.
type closeWriter interface{ CloseWrite() error }

type appEnd struct {
	net.Conn

	tap *tap
}

func (e *appEnd) Write(p []byte) (int, error) {
	e.tap.sent.Add(int64(len(p)))
	return e.Conn.Write(p)
}

func (e *appEnd) CloseWrite() error { return e.Conn.(closeWriter).CloseWrite() } //nolint:forcetypeassert // newTap made it

func (e *appEnd) Close() error {
	e.tap.closed.Store(true)
	defer e.tap.pulse.beat()
	return e.Conn.Close()
}

type serverEnd struct {
	net.Conn

	tap  *tap
	read int64 // the reader's alone
}

func (e *serverEnd) Read(p []byte) (int, error) {
	e.tap.handled.Store(e.read)
	e.tap.pulse.beat()
	n, err := e.Conn.Read(p)
	e.read += int64(n)
	return n, err
}

func (e *serverEnd) CloseWrite() error { return e.Conn.(closeWriter).CloseWrite() } //nolint:forcetypeassert // newTap made it
