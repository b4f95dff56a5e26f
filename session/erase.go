package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/tenant"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/store"
)

// erasePage is how many sessions, or scopes of shared state, one read asks for.
const erasePage = 100

// Erase removes the sessions of a tenant and what they share, or, if user is not "", those that this principal of the
// tenant created, and its `user:` keys. It cancels their turns. A session that another server owns is for elsewhere,
// which asks the server at the address to remove it. It returns how many sessions and shared keys there were, also
// after an error; it may be called again. What the principal did in sessions of others stays.
func (m *Manager) Erase(
	ctx context.Context, whose, user string, elsewhere func(ctx context.Context, address, id string) error,
) (sessions, keys int, err error) {
	p := principal.Principal{ID: user, Tenant: whose, Role: principal.Operator}
	ctx = principal.With(ctx, p)
	q := store.InfoQuery{Tenant: &whose, Limit: erasePage}
	for {
		page, err := m.store.Sessions(ctx, q)
		if err != nil {
			return sessions, 0, err
		}
		for i := range page {
			if user != "" && page[i].Creator != p.Key() {
				continue
			}
			id := tenant.ID(page[i].ID)
			err := m.DeleteSession(ctx, id)
			if owner, ok := errors.AsType[*Elsewhere](err); ok {
				err = elsewhere(ctx, owner.Address, id)
			}
			if err != nil && !isGone(err) {
				return sessions, 0, err
			}
			if err == nil {
				sessions++
			}
		}
		if len(page) < erasePage {
			break
		}
		q.After = &page[len(page)-1]
	}
	keys, err = m.eraseShared(ctx, p)
	return sessions, keys, err
}

// isGone reports whether a session was removed before it could be.
func isGone(err error) bool {
	e, ok := errors.AsType[*fault.Error](err)
	return ok && e.Code == fault.SessionNotFound
}

// eraseShared removes the shared keys of a tenant, or with an id those of one of its principals.
func (m *Manager) eraseShared(ctx context.Context, p principal.Principal) (removed int, err error) {
	after := ""
	for {
		scopes, err := m.store.Scopes(ctx, after, erasePage)
		if err != nil {
			return removed, err
		}
		for _, scope := range scopes {
			after = scope
			if !(store.SharedValue{Scope: scope}).IsOf(p) {
				continue
			}
			n, err := m.eraseScope(ctx, scope)
			removed += n
			if err != nil {
				return removed, err
			}
		}
		if len(scopes) < erasePage {
			return removed, nil
		}
	}
}

// eraseScope removes the keys of a scope.
func (m *Manager) eraseScope(ctx context.Context, scope string) (int, error) {
	values, err := m.store.Shared(ctx, scope)
	if err != nil {
		return 0, err
	}
	var gone []store.SharedValue
	for key := range values {
		gone = append(gone, store.SharedValue{Scope: scope, Key: key})
	}
	reserved := m.store.SharedKeys.ReserveUnbounded(gone)
	err = m.store.SetShared(ctx, gone)
	reserved.Done(err == nil)
	if err != nil {
		return 0, fmt.Errorf("session: erase shared state %q: %w", scope, err)
	}
	return len(gone), nil
}
