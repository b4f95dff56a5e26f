package model

import (
	"cmp"
	"net/textproto"
	"strings"
)

// Description is what a provider says of itself. With a Name alone it is a provider
// whose models are "name/…", which has keys of its own and no tools, and of whose
// prices nothing is known.
type Description struct {
	// Name is what stands before the slash in "provider/model", and the name of the
	// provider's key in the caller's keys. Neither empty nor with a slash.
	Name string

	// Names are names of models that it serves without its own name before them,
	// and Prefixes what such names may begin with. Of two prefixes that fit a name
	// the longer one counts. No two providers may claim the same.
	Names, Prefixes []string
	// Rest is true for the provider of all names that nobody claims. There is at
	// most one.
	Rest bool
	// Models are names that Open accepts, sorted, as far as the provider knows them
	// without asking a network; it may serve others. They may change from one Describe to
	// the next.
	Models []string

	// Keyless is true for a provider that needs no key at all.
	Keyless bool
	// KeysOf is the provider whose callers' keys it takes, because both belong to
	// one vendor; "" means that it has keys of its own.
	KeysOf string
	// KeyVariables are the environment variables that hold the server's own key, by
	// convention NAME_API_KEY. Messages name them; nobody reads them but the provider.
	KeyVariables []string
	// Secrets are what may stand in no log line and in no record of model calls: the
	// server's own keys.
	Secrets []Secret
	// Endpoint is the URL that calls go to, for the log, which leaves out the user and
	// the query of a URL; "" for a provider without a network.
	Endpoint string

	// Builtins are the builtin tools that the provider itself runs, such as
	// "google_search"; Config then asks for them with genai's own tool fields. A Model
	// may have fewer or others.
	Builtins []string
	// Billing is what the provider knows of its models: prices and abilities.
	Billing Billing
}

// Secret is a text that prints as "***".
type Secret string

// hidden is how a Secret prints.
const hidden = "***"

// Secrets are the texts as secrets, without blank ones and without the blanks around
// them.
func Secrets(texts ...string) []Secret {
	var out []Secret
	for _, text := range texts {
		if text = strings.TrimSpace(text); text != "" {
			out = append(out, Secret(text))
		}
	}
	return out
}

// String does not tell the text.
func (Secret) String() string { return hidden }

// GoString does as String.
func (Secret) GoString() string { return hidden }

// MarshalText does as String.
func (Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// KeyHeader is the request header in which callers bring their own key for the
// provider: X-Agentd-Acme-Api-Key; "" if it needs none.
func (d Description) KeyHeader() string {
	if d.Keyless {
		return ""
	}
	return textproto.CanonicalMIMEHeaderKey("X-Agentd-" + cmp.Or(d.KeysOf, d.Name) + "-Api-Key")
}
