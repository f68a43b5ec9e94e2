// Package doctest holds what the documents say against what the code does: their examples compile, and the metrics, settings, tests,
// targets and files that they name exist.
package doctest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// root is the folder of the module, seen from this package.
const root = "../.."

// document is a Markdown file.
type document struct {
	path string // from root
	text string
}

// documents are those that users read.
func documents(t *testing.T) []document {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) == 0 {
		t.Fatal("there is nothing in docs")
	}
	for _, name := range []string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md"} {
		paths = append(paths, filepath.Join(root, name))
	}
	all := make([]document, 0, len(paths))
	for _, path := range paths {
		all = append(all, document{path: strings.TrimPrefix(filepath.ToSlash(path), root+"/"), text: read(t, path)})
	}
	return all
}

// find is the document of that path.
func find(t *testing.T, path string) document {
	t.Helper()
	return document{path: path, text: read(t, filepath.Join(root, path))}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// section is what stands under a heading, up to the next.
func (d document) section(t *testing.T, heading string) string {
	t.Helper()
	_, rest, ok := strings.Cut(d.text, "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("%s has no section %q", d.path, heading)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	return rest
}

var tableName = regexp.MustCompile("(?m)^\\| `([A-Za-z0-9_]+)` \\|")

// rows are the names in the first column of the tables in a text.
func rows(text string) []string {
	var names []string
	for _, m := range tableName.FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	return names
}

// compare reports what only one of two lists has.
func compare(t *testing.T, what string, documented, existing []string) {
	t.Helper()
	for _, name := range documented {
		if !slices.Contains(existing, name) {
			t.Errorf("%s %s is documented and does not exist", what, name)
		}
	}
	for _, name := range existing {
		if !slices.Contains(documented, name) {
			t.Errorf("%s %s is not documented", what, name)
		}
	}
	if len(existing) == 0 {
		t.Errorf("no %s was found: this test looks in the wrong place", what)
	}
}
