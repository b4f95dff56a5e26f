package model

import (
	"cmp"
	"fmt"
	"net/textproto"
	"strings"
)

// Description describes a provider. One with a Name alone serves models "name/…", has keys of its
// own, runs no tools and has no prices.
type Description struct {
	// Name is the part before the slash in "provider/model", and the name of the provider's key in
	// the caller's keys. It is not empty and has no slash.
	Name string

	// Names are models that it serves without its own name before them; Prefixes are beginnings of
	// such names. Of two prefixes that fit a name the longer one counts. No two providers may claim
	// the same.
	Names, Prefixes []string
	// Rest is true for the provider of all names that no other provider claims. At most one has it.
	Rest bool
	// Plain is true if the rest has no name with a slash, but for those of Prefixes: what stands before
	// the slash is then taken for a provider that there is not.
	Plain bool
	// Models are names that Open accepts, sorted, as far as the provider knows them without a
	// network call; it may serve others. They may differ from one Describe to the next.
	Models []string

	// Keyless is true for a provider that needs no key.
	Keyless bool
	// KeysOf names the provider whose callers' keys it takes, because both belong to one vendor; ""
	// if it has keys of its own.
	KeysOf string
	// KeyVariables are the environment variables that hold the server's own key, by convention
	// NAME_API_KEY. Messages name them; only the provider reads them.
	KeyVariables []string
	// Secrets are the server's own keys. Log lines and records of model calls leave them out.
	Secrets Secrets
	// Endpoint is the URL of the provider, for the log, which leaves out its user and its query; ""
	// for a provider without a network.
	Endpoint string

	// Builtins are the builtin tools that the provider runs, such as "google_search";
	// Request.Config asks for them with genai's tool fields. A Model may have fewer or others.
	Builtins []string

	// Catalog holds prices and abilities of the provider's own models, in YAML, in the form of the
	// operator's file of prices (docs/providers.md); "" for none. It names no other provider. It
	// overrides the built-in table, and the operator's file overrides it.
	Catalog string
	// ModelsOf names another provider that serves the same models: what the tables say of that
	// provider holds for this one, unless they say more of this one.
	ModelsOf string
	// Unlisted is true when the provider's server may have other models than the built-in table
	// knows, such as a server that only speaks the vendor's interface. ListModels then names only
	// those of the operator's own table. A model with the name of one of the vendor's is still
	// taken for it.
	Unlisted bool
	// Free is true when calls cost nothing, such as those of models that run here.
	Free bool
}

// Secrets are keys; blank ones are none. They print as "***".
type Secrets []string

// hidden is the text that Secrets print.
const hidden = "***"

// String hides the keys.
func (Secrets) String() string { return hidden }

// GoString hides the keys.
func (Secrets) GoString() string { return hidden }

// MarshalText hides the keys.
func (Secrets) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// KeyHeader returns the request header in which callers send their own key for the provider, such
// as X-Agentd-Acme-Api-Key; "" if the provider needs none.
func (d Description) KeyHeader() string {
	if d.Keyless {
		return ""
	}
	return textproto.CanonicalMIMEHeaderKey("X-Agentd-" + cmp.Or(d.KeysOf, d.Name) + "-Api-Key")
}

// MissingKey returns the error of Open when there is neither a key of the caller nor one of the
// server. It names KeyVariables and KeyHeader, which would hold it.
func (d Description) MissingKey() *Error {
	message := "no API key: send the header " + d.KeyHeader()
	if len(d.KeyVariables) > 0 {
		message = fmt.Sprintf("no API key: set %s on the server or send the header %s",
			strings.Join(d.KeyVariables, " or "), d.KeyHeader())
	}
	return &Error{Kind: KindAuth, Provider: d.Name, Message: message}
}
