// Package ledger is a part of agentd, not an API: it is the seam for what a server keeps beside its sessions, its API
// keys, its audit trail, what it is to erase, and the agents and objects of its callers.
//
// It knows neither requests nor SQL. Package sqlledger keeps it in the database of the sessions; package ledgertest is
// what every ledger must do. What a tenant has spent and how many sessions it has are not here but in the store: they
// change in one transaction with a log. ledgertest.RunDatabase is what the two do together.
package ledger

import (
	"context"
	"errors"
	"time"

	"github.com/apzuk3/agentd/session/principal"
)

// Errors of a Ledger.
var (
	// ErrNoKey means that there is no API key of this id.
	ErrNoKey = errors.New("there is no such API key")
	// ErrKeyExists means that there is an API key of this id already.
	ErrKeyExists = errors.New("an API key of this id exists")
	// ErrNoErasure means that there is no erasure of this number.
	ErrNoErasure = errors.New("there is no such erasure")
)

// Kind says what an API key is for.
type Kind string

// The kinds.
const (
	// Key is a key that an operator makes, for programs.
	Key Kind = "key"
	// Token is a token for one session, which the backend of a web page makes.
	Token Kind = "token"
)

// APIKey is what a server knows of a credential that it has issued. It does not have the secret.
type APIKey struct {
	// ID is the part of the key that is no secret.
	ID string
	// Sum is the SHA-256 of the whole key.
	Sum [32]byte
	// Kind says what the key is for.
	Kind Kind
	// Principal is whom the key speaks for. Expires is that of the key; its Session is set for a Token.
	Principal principal.Principal
	// Note is what its maker says of it.
	Note string
	// Maker names who made it: the principal's key (see principal.Principal.Key), or "" for an operator of the machine.
	Maker string
	// Via is the id of the API key with which a Token was made, "" for none. A Token is worth nothing when that is
	// revoked.
	Via string
	// Created and Revoked are when; Revoked is zero for a key that is not.
	Created, Revoked time.Time
}

// KeyQuery selects API keys.
type KeyQuery struct {
	// Kind is the kind of the keys; "" is all.
	Kind Kind
	// Tenant is the tenant of the keys, if AllTenants is not set.
	Tenant     string
	AllTenants bool
	// After is the id of the last key of the page before, Limit how many keys there are at most.
	After string
	Limit int
}

// Entry is an entry of the audit trail: who did what, to which session, when, and from where.
type Entry struct {
	// Seq rises by at least one with each entry; a ledger sets it.
	Seq  int64
	Time time.Time
	// Tenant, Principal and Role are who did it, Via is the id of the API key, "" for another credential.
	Tenant, Principal string
	Role              principal.Role
	Via               string
	// From is the address that it was done from.
	From string
	// Action is what was done, such as SessionService.CancelTurn, Run.execute or keys.revoke.
	Action string
	// Session, Turn and Subject are the ids of what it was done to; Subject is that of an interaction, of a tool call
	// or of an API key.
	Session, Turn, Subject string
	// Outcome is "ok", or the error code of a refusal.
	Outcome string
}

// EntryQuery selects entries of the audit trail; a zero field selects all.
type EntryQuery struct {
	// Tenant is the tenant of the entries, if AllTenants is not set.
	Tenant     string
	AllTenants bool
	// Session and Principal are whose entries there are.
	Session, Principal string
	// Since is the time of the first entry.
	Since time.Time
	// After is the Seq of the last entry of the page before, Limit how many entries there are at most.
	After int64
	Limit int
}

// Erasure is a request to erase what a server has of a tenant, or of one of its users.
type Erasure struct {
	ID int64
	// Tenant is whose it is; User is the id of its principal, "" for all of the tenant.
	Tenant, User string
	// Trail says that the entries of the audit trail are erased too.
	Trail bool
	// Asked and Ended are when; Ended is zero for one that is not over. Result says how it went.
	Asked, Ended time.Time
	Result       string
}

// Ledger keeps what a server has beside its sessions. All methods may be called from any goroutine. What a method has
// written is durable when it returns nil.
type Ledger interface {
	Agents
	Objects

	// CreateKey adds a key, or returns ErrKeyExists.
	CreateKey(ctx context.Context, k APIKey) error
	// Key returns a key, or ErrNoKey.
	Key(ctx context.Context, id string) (APIKey, error)
	// Keys returns keys in the order of their ids.
	Keys(ctx context.Context, q KeyQuery) ([]APIKey, error)
	// RevokeKey notes when a key was revoked, and returns the key. One that was revoked stays as it is.
	RevokeKey(ctx context.Context, id string, at time.Time) (APIKey, error)
	// HasKeys reports whether a key of the kind Key was ever made.
	HasKeys(ctx context.Context) (bool, error)
	// RemoveTokens removes at most limit keys of the kind Token that expired before a time, and returns how many.
	RemoveTokens(ctx context.Context, before time.Time, limit int) (int, error)

	// AddErasure asks the server for an erasure, and returns its number.
	AddErasure(ctx context.Context, e Erasure) (int64, error)
	// Erasure returns an erasure, or ErrNoErasure.
	Erasure(ctx context.Context, id int64) (Erasure, error)
	// OpenErasures returns at most limit erasures that are not over, the oldest first.
	OpenErasures(ctx context.Context, limit int) ([]Erasure, error)
	// EndErasure notes that an erasure is over, with its result, and forgets whose it was.
	EndErasure(ctx context.Context, id int64, at time.Time, result string) error
	// RemoveKeysOf removes the keys, and tokens, of a tenant, or of its user if that is not "".
	RemoveKeysOf(ctx context.Context, tenant, user string) (int, error)
	// RemoveEntriesOf removes at most limit entries of a tenant, or of its user if that is not "".
	RemoveEntriesOf(ctx context.Context, tenant, user string, limit int) (int, error)

	// AddEntries adds entries to the audit trail, all or none.
	AddEntries(ctx context.Context, entries []Entry) error
	// Entries returns entries in the order of their Seq.
	Entries(ctx context.Context, q EntryQuery) ([]Entry, error)
	// RemoveEntries removes at most limit entries from before a time, the oldest first, and returns how many.
	RemoveEntries(ctx context.Context, before time.Time, limit int) (int, error)
}
