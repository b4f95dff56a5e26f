// Package principal is a part of agentd, not an API (see agentdhost): it says who asks, a principal of a
// tenant, and what it may do. A server finds it out and carries it in the context of what is done for it.
//
// It knows neither sessions, nor how a caller proves who it is, and imports the standard library alone.
package principal

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Role is what a principal may do.
type Role int

// The roles. The zero value is not the one that may do everything.
const (
	// Caller starts turns, submits results and resolves interactions.
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

// UnmarshalText reads a name that String returns.
func (r *Role) UnmarshalText(name []byte) error {
	for _, role := range []Role{Caller, Observer, Operator} {
		if role.String() == string(name) {
			*r = role
			return nil
		}
	}
	return fmt.Errorf("there is no role %q: use caller, observer or operator", name)
}

// Principal is who asks, as the server has found out; a claim of the request is not.
type Principal struct {
	// ID names the principal within its tenant. It is what created_by says.
	ID string
	// Tenant is whom the principal belongs to, "" for nobody.
	Tenant string
	// Role is what it may do.
	Role Role
	// Expires is when its credential does; zero is never.
	Expires time.Time
	// Via is the id of the API key that the principal has shown, "" for another credential.
	Via string

	// Session is set for a principal with a token for a web page: it is the id of the one session that exists for it.
	Session string
	// Tools are the names of the tools that a principal with a Session may run and declare.
	Tools []string
	// Agents allows a principal with a Session to bring an agent tree; without, its turns continue with that of the
	// session.
	Agents bool

	// Own leaves the principal the sessions that it has created: for it no other one exists. A server sets it on the
	// routes of other protocols; no credential has it.
	Own bool
}

// Finds reports whether a session that maker has created exists for the principal, as far as Own says.
func (p *Principal) Finds(maker Principal) bool {
	return !p.Own || p.ID == maker.ID && p.Tenant == maker.Tenant
}

// Runs reports whether the principal may run a tool.
func (p *Principal) Runs(tool string) bool { return p.Session == "" || slices.Contains(p.Tools, tool) }

// maxName bounds the id of a principal, and its tenant, in bytes.
const maxName = 256

// Check refuses a principal without an id, and one whose names cannot stand in a log or in the key of a session.
func (p Principal) Check() error {
	if p.ID == "" {
		return errors.New("the principal has no id")
	}
	for what, name := range map[string]string{"id": p.ID, "tenant": p.Tenant} {
		if len(name) > maxName || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
			return fmt.Errorf("the %s %.300q of the principal has control characters, is no UTF-8, "+
				"or has more than %d bytes", what, name, maxName)
		}
	}
	return nil
}

// local is the principal of whoever reaches a server that authenticates nobody.
var local = Principal{ID: "local", Role: Operator}

// Key is the principal's name in the store: who made a session, and whose `user:` keys
// are meant. That of local is what stores had before there were others.
func (p Principal) Key() string {
	id := url.PathEscape(p.ID)
	if p.Tenant == "" {
		return id
	}
	return url.PathEscape(p.Tenant) + "/" + id
}

// Read makes p the principal of a name that Key has written, without its role. A name that Key did not write
// is the id of a principal; the empty name is the id of whom Of returns for a context that names nobody.
func (p *Principal) Read(key string) {
	tenant, id, both := strings.Cut(key, "/")
	if !both {
		tenant, id = "", key
	}
	*p = Principal{ID: key}
	t, badTenant := url.PathUnescape(tenant)
	name, badID := url.PathUnescape(id)
	switch {
	case key == "":
		p.ID = local.ID
	case badTenant == nil && badID == nil:
		p.ID, p.Tenant = name, t
	}
}

type principalKey struct{}

// With returns a context of what is done for a principal.
func With(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// Of returns who asks for what is done with the context: local if the context names nobody.
func Of(ctx context.Context) Principal {
	if p, ok := ctx.Value(principalKey{}).(Principal); ok {
		return p
	}
	return local
}
