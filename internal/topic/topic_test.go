package topic

import (
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestValidate(t *testing.T) {
	long := strings.Repeat("a", 65_535)
	for _, c := range []struct {
		s                    string
		topic, filter, group bool
	}{
		{"", false, false, false},
		{"a", true, true, true},
		{"/", true, true, false},
		{"a/b", true, true, false},
		{"a//b", true, true, false},
		{"/a/", true, true, false},
		{" ", true, true, true},
		{"$SYS/uptime", true, true, false},
		{"é/日本", true, true, false},
		{"#", false, true, false},
		{"+", false, true, false},
		{"+/+", false, true, false},
		{"a/#", false, true, false},
		{"a/+/b", false, true, false},
		{"/#", false, true, false},
		{"a#", false, false, false},
		{"#a", false, false, false},
		{"a/#/b", false, false, false},
		{"#/", false, false, false},
		{"##", false, false, false},
		{"a+", false, false, false},
		{"+a/b", false, false, false},
		{"++", false, false, false},
		{"+#", false, false, false},
		{"a\x00b", false, false, false},
		{"a\xffb", false, false, false},
		{"\xed\xa0\x80", false, false, false}, // a surrogate, U+D800
		{long, true, true, true},
		{long + "a", false, false, false},
	} {
		for _, v := range []struct {
			name  string
			check func(string) error
			want  bool
		}{
			{"ValidateTopic", ValidateTopic, c.topic},
			{"ValidateFilter", ValidateFilter, c.filter},
			{"ValidateGroup", ValidateGroup, c.group},
		} {
			err := v.check(c.s)
			if (err == nil) != v.want {
				t.Errorf("%s(%.20q): %v", v.name, c.s, err)
			}
			if err != nil && strings.Contains(err.Error(), long) {
				t.Errorf("%s: the error repeats a name of 65,535 bytes", v.name)
			}
		}
	}
	if err := ValidateString(""); err != nil {
		t.Errorf("ValidateString(\"\"): %v", err)
	}
}

var matches = []struct {
	filter, topic string
	want          bool
}{
	{"a", "a", true},
	{"a", "b", false},
	{"a", "a/", false},
	{"a/", "a", false},
	{"a/b", "a", false},
	{"a", "a/b", false},
	{"A", "a", false},
	{"#", "a", true},
	{"#", "a/b/c", true},
	{"#", "/", true},
	{"+", "a", true},
	{"+", "a/b", false},
	{"+", "/a", false},
	{"+/+", "/a", true},
	{"/+", "/a", true},
	{"+/", "a/", true},
	{"+/", "a", false},
	{"a/+", "a", false},
	{"a/+", "a/", true},
	{"a/+", "a/b", true},
	{"a/+", "a/b/c", false},
	{"a/+/c", "a/b/c", true},
	{"a/+/c", "a//c", true},
	{"a/#", "a", true},
	{"a/#", "a/", true},
	{"a/#", "a/b/c", true},
	{"a/#", "ab", false},
	{"a/+/#", "a", false},
	{"a/+/#", "a/b", true},
	{"+/#", "a", true},
	{"+/b/#", "a/b/c/d", true},
	{"#", "$SYS/a", false},
	{"+/a", "$SYS/a", false},
	{"+/#", "$SYS", false},
	{"$SYS/#", "$SYS/a", true},
	{"$SYS/#", "$SYS", true},
	{"$SYS/+", "$SYS/a", true},
	{"a/+", "a/$b", true},
	{"a/#", "a/$b", true},
	{"#", "/$b", true},
}

func TestMatch(t *testing.T) {
	for _, c := range matches {
		if got := Match(c.filter, c.topic); got != c.want {
			t.Errorf("Match(%q, %q) = %v", c.filter, c.topic, got)
		}
		var trie Trie[int]
		trie.Insert(c.filter, 1)
		got := 0
		trie.Match(c.topic, func(int) { got++ })
		if got > 1 || got == 1 != c.want {
			t.Errorf("a trie of %q yields %d values for %q", c.filter, got, c.topic)
		}
	}
}

func TestLevel(t *testing.T) {
	for _, c := range []struct {
		topic string
		i     int
		want  string
	}{
		{"meters/42/usage", 0, "meters"},
		{"meters/42/usage", 1, "42"},
		{"meters/42/usage", 2, "usage"},
		{"meters/42/usage", 3, ""},
		{"meters/42/usage", -1, ""},
		{"/a", 0, ""},
		{"/a", 1, "a"},
		{"a//b", 1, ""},
		{"a//b", 2, "b"},
		{"", 0, ""},
	} {
		if got := Level(c.topic, c.i); got != c.want {
			t.Errorf("Level(%q, %d) = %q, want %q", c.topic, c.i, got, c.want)
		}
	}
}

func TestShared(t *testing.T) {
	if got := Shared("", "a/#"); got != "a/#" {
		t.Error(got)
	}
	if got := Shared("g", "a/#"); got != "$share/g/a/#" {
		t.Error(got)
	}
}

// A server keeps the identifier that a message was queued with: these numbers can never change.
func TestIDIsStable(t *testing.T) {
	for _, c := range []struct {
		group, filter string
		want          uint32
	}{
		{"", "meters/+/usage", 146_875_840},
		{"", "meters/+/power", 197_762_773},
		{"billing", "meters/+/frame", 218_797_977},
		{"", "#", 242_664_822},
		{"a", "b", 15_969_235},
		{"", "ab", 60_567_340},
	} {
		if got := ID(c.group, c.filter); got != c.want {
			t.Errorf("ID(%q, %q) = %d, want %d: a backlog of an earlier release would go to another route", c.group, c.filter, got, c.want)
		}
	}
	if ID("a", "b") == ID("", "ab") || ID("a", "b") == ID("ab", "") {
		t.Error("group and filter run into each other")
	}
}
