package models

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/models/catalog"
	"github.com/apzuk3/agentd/model"
)

// maxNameLen bounds a model name, in bytes.
const maxNameLen = 256

// ErrNoProvider is the cause of an error about a name that no provider claims.
var ErrNoProvider = errors.New("no provider claims the model")

// Registry finds the provider of a model name. It is immutable and safe for
// concurrent use.
type Registry struct {
	providers map[string]model.Provider
	about     map[string]model.Description // but for Models, which may change
	routes    routes
	table     *catalog.Table
	own       *catalog.Table // what of table is the server's own
	terms     terms
}

// NewRegistry returns a registry of the given providers. Their names must be
// unique, not empty and without a slash, and no two of them may claim the same
// models.
func NewRegistry(providers ...model.Provider) (*Registry, error) {
	r := &Registry{
		providers: make(map[string]model.Provider, len(providers)), about: map[string]model.Description{},
		routes: routes{names: map[string]string{}},
		own:    &catalog.Table{},
	}
	for _, p := range providers {
		about := p.Describe()
		name := about.Name
		if name == "" || strings.Contains(name, "/") {
			return nil, fmt.Errorf("model: provider name %q: must be non-empty and without a slash", name)
		}
		if _, ok := r.providers[name]; ok {
			return nil, fmt.Errorf("model: provider %q is registered twice", name)
		}
		r.providers[name], r.about[name] = p, about
		if err := r.routes.claim(name, about); err != nil {
			return nil, err
		}
	}
	var err error
	r.table, err = ownCatalogs(r.about)
	return r, err
}

// Ref is a resolved model name: its provider, its name there, and the open model.
type Ref struct {
	// Provider is the provider's name.
	Provider string
	// Model is the name without the provider.
	Model string
	// Builtins are the tools that the provider itself runs for this model.
	Builtins []string
	// LLM is the open model, not yet guarded.
	LLM model.LLM
	// Takes returns why the model takes no such file, nil if it does; Takes is nil for a model that
	// does not say. See model.Model.
	Takes func(model.File) error
	// OwnKey is true when the key is the caller's, not the server's.
	OwnKey bool
	// Known is what the server knows of the model.
	Known Knowledge

	account modelcall.Account // of the key, if it is not the server's
}

// Guarded returns the model as the server calls it, see modelcall.Wrap. Models without a provider
// have no breaker.
func (r Ref) Guarded(limits modelcall.Limits) model.LLM {
	limits.Provider = r.Provider
	if slices.Contains([]string{"scripted", "script", "echo"}, r.Provider) {
		limits.Breaker = nil
	}
	if report := limits.OnTry; report != nil {
		limits.OnTry = func(ctx context.Context, t modelcall.Tried) {
			t.Known = r.Known.Price != nil || r.Known.Capabilities != nil
			t.Nanos, t.Priced = r.Known.Cost(t.Usage)
			report(ctx, t)
		}
	}
	circuit := modelcall.Circuit{Provider: r.Provider, Model: r.Model, Account: r.account}
	return modelcall.Wrap(r.LLM, circuit, r.Takes, limits)
}

// Resolve opens the model of that name. keys holds the caller's own keys by provider name; an empty
// value counts as none, and a provider may take the keys of another one, see model.Description. It
// makes no network call. Its errors are of type *model.Error: KindUnavailable if no provider serves
// the name, KindAuth if the key is missing; or of type *NotAllowedError, whoever's the key is.
func (r *Registry) Resolve(name string, keys map[string]string) (Ref, error) {
	provider, id, err := r.Route(name)
	if err != nil {
		return Ref{}, err
	}
	if err := r.allows(provider, id); err != nil {
		return Ref{}, err
	}
	p, about := r.providers[provider], r.about[provider]
	key := cmp.Or(keys[provider], keys[about.KeysOf])
	ownKey := key != ""
	if !ownKey && !about.Keyless {
		var servers bool
		if key, servers = r.keyFor(provider); key == "" && !servers {
			return Ref{}, r.noKey(provider)
		}
	}
	open, err := p.Open(id, key)
	if err != nil {
		if _, ok := errors.AsType[*model.Error](err); !ok {
			err = &model.Error{Kind: model.KindUnavailable, Provider: provider,
				Message: fmt.Sprintf("cannot open model %q", id), Err: err}
		}
		return Ref{}, err
	}
	if open.LLM == nil {
		return Ref{}, &model.Error{Kind: model.KindUnavailable, Provider: provider,
			Message: fmt.Sprintf("model %q was opened without an LLM", id)}
	}
	builtins := open.Builtins
	if builtins == nil {
		builtins = about.Builtins
	}
	account := key
	if r.terms.moved[provider] {
		account = about.Endpoint + "\x00" + key
	}
	return Ref{
		Provider: provider, Model: id, Builtins: builtins, LLM: open.LLM, Takes: open.Takes, OwnKey: ownKey,
		Known: r.Knows(provider, id), account: modelcall.AccountOf(account),
	}, nil
}

