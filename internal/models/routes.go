package models

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/apzuk3/agentd/model"
)

// claimsNothing reports whether a provider serves only names "name/…", with keys of its own.
func claimsNothing(d model.Description) bool {
	return len(d.Names) == 0 && len(d.Prefixes) == 0 && !d.Rest && d.KeysOf == ""
}

// substitute is a provider that replaces another one, and takes over its models and its callers'
// keys.
type substitute struct {
	model.Provider
	replaced model.Description
}

// Describe implements Provider.
func (s substitute) Describe() model.Description {
	d := s.Provider.Describe()
	d.Names, d.Prefixes, d.Rest, d.KeysOf = s.replaced.Names, s.replaced.Prefixes, s.replaced.Rest, s.replaced.KeysOf
	return d // names with a slash too: where it calls may be anywhere
}

// Instead returns providers with others added. One of others replaces the provider of the same
// name, and takes over its models and keys if it claims neither. The result is for NewRegistry.
func Instead(providers, others []model.Provider) []model.Provider {
	out := slices.Clone(providers)
	for _, o := range others {
		about := o.Describe()
		at := slices.IndexFunc(out, func(p model.Provider) bool { return p.Describe().Name == about.Name })
		if at < 0 {
			out = append(out, o)
			continue
		}
		if claimsNothing(about) {
			o = substitute{o, out[at].Describe()}
		}
		out[at] = o
	}
	return out
}

// routes find the provider of a model name that does not name one.
type routes struct {
	names map[string]string
	// prefixes begin with the longest.
	prefixes []prefix
	rest     string
	plain    bool // the rest has no name with a slash
}

type prefix struct{ text, provider string }

// claim adds what a provider says that it serves.
func (r *routes) claim(provider string, d model.Description) error {
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
			return fmt.Errorf("model: providers %q and %q both claim models that begin with %q",
				r.prefixes[i].provider, provider, text)
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
	r.rest, r.plain = provider, d.Plain
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
	if r.plain && strings.Contains(model, "/") {
		return ""
	}
	return r.rest
}
