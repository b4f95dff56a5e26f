// Package words puts conversations into words, for models without a network and for models that do
// not take a file.
//
// It knows the common form of content and no provider.
package words

import (
	"iter"
	"slices"
	"strings"
	"unicode"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
)

// LastUser returns the index of the newest content in which the user says something, and what:
// see Said; -1 and "" when there is none. Tool results alone are not something the user says.
func LastUser(req *model.Request) (int, string) {
	for i, c := range slices.Backward(req.Contents) {
		if c.Role != genai.RoleModel {
			if text := Said(c); text != "" {
				return i, text
			}
		}
	}
	return -1, ""
}

// Count counts the words of a request's text. Models without a network report it as their prompt
// tokens.
func Count(req *model.Request) int64 {
	n := count(adapter.Text(req.Config.SystemInstruction))
	for _, c := range req.Contents {
		n += count(adapter.Text(c))
	}
	return n
}

func count(text string) (n int64) {
	for range strings.FieldsSeq(text) {
		n++
	}
	return n
}

// Split cuts text into words, each with the white space around it up to the
// next one; joined they are text. Models without a network stream like this.
func Split(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		start, inWord, gap := 0, false, false
		for i, r := range text {
			space := unicode.IsSpace(r)
			if !space && gap && inWord {
				if !yield(text[start:i]) {
					return
				}
				start = i
			}
			inWord = inWord || !space
			gap = space
		}
		if start < len(text) {
			yield(text[start:])
		}
	}
}
