package model

// Billing is what a provider knows of its models.
type Billing struct {
	// As names another provider that serves the same models: what the tables say of that
	// provider holds for this one, unless they say more of this one.
	As string
	// Unlisted is true when the provider's server may have other models than the built-in
	// table knows, such as a server that only speaks the vendor's interface. ListModels then
	// names only those of the operator's own table. A model with the name of one of the
	// vendor's is still taken for it.
	Unlisted bool
	// Free is true when calls cost nothing, such as those of models that run here.
	Free bool
	// Catalog holds prices and abilities of the provider's own models, in YAML, in the form of
	// the operator's file of prices (docs/providers.md); "" for none. It names no other
	// provider. It overrides the built-in table, and the operator's file overrides it.
	Catalog string
}
