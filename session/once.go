package session

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/tenant"
	"github.com/apzuk3/agentd/session/store"
)

// Once is the idempotency key of a request: a repeat makes nothing twice.
type Once struct {
	// Key is chosen by the caller; "" is none.
	Key string
	// Content is the same for a repeat, and differs between requests.
	Content string
}

// The scopes of idempotency keys. A scope is prefixed with the principal, so that the same key may be
// used once in each scope of each principal.
const (
	scopeTurn    = ":turn"
	scopeSession = ":session"
	scopeNamed   = ":named" // sessions whose id is the key
	scopeFork    = ":fork"
	scopeTurnOn  = ":turn-on-fork" // the fork that a turn is to run on
)

// scopeUpdate is the scope of updates of sessions, which are made one at a time.
const scopeUpdate = "update"

// work is the key of Manager.exclusive: an idempotency key, or the session of an update.
type work struct{ scope, name string }

// Repeated reports that a request with the same key and content was made before, and what that request
// made.
type Repeated struct { //nolint:errname // a result that is returned as an error
	// SessionID is the session, and TurnID the turn, "" for none.
	SessionID, TurnID string
}

func (r *Repeated) Error() string {
	return fmt.Sprintf("session: the request was made before: session %s, turn %q", r.SessionID, r.TurnID)
}

// once returns *Repeated if something was made under the key. Otherwise it locks the key until done is
// called.
func (m *Manager) once(ctx context.Context, scope string, o Once) (done func(), err error) {
	if o.Key == "" {
		return func() {}, nil
	}
	if strings.Contains(o.Key, "\x00") {
		return nil, fault.Errorf(fault.Invalid, "idempotency_key holds a 0 byte").
			Breaking("idempotency_key", fault.RuleFormat)
	}
	if done, err = m.exclusive.Lock(ctx, work{scope, o.Key}); err != nil {
		return nil, err
	}
	if err = m.madeBefore(ctx, scope, o); err == nil {
		return done, nil
	}
	done()
	return nil, err
}

// madeBefore returns *Repeated if something was made under the key, and why it cannot be made again otherwise; nil if
// nothing was.
func (m *Manager) madeBefore(ctx context.Context, scope string, o Once) error {
	known, err := m.store.Key(ctx, scope, o.Key)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("session: idempotency key: %w", err)
	case known.Content != o.Content:
		return fault.Errorf(fault.Conflict,
			"idempotency_key %q was used for another request, which has made session %q; use a new key",
			o.Key, tenant.ID(known.SessionID)).
			OfTurn(known.ID).Breaking("idempotency_key", fault.RuleConflict)
	default:
		return &Repeated{SessionID: tenant.ID(known.SessionID), TurnID: known.ID}
	}
}

// names returns the key as the store keeps it; nil without a key.
func (o Once) names(scope, sessionID, turnID string) *store.Key {
	if o.Key == "" {
		return nil
	}
	return &store.Key{Scope: scope, Name: o.Key, Content: o.Content, SessionID: sessionID, ID: turnID}
}
