package adkbridge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/apzuk3/agentd/session"
)

// placeholder finds {key} in an instruction.
var placeholder = regexp.MustCompile(`\{+[^{}]*\}+`)

// segment is a piece of an instruction: text, or a key to put in its place.
type segment struct {
	text     string
	key      string
	optional bool
}

// parseInstruction splits a template. A placeholder is {key} or {key?}, where
// key is an identifier, perhaps after "app:", "user:" or "temp:"; any other
// braces are text.
func parseInstruction(text string) ([]segment, error) {
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

// instruct is what an agent's model is told: the server's text, the agent's own
// filled in from the state as it is now, the caller's text for this turn. It takes
// the place of ADK's templates, whose errors name neither key nor agent and which
// print objects and large numbers as Go does.
func (t *turn) instruct(n *node, branch string) (string, error) {
	own, err := t.ownInstruction(n, branch)
	if err != nil {
		return "", err
	}
	spec := t.run.Spec()
	layers := slices.DeleteFunc([]string{spec.Before, own, spec.After}, func(s string) bool { return strings.TrimSpace(s) == "" })
	return strings.Join(layers, "\n\n"), nil
}

func (t *turn) ownInstruction(n *node, branch string) (string, error) {
	var b strings.Builder
	t.mu.Lock()
	defer t.mu.Unlock()
	state := t.state
	if t.verifier != nil && t.verifier.recorder != nil {
		state = t.verifier.recorder.stateLocked(t, promptKey{n.name, branch})
	}
	for _, s := range n.instruction {
		if s.key == "" {
			b.WriteString(s.text)
			continue
		}
		v, ok := state[s.key]
		if !ok && !s.optional {
			return "", session.Errorf(codeTree, "%s: instruction: the state has no key %q; set it before this agent runs, or write {%s?}", n.at(), s.key, s.key)
		}
		b.WriteString(stateText(v))
	}
	return b.String(), nil
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
