// Package share is a part of agentd, not an API: servers over one store divide among themselves what a tenant may use
// of all of them. It has the words for that, and counts what a server has of turns, streams and requests.
//
// It knows neither servers, nor sessions, nor where shares are kept.
package share

import (
	"context"

	"github.com/apzuk3/agentd/session/record"
)

// Budgets are the parts of budgets that several servers over one store hold. What a tenant has spent and all slices
// together never exceed a budget, so a server reserves within its slice without asking the others. What a server
// spends of a slice counts twice until it sets the slice again, which errs on the safe side.
//
// Its methods may be called from any goroutine. An error leaves open whether a slice was set.
type Budgets interface {
	// Slice sets the slice of this server.
	Slice(ctx context.Context, ask Ask) (Slice, error)
	// Wanted returns the tenants for whose calls other servers find no room, because of the slices of this one or of
	// third ones.
	Wanted(ctx context.Context) (tenants []string, err error)
}

// Ask is what a server asks for. Of amounts only Tokens and Cost count.
type Ask struct {
	Tenant string
	// Day and Month are the budgets; a zero part has no bound. From Today and First on spending counts for the one and
	// for the other.
	Day, Month   record.Budget
	Today, First int64
	// Held is reserved for calls that are under way. It becomes the slice in any case.
	Held record.Spent
	// Need is for the next call: it is granted whole or not at all. It is zero if there is none.
	Need record.Spent
	// Spare is what the server takes with a Need, as far as it is a small part of what is left.
	Spare record.Spent
}

// Slice is the answer to an Ask.
type Slice struct {
	// Slice is Held, and if the need was granted, the need and a spare as well.
	Slice   record.Spent
	Granted bool
	// Waits: the need was not granted because of other slices, or of Held. The others read it from Wanted until the
	// slice is set again.
	Waits bool
	// Today and Month are what the tenant has spent.
	Today, Month record.Spent
}
