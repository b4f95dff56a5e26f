package model

import (
	"iter"
	"slices"
	"strings"
	"unicode"

	"google.golang.org/genai"
)

// LastUser returns the index of the newest content in which the user says
// something, and what: see SaidOf; -1 and "" when there is none. Tool results alone
// are not something the user says.
func (r *Request) LastUser() (int, string) {
	for i, c := range slices.Backward(r.Contents) {
		if c.Role != genai.RoleModel {
			if text := SaidOf(c); text != "" {
				return i, text
			}
		}
	}
	return -1, ""
}

// SystemText returns the system instruction, "" when there is none.
func (r *Request) SystemText() string { return TextOf(r.Config.SystemInstruction) }

// Functions returns the declared functions, in order.
func (r *Request) Functions() []*genai.FunctionDeclaration {
	var out []*genai.FunctionDeclaration
	for _, t := range r.Config.Tools {
		if t != nil {
			out = append(out, t.FunctionDeclarations...)
		}
	}
	return out
}

// Chosen are the functions that the choice of tools names: it is of no use to defer
// them.
func (r *Request) Chosen() []string {
	if tc := r.Config.ToolConfig; tc != nil && tc.FunctionCallingConfig != nil {
		return tc.FunctionCallingConfig.AllowedFunctionNames
	}
	return nil
}

// TextOf joins the texts of c that are no thoughts. c may be nil.
func TextOf(c *genai.Content) string {
	if c == nil {
		return ""
	}
	var b strings.Builder
	for _, p := range c.Parts {
		if p != nil && !p.Thought {
			b.WriteString(p.Text)
		}
	}
	return b.String()
}

// Words cuts text into words, each with the white space around it up to the
// next one; joined they are text. Models without a network stream like this.
func Words(text string) iter.Seq[string] {
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

// CountWords counts the words of the request's text. Models without a network
// report it as their prompt tokens.
func (r *Request) CountWords() int64 {
	n := words(r.SystemText())
	for _, c := range r.Contents {
		n += words(TextOf(c))
	}
	return n
}

func words(text string) (n int64) {
	for range strings.FieldsSeq(text) {
		n++
	}
	return n
}
