package settle

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The table of settings in docs/operations.md has the defaults that New fills in.
func TestDocumentedDefaults(t *testing.T) {
	documented := tableOf(t, "docs/operations.md", "## Settings")
	cfg := reflect.ValueOf(Config{}.withDefaults())
	for i := range cfg.NumField() {
		name := cfg.Type().Field(i).Name
		var want string
		switch v := cfg.Field(i).Interface().(type) {
		case time.Duration:
			want = strings.NewReplacer("1h0m0s", "1 h", "10s", "10 s", "30s", "30 s").Replace(v.String())
		case int:
			want = grouped(v)
		default:
			continue
		}
		if documented[name] != want {
			t.Errorf("%s: documented as %q, and is %q", name, documented[name], want)
		}
	}
}

// grouped writes a number as the documents do: in MiB where it is a whole number of those, else with commas.
func grouped(n int) string {
	const mib = 1 << 20
	switch {
	case n%mib == 0:
		return fmt.Sprintf("%d MiB", n/mib)
	case n >= 1000:
		return fmt.Sprintf("%d,%03d", n/1000, n%1000)
	}
	return fmt.Sprint(n)
}

// The table of headers in docs/guarantees.md has every header that copies and dead letters get; the marker's is on neither.
func TestDocumentedHeaders(t *testing.T) {
	text := section(t, "docs/guarantees.md", "## Retry and dead letters")
	for _, name := range []string{
		headerMessageID, headerCopyID, headerAttempt, headerTopic, headerNotBefore, headerDelay, headerReason, headerRoute, headerOwner,
		headerRetained, headerStub,
	} {
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("the header %s is not documented", name)
		}
	}
}

var tableRow = regexp.MustCompile("(?m)^\\| `([A-Za-z0-9]+)` \\| ([^|]+) \\|")

// tableOf is the second column of a section's tables by the name in the first.
func tableOf(t *testing.T, path, heading string) map[string]string {
	t.Helper()
	rows := make(map[string]string)
	for _, m := range tableRow.FindAllStringSubmatch(section(t, path, heading), -1) {
		rows[m[1]] = m[2]
	}
	return rows
}

func section(t *testing.T, path, heading string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "\n"+heading+"\n")
	if !ok {
		t.Fatalf("%s has no section %q", path, heading)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	return rest
}
