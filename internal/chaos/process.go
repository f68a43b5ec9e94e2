package chaos

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/settlemq/settle/internal/cutproxy"
)

// keeper keeps one consumer running: its proxy, and one process after the other.
type keeper struct {
	config consumerConfig
	stream *stream
	proxy  *cutproxy.Proxy
	book   *book
	log    io.Writer

	mu      sync.Mutex // held while a fault is carried out
	orderly int        // ends of connections in a row that looked as if the server had closed them

	now sync.Mutex // guards what follows
	process
	lives int
}

// process is one process of a consumer.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	life  *life
	done  chan struct{} // its output has been read to the end, and it has ended
}

// start begins the next life.
func (k *keeper) start() error {
	text, err := json.Marshal(k.config)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p := process{cmd: exec.Command(self), life: k.book.newLife(k.stream, k.config.ClientID, k.lives), done: make(chan struct{})} //nolint:noctx,gosec // itself, until it is killed
	p.cmd.Env = append(os.Environ(), consumerEnv+"="+string(text))
	p.cmd.Stderr = k.log
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	k.now.Lock()
	k.process = p
	k.lives++
	k.now.Unlock()
	go func() {
		defer close(p.done)
		b := make([]byte, 64<<10)
		for kept := 0; ; {
			n, err := out.Read(b[kept:])
			kept = copy(b, k.book.events(k.stream, p.life, b[:kept+n]))
			if err != nil {
				break // what a kill has cut off was never said
			}
		}
		_ = p.cmd.Wait() // by SIGKILL it ends with an error
	}()
	return nil
}

// end sends a signal, waits until the process has ended, and notes how it went.
func (k *keeper) end(kind Kind) error {
	p := k.current()
	if p.ended() {
		return fmt.Errorf("%s had ended before it was told to", k.config.ClientID)
	}
	signal := syscall.SIGKILL
	if kind == Terminate {
		signal = syscall.SIGTERM
	}
	k.book.mu.Lock()
	p.life.ended, p.life.told = kind, k.book.now()
	k.book.mu.Unlock()
	if err := p.cmd.Process.Signal(signal); err != nil {
		return fmt.Errorf("%s: %s: %w", k.config.ClientID, kind, err)
	}
	select {
	case <-p.done:
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("%s did not end within %s of %s", k.config.ClientID, patience, kind)
	}
	_ = p.stdin.Close()
	k.book.mu.Lock()
	p.life.unclean = kind == Terminate && p.cmd.ProcessState.ExitCode() != 0
	k.book.mu.Unlock()
	return nil
}

func (k *keeper) current() process {
	k.now.Lock()
	defer k.now.Unlock()
	return k.process
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}
