package doctest

import (
	"context"
	"io/fs"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/settlemq/settle"
)

// The table of settings has every field of Config and nothing else.
func TestEverySettingIsDocumented(t *testing.T) {
	var fields []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[settle.Config]()) {
		fields = append(fields, f.Name)
	}
	compare(t, "the setting", rows(find(t, "docs/operations.md").section(t, "Settings")), fields)
}

// The table of metrics has every metric and nothing else, and no document speaks of another.
func TestEveryMetricIsDocumented(t *testing.T) {
	names := metricNames(t)
	compare(t, "the metric", rows(find(t, "docs/operations.md").section(t, "Metrics")), names)
	mention := regexp.MustCompile(`\bsettle_[a-z0-9_]+`)
	for _, d := range documents(t) {
		for _, name := range mention.FindAllString(d.text, -1) {
			if !slices.Contains(names, name) {
				t.Errorf("%s: the metric %s does not exist", d.path, name)
			}
		}
	}
}

// metricNames asks an app what it would register.
func metricNames(t *testing.T) []string {
	t.Helper()
	names := &describer{}
	_, err := settle.New(settle.Config{Servers: []string{"mqtt://localhost"}, ClientID: "doc", Metrics: names},
		settle.Handle("a", func(context.Context, []byte) settle.Outcome { return settle.Ack() }))
	if err != nil {
		t.Fatal(err)
	}
	return names.all
}

// describer is a registry that only notes the names of what it is given.
type describer struct {
	prometheus.Registerer

	all []string
}

var descName = regexp.MustCompile(`fqName: "([^"]+)"`)

func (d *describer) Register(c prometheus.Collector) error {
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		c.Describe(descs)
	}()
	for desc := range descs {
		d.all = append(d.all, descName.FindStringSubmatch(desc.String())[1])
	}
	return nil
}

// Every test that a document names exists.
func TestEveryTestNamedExists(t *testing.T) {
	tests := testNames(t)
	mention := regexp.MustCompile("`((?:Test|Fuzz|Example)[A-Z0-9][A-Za-z0-9_]*)`")
	for _, d := range documents(t) {
		if d.path == "CONTRIBUTING.md" {
			continue // it speaks of how tests are named
		}
		for _, m := range mention.FindAllStringSubmatch(d.text, -1) {
			if !tests[m[1]] {
				t.Errorf("%s: there is no %s", d.path, m[1])
			}
		}
	}
}

// testNames are all tests of this repository.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != root:
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		for _, m := range declared.FindAllStringSubmatch(read(t, path), -1) {
			names[m[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// Every make target that a document names exists.
func TestEveryTargetNamedExists(t *testing.T) {
	makefile := read(t, filepath.Join(root, "Makefile"))
	mention := regexp.MustCompile("(?:\n {4}|`)make ([a-z-]+)")
	found := 0
	for _, d := range documents(t) {
		for _, m := range mention.FindAllStringSubmatch(d.text, -1) {
			found++
			if !strings.Contains(makefile, "\n"+m[1]+":") {
				t.Errorf("%s: the Makefile has no target %q", d.path, m[1])
			}
		}
	}
	if found == 0 {
		t.Error("no target was found: this test looks in the wrong place")
	}
}
