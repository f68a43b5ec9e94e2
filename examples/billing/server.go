package main

import (
	"context"
	"fmt"

	"github.com/settlemq/settle/internal/broker"
)

// embedded is the value of -server for a server in this process: nothing has to be installed to see the service run.
const embedded = "embedded"

// openServer returns the URL of the server that -server names, and how to end what it has started for that.
//
// The embedded server is the one that Settle's tests run on. It is here for the example's sake, which may import it because it is part of
// Settle's repository. It keeps nothing on a disk, so a service in production has no use for it, and for a service's tests there is
// package testkit: see service_test.go.
func openServer(ctx context.Context, name string) (url string, end func(), err error) {
	if name != embedded {
		return name, func() {}, nil
	}
	server := broker.New(broker.Options{WireLog: -1}) // nobody reads the log
	// By TCP and not in memory, so that a cut is one that a network can make, and that other clients may look on.
	address, err := server.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("-server %s: %w", embedded, err)
	}
	return "mqtt://" + address.String(), server.Close, nil
}
