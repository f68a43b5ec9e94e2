// Demo shows the billing service for half a minute, with its connection cut three times: what `make demo` runs.
//
//	go run ./demo                                  on the server that the service brings along
//	go run ./demo -server mosquitto                on a Mosquitto that is started for it and ended afterwards
//	go run ./demo -server mqtt://localhost:1883    on yours
//
// All other flags are the service's, and handed on to it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/settlemq/settle/internal/mosquitto"
)

// mosquittoServer is the value of -server that the service does not know.
const mosquittoServer = "mosquitto"

func main() {
	code, err := demo(os.Args[1:])
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "demo:", err)
		code = 1
	}
	os.Exit(code)
}

func demo(args []string) (code int, err error) {
	// A terminal interrupts the service too, which then ends in good order; a second signal from here would end it at once.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	ctx, release := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer release()

	folder, err := os.MkdirTemp("", "settle-demo-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	// Built and not `go run`, which has exit codes of its own.
	service := filepath.Join(folder, "billing")
	build := exec.CommandContext(ctx, "go", "build", "-o", service, "github.com/settlemq/settle/examples/billing") //nolint:gosec // the folder is ours
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return 0, fmt.Errorf("go build: %w", err)
	}

	args = append([]string{"-for", "30s", "-cuts", "3", "-http", "localhost:0"}, args...)
	if serverOf(args) == mosquittoServer {
		own, err := mosquitto.Start(mosquitto.Options{})
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, own.Close()) }()
		fmt.Printf("A Mosquitto has been started on %s, in %s.\n\n", own.Addr(), own.Dir())
		args = append(args, "-server", own.URL()) // the last one counts
	}
	return run(ctx, service, args)
}

// serverOf is what -server says among the service's flags, the last time that it is there.
func serverOf(args []string) (server string) {
	for i, arg := range args {
		name, value, joined := strings.Cut(strings.TrimPrefix(arg, "-"), "=")
		switch {
		case name != "-server" && name != "server" || !strings.HasPrefix(arg, "-"):
		case joined:
			server = value
		case i+1 < len(args):
			server = args[i+1]
		}
	}
	return server
}

// run runs the service and returns its exit code.
func run(ctx context.Context, service string, args []string) (int, error) {
	c := exec.CommandContext(ctx, service, args...) //nolint:gosec // what was built just now, with the flags of who runs it
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = time.Minute
	err := c.Run()
	var failed *exec.ExitError
	if errors.As(err, &failed) || ctx.Err() != nil && c.ProcessState != nil {
		return c.ProcessState.ExitCode(), nil
	}
	return 0, err
}
