package settle

import (
	"strings"
	"unicode"
)

// clip shortens what a peer or a user wrote, so that an error stays one readable line.
func clip(s string) string { return clipTo(s, 128) }

// clipTo shortens s to at most limit bytes, and says that it did.
func clipTo(s string, limit int) string {
	const more = "…"
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:max(limit-len(more), 0)], "") + more
}

// oneLine makes every run of control characters a space and takes out what is not UTF-8, so that a text is fit for a
// log line and for a user property.
func oneLine(s string) string {
	if !strings.ContainsFunc(s, unfit) {
		return s
	}
	return strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, ""), unicode.IsControl), " ")
}

func unfit(r rune) bool { return r == unicode.ReplacementChar || unicode.IsControl(r) }
