// Package tenantfile is a part of agentd, not an API: it reads the file in which an operator says what tenants may do.
//
//	tenants:
//	  acme:
//	    day_budget: {tokens: 5000000, cost: 20}
//	    month_budget: {cost: 300}
//	    models: [gemini-*, claude-sonnet-4-5]
//	    own_keys: true
//	    providers:
//	      gemini: {api_key: "${env:ACME_GEMINI_KEY}"}
//	      anthropic: {api_key_file: /run/secrets/acme, base_url: https://claude.acme.example}
//	    prices: acme-prices.yaml
//
// It knows neither sessions nor which providers and models there are. It opens no file by itself, see Around. No error
// holds a key.
package tenantfile

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/apzuk3/agentd/internal/configfile"
	"github.com/apzuk3/agentd/internal/models/catalog"
	"github.com/apzuk3/agentd/internal/yamlfile"
)

// MaxBytes is the size of the largest file, and of all values of the environment in it.
const MaxBytes = 4 << 20

// maxProblems bounds the problems that an error has.
const maxProblems = 50

var limits = yamlfile.Limits{Bytes: MaxBytes, Tokens: 500_000, Depth: 12, Values: 200_000, Holds: "tenants"}

// Tenant is what a file says of a tenant.
type Tenant struct {
	// Day and Month are what it may spend on model calls in a day and in a month of UTC; nil is what the server allows
	// tenants that no file names.
	Day, Month *Amount
	// Providers are its own keys and addresses by provider.
	Providers map[string]Provider
	// OwnKeys keeps the server's keys from it, also those of providers that Providers leaves out.
	OwnKeys bool
	// Models are the names of models that it may use, in which * is any text; nil is all of them, and an empty list is
	// none.
	Models []string
	// Prices are what it pays, over the server's; nil if the file has none. PricesAt says where they are.
	Prices   *catalog.Table
	PricesAt string
}

// Amount is what model calls may take; a zero part has no bound.
type Amount struct {
	Tokens int64
	// Cost is in US dollars.
	Cost float64
}

// Provider is what a tenant has of its own at a provider: a key, an address, or both.
type Provider struct {
	Key Secret
	// BaseURL replaces the provider's address.
	BaseURL string
}

// Secret is a key. It prints as ***.
type Secret string

// String hides the key.
func (Secret) String() string { return "***" }

// GoString hides the key.
func (Secret) GoString() string { return "***" }

// LogValue hides the key.
func (Secret) LogValue() slog.Value { return slog.StringValue("***") }

// MarshalText hides the key.
func (Secret) MarshalText() ([]byte, error) { return []byte("***"), nil }

// Around is what a file refers to.
type Around struct {
	// Getenv reads the environment.
	Getenv func(name string) string
	// ReadKey reads a file that holds a key alone, ReadPrices one that holds prices.
	ReadKey    func(file string) (string, error)
	ReadPrices func(file string) (*catalog.Table, error)
	// Providers are the providers of which a tenant may have a key, and whether it may have an address as well.
	Providers map[string]bool
}

// Parse returns the tenants of a file by their names. The error has a line file:line:column for each problem, up to 50.
func Parse(name string, data []byte, around Around) (map[string]Tenant, error) {
	root, problems := yamlfile.Parse(data, limits)
	p := &parser{
		file: name, around: around, problems: problems,
		env: configfile.Environment{Getenv: around.Getenv, Most: MaxBytes},
	}
	out := map[string]Tenant{}
	if root != nil {
		p.mapping(root, fields{"tenants": func(n *yamlfile.Node) {
			for _, pair := range p.pairs(n) {
				out[pair.Key] = p.tenant(pair.Value)
			}
		}})
	}
	if len(p.problems) == 0 {
		return out, nil
	}
	slices.SortStableFunc(p.problems, func(a, b yamlfile.Problem) int { return a.Compare(b.Position) })
	var errs []error
	for _, problem := range p.problems[:min(len(p.problems), maxProblems)] {
		errs = append(errs, fmt.Errorf("%s:%w", name, problem))
	}
	return nil, errors.Join(errs...)
}
