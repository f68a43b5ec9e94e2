// Demo shows the billing service for half a minute, with its connection cut three times: what `make demo` runs. Where no server
// listens on localhost:1883 it starts a Mosquitto of its own, on a free port and in a folder of its own, and ends it afterwards.
//
// Flags are handed on to the service.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/settlemq/settle/internal/mosquitto"
)

const local = "localhost:1883"

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

	server := "mqtt://" + local
	if listens(ctx, local) {
		fmt.Printf("A server listens on %s already: it is used.\n\n", local)
	} else {
		own, err := mosquitto.Start(mosquitto.Options{})
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, own.Close()) }()
		server = own.URL()
		fmt.Printf("No server listens on %s: a Mosquitto has been started on %s, in %s.\n\n", local, own.Addr(), own.Dir())
	}
	return run(ctx, service, append([]string{"-server", server, "-for", "30s", "-cuts", "3", "-http", "localhost:0"}, args...))
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

func listens(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}
