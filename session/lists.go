package session

import (
	"context"
	"slices"
	"time"

	"github.com/apzuk3/agentd/internal/newid"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/internal/tenant"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/record"
)

// Callers name sessions by ids, which are their tenant's own; the lists, the sessions in memory and the store
// name them by keys. An exported method of the Manager gets an id and returns ids; what it calls gets a key.

// keyOf returns the key of the session that a caller names; "" for no name.
func keyOf(ctx context.Context, id string) string {
	if id == "" {
		return ""
	}
	p := principal.Of(ctx)
	if p.Session != "" && p.Session != id {
		return tenant.Key(p.Tenant+nobody, id)
	}
	return tenant.Key(p.Tenant, id)
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

// newSessionKey returns the key of a new session of the caller's tenant.
func newSessionKey(ctx context.Context) string { return keyOf(ctx, newid.Session(time.Now())) }

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
	s, err := m.lists.Session(ctx, keyOf(ctx, id))
	return seen(s), err
}

// ListSessions returns at most limit sessions of the caller's tenant, fewer if they are large, newest first,
// and the token of the next page, "" on the last one. page is a token of the same query, "" for the first
// page.
func (m *Manager) ListSessions(
	ctx context.Context, q index.SessionQuery, page string, limit int,
) (sessions []index.Session, next string, err error) {
	q.Tenant = principal.Of(ctx).Tenant
	sessions, next, err = m.lists.ListSessions(ctx, q, page, limit)
	for i := range sessions {
		sessions[i] = seen(sessions[i])
	}
	return sessions, next, err
}

// Turn returns a turn; "" is the session's last one.
func (m *Manager) Turn(ctx context.Context, sessionID, turnID string) (index.Turn, error) {
	t, err := m.lists.Turn(ctx, keyOf(ctx, sessionID), turnID)
	return seenTurn(t), err
}

// Said returns the parts of a turn's prompt, as they were sent.
func (m *Manager) Said(ctx context.Context, t *index.Turn) (record.Parts, error) {
	of := *t
	of.SessionID = keyOf(ctx, t.SessionID)
	return m.lists.Said(ctx, &of)
}

// ListTurns returns turns of the caller's tenant as ListSessions returns sessions.
func (m *Manager) ListTurns(
	ctx context.Context, q index.TurnQuery, page string, limit int,
) (turns []index.Turn, next string, err error) {
	q.Tenant, q.SessionID = principal.Of(ctx).Tenant, keyOf(ctx, scoped(ctx, q.SessionID))
	turns, next, err = m.lists.ListTurns(ctx, q, page, limit)
	for i := range turns {
		turns[i] = seenTurn(turns[i])
	}
	return turns, next, err
}

// Interaction returns an interaction of a session.
func (m *Manager) Interaction(ctx context.Context, sessionID, id string) (*index.Interaction, error) {
	in, err := m.lists.Interaction(ctx, keyOf(ctx, sessionID), id)
	return seenInteraction(in), err
}

// ListInteractions returns interactions of the caller's tenant as ListSessions returns sessions.
func (m *Manager) ListInteractions(
	ctx context.Context, q index.InteractionQuery, page string, limit int,
) (list []*index.Interaction, next string, err error) {
	q.Tenant, q.SessionID = principal.Of(ctx).Tenant, keyOf(ctx, scoped(ctx, q.SessionID))
	list, next, err = m.lists.ListInteractions(ctx, q, page, limit)
	for i := range list {
		list[i] = seenInteraction(list[i])
	}
	return list, next, err
}
