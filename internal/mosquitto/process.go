package mosquitto

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"
)

// process is one run of the binary. The goroutine that spawn starts owns it and ends with it.
type process struct {
	cmd    *exec.Cmd
	pid    int
	exited chan struct{}
	err    error // what Wait said; to be read after exited is closed
}

// spawn starts the server with the configuration in dir and its log going to log.
//
// Linux sends the parent-death signal when the thread that started the child ends, not the process, and Go ends a thread when a
// goroutine that is locked to it returns. So one goroutine, locked to its thread, starts the child and stays until the child is gone.
func spawn(binary, dir string, log *tail) (*process, error) {
	cmd := exec.Command(binary, "-c", filepath.Join(dir, configFile)) //nolint:gosec,noctx // a binary that Find found; it lives until it is killed
	p := &process{cmd: cmd, exited: make(chan struct{})}
	p.cmd.Dir = dir
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = dieWithParent()
	p.cmd.WaitDelay = time.Second // should a child of its own keep the pipe open
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.exited)
		if err := p.cmd.Start(); err != nil {
			started <- err
			return
		}
		p.pid = p.cmd.Process.Pid
		started <- nil
		p.err = p.cmd.Wait()
	}()
	if err := <-started; err != nil {
		<-p.exited
		return nil, err
	}
	return p, nil
}

// signal reaches this process only, by its handle: one that has ended, and whose id another may have by now, is left alone.
func (p *process) signal(sig os.Signal) {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		panic("mosquitto: cannot signal a process that this one started: " + err.Error())
	}
}

func (p *process) ended() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// failure is why a process that has exited did so.
func (p *process) failure() error {
	if p.err == nil {
		return errors.New("exit status 0")
	}
	return p.err
}
