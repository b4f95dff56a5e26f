package model

import (
	"cmp"
	"fmt"
	"net/textproto"
	"slices"
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
	return KeyHeader(cmp.Or(d.KeysOf, d.Name))
}

// KeyHeader is the request header in which callers bring their own key for a
// provider: X-Agentd-Acme-Api-Key.
func KeyHeader(provider string) string {
	return textproto.CanonicalMIMEHeaderKey("X-Agentd-" + provider + "-Api-Key")
}

// claimsNothing tells whether the provider serves no names but "name/…", with keys of
// its own.
func (d Description) claimsNothing() bool {
	return len(d.Names) == 0 && len(d.Prefixes) == 0 && !d.Rest && d.KeysOf == ""
}

// standIn is a provider in the place of another one, whose models and callers' keys
// it takes.
type standIn struct {
	Provider
	before Description // of the other one
}

// Describe implements Provider.
func (s standIn) Describe() Description {
	d := s.Provider.Describe()
	d.Names, d.Prefixes, d.Rest, d.KeysOf = s.before.Names, s.before.Prefixes, s.before.Rest, s.before.KeysOf
	return d
}

// Instead returns providers with others added, which take the place of those of
// the same name. One that claims no models, and no other provider's keys, takes over
// what the one has whose place it takes. The result is for NewRegistry.
func Instead(providers, others []Provider) []Provider {
	out := slices.Clone(providers)
	for _, o := range others {
		about := o.Describe()
		at := slices.IndexFunc(out, func(p Provider) bool { return p.Describe().Name == about.Name })
		if at < 0 {
			out = append(out, o)
			continue
		}
		if about.claimsNothing() {
			o = standIn{o, out[at].Describe()}
		}
		out[at] = o
	}
	return out
}

// routes are the ways from model names without a provider to providers.
type routes struct {
	names map[string]string
	// prefixes are the longest first.
	prefixes []prefix
	rest     string
}

type prefix struct{ text, provider string }

// claim enters what a provider says that it serves.
func (r *routes) claim(provider string, d Description) error {
	for _, n := range d.Names {
		if other, ok := r.names[n]; ok {
			return fmt.Errorf("model: providers %q and %q both claim the model %q", other, provider, n)
		}
		r.names[n] = provider
	}
	for _, text := range d.Prefixes {
		if text == "" {
			return fmt.Errorf("model: provider %q claims an empty prefix, which is what Rest is for", provider)
		}
		if i := slices.IndexFunc(r.prefixes, func(p prefix) bool { return p.text == text }); i >= 0 {
			return fmt.Errorf("model: providers %q and %q both claim models that begin with %q", r.prefixes[i].provider, provider, text)
		}
		r.prefixes = append(r.prefixes, prefix{text, provider})
	}
	slices.SortFunc(r.prefixes, func(a, b prefix) int {
		return cmp.Or(cmp.Compare(len(b.text), len(a.text)), cmp.Compare(a.text, b.text))
	})
	if !d.Rest {
		return nil
	}
	if r.rest != "" {
		return fmt.Errorf("model: providers %q and %q both claim the models that nobody else does", r.rest, provider)
	}
	r.rest = provider
	return nil
}

// of returns the provider of a model name, "" for none.
func (r *routes) of(model string) string {
	if p, ok := r.names[model]; ok {
		return p
	}
	for _, p := range r.prefixes {
		if strings.HasPrefix(model, p.text) {
			return p.provider
		}
	}
	return r.rest
}
