package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
)

// A prompt has to fit on a screen, whatever a model has written: what is asked must
// not scroll away, and must not look like another prompt.
const (
	// maxHead and maxTail are how many characters of arguments are shown at least,
	// from their beginning and their end.
	maxHead, maxTail = 800, 400
	// maxName bounds the name of an agent or a tool, and a choice.
	maxName = 200
	// maxQuestion and maxQuestionLines bound a question's text.
	maxQuestion, maxQuestionLines = 2000, 16
)

// visible is the JSON of a call's arguments on one line. Characters that do not
// print are escaped as JSON escapes them: nothing is hidden, and the text still is
// the same JSON.
func visible(arguments string) string {
	var b bytes.Buffer
	if json.Compact(&b, []byte(arguments)) == nil {
		arguments = b.String()
	}
	return Visible(arguments)
}

// Visible is a text with each of its characters: those that do not print, ends of lines too, are escaped as in JSON.
func Visible(text string) string {
	var out strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) {
			out.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&out, `\u%04x`, unit)
		}
	}
	return out.String()
}

// middle leaves out the middle of a long text, and returns how many characters
// that are.
func middle(text string) (shown string, left int) {
	r := []rune(text)
	if len(r) <= maxHead+maxTail {
		return text, 0
	}
	return string(r[:maxHead]) + " […] " + string(r[len(r)-maxTail:]), len(r) - maxHead - maxTail
}

func characters(n int) string {
	if n == 1 {
		return "1 character"
	}
	return strconv.Itoa(n) + " characters"
}

// indented is a question's text, whose later lines are moved in. What is too long
// is cut.
func indented(text string) string {
	var lines []string
	for l := range strings.Lines(Clean(text)) {
		if l = strings.TrimSpace(l); l != "" {
			lines = append(lines, l)
		}
	}
	if len(lines) > maxQuestionLines {
		lines = append(lines[:maxQuestionLines], "…")
	}
	r := []rune(strings.Join(lines, "\n    "))
	if len(r) > maxQuestion {
		r = append(r[:maxQuestion], '…')
	}
	return string(r)
}
