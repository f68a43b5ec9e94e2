package link

import (
	"errors"
	"io"
	"time"

	"github.com/settlemq/settle/internal/wire"
)

// timedReader reads the connection itself, and notes when.
type timedReader struct{ c *conn }

func (r timedReader) Read(p []byte) (int, error) {
	n, err := r.c.Conn.Read(p)
	if n > 0 {
		r.c.received.Store(int64(time.Since(r.c.opened)))
	}
	return n, err
}

// Read gives paho the frames that are its own. PUBLISH and PUBREL go to the Receiver on the way, on this goroutine;
// CONNACK begins the epoch before paho sees it; AUTH and DISCONNECT end the connection here. Nothing that breaks the
// protocol reaches paho, and nothing at all once the connection is closed: paho panics on a PUBREC that it reads then.
func (c *conn) Read(p []byte) (int, error) {
	if !c.startRead() {
		return 0, errGone
	}
	defer c.endRead()
	for len(c.rest) == 0 {
		frame, err := c.next()
		if err == nil {
			err = c.take(frame)
		}
		if err != nil {
			c.flushReceiver()
			return 0, c.refuse(err)
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// next returns the next frame. The Receiver is told before the socket may make it wait.
func (c *conn) next() (wire.Frame, error) {
	if c.passed && !c.scanner.Buffered() {
		c.flushReceiver()
	}
	frame, err := c.scanner.Next()
	if c.isClosed() {
		return wire.Frame{}, errGone
	}
	return frame, err
}

func (c *conn) isClosed() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// take gives a frame to whom it belongs.
func (c *conn) take(frame wire.Frame) error {
	kind := frame.Type()
	if c.draining.Load() && (kind == wire.PUBLISH || kind == wire.PUBREL || kind == wire.CONNACK) {
		return nil
	}
	if c.epoch.Load() == 0 {
		return c.takeFirst(kind, frame)
	}
	switch kind {
	case wire.PUBLISH:
		c.delivered.Store(true)
		c.passed = true
		return c.receiver.Publish(frame)
	case wire.PUBREL:
		id, code, err := wire.ParsePubrel(frame)
		if err != nil {
			return err
		}
		c.passed = true
		c.receiver.Pubrel(id, code)
		return nil
	case wire.CONNACK:
		return &wire.Error{Code: wire.CodeProtocol, Reason: "a second CONNACK"}
	case wire.DISCONNECT, wire.AUTH:
		return c.takeEnd(kind, frame)
	}
	if err := wire.CheckControl(frame); err != nil {
		return err
	}
	c.rest = frame.Bytes
	return nil
}

// takeFirst takes what comes before the epoch has begun: CONNACK, or a refusal.
func (c *conn) takeFirst(kind wire.Type, frame wire.Frame) error {
	if kind == wire.DISCONNECT || kind == wire.AUTH {
		return c.takeEnd(kind, frame)
	}
	ack, err := wire.ParseConnack(frame)
	if err != nil {
		return err
	}
	if ack.Code < 0x80 {
		session, err := c.accept(ack)
		if err != nil {
			return err
		}
		c.receiver.Begin(session)
		c.epoch.Store(session.Epoch) // from here on the writer takes its acknowledgements
	}
	c.rest = frame.Bytes
	return nil
}

// takeEnd takes what ends the connection by itself.
func (c *conn) takeEnd(kind wire.Type, frame wire.Frame) error {
	if kind == wire.AUTH {
		if err := wire.CheckControl(frame); err != nil {
			return err
		}
		return &wire.Error{Code: codeBadAuthMethod, Reason: "AUTH, though no authentication method was agreed on"}
	}
	d, err := wire.ParseDisconnect(frame)
	if err != nil {
		return err
	}
	return &DisconnectError{Code: d.Code, Reason: d.Reason}
}

// refuse ends the connection because of what the reader met, with a DISCONNECT if the server has broken the protocol.
func (c *conn) refuse(err error) error {
	var broken *wire.Error
	switch {
	case c.isClosed(): // by somebody who knows why
	case errors.As(err, &broken):
		c.leave(wire.AppendDisconnect(nil, broken.Code), err, c.drainTimeout)
		_ = c.Close()
	case errors.Is(err, io.EOF):
		c.fail(errServerClosed)
	default:
		c.fail(err)
	}
	return err
}

func (c *conn) flushReceiver() {
	if c.passed {
		c.passed = false
		c.receiver.Flush()
	}
}

// startRead says that a Read runs, unless the connection is closed.
func (c *conn) startRead() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.reading = true
	return true
}

func (c *conn) endRead() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading = false
	if c.closed {
		close(c.readerGone)
	}
}
