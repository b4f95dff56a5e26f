package wiretap

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Forms returns the ways in which a secret may appear in a text: as it is, and escaped for JSON, Go
// or a URL.
func Forms(secret string) []string {
	if secret == "" {
		return nil
	}
	escaped := func(s string) string { q := strconv.Quote(s); return q[1 : len(q)-1] }
	out := []string{secret, escaped(secret), url.QueryEscape(secret), url.PathEscape(secret)}
	for _, marshal := range []func(any) ([]byte, error){json.Marshal, marshalPlain} {
		if b, err := marshal(secret); err == nil {
			text := string(b[1 : len(b)-1])
			out = append(out, escaped(text), text)
		}
	}
	// The longest first: a form may be part of another one.
	slices.SortFunc(out, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return slices.Compact(out)
}

// maxRedacted bounds what Redact leaves of a text, in bytes.
const maxRedacted = 1 << 10

// Redact returns text fit for an error message: it replaces the secrets, escaped or not, and
// everything that looks like a provider's key, turns control characters and line ends into spaces,
// and cuts the text to 1 KiB.
func Redact(text string, secrets ...string) string {
	for _, s := range secrets {
		for _, form := range Forms(s) {
			text = strings.ReplaceAll(text, form, "[redacted]")
		}
	}
	fields := strings.FieldsFunc(strings.ToValidUTF8(text, "\uFFFD"), func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	})
	for i, f := range fields {
		fields[i] = Keys(f)
	}
	text = strings.Join(fields, " ")
	if len(text) > maxRedacted {
		cut := maxRedacted
		for cut > 0 && !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut] + "…"
	}
	return text
}

// keyPrefixes are the beginnings of providers' keys.
var keyPrefixes = []string{"sk-", "AIza", "ya29.", "AQ."}

// Keys replaces each run of key characters in word that begins like a key. Providers repeat a wrong
// key in their response, in part or whole.
func Keys(word string) string {
	for _, prefix := range keyPrefixes {
		i := strings.Index(word, prefix)
		if i < 0 || i > 0 && isKeyChar(word[i-1]) {
			continue
		}
		end := i + len(prefix)
		for end < len(word) && isKeyChar(word[end]) {
			end++
		}
		if end-i >= len(prefix)+8 {
			word = word[:i] + "[redacted]" + Keys(word[end:])
		}
	}
	return word
}

// isKeyChar reports whether c occurs in keys, or in place of hidden parts of one.
func isKeyChar(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.' ||
		c == '*'
}

// marshalPlain is json.Marshal without the escapes for HTML.
func marshalPlain(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
