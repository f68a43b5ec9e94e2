package testkit_test

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/settlemq/settle/testkit"
)

var (
	guideBlock = regexp.MustCompile("(?s)```go guide_test.go\n(.*?)\n```\n")
	topLevel   = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	methodRow  = regexp.MustCompile("(?m)^\\| `(.*)` \\|")
	methodName = regexp.MustCompile(`([A-Z]\w*)\(`)
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The code of the guide is the code that runs, all of it.
func TestGuide(t *testing.T) {
	guide, source := read(t, "../docs/testing.md"), read(t, "guide_test.go")
	var shown strings.Builder
	for _, m := range guideBlock.FindAllStringSubmatch(guide, -1) {
		if !strings.Contains(source, m[1]) {
			t.Errorf("guide_test.go does not have this code of docs/testing.md:\n%s", m[1])
		}
		shown.WriteString(m[1])
	}
	for _, m := range topLevel.FindAllStringSubmatch(source, -1) {
		if !strings.Contains(shown.String(), m[0]) {
			t.Errorf("docs/testing.md does not show %s", m[1])
		}
	}
}

// The guide's table has what a test can make the server do, and nothing else.
func TestGuideNamesEveryFault(t *testing.T) {
	var documented, has []string
	for _, row := range methodRow.FindAllStringSubmatch(read(t, "../docs/testing.md"), -1) {
		for _, m := range methodName.FindAllStringSubmatch(row[1], -1) {
			documented = append(documented, m[1])
		}
	}
	methods := reflect.TypeFor[*testkit.Broker]()
	for i := range methods.NumMethod() {
		if name := methods.Method(i).Name; name != "Publish" {
			has = append(has, name)
		}
	}
	slices.Sort(documented)
	slices.Sort(has)
	if !slices.Equal(documented, has) {
		t.Errorf("documented: %q\nthere are:  %q", documented, has)
	}
}
