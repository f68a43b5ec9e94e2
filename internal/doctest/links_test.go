package doctest

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
)

// Every relative link leads to a file, and to a heading of it where it names one.
func TestLinks(t *testing.T) {
	for _, d := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(d.text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			to, anchor, _ := strings.Cut(m[1], "#")
			target := d.path
			if to != "" {
				target = path.Join(path.Dir(d.path), to)
			}
			file := filepath.Join(root, target)
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: the link %s leads nowhere", d.path, m[1])
				continue
			}
			if anchor != "" && !anchors(read(t, file))[anchor] {
				t.Errorf("%s: %s has no heading for the link %s", d.path, target, m[1])
			}
		}
	}
}

// anchors are the names that GitHub gives the headings of a document.
func anchors(text string) map[string]bool {
	names := make(map[string]bool)
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		names[strings.Map(func(r rune) rune {
			switch {
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			case r == ' ':
				return '-'
			}
			return -1
		}, m[1])] = true
	}
	return names
}
