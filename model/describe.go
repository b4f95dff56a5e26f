package model

import (
	"cmp"
	"fmt"
	"net/textproto"
	"slices"
	"strings"
)

// Described is a Provider that says more of itself than its name.
type Described interface {
	Provider
	// Describe says it; always the same.
	Describe() Description
}

// Description is what a provider says of itself; the zero value is a provider
// whose models are "name/…" alone, with keys of its own.
type Description struct {
	// Names are names of models that it serves without its own name before them,
	// and Prefixes what such names may begin with. Of two prefixes that fit a name
	// the longer one counts. No two providers may claim the same.
	Names, Prefixes []string
	// Rest is true for the provider of all names that nobody claims. There is at
	// most one.
	Rest bool
	// KeysOf is the provider whose callers' keys it takes, because both belong to
	// one vendor; "" means that it has keys of its own.
	KeysOf string
}

// describe returns what a provider says of itself.
func describe(p Provider) Description {
	if d, ok := p.(Described); ok {
		return d.Describe()
	}
	return Description{}
}

// KeyHeader is the request header in which callers bring their own key for a
// provider: X-Agentd-Acme-Api-Key.
func KeyHeader(provider string) string {
	return textproto.CanonicalMIMEHeaderKey("X-Agentd-" + provider + "-Api-Key")
}

// standIn is a provider in the place of another one, of which it has what it does
// not say of itself.
type standIn struct {
	Provider
	as Description
}

// Instead returns providers with others added, which take the place of those of
// the same name. One that is no Described is described as the one whose place it
// takes. The result is for NewRegistry.
func Instead(providers, others []Provider) []Provider {
	out := slices.Clone(providers)
	for _, o := range others {
		at := slices.IndexFunc(out, func(p Provider) bool { return p.Name() == o.Name() })
		if at < 0 {
			out = append(out, o)
			continue
		}
		before := describe(out[at])
		if s, ok := out[at].(standIn); ok {
			before = s.as
		}
		if _, ok := o.(Described); !ok {
			o = standIn{o, before}
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
