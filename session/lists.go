package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/apzuk3/agentd/internal/newid"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/internal/live"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/internal/tenant"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// Callers name sessions by ids, which are their tenant's own; the lists, the sessions in memory and the store
// name them by keys. An exported method of the Manager gets an id and returns ids; what it calls gets a key.

// keyOf returns the key of the session that a caller names; "" for no name. A session that does not exist for the
// caller is refused, also one that is to be made: this is the only place that finds keys. One that there is not has
// a key, under which nothing is found.
func (m *Manager) keyOf(ctx context.Context, id string) (string, error) {
	if id == "" {
		return "", nil
	}
	p := principal.Of(ctx)
	if p.Session != "" && p.Session != id {
		return tenant.Key(p.Tenant+nobody, id), nil
	}
	key := tenant.Key(p.Tenant, id)
	if !p.Own {
		return key, nil
	}
	info, err := m.store.Info(ctx, key)
	switch {
	case errors.Is(err, store.ErrNoSession):
		return key, nil
	case err != nil:
		return "", fmt.Errorf("session %s: whose it is: %w", key, err)
	case !p.Finds(info.Owner()):
		return "", refusal.NoSession(key)
	}
	return key, nil
}

// reach returns the tenant whose sessions a caller finds, and the id of who has to have created them; "" is anybody.
func reach(ctx context.Context) (tenantName, maker string) {
	p := principal.Of(ctx)
	if p.Own {
		maker = p.ID
	}
	return p.Tenant, maker
}

// notFound refuses a session in memory that does not exist for a caller: another one has made it since keyOf has
// looked.
func notFound(s *live.Session, p principal.Principal) error {
	if s.IsUnmade() || p.Finds(s.MadeBy()) {
		return nil
	}
	return refusal.NoSession(s.Key())
}

// nobody, behind the name of a tenant, makes the name of one that has no sessions: those that a token for one session
// names besides its own. They are looked for like all others, and are not there.
const nobody = "\x00"

// scoped returns the session whose turns and interactions are listed: for a token that of its scope.
func scoped(ctx context.Context, id string) string {
	if p := principal.Of(ctx); id == "" {
		return p.Session
	}
	return id
}

// newSessionKey returns the key of a new session of the caller's tenant; with "" its id is made.
func newSessionKey(ctx context.Context, id string) string {
	if id == "" {
		id = newid.Session(time.Now())
	}
	return tenant.Key(principal.Of(ctx).Tenant, id)
}

// seen returns a session as callers see it.
func seen(s index.Session) index.Session {
	s.ID, s.ForkedFrom = tenant.ID(s.ID), tenant.ID(s.ForkedFrom)
	return s
}

// seenTurn returns a turn as callers see it.
func seenTurn(t index.Turn) index.Turn {
	t.SessionID = tenant.ID(t.SessionID)
	t.Asking = slices.Clone(t.Asking)
	for i, in := range t.Asking {
		t.Asking[i] = seenInteraction(in)
	}
	return t
}

// seenInteraction returns an interaction as callers see it.
func seenInteraction(in *index.Interaction) *index.Interaction {
	if in == nil {
		return nil
	}
	out := *in
	out.SessionID = tenant.ID(in.SessionID)
	return &out
}

// Session returns a session, also one whose log is not kept any more. An error that a client may see is of
// type *fault.Error; that holds for the methods below too.
func (m *Manager) Session(ctx context.Context, id string) (index.Session, error) {
	key, err := m.keyOf(ctx, id)
	if err != nil {
		return index.Session{}, err
	}
	s, err := m.lists.Session(ctx, key)
	return seen(s), err
}

// ListSessions returns at most limit sessions of the caller's tenant, fewer if they are large, newest first,
// and the token of the next page, "" on the last one. page is a token of the same query, "" for the first
// page.
func (m *Manager) ListSessions(
	ctx context.Context, q index.SessionQuery, page string, limit int,
) (sessions []index.Session, next string, err error) {
	q.Tenant, q.Maker = reach(ctx)
	sessions, next, err = m.lists.ListSessions(ctx, q, page, limit)
	for i := range sessions {
		sessions[i] = seen(sessions[i])
	}
	return sessions, next, err
}

// Turn returns a turn; "" is the session's last one.
func (m *Manager) Turn(ctx context.Context, sessionID, turnID string) (index.Turn, error) {
	key, err := m.keyOf(ctx, sessionID)
	if err != nil {
		return index.Turn{}, err
	}
	t, err := m.lists.Turn(ctx, key, turnID)
	return seenTurn(t), err
}

// Said returns the parts of a turn's prompt, as they were sent.
func (m *Manager) Said(ctx context.Context, t *index.Turn) (record.Parts, error) {
	of := *t
	var err error
	if of.SessionID, err = m.keyOf(ctx, t.SessionID); err != nil {
		return nil, err
	}
	return m.lists.Said(ctx, &of)
}

// ListTurns returns turns of the caller's tenant as ListSessions returns sessions.
func (m *Manager) ListTurns(
	ctx context.Context, q index.TurnQuery, page string, limit int,
) (turns []index.Turn, next string, err error) {
	q.Tenant, q.Maker = reach(ctx)
	if q.SessionID, err = m.keyOf(ctx, scoped(ctx, q.SessionID)); err != nil {
		return nil, "", err
	}
	turns, next, err = m.lists.ListTurns(ctx, q, page, limit)
	for i := range turns {
		turns[i] = seenTurn(turns[i])
	}
	return turns, next, err
}

// Interaction returns an interaction of a session.
func (m *Manager) Interaction(ctx context.Context, sessionID, id string) (*index.Interaction, error) {
	key, err := m.keyOf(ctx, sessionID)
	if err != nil {
		return nil, err
	}
	in, err := m.lists.Interaction(ctx, key, id)
	return seenInteraction(in), err
}

// ListInteractions returns interactions of the caller's tenant as ListSessions returns sessions.
func (m *Manager) ListInteractions(
	ctx context.Context, q index.InteractionQuery, page string, limit int,
) (list []*index.Interaction, next string, err error) {
	q.Tenant, q.Maker = reach(ctx)
	if q.SessionID, err = m.keyOf(ctx, scoped(ctx, q.SessionID)); err != nil {
		return nil, "", err
	}
	list, next, err = m.lists.ListInteractions(ctx, q, page, limit)
	for i := range list {
		list[i] = seenInteraction(list[i])
	}
	return list, next, err
}
