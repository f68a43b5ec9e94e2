package link

import (
	"context"
	"fmt"
	"time"
)

const (
	minWriteTimeout = 10 * time.Second
	maxPending      = 1 << 20   // bytes that may wait for the writer before publishers do
	maxSpare        = 256 << 10 // a buffer that has grown beyond it is not kept
)

// Lock begins a frame: paho locks a connection that is a sync.Locker around the Write calls of one.
func (c *conn) Lock() { c.mu.Lock() }

// Write appends a part of a frame to what waits for the writer. Lock is held. It never blocks; it fails once the
// connection is closed, or its DISCONNECT is due, behind which nothing may be sent [MQTT-3.14.4-1].
func (c *conn) Write(p []byte) (int, error) {
	if c.closed || c.goodbye != nil {
		return 0, errGone
	}
	c.pending = append(c.pending, p...)
	return len(p), nil
}

// Unlock ends a frame.
func (c *conn) Unlock() {
	c.mu.Unlock()
	c.wakeWriter()
}

func (c *conn) wakeWriter() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run is the writer.
func (c *conn) run() {
	defer close(c.writerGone)
	for {
		select {
		case <-c.wake:
			c.flush(true)
		case <-c.done:
			for !c.flush(true) { // the farewell, where one is due; and whoever else writes comes to his end
				<-c.wake
			}
			_ = c.Conn.Close()
			return
		}
	}
}

// flush writes what waits and the acknowledgements that are due, unless somebody does already, who then takes them along;
// it returns whether it had its turn. The writer goes on until nothing is left; anybody else writes once and leaves the
// rest to it, so that no lane is kept by the others' work.
func (c *conn) flush(writer bool) bool {
	c.mu.Lock()
	if c.writing {
		c.more = true
		c.mu.Unlock()
		return false
	}
	c.writing = true
	for {
		c.more = false
		if c.said || c.closed && c.goodbye == nil {
			break
		}
		goodbye := c.goodbye
		out := c.swap()
		c.mu.Unlock()

		if epoch := c.epoch.Load(); epoch != 0 {
			out = c.acks.TakeAcks(epoch, out)
		}
		out = append(out, goodbye...)
		idle, written := len(out) == 0, false
		if !idle {
			written = c.write(out)
		}
		if goodbye != nil {
			c.sayFarewell(written)
		}

		c.mu.Lock()
		if cap(out) <= maxSpare {
			c.spare = out[:0]
		}
		if !c.more && (idle || len(c.pending) == 0 && c.goodbye == nil) {
			break
		}
		if !writer {
			c.more = true
			break
		}
	}
	again := c.more
	c.writing = false
	c.mu.Unlock()
	if again {
		c.wakeWriter()
	}
	return true
}

// swap takes the frames that wait, and lets publishers go on that wait for room. mu is held.
func (c *conn) swap() []byte {
	out := c.pending
	c.pending, c.spare = c.spare[:0], nil
	if c.room != nil {
		close(c.room)
		c.room = nil
	}
	return out
}

// write hands whole frames to the connection itself. An error ends it.
func (c *conn) write(frames []byte) bool {
	now := time.Now()
	// Setting a deadline costs about as much as a small write: it may be an eighth short.
	if c.deadline.Sub(now) < c.writeTimeout*7/8 {
		c.deadline = now.Add(c.writeTimeout)
		_ = c.Conn.SetWriteDeadline(c.deadline)
	}
	if _, err := c.Conn.Write(frames); err != nil {
		c.abort(fmt.Errorf("write: %w", err))
		return false
	}
	c.sent.Store(int64(time.Since(c.opened)))
	return true
}

// sayFarewell follows the DISCONNECT that Write was given.
func (c *conn) sayFarewell(written bool) {
	drain := c.draining.Load()
	c.mu.Lock()
	c.said = true
	if written {
		close(c.farewell)
	}
	if drain {
		c.arm(c.drainTimeout)
	}
	c.mu.Unlock()
	if drain {
		c.closeWrite()
	} else {
		_ = c.Conn.Close()
	}
}

// waitRoom waits until less than maxPending bytes wait for the writer. A frame may then still exceed it by its own length.
func (c *conn) waitRoom(ctx context.Context) error {
	for {
		c.mu.Lock()
		if len(c.pending) < maxPending || c.closed {
			c.mu.Unlock()
			return nil
		}
		if c.room == nil {
			c.room = make(chan struct{})
		}
		room := c.room
		c.mu.Unlock()
		select {
		case <-room:
		case <-c.done:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
