// Check puts each fault of package mutant into the core and wants the tests to catch it: those that hold the promise which the fault breaks have
// to fail, by an assertion, and without a fault they have to pass. A fault with which the tests do not build, crash, or run out of time
// is not caught, and neither is one that only other tests notice.
//
//	go run ./internal/mutant/check           # the tests that have to catch each
//	go run ./internal/mutant/check -full     # the whole suite, to see what else does
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func main() {
	c := &check{}
	flag.BoolVar(&c.full, "full", false, "run the whole suite against each fault: some minutes")
	flag.BoolVar(&c.verbose, "v", false, "print what the tests say")
	flag.StringVar(&c.only, "fault", "", "try only the fault of this `name`")
	flag.StringVar(&c.root, "root", ".", "the `folder` of the module")
	flag.DurationVar(&c.limit, "limit", time.Minute, "what a test may take")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := c.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

type check struct {
	full, verbose bool
	only, root    string
	limit         time.Duration
}

// run is the whole check.
func (c *check) run(ctx context.Context) error {
	root, err := filepath.Abs(c.root)
	if err != nil {
		return err
	}
	c.root = root
	chosen := slices.DeleteFunc(slices.Clone(faults), func(f fault) bool { return c.only != "" && f.name != c.only })
	if len(chosen) == 0 {
		return fmt.Errorf("there is no fault %q", c.only)
	}
	began := time.Now()
	var errs []error
	for _, f := range append([]fault{none(chosen)}, chosen...) {
		err := c.try(ctx, f)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	say("%d faults, each caught, in %.0f s\n", len(chosen), time.Since(began).Seconds())
	return nil
}

func say(format string, args ...any) { _, _ = fmt.Fprintf(os.Stdout, format, args...) }

// none is no fault, with the tests of some: they have to pass.
func none(of []fault) fault {
	var f fault
	for _, o := range of {
		f.tests = append(f.tests, o.tests...)
	}
	slices.SortFunc(f.tests, compare)
	f.tests = slices.Compact(f.tests)
	return f
}

func compare(a, b test) int { return cmp.Or(cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.name, b.name)) }

// try tests with one fault, or with none, and tells what came out. Its error says why that is not as it has to be.
func (c *check) try(ctx context.Context, f fault) error {
	folder, err := os.MkdirTemp("", "settle-mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder) //nolint:errcheck // it is in the folder for what is temporary
	began := time.Now()
	results, rest, err := c.test(ctx, f, folder)
	if err != nil {
		say("%-20s does not build\n", f)
		return err
	}
	c.tell(f, results, rest, time.Since(began))
	want := failed
	if f.name == "" {
		want = passed
	}
	var wrong []error
	for _, r := range results {
		if r.verdict != want {
			wrong = append(wrong, fmt.Errorf("%s: %s has %s, and has to have %s", f, r.test.name, r.verdict, want))
		}
	}
	return errors.Join(wrong...)
}

// test runs the tests that have to catch a fault, and with -full the rest.
func (c *check) test(ctx context.Context, f fault, folder string) (results, rest []result, err error) {
	packages := suite
	if !c.full {
		packages = nil
		for _, t := range f.tests {
			if !slices.Contains(packages, t.pkg) {
				packages = append(packages, t.pkg)
			}
		}
	}
	b, err := build(ctx, c.root, folder, f.tag(), packages, c.limit)
	if err != nil {
		return nil, nil, err
	}
	results = b.all(ctx, f.tests)
	if !c.full {
		return results, nil, nil
	}
	var others []test
	for _, pkg := range packages {
		all, err := b.list(ctx, pkg)
		if err != nil {
			return nil, nil, err
		}
		others = append(others, slices.DeleteFunc(all, func(t test) bool { return slices.Contains(f.tests, t) })...)
	}
	return results, b.all(ctx, others), nil
}

// tell prints what became of one run.
func (c *check) tell(f fault, results, rest []result, took time.Duration) {
	both := slices.Concat(results, rest)
	if f.name == "" {
		say("%-20s %3d of %3d tests pass    %6.1f s\n", f, len(names(both, passed)), len(both), took.Seconds())
	} else {
		say("%-20s caught by %3d of %3d   %6.1f s   -tags %s (breaks never %d)\n", f, len(names(both, failed)), len(both), took.Seconds(), f.tag(), f.row)
	}
	for _, r := range results {
		if f.name != "" || r.verdict != passed {
			say("    %-7s %s\n", r.verdict, r.test.name)
		}
		if c.verbose {
			say("%s\n", r.output)
		}
	}
	for _, v := range []verdict{failed, crashed, late, missing} {
		if some := names(rest, v); len(some) > 0 {
			say("    %s too: %s\n", v, strings.Join(some, " "))
		}
	}
}
