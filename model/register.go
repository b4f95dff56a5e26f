package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// New makes a provider. getenv reads the server's environment, where it finds
// its key and its address; it must not keep the function. It makes no network
// call.
type New func(getenv func(name string) string) (Provider, error)

// registered are the providers that have registered themselves.
var registered struct {
	mu       sync.Mutex // protects the fields below
	news     map[string]New
	defaults map[string]New // those that give way
}

// Register adds a provider to every daemon of this process that starts from
// then on. A package that is a provider calls it in init, so that a program has
// the provider by importing the package:
//
//	func init() { model.Register("acme", New) }
//
// Its models are "acme/…", and those that it claims, see Description. It panics
// when the name is empty, holds a slash, or is taken by a package that has
// registered before: that is a fault of the program. It takes the place of a
// provider that RegisterDefault has added under that name.
//
// What a provider must do is said by Provider and LLM; package modeltest tells
// whether it does.
func Register(name string, newProvider New) { register(&registered.news, name, newProvider) }

// RegisterDefault is Register for a provider that gives way to one of the same
// name, in whatever order the two are registered. Those that come with agentd do.
func RegisterDefault(name string, newProvider New) {
	register(&registered.defaults, name, newProvider)
}

func register(to *map[string]New, name string, newProvider New) {
	registered.mu.Lock()
	defer registered.mu.Unlock()
	switch {
	case name == "" || strings.Contains(name, "/"):
		panic(fmt.Sprintf("model: Register(%q): the name must be non-empty and without a slash", name))
	case newProvider == nil:
		panic(fmt.Sprintf("model: Register(%q): the function is nil", name))
	case (*to)[name] != nil:
		panic(fmt.Sprintf("model: Register(%q): the provider is registered twice", name))
	case *to == nil:
		*to = map[string]New{}
	}
	(*to)[name] = newProvider
}

// Registered makes the providers that have registered themselves, by name. A nil
// getenv is an empty environment.
func Registered(getenv func(name string) string) ([]Provider, error) {
	if getenv == nil {
		getenv = func(string) string { return "" }
	}
	registered.mu.Lock()
	defaults, news := maps.Clone(registered.defaults), maps.Clone(registered.news)
	registered.mu.Unlock()
	ours, err := makeAll(defaults, getenv)
	if err != nil {
		return nil, err
	}
	others, err := makeAll(news, getenv)
	if err != nil {
		return nil, err
	}
	out := Instead(ours, others)
	slices.SortFunc(out, func(a, b Provider) int { return strings.Compare(a.Describe().Name, b.Describe().Name) })
	return out, nil
}

// makeAll makes providers, in the order of their names.
func makeAll(news map[string]New, getenv func(name string) string) ([]Provider, error) {
	var out []Provider
	for _, name := range slices.Sorted(maps.Keys(news)) {
		newProvider := news[name]
		p, err := newProvider(getenv)
		if err != nil {
			return nil, fmt.Errorf("provider %q: %w", name, err)
		}
		if own := p.Describe().Name; own != name {
			return nil, fmt.Errorf("provider %q calls itself %q", name, own)
		}
		out = append(out, p)
	}
	return out, nil
}
