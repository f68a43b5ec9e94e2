package settle

import "testing"

func TestClip(t *testing.T) {
	for _, c := range []struct {
		s     string
		limit int
		want  string
	}{
		{"abc", 3, "abc"},
		{"abcd", 3, "…"},
		{"abcdefgh", 7, "abcd…"},
		{"ééééé", 8, "éé…"}, // never half a rune
		{"abcdef", 0, "…"},
	} {
		if got := clipTo(c.s, c.limit); got != c.want {
			t.Errorf("clipTo(%q, %d) = %q", c.s, c.limit, got)
		}
	}
}

func TestOneLine(t *testing.T) {
	for s, want := range map[string]string{
		"":                 "",
		"plain é 日本":       "plain é 日本",
		"a\nb\r\n\tc":      "a b c",
		"\x00\x01":         "",
		"a\xffb":           "ab",
		"tail\n":           "tail",
		"two  spaces stay": "two  spaces stay",
	} {
		if got := oneLine(s); got != want {
			t.Errorf("oneLine(%q) = %q", s, got)
		}
	}
}
