package permit

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
)

// rule is `tool:glob` or `glob`.
type rule struct {
	text   string
	tool   string // "": all
	glob   string
	exact  bool   // glob is the text itself, in plain
	plain  string // of exact, and of prefix without the star
	prefix bool
}

var toolOfRule = regexp.MustCompile(`(?s)^([a-z][a-z0-9_]*):(.*)$`)

func parseRule(text string) (rule, error) {
	r := rule{text: text, glob: text}
	if m := toolOfRule.FindStringSubmatch(text); m != nil && !strings.HasPrefix(m[2], "//") {
		r.tool, r.glob = m[1], m[2]
	}
	if r.glob == "" {
		return r, fmt.Errorf("the rule %q has no glob: tool:* is all of a tool", text)
	}
	if _, err := filepath.Match(r.glob, ""); err != nil {
		return r, fmt.Errorf("the rule %q is malformed: want * ? [a-z], and \\ before these where they mean themselves", text)
	}
	body, star := strings.CutSuffix(r.glob, "*")
	plain, special := unescape(r.glob)
	switch {
	case !special:
		r.exact, r.plain = true, plain
	case star:
		if plain, special = unescape(body); !special && !strings.HasSuffix(body, `\`) {
			r.prefix, r.plain = true, plain
		}
	}
	return r, nil
}

func parseRules(key string, texts []string) ([]rule, error) {
	var out []rule
	for i, text := range texts {
		r, err := parseRule(text)
		if err != nil {
			return nil, fmt.Errorf("permissions.%s[%d]: %w", key, i, err)
		}
		out = append(out, r)
	}
	return out, nil
}

// unescape returns a glob without its backslashes, and whether it has special characters.
func unescape(glob string) (plain string, special bool) {
	var b strings.Builder
	for i := 0; i < len(glob); i++ {
		switch c := glob[i]; {
		case c == '\\' && i+1 < len(glob):
			i++
			b.WriteByte(glob[i])
		case c == '*', c == '?', c == '[':
			return "", true
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), false
}

// escape returns the glob that is exactly a text.
func escape(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(text)
}

// matches reports whether the glob matches a text.
func (r *rule) matches(text string) bool {
	switch {
	case r.exact:
		return r.plain == text
	case r.prefix:
		return strings.HasPrefix(text, r.plain)
	default:
		ok, _ := filepath.Match(r.glob, text)
		return ok
	}
}

// isFor reports whether the rule is for a tool.
func (r *rule) isFor(tool string) bool { return r.tool == "" || r.tool == tool }

// any reports whether the rule matches one of the texts.
func (r *rule) any(texts []string) bool {
	for _, text := range texts {
		if r.matches(text) {
			return true
		}
	}
	return false
}
