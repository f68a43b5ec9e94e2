package broker

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// Pipe returns the two ends of a connection in memory. It is net.Pipe, unbuffered, with two differences: each end has a
// CloseWrite method, as TCP has, and it takes a tenth of the memory. It works in a testing/synctest bubble.
func Pipe() (net.Conn, net.Conn) { return newPipe() }

func newPipe() (client, server *end) {
	p := new([2]half)
	for i := range p {
		p[i].cond.L = &p[i].mu
	}
	return &end{in: &p[0], out: &p[1]}, &end{in: &p[1], out: &p[0]}
}

// end is one end of a pipe.
type end struct{ in, out *half }

// half is one direction of a pipe: a Write that waits until all of it has been read.
type half struct {
	mu     sync.Mutex
	cond   sync.Cond
	data   []byte // of the Write that is under way
	notify func() // told once that there is something to read, after tryRead found nothing; set before the first Write

	writing bool // a Write is under way
	eof     bool // the write side is closed
	broken  bool // the read side is closed
	busy    bool // notify was called, and tryRead has not found nothing since

	reader, writer *deadline // nil for none
}

// deadline is when a Read or a Write has waited long enough.
type deadline struct {
	timer *time.Timer
	over  bool
}

func (e *end) Read(p []byte) (int, error)  { return e.in.read(p) }
func (e *end) Write(p []byte) (int, error) { return e.out.write(p) }
func (e *end) CloseWrite() error           { e.out.close(&e.out.eof); return nil }
func (e *end) LocalAddr() net.Addr         { return pipeAddr{} }
func (e *end) RemoteAddr() net.Addr        { return pipeAddr{} }

// Close ends both directions: what waits in Read or Write, here and there, returns.
func (e *end) Close() error {
	e.out.close(&e.out.eof)
	e.in.close(&e.in.broken)
	return nil
}

func (e *end) SetReadDeadline(t time.Time) error  { e.in.expire(&e.in.reader, t); return nil }
func (e *end) SetWriteDeadline(t time.Time) error { e.out.expire(&e.out.writer, t); return nil }
func (e *end) SetDeadline(t time.Time) error {
	_ = e.SetReadDeadline(t)
	return e.SetWriteDeadline(t)
}

func (h *half) read(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		if n, some, err := h.take(p); some || len(p) == 0 {
			return n, err
		}
		if h.reader.passed() {
			return 0, os.ErrDeadlineExceeded
		}
		h.cond.Wait()
	}
}

// tryRead reads what is there into a connection's buffer. Where nothing is, notify will be called once something is, and the
// connection is not to be touched any more.
func (h *half) tryRead(into *inbox, need int) (n int, some bool, err error) {
	p := into.space(need)
	h.mu.Lock()
	defer h.mu.Unlock()
	n, some, err = h.take(p)
	if h.busy = some; !some {
		into.rest()
	}
	return n, some, err
}

// take is called with the lock held.
func (h *half) take(p []byte) (n int, some bool, err error) {
	switch {
	case h.broken:
		return 0, true, io.ErrClosedPipe
	case len(h.data) > 0:
		n = copy(p, h.data)
		if h.data = h.data[n:]; len(h.data) == 0 {
			h.cond.Broadcast()
		}
		return n, true, nil
	case h.eof:
		return 0, true, io.EOF
	}
	return 0, false, nil
}

func (h *half) write(p []byte) (n int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.writing && !h.shut() && !h.writer.passed() {
		h.cond.Wait()
	}
	switch {
	case h.shut():
		return 0, io.ErrClosedPipe
	case h.writer.passed():
		return 0, os.ErrDeadlineExceeded
	}
	h.writing, h.data = true, p
	defer func() {
		h.writing, h.data = false, nil
		h.cond.Broadcast()
	}()
	h.stir()
	for len(h.data) > 0 && !h.shut() && !h.writer.passed() {
		h.cond.Wait()
	}
	n = len(p) - len(h.data)
	switch {
	case n == len(p):
		return n, nil
	case h.shut():
		return n, io.ErrClosedPipe
	}
	return n, os.ErrDeadlineExceeded
}

// shut is called with the lock held.
func (h *half) shut() bool { return h.eof || h.broken }

// stir tells whoever reads that there is something to read. It is called with the lock held, and releases it meanwhile.
func (h *half) stir() {
	h.cond.Broadcast()
	if h.notify != nil && !h.busy {
		h.busy = true
		h.mu.Unlock()
		h.notify()
		h.mu.Lock()
	}
}

// close closes one side: which is h.eof or h.broken.
func (h *half) close(which *bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if *which {
		return
	}
	*which = true
	h.stir()
	if h.eof && h.broken { // or each side's timers would outlive the pipe
		h.reader.stop()
		h.writer.stop()
	}
}

// expire sets a deadline anew.
func (h *half) expire(which **deadline, t time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	(*which).stop()
	*which = nil
	if t.IsZero() || h.eof && h.broken {
		return
	}
	d := &deadline{}
	*which = d
	left := time.Until(t)
	if left <= 0 {
		d.over = true
		h.cond.Broadcast()
		return
	}
	d.timer = time.AfterFunc(left, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		d.over = true
		h.cond.Broadcast()
	})
}

func (d *deadline) passed() bool { return d != nil && d.over }

func (d *deadline) stop() {
	if d != nil && d.timer != nil {
		d.timer.Stop()
	}
}

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }
