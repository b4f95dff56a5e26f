package models

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/apzuk3/agentd/internal/models/catalog"
	"github.com/apzuk3/agentd/model"
)

// Terms are on which a tenant is served, in place of the server's own.
type Terms struct {
	// Keys are its own keys by provider.
	Keys map[string]string
	// Providers replace those of the same names: they serve the same models at other addresses.
	Providers []model.Provider
	// OwnKeys keeps the server's keys from it. Without, it has those of the providers for which it has neither a key
	// nor an address.
	OwnKeys bool
	// Allowed are the names of models that it may use, in which * is any text; nil is all of them.
	Allowed []string
	// Prices are laid over the server's; may be nil.
	Prices *catalog.Table
}

// terms are Terms as a registry keeps them.
type terms struct {
	keys    map[string]string
	moved   map[string]bool // providers at an address of the tenant's
	ownKeys bool
	bound   bool // only what is allowed may be used
	allowed []allowed
}

// allowed is a name of models, in which * is any text.
type allowed struct {
	text  string
	regex *regexp.Regexp
}

// On returns the registry as it serves a tenant.
func (r *Registry) On(t Terms) (*Registry, error) {
	out := *r
	if t.Prices != nil {
		priced, err := r.WithCatalog(t.Prices)
		if err != nil {
			return nil, err
		}
		out = *priced
	}
	out.terms = terms{keys: t.Keys, moved: map[string]bool{}, ownKeys: t.OwnKeys, bound: t.Allowed != nil}
	if len(t.Providers) > 0 {
		out.providers, out.about = maps.Clone(r.providers), maps.Clone(r.about)
	}
	for _, p := range t.Providers {
		about := p.Describe()
		out.providers[about.Name], out.about[about.Name], out.terms.moved[about.Name] = p, about, true
	}
	for _, text := range t.Allowed {
		regex, err := regexp.Compile("^" + strings.ReplaceAll(regexp.QuoteMeta(text), `\*`, ".*") + "$")
		if err != nil {
			return nil, fmt.Errorf("model: %q names no models: %w", text, err)
		}
		out.terms.allowed = append(out.terms.allowed, allowed{text, regex})
	}
	return &out, nil
}

// NotAllowedError is the error of Resolve for a model that the tenant may not use.
type NotAllowedError struct {
	// Allowed are the names of those that it may use.
	Allowed []string
}

// maxNamed bounds the names in an error.
const maxNamed = 20

// Error names what is allowed.
func (e *NotAllowedError) Error() string {
	if len(e.Allowed) == 0 {
		return "the tenant may use no model"
	}
	text := "the tenant may not use it, it may use " + strings.Join(e.Allowed[:min(len(e.Allowed), maxNamed)], ", ")
	if more := len(e.Allowed) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// allows refuses a model that the tenant may not use. A name without a provider is that of the model that has it here.
func (r *Registry) allows(provider, id string) error {
	if !r.terms.bound {
		return nil
	}
	names := []string{provider + "/" + id}
	if to, same, err := r.Route(id); err == nil && to == provider && same == id {
		names = append(names, id)
	}
	e := &NotAllowedError{}
	for _, a := range r.terms.allowed {
		if slices.ContainsFunc(names, a.regex.MatchString) {
			return nil
		}
		e.Allowed = append(e.Allowed, a.text)
	}
	return e
}

// allowsSome reports whether the tenant may use any model of a provider.
func (r *Registry) allowsSome(provider string) bool {
	if !r.terms.bound {
		return true
	}
	about := r.about[provider]
	return slices.ContainsFunc(r.terms.allowed, func(a allowed) bool {
		begin, _, open := strings.Cut(a.text, "*")
		if before, _, ok := strings.Cut(begin, "/"); ok && r.providers[before] != nil {
			return before == provider
		}
		to, _, err := r.Route(cmp.Or(begin, "*"))
		begins := func(name string) bool { return strings.HasPrefix(name, begin) }
		return err == nil && to == provider || open && (begins(provider+"/") ||
			slices.ContainsFunc(about.Prefixes, begins) || slices.ContainsFunc(about.Names, begins))
	})
}

// allowedNames returns the models of a provider that the tenant's terms name one by one.
func (r *Registry) allowedNames(provider string) []string {
	var out []string
	for _, a := range r.terms.allowed {
		if to, id, err := r.Route(a.text); err == nil && to == provider {
			out = append(out, id)
		}
	}
	return out
}

// HasTenantKeys reports whether the tenant has keys of its own.
func (r *Registry) HasTenantKeys() bool { return len(r.terms.keys) > 0 }

// keyFor returns the tenant's own key for a provider, and whether it may use the server's, which is "" here.
func (r *Registry) keyFor(provider string) (key string, servers bool) {
	of := r.about[provider].KeysOf
	key = cmp.Or(r.terms.keys[provider], r.terms.keys[of])
	return key, key == "" && !r.terms.ownKeys && !r.terms.moved[provider]
}

// noKey returns the error of a provider for which the tenant has no key.
func (r *Registry) noKey(provider string) *model.Error {
	return &model.Error{Kind: model.KindAuth, Provider: provider,
		Message: "no API key: the tenant has none of its own, and may not use the server's: send the header " +
			r.about[provider].KeyHeader()}
}
