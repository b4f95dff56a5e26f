package model

import (
	"fmt"
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
	mu   sync.Mutex // protects the field below
	news map[string]New
}

// Register adds a provider to every daemon of this process that starts from
// then on. A package that is a provider calls it in init, so that a program has
// the provider by importing the package:
//
//	func init() { model.Register("acme", New) }
//
// Its models are "acme/…". It panics when the name is empty, holds a slash, or is
// taken by a package that has registered before: that is a fault of the program.
// A name that a built-in provider has takes its place.
//
// What a provider must do is said by Provider and LLM; package modeltest tells
// whether it does.
func Register(name string, newProvider New) {
	registered.mu.Lock()
	defer registered.mu.Unlock()
	switch {
	case name == "" || strings.Contains(name, "/"):
		panic(fmt.Sprintf("model: Register(%q): the name must be non-empty and without a slash", name))
	case newProvider == nil:
		panic(fmt.Sprintf("model: Register(%q): the function is nil", name))
	case registered.news[name] != nil:
		panic(fmt.Sprintf("model: Register(%q): the provider is registered twice", name))
	case registered.news == nil:
		registered.news = map[string]New{}
	}
	registered.news[name] = newProvider
}

// Registered makes the providers that have registered themselves, by name. A nil
// getenv is an empty environment.
func Registered(getenv func(name string) string) ([]Provider, error) {
	if getenv == nil {
		getenv = func(string) string { return "" }
	}
	registered.mu.Lock()
	defer registered.mu.Unlock()
	var out []Provider
	for name, newProvider := range registered.news {
		p, err := newProvider(getenv)
		if err != nil {
			return nil, fmt.Errorf("provider %q: %w", name, err)
		}
		if p.Name() != name {
			return nil, fmt.Errorf("provider %q calls itself %q", name, p.Name())
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Provider) int { return strings.Compare(a.Name(), b.Name()) })
	return out, nil
}
