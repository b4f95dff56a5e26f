package session

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/store"
)

// Once keeps a request that is repeated from making something twice.
type Once struct {
	// Key is the caller's own; "" is none.
	Key string
	// Content tells one request from another.
	Content string
}

// What idempotency keys are for: the same key of a principal may stand for one thing
// in each, and is another key of another principal.
const (
	scopeTurn    = ":turn"
	scopeSession = ":session"
	scopeFork    = ":fork"
)

// scopeUpdate is the scope of changes of sessions, which are made one after the other.
const scopeUpdate = "update"

// work is what one request at a time may do: what has an idempotency key, or changes a session.
type work struct{ scope, name string }

// Repeated says that a request was made before, with the same key and the same
// content, and what it has made.
type Repeated struct { //nolint:errname // it is an answer that takes the way of errors
	// SessionID is the session, TurnID the turn, "" for none.
	SessionID, TurnID string
}

func (r *Repeated) Error() string {
	return fmt.Sprintf("session: the request was made before: session %s, turn %q", r.SessionID, r.TurnID)
}

// once returns *Repeated if something was made under the key. Otherwise nobody
// else can use the key until done is called.
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
	known, err := m.store.Key(ctx, scope, o.Key)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return done, nil
	case err != nil:
		err = fmt.Errorf("session: idempotency key: %w", err)
	case known.Content != o.Content:
		err = fault.Errorf(fault.Conflict, "idempotency_key %q was used for another request, which has made "+
			"session %q; use a new key", o.Key, known.SessionID).
			OfTurn(known.ID).Breaking("idempotency_key", fault.RuleConflict)
	default:
		err = &Repeated{SessionID: known.SessionID, TurnID: known.ID}
	}
	done()
	return nil, err
}

// key names the turn that a request starts.
func (req *Request) key(sessionID, turnID string) *store.Key {
	return req.Once.names(req.by.Key()+scopeTurn, sessionID, turnID)
}

// names is what the store remembers; nil without a key.
func (o Once) names(scope, sessionID, turnID string) *store.Key {
	if o.Key == "" {
		return nil
	}
	return &store.Key{Scope: scope, Name: o.Key, Content: o.Content, SessionID: sessionID, ID: turnID}
}
