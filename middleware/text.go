package middleware

import "unicode/utf8"

// maxText bounds, in bytes, what is logged of a text that others have written: a message id or a cause may be as long as a packet.
const maxText = 512

// clip shortens a text to maxText, and keeps it UTF-8.
func clip(s string) string {
	if len(s) <= maxText {
		return s
	}
	end := maxText
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}