// Route splits a model name into its provider and its name there. "provider/model" names a
// registered provider and is split at the first slash; any other name belongs to the provider that
// claims it, or else to the one that serves the rest. Its errors are of type *model.Error.
func (r *Registry) Route(name string) (provider, id string, err error) {
	if msg := checkName(name); msg != "" {
		return "", "", &model.Error{Kind: model.KindUnavailable, Provider: "model", Message: msg}
	}
	if before, after, ok := strings.Cut(name, "/"); ok && r.providers[before] != nil {
		if after == "" {
			return "", "", &model.Error{Kind: model.KindUnavailable, Provider: before,
				Message: fmt.Sprintf("model name %q: nothing follows the slash", name)}
		}
		return before, after, nil
	}
	if provider = r.routes.of(name); provider == "" {
		msg := fmt.Sprintf("model %q is served by no provider that this server has; it has: %s", name,
			strings.Join(r.names(), ", "))
		if before, _, ok := strings.Cut(name, "/"); ok {
			msg = fmt.Sprintf("unknown provider %q (registered: %v)", before, r.names())
		}
		return "", "", &model.Error{
			Kind: model.KindUnavailable, Provider: "model", Message: msg, Err: ErrNoProvider,
		}
	}
	return provider, name, nil
}

// Status is what the server can do with one provider.
type Status struct {
	// Provider is the provider's name.
	Provider string
	// NeedsKey is false for providers such as "echo".
	NeedsKey bool
	// HasKey is true when the server holds a key of its own, or of the tenant's.
	HasKey bool
	// KeyHeader is the request header that carries a caller's own key, "" when none
	// is needed.
	KeyHeader string
	// Builtins are the tools that the provider itself runs.
	Builtins []string
	// KeyVariables are the environment variables that hold the server's key.
	KeyVariables []string
	// Endpoint is the address that calls go to, "" for none.
	Endpoint string
	// Models are names that are known to exist, in the form that Resolve takes;
	// the provider may serve others.
	Models []string
}

// Providers returns what the server can do with each provider of which the tenant may use a model, by name. To find
// out whether it holds a key, it opens a model without a caller's key.
func (r *Registry) Providers() []Status {
	var out []Status
	for _, name := range r.names() {
		if !r.allowsSome(name) {
			continue
		}
		p := r.providers[name]
		about := p.Describe()
		st := Status{
			Provider: name, NeedsKey: !about.Keyless, Builtins: about.Builtins, KeyHeader: about.KeyHeader(),
			KeyVariables: about.KeyVariables, Endpoint: about.Endpoint,
		}
		for _, m := range slices.Concat(r.families(name), about.Models, r.allowedNames(name)) {
			if r.allows(name, m) != nil {
				continue
			}
			if to, _, err := r.Route(m); err != nil || to != name {
				m = name + "/" + m
			}
			if !slices.Contains(st.Models, m) {
				st.Models = append(st.Models, m)
			}
		}
		if key, servers := r.keyFor(name); st.NeedsKey && !servers {
			st.HasKey = key != ""
		} else if st.NeedsKey {
			_, err := p.Open("any", "")
			e, ok := errors.AsType[*model.Error](err)
			st.HasKey = !ok || e.Kind != model.KindAuth
		}
		out = append(out, st)
	}
	return out
}

// names returns the names of the registered providers, sorted.
func (r *Registry) names() []string { return slices.Sorted(maps.Keys(r.providers)) }

// checkName returns what is wrong with a model name, or "". Names become part of URL paths that
// carry the server's key, so it refuses whatever could change the path.
func checkName(name string) string {
	switch {
	case name == "":
		return "the model name is empty"
	case len(name) > maxNameLen:
		return fmt.Sprintf("the model name has %d bytes, at most %d are allowed", len(name), maxNameLen)
	}
	for seg := range strings.SplitSeq(name, "/") {
		if seg == "." || seg == ".." {
			return fmt.Sprintf("model name %q: a segment must not be %q", name, seg)
		}
	}
	for _, c := range name {
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-._:/@+", c)
		if !ok {
			return fmt.Sprintf("model name %q: character %q is not allowed, only letters, digits and -._:/@+", name, c)
		}
	}
	return ""
}
