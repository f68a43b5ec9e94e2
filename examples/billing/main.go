// Billing is the service of Settle's guide: it bills what electricity meters report and charts what they measure, loses no report whatever happens
// to its connection, and bills none twice.
//
//	go run . -for 30s -cuts 3
//	go run . -for 30s -cuts 3 -server mqtt://localhost:1883
//
// It brings its meters along, and where it is not told of a server that one too, prints a line a second, and ends with an account of what they have sent and what the ledger holds. Its exit
// code is 1 if the two differ.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	o, err := parseFlags(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case err != nil:
		_, _ = fmt.Fprintln(os.Stderr, "billing:", err)
		os.Exit(2)
	}
	ctx, release := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, release) // the second signal ends the program at once
	balanced, err := run(ctx, o, newScreen(os.Stdout))
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "billing:", err)
	}
	if err != nil || !balanced {
		os.Exit(1)
	}
}
