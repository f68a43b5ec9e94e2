package chaos

import (
	"io"
	"sync"
	"time"
)

// journal tells the harness what happens in a consumer, by write(2) on a pipe: what was said before a SIGKILL is in the pipe, and is read. Of
// what one goroutine does after the other, the order is kept; a handler's outcome is told before the app learns it, and an acknowledgement before it is written.
type journal struct {
	out   io.Writer
	began time.Time

	mu  sync.Mutex
	buf []byte
}

// add is called with the lock held; flush follows.
func (j *journal) add(e event) {
	e.at = uint32(time.Since(j.began) / (100 * time.Microsecond)) //nolint:gosec // days
	j.buf = e.append(j.buf)
}

// flush is called with the lock held.
func (j *journal) flush() {
	if len(j.buf) == 0 {
		return
	}
	_, _ = j.out.Write(j.buf) // where it fails the harness is gone
	j.buf = j.buf[:0]
}

// say tells events at once.
func (j *journal) say(events ...event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range events {
		j.add(e)
	}
	j.flush()
}

// note has events told with the next that are. Those of a process that is killed before are as good as not happened.
func (j *journal) note(events ...event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, e := range events {
		j.add(e)
	}
}
