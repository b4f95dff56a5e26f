package adkbridge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"unicode"
)

// placeholder finds {key} in an instruction.
var placeholder = regexp.MustCompile(`\{+[^{}]*\}+`)

// segment is a piece of an instruction: text, or a key to put in its place.
type segment struct {
	text     string
	key      string
	optional bool
}

// template is an instruction that is filled in from the state. It is immutable.
type template struct {
	segments []segment
	literal  int            // bytes of text
	uses     map[string]int // how often each key stands in it
}

// parseInstruction reads a template. A placeholder is {key} or {key?}, where
// key is an identifier, perhaps after "app:", "user:" or "temp:"; any other
// braces are text.
func parseInstruction(text string) (template, error) {
	segments, err := segmentsOf(text)
	out := template{segments: segments, uses: map[string]int{}}
	for _, s := range segments {
		if s.key != "" {
			out.uses[s.key]++
		}
		out.literal += len(s.text)
	}
	return out, err
}

// segmentsOf splits a template.
func segmentsOf(text string) ([]segment, error) {
	var out []segment
	last := 0
	for _, m := range placeholder.FindAllStringIndex(text, -1) {
		key := strings.TrimSpace(strings.Trim(text[m[0]:m[1]], "{}"))
		key, optional := strings.CutSuffix(key, "?")
		if name, ok := strings.CutPrefix(key, "artifact."); ok {
			return nil, fmt.Errorf("{artifact.%s}: there are no artifacts here, only keys of the state", cut(name, maxName))
		}
		if !placeholderKey(key) {
			continue
		}
		out = append(out, segment{text: text[last:m[0]]}, segment{key: key, optional: optional})
		last = m[1]
	}
	if last < len(text) {
		out = append(out, segment{text: text[last:]})
	}
	return out, nil
}

// placeholderKey tells whether a key can stand in a placeholder.
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

// stateText is a value as a model reads it: text as it is, nothing for null,
// JSON for all else.
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
