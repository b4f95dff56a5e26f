package adkbridge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"unicode"
)

// placeholder finds the first {key} of an instruction from a place on, which is what
// \{+[^{}]*\}+ matches. It allocates nothing: there may be a key every three bytes.
func placeholder(text string, from int) (begin, end int, ok bool) {
	for {
		open := strings.IndexByte(text[from:], '{')
		if open < 0 {
			return 0, 0, false
		}
		begin = from + open
		inner := begin + runOf(text[begin:], '{')
		stop := strings.IndexAny(text[inner:], "{}")
		if stop < 0 {
			return 0, 0, false
		}
		if from = inner + stop; text[from] == '}' {
			return begin, from + runOf(text[from:], '}'), true
		}
	}
}

// runOf counts how often a byte repeats at the beginning of a text.
func runOf(text string, b byte) int {
	n := 0
	for n < len(text) && text[n] == b {
		n++
	}
	return n
}

// segment is a piece of an instruction: text, then a key to fill in.
type segment struct {
	text     string
	key      string
	optional bool
}

// maxInstructionKeys is how many keys one instruction may have, each counted once.
const maxInstructionKeys = 1000

// template is an instruction that is filled in from the state. It is immutable. Its
// segments are found again each time: those of a short text with many keys take far
// more than the text.
type template struct {
	source  string
	literal int            // bytes of text
	uses    map[string]int // how often each key occurs
}

// parseInstruction reads a template. A placeholder is {key} or {key?}, where
// key is an identifier, perhaps after "app:", "user:" or "temp:"; any other
// braces are text.
func parseInstruction(text string) (template, error) {
	out := template{source: text, uses: map[string]int{}}
	for s := range out.segments() {
		out.literal += len(s.text)
		if name, ok := strings.CutPrefix(s.key, artifactKey); ok {
			return template{}, fmt.Errorf("{artifact.%s}: there are no artifacts here, only keys of the state",
				cut(name, maxName))
		}
		if s.key == "" {
			continue
		}
		if out.uses[s.key]++; len(out.uses) > maxInstructionKeys {
			return template{}, fmt.Errorf("more than %d keys, which is how many are allowed", maxInstructionKeys)
		}
	}
	return out, nil
}

// artifactKey begins a key that ADK knows and that there is not here.
const artifactKey = "artifact."

// segments splits the template. A segment has a text, a key, or both; the text comes
// first.
func (t *template) segments() iter.Seq[segment] {
	return func(yield func(segment) bool) {
		text, from := t.source, 0 // from is where the next placeholder is looked for
		for {
			begin, end, ok := placeholder(text, from)
			if !ok {
				break
			}
			key := strings.TrimSpace(strings.Trim(text[begin:end], "{}"))
			key, optional := strings.CutSuffix(key, "?")
			if from = end; !placeholderKey(key) && !strings.HasPrefix(key, artifactKey) {
				continue
			}
			if !yield(segment{text: text[:begin], key: key, optional: optional}) {
				return
			}
			text, from = text[end:], 0
		}
		if text != "" {
			yield(segment{text: text})
		}
	}
}

// placeholderKey reports whether a placeholder may hold a key.
func placeholderKey(key string) bool {
	if scope, rest, ok := strings.Cut(key, ":"); ok {
		switch scope {
		case "app", "user", "temp":
			key = rest
		default:
			return false
		}
	}
	for i, r := range key {
		if !unicode.IsLetter(r) && r != '_' && (i == 0 || !unicode.IsDigit(r)) {
			return false
		}
	}
	return key != ""
}

// stateText returns a value as a model reads it: text as it is, nothing for null, else
// JSON.
func stateText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
