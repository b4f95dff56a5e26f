package models

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/apzuk3/agentd/internal/models/catalog"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
)

// tokens returns the counts of u such that none is part of another one.
func tokens(u model.Usage) catalog.Tokens {
	u = u.Normal()
	hour := seam.CacheWriteHour(u)
	return catalog.Tokens{
		Input: max(u.Prompt-u.Cached-u.CacheWrite, 0), Cached: u.Cached,
		CacheWrite: u.CacheWrite - hour, CacheWriteHour: hour,
		Output: u.Completion - u.Thoughts, Thinking: u.Thoughts,
	}
}

// Knowledge is what the server knows of a model: what its calls cost, and what it can do.
type Knowledge struct {
	// Entry is the model's entry in the registry's table. Its Price is one of zeros if calls cost
	// nothing.
	catalog.Entry
}

// Cost returns the price of a call of usage u in billionths of a US dollar; known is
// false when Price is nil.
func (k Knowledge) Cost(u model.Usage) (nanos int64, known bool) {
	if k.Price == nil {
		return 0, false
	}
	return k.Price.Cost(tokens(u)), true
}

// PricesDate returns the day of the prices of the registry's table, YYYY-MM-DD; an entry may have a
// day of its own.
func (r *Registry) PricesDate() string { return r.table.Date }

// Knows returns what the server knows of a model of a provider, both as Route returns them.
func (r *Registry) Knows(provider, model string) Knowledge {
	k, d := Knowledge{Entry: r.table.Find(provider, model)}, r.about[provider]
	if d.ModelsOf != "" {
		k.Entry = k.Or(r.table.Find(d.ModelsOf, model))
	}
	if d.Free {
		k.Price, k.Date = &catalog.Price{}, ""
	}
	return k
}

// WithCatalog returns the registry with a table that overrides its own one. Each provider in the
// table must be one of the registry's, or one whose models these serve.
func (r *Registry) WithCatalog(over *catalog.Table) (*Registry, error) {
	var known []string
	for name, about := range r.about {
		known = append(known, name, cmp.Or(about.ModelsOf, name))
	}
	slices.Sort(known)
	known = slices.Compact(known)
	for _, name := range over.Providers() {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf(
				"model: the price table speaks of provider %q, which this server does not have; it has: %s",
				name, strings.Join(known, ", "))
		}
	}
	out := *r
	out.table, out.own = r.table.With(over), r.own.With(over)
	return &out, nil
}

// families returns the families of a provider that exist for certain.
func (r *Registry) families(provider string) []string {
	if r.about[provider].Unlisted {
		return r.own.Families(provider)
	}
	return r.table.Families(provider)
}

// ownCatalogs returns the built-in table with the catalogs of the providers over it.
func ownCatalogs(abouts map[string]model.Description) (*catalog.Table, error) {
	table := catalog.Builtin()
	for name, about := range abouts {
		if about.Catalog == "" {
			continue
		}
		own, err := catalog.Parse(name, []byte(about.Catalog))
		if err != nil {
			return nil, fmt.Errorf("model: the catalog of provider %q: %w", name, err)
		}
		if names := own.Providers(); !slices.Equal(names, []string{name}) {
			return nil, fmt.Errorf("model: the catalog of provider %q speaks of %q; it may speak of itself alone",
				name, names)
		}
		table = table.With(own)
	}
	return table, nil
}
