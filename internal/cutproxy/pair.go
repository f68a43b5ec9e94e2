package cutproxy

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

const bufferSize = 32 << 10

// pair is one client's connection and the one to the server that belongs to it.
type pair struct {
	proxy *Proxy
	ends  [2]*net.TCPConn // by the direction that writes to it
	lost  bool            // something vanished in a Stall; guarded by proxy.mu
	once  sync.Once       // the first to sever says how

	severed chan struct{} // closed by sever
}

// run copies in both directions until both have ended.
func (c *pair) run() {
	var wg sync.WaitGroup
	wg.Go(func() { c.pump(ToServer) })
	wg.Go(func() { c.pump(ToClient) })
	wg.Wait()
	c.proxy.mu.Lock()
	delete(c.proxy.conns, c)
	c.proxy.mu.Unlock()
	c.sever(false)
}

// pump copies in one direction until it ends. A stream that ends well is passed on as a half-close: the other direction lives on.
func (c *pair) pump(d Direction) {
	from, to := c.ends[1-d], c.ends[d]
	buffer := make([]byte, bufferSize)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if !c.linger() {
				return // it was severed, and nothing passes any more
			}
			pass, due := c.proxy.admit(c, d, n)
			if pass > 0 { // or the socket that a Stall hides the end of would be touched
				if _, err := to.Write(buffer[:pass]); err != nil {
					c.sever(true)
					return
				}
			}
			if due {
				c.proxy.cutNow(d)
				return
			}
		}
		switch {
		case err == nil:
		case c.proxy.vanish(c):
			return
		case errors.Is(err, io.EOF):
			_ = to.CloseWrite() // fails where the connection has been broken meanwhile, which the other pump sees
			return
		default:
			c.sever(true)
			return
		}
	}
}

// linger waits as long as Delay says, and reports whether the connection still stands.
func (c *pair) linger() bool {
	c.proxy.mu.Lock()
	latency := c.proxy.latency
	c.proxy.mu.Unlock()
	if latency <= 0 {
		return true
	}
	t := time.NewTimer(latency)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.severed:
		return false
	}
}

// admit decides how many of n bytes that have come in direction d pass, and whether a CutAfter is due once these have.
func (p *Proxy) admit(c *pair, d Direction, n int) (pass int, due bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stalled {
		c.lost = true
		p.stats.Vanished[d] += int64(n)
		return 0, false
	}
	pass = n
	if armed := &p.countdown[d]; armed.done != nil {
		pass = int(min(int64(n), armed.left))
		armed.left -= int64(pass)
		due = armed.left == 0 && !armed.due
		armed.due = armed.left == 0
	}
	p.stats.Bytes[d] += int64(pass)
	return pass, due
}

// cutNow carries out the CutAfter of direction d that is due, unless another has taken its place.
func (p *Proxy) cutNow(d Direction) {
	p.mu.Lock()
	armed := p.countdown[d]
	if !armed.due {
		p.mu.Unlock()
		return
	}
	p.countdown[d] = countdown{}
	pairs := p.take()
	p.stats.Cut += int64(len(pairs))
	p.mu.Unlock()
	severAll(pairs, false)
	close(armed.done)
}

// vanish reports whether the end of a stream is to be kept from the other side.
func (p *Proxy) vanish(c *pair) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, open := p.conns[c]; !p.stalled || !open {
		return false
	}
	c.lost = true
	return true
}

func severAll(pairs []*pair, reset bool) {
	for _, c := range pairs {
		c.sever(reset)
	}
}

// sever closes both ends; with reset, by a TCP reset. Only the first call counts: the pumps, which see the ends close, must not turn
// one kind of end into the other.
func (c *pair) sever(reset bool) {
	c.once.Do(func() {
		close(c.severed)
		for _, conn := range c.ends {
			if reset {
				abort(conn)
			} else {
				_ = conn.Close() // an error would be that of a connection that is gone already
			}
		}
	})
}

// abort closes with a reset: what is unsent is thrown away.
func abort(conn *net.TCPConn) {
	_ = conn.SetLinger(0) // fails on a connection that is closed, which is what is wanted
	_ = conn.Close()
}
