package mosquitto

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/settlemq/settle/internal/loopback"
)

// Hint is the command that installs the server where it is missing.
const Hint = "apt-get install -y mosquitto"

// ErrMissing says that no mosquitto binary was found in PATH, /usr/sbin or /usr/local/sbin.
var ErrMissing = errors.New("mosquitto is not installed; get it with: " + Hint)

const (
	startTimeout = 15 * time.Second
	stopTimeout  = 15 * time.Second
	portTries    = 10
)

// Server is one Mosquitto and its folder, which outlives the process: Kill and Restart, and the same sessions are there again if
// Options.Persistence kept them.
//
// URL, Port and Log may be called from anywhere at any time. Kill, StopCleanly, Restart and Close are for one goroutine at a time.
type Server struct {
	binary  string
	dir     string
	ownDir  bool // made by Start and removed by Close
	port    int
	log     *tail
	process *process // the one that runs, or the last that ran
	closed  bool
}

// sbin is where packages put the binary, which is not in every user's PATH.
var sbin = []string{"/usr/sbin", "/usr/local/sbin"}

// Find returns the path of the mosquitto binary, or ErrMissing.
func Find() (string, error) {
	if path, err := exec.LookPath("mosquitto"); err == nil {
		return path, nil
	}
	for _, dir := range sbin {
		if path, err := exec.LookPath(filepath.Join(dir, "mosquitto")); err == nil {
			return path, nil
		}
	}
	return "", ErrMissing
}

// Start starts a server and returns when it accepts connections. Its error is ErrMissing where there is no binary, and otherwise
// quotes the server's log.
//
// The process is killed when this one ends, however it ends (on Linux).
func Start(o Options) (*Server, error) {
	binary, err := Find()
	if err != nil {
		return nil, err
	}
	s := &Server{binary: binary, dir: o.Dir, log: &tail{}}
	if s.dir == "" {
		s.ownDir = true
		if s.dir, err = os.MkdirTemp("", "settle-mosquitto-"); err != nil {
			return nil, fmt.Errorf("mosquitto: no folder for the server: %w", err)
		}
	}
	if err := s.start(o); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// start finds a port. Between the look for a free one and the server's own bind another process may take it; then another is tried.
func (s *Server) start(o Options) error {
	tries := portTries
	if o.Port != 0 {
		tries = 1
	}
	var err error
	for range tries {
		if s.port = o.Port; s.port == 0 {
			if s.port, err = loopback.FreePort(); err != nil {
				return err
			}
		}
		if err = o.write(s.dir, s.port); err != nil {
			return err
		}
		if err = s.run(); err == nil || !errors.Is(err, errPortTaken) {
			return err
		}
	}
	return err
}

// URL is the server's address in the form that settle.Config.Servers takes: mqtt://127.0.0.1:port.
func (s *Server) URL() string { return "mqtt://" + s.Addr() }

// Addr is the server's address as host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Port is the TCP port on 127.0.0.1. It is the same after Restart.
func (s *Server) Port() int { return s.port }

// Dir is the folder that holds the configuration and, with Options.Persistence, mosquitto.db.
func (s *Server) Dir() string { return s.dir }

// PID is the id of the process that runs, or of the last one that did.
func (s *Server) PID() int { return s.process.pid }

// Log is the end of what the server has logged, over all its restarts: 64 KiB at most.
func (s *Server) Log() string { return s.log.String() }

// Kill ends the process with SIGKILL, as a crash would: nothing is saved, and what the autosave had not written is gone. It returns
// when the process is gone, and does nothing where none runs.
func (s *Server) Kill() {
	s.process.signal(syscall.SIGKILL)
	<-s.process.exited
}

// StopCleanly ends the process with SIGTERM and waits: with Options.Persistence the sessions and their messages are saved. It does
// nothing where none runs. A server that has not ended after 15 s is killed, which is an error, as is one that ended by a failure.
func (s *Server) StopCleanly() error {
	if s.process.ended() {
		return nil
	}
	s.process.signal(syscall.SIGTERM)
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-s.process.exited:
	case <-timer.C:
		s.Kill()
		return fmt.Errorf("mosquitto: still running %v after SIGTERM, so it was killed; its log ends:\n%s", stopTimeout, s.Log())
	}
	if s.process.err != nil {
		return fmt.Errorf("mosquitto: stopped with %w; its log ends:\n%s", s.process.err, s.Log())
	}
	return nil
}

// Restart starts the server again on the same port and in the same folder, after StopCleanly where it still runs. It returns when
// connections are accepted.
func (s *Server) Restart() error {
	if s.closed {
		return errors.New("mosquitto: Restart after Close")
	}
	if err := s.StopCleanly(); err != nil {
		return err
	}
	return s.run()
}

// Close kills the server where it runs, waits for it, and removes the folder that Start made. Further calls do nothing.
func (s *Server) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	if s.process != nil {
		s.Kill()
	}
	if !s.ownDir {
		return nil
	}
	return os.RemoveAll(s.dir)
}

var errPortTaken = errors.New("mosquitto: the port is taken")

// run starts the process and waits until it says that it runs and answers a connection. To dial alone would not do: where another
// process has taken the port, that one answers.
func (s *Server) run() error {
	running := s.log.awaitRunning()
	process, err := spawn(s.binary, s.dir, s.log)
	if err != nil {
		return fmt.Errorf("mosquitto: %w", err)
	}
	s.process = process
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	select {
	case <-running:
	case <-process.exited:
		if strings.Contains(s.Log(), "Address already in use") {
			return fmt.Errorf("%w: %s", errPortTaken, s.Addr())
		}
		return fmt.Errorf("mosquitto: ended at once (%w); its log ends:\n%s", process.failure(), s.Log())
	case <-ctx.Done():
		s.Kill()
		return fmt.Errorf("mosquitto: not running after %v; its log ends:\n%s", startTimeout, s.Log())
	}
	if err := greet(ctx, s.Addr()); err != nil {
		s.Kill()
		return fmt.Errorf("mosquitto: runs but answers nobody: %w; its log ends:\n%s", err, s.Log())
	}
	return nil
}
