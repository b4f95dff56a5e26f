package terminal

import (
	"slices"

	"github.com/apzuk3/agentd/client"
)

// Permission is how it is put at a terminal whether a tool that runs may do something: an approval whose
// [client.Interaction].N is above 0.
type Permission struct {
	// Asks says who asks, and Text what; somebody else has written the text.
	Asks, Text string
	// Prompt ends with the answers that there are, each with its key in brackets, and Keys are those keys.
	Prompt string
	Keys   []string

	scopes map[string]string // by key
}

// scopes are how far an approval holds: the word, the key, and what is shown.
var scopes = []struct{ word, key, shown string }{
	{"session", "s", "this for the [s]ession"},
	{"session_verb", "v", "each command with this first word for it ([v])"},
	{"session_tool", "t", "all of this [t]ool for it"},
	{"always", "a", "this [a]lways"},
}

// PermissionOf returns how a question is put. The scopes that it offers are those of its choices.
func PermissionOf(i *client.Interaction) Permission {
	p := Permission{
		Asks: Line(i.ToolName, maxName) + " asks: ", Text: i.Question,
		Prompt: "Allow? [y]es, [n]o", Keys: []string{"y", "n"}, scopes: map[string]string{"y": "once"},
	}
	if i.Source != "" {
		p.Asks = "[" + Line(i.Source, maxName) + "] " + p.Asks
	}
	if p.Text == "" {
		p.Text = string(i.ToolInput)
	}
	for _, s := range scopes {
		if slices.Contains(i.Choices, s.word) {
			p.scopes[s.key] = s.word
			p.Prompt, p.Keys = p.Prompt+", "+s.shown, append(p.Keys, s.key)
		}
	}
	p.Prompt += ": "
	return p
}

// Said is what one of the keys says.
func (p *Permission) Said(key string) *client.Resolution {
	scope := p.scopes[key]
	if scope == "" {
		return client.Deny("")
	}
	return &client.Resolution{Kind: client.ResolutionApproval, Scope: scope}
}
