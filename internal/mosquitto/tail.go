package mosquitto

import (
	"bytes"
	"sync"
)

const tailSize = 64 << 10

// tail keeps the end of a log and tells when the server says that it runs.
type tail struct {
	mu      sync.Mutex
	kept    []byte
	line    []byte        // what has come of the line that is not complete yet
	running chan struct{} // closed at the next "running"; nil when nobody waits
}

// awaitRunning returns a channel that is closed when the server logs, from now on, that it runs. Its listeners are open then.
func (t *tail) awaitRunning() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running, t.line = make(chan struct{}), nil
	return t.running
}

// Write implements io.Writer and never fails: a server whose log is not read stops serving.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - tailSize; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	if t.running == nil {
		return len(p), nil
	}
	t.line = append(t.line, p...)
	for {
		line, rest, complete := bytes.Cut(t.line, []byte("\n"))
		if !complete {
			break
		}
		if t.running != nil && bytes.Contains(line, []byte("mosquitto version ")) && bytes.HasSuffix(bytes.TrimSpace(line), []byte(" running")) {
			close(t.running)
			t.running = nil
		}
		t.line = rest
	}
	if t.running == nil {
		t.line = nil
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept)
}
