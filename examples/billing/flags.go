package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/rs/zerolog"
)

// options are what the command line says.
type options struct {
	server   string
	clientID string
	http     string
	ledger   string
	duration time.Duration
	meters   int
	cuts     int
	fail     float64
	logLevel zerolog.Level
	patience time.Duration // how long to wait for a server, and for the last reports; no flag
}

func parseFlags(args []string, out io.Writer) (options, error) {
	o := options{patience: 30 * time.Second}
	f := flag.NewFlagSet("billing", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&o.server, "server", embedded, "the `URL` of an MQTT 5 server, or \"embedded\" for one in this process, whose sessions end with it")
	f.StringVar(&o.clientID, "client", "billing-0", "the service's client `identifier`, the same each time: its session is found by it")
	f.StringVar(&o.http, "http", "localhost:8080", "the `address` of /metrics, /livez and /readyz; empty for none")
	f.StringVar(&o.ledger, "ledger", "", "the ledger's `file`; empty for a temporary one")
	f.DurationVar(&o.duration, "for", 0, "how `long` the meters send; 0 until the program is interrupted")
	f.IntVar(&o.meters, "meters", 200, "the `number` of meters; each reports once and measures ten times a second")
	f.IntVar(&o.cuts, "cuts", 0, "how many `times` the service's connection is cut, evenly in the time of -for")
	f.Float64Var(&o.fail, "fail", 0.05, "the `part` of the ledger's posts that fail, from 0 to 1")
	f.TextVar(&o.logLevel, "log", zerolog.ErrorLevel, "the `level` that the service logs at: debug, info, warn, error, disabled")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	err := o.check(f.Args())
	return o, err
}

func (o *options) check(rest []string) error {
	server, err := url.Parse(o.server)
	switch {
	case len(rest) > 0:
		return fmt.Errorf("%q is no flag", rest[0])
	case err != nil:
		return errors.New("-server is no URL") // which may have a password in it
	case o.meters < 1:
		return fmt.Errorf("-meters %d: there must be one at least", o.meters)
	case o.fail < 0 || o.fail > 1:
		return fmt.Errorf("-fail %v: must be from 0 to 1", o.fail)
	case o.duration < 0:
		return fmt.Errorf("-for %s: must not be negative", o.duration)
	case o.cuts < 0:
		return fmt.Errorf("-cuts %d: must not be negative", o.cuts)
	case o.cuts > 0 && o.duration == 0:
		return errors.New("-cuts needs -for")
	case o.cuts > 0 && o.server != embedded && server.Scheme != "mqtt" && server.Scheme != "tcp":
		return fmt.Errorf("-cuts needs a server at mqtt://, not at %s://", server.Scheme)
	}
	return nil
}
