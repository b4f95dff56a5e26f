package session

import (
	"context"
	"net/url"
	"strings"
)

// Role is what a principal may do.
type Role int

// The roles. The zero value is not the one that may do everything.
const (
	// Caller starts turns, answers and resolves.
	Caller Role = iota
	// Observer only reads.
	Observer
	// Operator does what a caller does, sets the state that all sessions share, and
	// reads the server's own instruction.
	Operator
)

// String names the role.
func (r Role) String() string {
	switch r {
	case Caller:
		return "caller"
	case Observer:
		return "observer"
	case Operator:
		return "operator"
	default:
		return "unknown role"
	}
}

// Principal is who asks, as the server has found out; a claim of the request is not.
type Principal struct {
	// ID names the principal within its tenant. It is what created_by says.
	ID string
	// Tenant is whom the principal belongs to, "" for nobody.
	Tenant string
	// Role is what it may do.
	Role Role
}

// Local is the principal of whoever reaches a server that authenticates nobody.
var Local = Principal{ID: "local", Role: Operator}

// key is the principal's name in the store: who made a session, and whose `user:` keys
// are meant. That of Local is what stores had before there were others.
func (p Principal) key() string {
	id := url.PathEscape(p.ID)
	if p.Tenant == "" {
		return id
	}
	return url.PathEscape(p.Tenant) + "/" + id
}

// principalOf reads what key has written. What is none was written by somebody else
// and names itself; what nobody has said is of Local.
func principalOf(key string) Principal {
	if key == "" {
		return Principal{ID: Local.ID}
	}
	tenant, id, both := strings.Cut(key, "/")
	if !both {
		tenant, id = "", key
	}
	t, err := url.PathUnescape(tenant)
	if err != nil {
		return Principal{ID: key}
	}
	name, err := url.PathUnescape(id)
	if err != nil {
		return Principal{ID: key}
	}
	return Principal{ID: name, Tenant: t}
}

type principalKey struct{}

// WithPrincipal returns a context of what is done for a principal.
func WithPrincipal(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// PrincipalOf is who asks for what is done with the context: Local if nobody has said.
func PrincipalOf(ctx context.Context) Principal {
	if p, ok := ctx.Value(principalKey{}).(Principal); ok {
		return p
	}
	return Local
}
