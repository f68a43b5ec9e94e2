package mutant_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/settlemq/settle/internal/mutant"
)

// That they are constants is what lets the compiler drop them: as variables they would not compile here.
const anyFault = mutant.AckEarly || mutant.OutOfOrder || mutant.CrossEpoch || mutant.AdoptAcknowledged || mutant.Unconfirmed ||
	mutant.LeakOnPanic || mutant.UnsubscribeAtStop

func TestNoFaultIsInWithoutATag(t *testing.T) {
	if anyFault || mutant.Active != "" {
		t.Errorf("the fault %q is in", mutant.Active)
	}
}

// Each fault is at one place of the core, and only tests may ask for a tag.
func TestFaultsArePutInAtOnePlaceEach(t *testing.T) {
	const root, prefix = "../..", "settle_mutant_"
	places := make(map[string][]string)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (filepath.Clean(path) == filepath.Join(root, "internal", "mutant") || path != root && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		for _, group := range file.Comments {
			for _, c := range group.List {
				if strings.HasPrefix(c.Text, "//go:build") && strings.Contains(c.Text, prefix) {
					t.Errorf("%s: %s: only tests are built with a fault", path, c.Text)
				}
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == "mutant" {
					places[s.Sel.Name] = append(places[s.Sel.Name], path)
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	faults := constants(t)
	for _, name := range faults {
		if len(places[name]) != 1 {
			t.Errorf("%s is used at %q, want one place", name, places[name])
		}
	}
	for name, at := range places {
		if name != "Active" && !slices.Contains(faults, name) {
			t.Errorf("mutant.%s, at %q, is no fault", name, at)
		}
	}
}

// constants is the faults by name.
func constants(t *testing.T) (names []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "mutant.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			names = append(names, spec.Names[0].Name)
		}
		return true
	})
	if len(names) == 0 {
		t.Fatal("no faults")
	}
	return names
}
