package doctest

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// given is what blocks may use without declaring it; each declaration stands for the name that it begins with.
var given = map[string]string{
	"Usage": "type Usage struct { Meter string; KWh float64 }",
	"post":  "func post(context.Context, Usage) error { return nil }",
}

// imports are the packages that blocks may use, by name.
var imports = map[string]string{
	"context":    "context",
	"errors":     "errors",
	"fmt":        "fmt",
	"http":       "net/http",
	"log":        "log",
	"middleware": "github.com/settlemq/settle/middleware",
	"os":         "os",
	"settle":     "github.com/settlemq/settle",
	"testing":    "testing",
	"testkit":    "github.com/settlemq/settle/testkit",
	"time":       "time",
	"zerolog":    "github.com/rs/zerolog",
}

var goBlock = regexp.MustCompile("(?s)\n```go\n(.*?\n)```\n")

// Every Go block of a document compiles. A block without a package clause is given one, and imports.
func TestBlocksCompile(t *testing.T) {
	module, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	overlay := map[string]string{}
	var packages []string
	for _, d := range documents(t) {
		for i, m := range goBlock.FindAllStringSubmatch(d.text, -1) {
			name := fmt.Sprintf("%s_%d", strings.NewReplacer("/", "_", ".", "_").Replace(d.path), i)
			source, err := complete(m[1])
			if err != nil {
				t.Errorf("%s, block %d: %v", d.path, i, err)
				continue
			}
			file := filepath.Join(dir, name+".go")
			if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
				t.Fatal(err)
			}
			// The packages are in the module, and so find all that it has, but not on its disk.
			overlay[filepath.Join(module, "internal", "doctest", name, "block.go")] = file
			packages = append(packages, "./internal/doctest/"+name)
		}
	}
	if len(packages) == 0 {
		t.Fatal("there are no blocks: this test looks in the wrong place")
	}
	list, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	listFile := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(listFile, list, 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", append([]string{"build", "-overlay", listFile}, packages...)...)
	build.Dir = module
	build.Env = append(os.Environ(), "GOPROXY=off", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Errorf("go build: %v\n%s", err, out)
	}
}

// complete makes a file of a block. Line numbers in it are those of the block.
func complete(block string) (string, error) {
	if strings.HasPrefix(block, "package ") {
		return block, nil
	}
	const clause = "package block; "
	file, err := parser.ParseFile(token.NewFileSet(), "block", clause+block, parser.SkipObjectResolution)
	if err != nil {
		return "", fmt.Errorf("it is neither a file nor declarations: %w", err)
	}
	body := block
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !declares(file, name) {
			body = body + given[name] + "\n"
		}
	}
	head := clause
	for _, name := range slices.Sorted(maps.Keys(imports)) {
		if regexp.MustCompile(`\b` + name + `\.[A-Z]`).MatchString(body) {
			head = fmt.Sprintf("%simport %q; ", head, imports[name])
		}
	}
	return head + body, nil
}

// declares says whether a file has a declaration of that name.
func declares(file *ast.File, name string) bool {
	return slices.ContainsFunc(file.Decls, func(decl ast.Decl) bool {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			return decl.Name.Name == name
		case *ast.GenDecl:
			return slices.ContainsFunc(decl.Specs, func(spec ast.Spec) bool {
				typ, ok := spec.(*ast.TypeSpec)
				return ok && typ.Name.Name == name
			})
		}
		return false
	})
}
