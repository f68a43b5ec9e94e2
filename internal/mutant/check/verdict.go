package main

import (
	"regexp"
	"slices"
	"strings"
)

// verdict is what a test said in a process of its own.
type verdict string

const (
	passed  verdict = "passed"
	failed  verdict = "failed"  // by an assertion
	crashed verdict = "crashed" // a panic, a deadlock, a leak, or no word at all: whatever it has found, it is not what the test is about
	late    verdict = "late"    // its time was over
	missing verdict = "missing" // there is no such test
)

var (
	// assertion is a line that t.Error and its like wrote: file and line come first. In a panic's stack they come last.
	assertion = regexp.MustCompile(`(?m)^\s+[\w.-]+\.go:\d+: `)
	crash     = regexp.MustCompile(`(?m)^(panic: |fatal error: |SIG[A-Z]+: )`)
)

// judge reads what a test's process wrote with -test.v.
func judge(name, output string, ok bool) verdict {
	switch {
	case strings.Contains(output, "panic: test timed out after "):
		return late
	case crash.MatchString(output):
		return crashed
	case strings.Contains(output, "--- PASS: "+name+" ") && ok:
		return passed
	case strings.Contains(output, "--- FAIL: "+name+" ") && !ok && assertion.MatchString(output):
		return failed
	case !strings.Contains(output, "=== RUN   "+name+"\n") && ok:
		return missing
	}
	return crashed
}

// pattern is the -test.run that selects a test, or a subtest, by its whole name.
func pattern(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}

// result is a test's verdict.
type result struct {
	test test
	verdict
	output string
}

// names is the tests with one of some verdicts.
func names(results []result, verdicts ...verdict) (some []string) {
	for _, r := range results {
		if slices.Contains(verdicts, r.verdict) {
			some = append(some, r.test.name)
		}
	}
	return some
}
