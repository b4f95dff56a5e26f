package model

import (
	"github.com/apzuk3/agentd/model/catalog"
)

// Billing is what a provider knows of its models.
type Billing struct {
	// As names another provider whose models these are, served in another way: what
	// the table in force says of that one holds, unless it says more of this one.
	As string
	// Unlisted is true when the provider's server may have other models than the table
	// knows, as one that only speaks the interface of the vendor. Those of the server's
	// own table alone are then listed. A model that has the name of one of the vendor's
	// is taken for it all the same.
	Unlisted bool
	// Free is true when calls cost nothing, such as of models that run here.
	Free bool
	// Catalog is what the provider knows of its own models, see catalog.Parse; nil
	// for nothing. It must not speak of other providers. It is laid over the
	// built-in table, and the server's own one over it.
	Catalog *catalog.Table
}
