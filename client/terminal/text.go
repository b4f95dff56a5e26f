package terminal

import (
	"strings"
	"unicode"
)

// Clean is text without the control characters that drive a terminal: what a model has
// written cannot move the cursor, hide text or turn its direction. Line ends and tabs
// stay.
func Clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) ||
			r == '\u2028' || r == '\u2029' || r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069') {
			return -1
		}
		return r
	}, text)
}

// Line is Clean on one line, cut to so many characters.
func Line(text string, limit int) string {
	text = strings.Join(strings.Fields(Clean(text)), " ")
	if r := []rune(text); len(r) > limit {
		return string(r[:limit-1]) + "…"
	}
	return text
}
