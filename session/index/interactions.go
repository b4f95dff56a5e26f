package index

import (
	"context"
	"errors"
	"fmt"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/page"
	"github.com/apzuk3/agentd/session/internal/tenant"
	"github.com/apzuk3/agentd/session/store"
)

// interaction reads one of the session's. One that is not there is a *fault.Error of code NOT_FOUND.
func (l *Lists) interaction(ctx context.Context, sessionID, id string) (*Interaction, error) {
	row, err := l.Store.Row(ctx, store.RowInteraction, sessionID, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, fault.Errorf(fault.NotFound,
			"interaction_id: session %q has no interaction %q", tenant.ID(sessionID), id)
	case err != nil:
		return nil, fmt.Errorf("session %s: interaction %s: %w", sessionID, id, err)
	}
	return readInteraction(row, l.Retention)
}

// waitsFor is how the open turn of a session is that runs nowhere.
func (l *Lists) waitsFor(ctx context.Context, info store.Info) (Status, error) {
	rows, err := l.Store.Rows(ctx, store.RowQuery{
		Kind:      store.RowInteraction,
		SessionID: info.ID,
		TurnID:    info.LastTurn,
		Statuses:  []string{askRows[askPending]},
		Limit:     1,
	})
	switch {
	case err != nil:
		return 0, fmt.Errorf("session %s: what it waits for: %w", info.ID, err)
	case len(rows) > 0:
		return WaitingForInput, nil
	default:
		return WaitingForClient, nil
	}
}

// Interaction says how an interaction is; one that the session does not have is an *fault.Error of code
// NOT_FOUND.
func (l *Lists) Interaction(ctx context.Context, sessionID, id string) (*Interaction, error) {
	if _, err := l.Known(ctx, sessionID); err != nil {
		return nil, err
	}
	return l.interaction(ctx, sessionID, id)
}

// ListInteractions returns at most limit interactions, newest first, fewer if they are large, and the token
// of the next page, "" on the last one. page is a token of the same query, "" for the first page. A turn
// that its session does not have is a *fault.Error of code NOT_FOUND.
func (l *Lists) ListInteractions(
	ctx context.Context, q InteractionQuery, at string, limit int,
) (list []*Interaction, next string, err error) {
	hash := page.Hash(q)
	after, err := page.Read(at, hash)
	if err != nil {
		return nil, "", err
	}
	if q.TurnID != "" && q.SessionID == "" {
		return nil, "", fault.
			Errorf(fault.Invalid, "turn_id without session_id: a turn is named together with its session").
			Breaking("session_id", fault.RuleRequired)
	}
	if q.SessionID != "" {
		if err := l.hasTurn(ctx, q.SessionID, q.TurnID); err != nil {
			return nil, "", err
		}
	}
	rq := store.RowQuery{
		Kind:      store.RowInteraction,
		Tenant:    &q.Tenant,
		SessionID: q.SessionID,
		TurnID:    q.TurnID,
		Limit:     min(limit+1, listRows),
	}
	for _, is := range q.Statuses {
		rq.Statuses = append(rq.Statuses, askRows[is])
	}
	if after != nil {
		rq.After = &store.Row{CreatedAt: after.Time(), SessionID: after.Session, Seq: after.Seq, ID: after.ID}
	}
	bytes, listed := 0, l.madeBy(q.Tenant, q.Maker)
	var last *store.Row // of the list
	for {
		rows, err := l.Store.Rows(ctx, rq)
		if err != nil {
			return nil, "", fmt.Errorf("session: list interactions: %w", err)
		}
		for _, row := range rows {
			rq.After = &row
			if ok, err := listed(ctx, &row); err != nil {
				return nil, "", err
			} else if !ok {
				continue
			}
			if page.Full(len(list), limit, bytes, len(row.Data)) {
				return list, page.Token{
					Query:   hash,
					Created: last.CreatedAt.UnixMicro(),
					Session: last.SessionID,
					Seq:     last.Seq,
					ID:      last.ID,
				}.String(), nil
			}
			in, err := readInteraction(row, l.Retention)
			if err != nil {
				return nil, "", err
			}
			list, last = append(list, in), &row
			bytes += len(row.Data)
		}
		if rq.IsLast(rows) {
			return list, "", nil
		}
	}
}
