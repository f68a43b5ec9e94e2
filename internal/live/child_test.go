package live_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/settlemq/settle"
)

// childEnv makes the test binary a consumer process: its value is a childConfig in JSON.
const childEnv = "SETTLE_TEST_LIVE_CHILD"

// childConfig says what a consumer process consumes, and what its handler does.
type childConfig struct {
	Server   string        `json:"server"`
	ClientID string        `json:"client_id"`
	Filter   string        `json:"filter"`
	Group    string        `json:"group"`
	RetryTo  string        `json:"retry_to"`
	Delay    time.Duration `json:"delay"`  // of retries
	Window   int           `json:"window"` // Receive Maximum
	Mode     string        `json:"mode"`
}

// What a consumer's handler does.
const (
	modeAck   = "ack"   // says "handled", and acknowledges
	modeFail  = "fail"  // says "failed" at the first attempt, "handled" at the next
	modeGate  = "gate"  // says "started", waits for "go", says "handled"
	modeStall = "stall" // as ack for the first 20, and never returns from the others
)

// runChild is the process: app.Run. It says a line of "what attempt payload" for each event, and ends when its standard input does, for then its
// parent is gone.
func runChild(text string) int {
	var c childConfig
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	gate := make(chan struct{}, 16)
	go func() {
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			gate <- struct{}{}
		}
		os.Exit(3) //nolint:revive // nobody is left to tell
	}()
	app, err := settle.New(settle.Config{
		Servers: []string{c.Server}, ClientID: c.ClientID, ReceiveMaximum: c.Window,
		Logger: zerolog.New(os.Stderr).Level(zerolog.InfoLevel).With().Timestamp().Logger(),
	}, c.route(gate))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	go c.sayState(app)
	if err := app.Run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (c *childConfig) route(gate <-chan struct{}) settle.Route {
	var options []settle.RouteOption
	if c.Group != "" {
		options = append(options, settle.Shared(c.Group))
	}
	if c.RetryTo != "" {
		options = append(options, settle.RetryTo(c.RetryTo), settle.Backoff(settle.Constant(c.Delay)))
	}
	seen := 0
	return settle.Handle(c.Filter, func(ctx context.Context, payload []byte) settle.Outcome {
		d := settle.DeliveryFrom(ctx)
		seen++
		switch {
		case c.Mode == modeFail && d.Attempt() == 1:
			say("failed", d.Attempt(), payload)
			return settle.Retry(errors.New("not at the first attempt"))
		case c.Mode == modeGate:
			say("started", d.Attempt(), payload)
			<-gate
		case c.Mode == modeStall && seen > 20:
			say("stalled", d.Attempt(), payload)
			select {}
		}
		say("handled", d.Attempt(), payload)
		return settle.Ack()
	}, options...)
}

// sayState says "ready" once, and "stopping" when the app has been told to stop.
func (c *childConfig) sayState(app *settle.App) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	ready := false
	for range tick.C {
		switch err := app.Ready(); {
		case err == nil && !ready:
			ready = true
			say("ready", 0, nil)
		case errors.Is(err, settle.ErrStopping):
			say("stopping", 0, nil)
			return
		}
	}
}

var saying sync.Mutex

func say(what string, attempt int, payload []byte) {
	saying.Lock()
	defer saying.Unlock()
	_, _ = fmt.Fprintln(os.Stdout, what, attempt, string(payload))
}

// child is a consumer process, as its parent sees it.
type child struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr *logBuffer
	exited chan struct{}
	err    error // of Wait; after exited

	mu    sync.Mutex
	lines []string
}

func startChild(t *testing.T, c childConfig) *child {
	t.Helper()
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	p := &child{t: t, stderr: &logBuffer{}, exited: make(chan struct{})}
	p.cmd = exec.Command(os.Args[0]) // killed below
	p.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	p.cmd.Stderr = p.stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.exited)
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			p.mu.Lock()
			p.lines = append(p.lines, lines.Text())
			p.mu.Unlock()
		}
		p.err = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("the log of process %d (%s):\n%s", p.cmd.Process.Pid, c.ClientID, p.stderr.end())
		}
	})
	p.awaitLine("ready")
	return p
}

// kill ends the process with SIGKILL.
func (p *child) kill() {
	_ = p.cmd.Process.Kill() // fails where it has ended
	<-p.exited
}

func (p *child) terminate() {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
}

// goOn opens the gate for one handler.
func (p *child) goOn() {
	if _, err := io.WriteString(p.stdin, "go\n"); err != nil {
		p.t.Fatal(err)
	}
}

// awaitExit returns the exit code.
func (p *child) awaitExit() int {
	p.t.Helper()
	await(p.t, "the process ends", func() bool {
		select {
		case <-p.exited:
			return true
		default:
			return false
		}
	})
	return p.cmd.ProcessState.ExitCode()
}

// said are the lines that begin so.
func (p *child) said(what string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []string
	for _, l := range p.lines {
		if strings.HasPrefix(l, what) {
			found = append(found, l)
		}
	}
	return found
}

// awaitLine waits until the process has said a line that begins so, and returns it.
func (p *child) awaitLine(what string) string {
	p.t.Helper()
	await(p.t, "a process says "+what, func() bool { return len(p.said(what)) > 0 })
	return p.said(what)[0]
}

// handledBy are the payloads that the process has said it handled.
func (p *child) handledBy() []string {
	var all []string
	for _, l := range p.said("handled ") {
		all = append(all, strings.SplitN(l, " ", 3)[2])
	}
	return all
}
