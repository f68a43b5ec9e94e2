package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	const failure = "=== RUN   TestA\n    a_test.go:7: the server was sent [\"PUBACK 2\"], want []\n"
	tests := []struct {
		name, output string
		ok           bool
		want         verdict
	}{
		{"passes", "=== RUN   TestA\n--- PASS: TestA (0.00s)\nPASS\n", true, passed},
		{"an assertion fails", failure + "--- FAIL: TestA (0.00s)\nFAIL\n", false, failed},
		{"a subtest's", "=== RUN   TestA\n=== RUN   TestA/b\n        a_test.go:7: no\n--- FAIL: TestA (0.00s)\n    --- FAIL: TestA/b (0.00s)\nFAIL\n", false, failed},
		{"only another test fails", "=== RUN   TestB\n    a_test.go:7: no\n--- FAIL: TestB (0.00s)\nFAIL\n", false, crashed},
		{"it fails without a word", "=== RUN   TestA\n--- FAIL: TestA (0.00s)\nFAIL\n", false, crashed},
		{"what it leaves behind fails", "=== RUN   TestA\n--- PASS: TestA (0.00s)\nPASS\ngoleak: Errors\n", false, crashed},
		{"a panic", failure + "--- FAIL: TestA (0.00s)\npanic: nil [recovered, repanicked]\n", false, crashed},
		{"a fatal error", failure + "fatal error: all goroutines are asleep - deadlock!\n", false, crashed},
		{"a stack is no assertion", "=== RUN   TestA\n\t/x/a_test.go:7 +0x1d\n--- FAIL: TestA (0.00s)\nFAIL\n", false, crashed},
		{"its time is over", failure + "panic: test timed out after 1m0s\n", false, late},
		{"there is none", "testing: warning: no tests to run\nPASS\n", true, missing},
		{"killed", "=== RUN   TestA\n", false, crashed},
	}
	for _, test := range tests {
		if got := judge("TestA", test.output, test.ok); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

func TestPattern(t *testing.T) {
	if got, want := pattern("TestB/c.d"), `^TestB$/^c\.d$`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// The list is that of package mutant, which has a file for each fault, and each has tests.
func TestListIsComplete(t *testing.T) {
	files, err := filepath.Glob("../*.go")
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".go")
		if name != "mutant" && name != "none" && !strings.HasSuffix(name, "_test") {
			want = append(want, name)
		}
	}
	for _, f := range faults {
		if len(f.tests) == 0 {
			t.Errorf("no test has to catch %s", f.name)
		}
		got = append(got, f.name)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("faults %q, files %q", got, want)
	}
}

// A program that has to find faults has to be able to fail: here is a module whose tests do all that tests can do.
func TestEachVerdictOnRealTests(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":           "module example.com/m\n\ngo 1.25\n",
		"broken/a_test.go": "package broken\n\nvar x int = \"\"\n",
		"a_test.go": `package m

import "testing"

func TestPasses(*testing.T)    {}
func TestFails(t *testing.T)   { t.Run("sub", func(t *testing.T) { t.Error("no") }) }
func TestPanics(t *testing.T)  { t.Log("so far"); panic("no") }
func TestHangs(*testing.T)     { for {} }
func TestLiveOne(t *testing.T) { t.Error("it was not to be run") }
`,
	} {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOWORK", "off")
	ctx, folder := t.Context(), t.TempDir()
	if _, err := build(ctx, root, folder, "", []string{"broken"}, time.Second); err == nil || !strings.Contains(err.Error(), "does not build") {
		t.Errorf("what does not build gave %v", err)
	}
	b, err := build(ctx, root, folder, "tag", []string{""}, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	tests, err := b.list(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]verdict{}
	for _, r := range b.all(ctx, append(tests, test{"", "TestFails/sub"}, test{"", "TestFails/other"}, test{"", "TestNone"})) {
		got[r.test.name] = r.verdict
	}
	want := map[string]verdict{
		"TestPasses": passed, "TestFails": failed, "TestFails/sub": failed, "TestFails/other": missing, "TestPanics": crashed, "TestHangs": late, "TestNone": missing,
	}
	for name, v := range want {
		if got[name] != v {
			t.Errorf("%s has %s, want %s", name, got[name], v)
		}
	}
	if _, ran := got["TestLiveOne"]; ran {
		t.Error("a live test was run")
	}

	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := build(ended, root, folder, "", []string{""}, time.Second); err == nil {
		t.Error("it was built after it was told to stop")
	}
}
