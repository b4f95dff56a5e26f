// Package keytext hides agentd's own API keys and tokens in texts: a caller may paste one where a name belongs, and a
// provider may repeat one. It knows what they look like, and imports the standard library alone.
package keytext

import "strings"

// begins are the beginnings of keys and tokens. An id follows, which is no secret, and then, behind a '_', the secret.
var begins = []string{"agentd_key_", "agentd_token_"}

const hidden = "***"

// Hide returns the text without what looks like the secret of a key or a token of agentd; the id stays.
func Hide(text string) string {
	for _, begin := range begins {
		if strings.Contains(text, begin) {
			text = hide(text, begin)
		}
	}
	return text
}

func hide(text, begin string) string {
	var out strings.Builder
	for {
		before, after, found := strings.Cut(text, begin)
		out.WriteString(before)
		if !found {
			return out.String()
		}
		out.WriteString(begin)
		n := strings.IndexFunc(after, func(r rune) bool { return !isKey(r) })
		if n < 0 {
			n = len(after)
		}
		id, secret, has := strings.Cut(after[:n], "_")
		switch {
		case has && secret != "":
			out.WriteString(id + "_" + hidden)
		case len(id) > longestID: // a key that was cut, or of another form
			out.WriteString(hidden)
		default:
			out.WriteString(after[:n])
		}
		text = after[n:]
	}
}

// longestID is the length of the longest id of a key.
const longestID = 12

func isKey(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_'
}
