package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
)

// suite is the packages whose tests are run: all that need no server of their own.
var suite = []string{"", "internal/window", "internal/delivery", "testkit"}

// test is a test, or a subtest, of a package of the suite.
type test struct{ pkg, name string }

// bench is the suite built with one fault, or with none. Each test runs in a process of its own: a fault that makes one crash or hang must not
// hide what the others have to say.
type bench struct {
	root, folder string
	limit        time.Duration
}

// build compiles the tests of some packages. An error says that they do not compile, which is no way to be caught.
func build(ctx context.Context, root, folder, tag string, packages []string, limit time.Duration) (*bench, error) {
	b := &bench{root: root, folder: folder, limit: limit}
	for _, pkg := range packages {
		if out, err := run(ctx, root, "go", "test", "-c", "-vet=off", "-tags="+tag, "-o", b.binary(pkg), "./"+pkg); err != nil {
			return nil, fmt.Errorf("%s does not build with -tags %q: %w\n%s", path.Join("settle", pkg), tag, err, out)
		}
	}
	return b, nil
}

func (b *bench) binary(pkg string) string {
	return filepath.Join(b.folder, path.Base("settle/"+pkg)+".test")
}

// list is the tests of a package, without those that need a server.
func (b *bench) list(ctx context.Context, pkg string) (tests []test, err error) {
	out, err := run(ctx, b.root, b.binary(pkg), "-test.list", "^Test")
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", b.binary(pkg), err, out)
	}
	for name := range strings.FieldsSeq(out) {
		if !strings.HasPrefix(name, "TestLive") {
			tests = append(tests, test{pkg, name})
		}
	}
	return tests, nil
}

// all runs tests, as many at once as there are processors.
func (b *bench) all(ctx context.Context, tests []test) []result {
	results := make([]result, len(tests))
	todo := make(chan int)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := range todo {
				results[i] = b.one(ctx, tests[i])
			}
		})
	}
	for i := range tests {
		todo <- i
	}
	close(todo)
	workers.Wait()
	return results
}

func (b *bench) one(ctx context.Context, t test) result {
	out, err := run(ctx, filepath.Join(b.root, t.pkg), b.binary(t.pkg), "-test.v", "-test.run", pattern(t.name), "-test.timeout", b.limit.String())
	return result{t, judge(t.name, out, err == nil), out}
}

// run is a command's whole output. Tests may write a lot, for as long as they may take.
func run(ctx context.Context, folder, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...) //nolint:gosec // go itself, and the tests that it has built
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "GOTRACEBACK=none") // of a crash one line is enough
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), errors.Join(err, context.Cause(ctx))
}
