package index

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/internal/page"
	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/internal/tenant"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// Turn says how a turn is; "" is the session's last one. Its errors are of type *fault.Error if a client
// may see them.
func (l *Lists) Turn(ctx context.Context, sessionID, turnID string) (Turn, error) {
	if turnID == "" {
		info, err := l.Known(ctx, sessionID)
		if err != nil {
			return Turn{}, err
		}
		if turnID = info.LastTurn; turnID == "" {
			return Turn{}, fault.Errorf(fault.NotFound, "session %q has no turn", tenant.ID(sessionID))
		}
	}
	row, err := l.turnRow(ctx, sessionID, turnID)
	if e, ok := errors.AsType[*fault.Error](err); ok && e.Code == fault.NotFound {
		if _, err := l.Known(ctx, sessionID); err != nil {
			return Turn{}, err
		}
	}
	if err != nil {
		return Turn{}, err
	}
	return l.turnNow(ctx, row)
}

// Said returns the parts of a turn's prompt, as they were sent. Its errors are of type *fault.Error if a
// client may see them.
func (l *Lists) Said(ctx context.Context, t *Turn) (record.Parts, error) {
	first := position.Record(t.After + 1)
	recs, err := l.Store.Read(ctx, t.SessionID, first-1, 1)
	if err == nil && len(recs) == 0 || errors.Is(err, store.ErrNoSession) {
		_, err = l.Known(ctx, t.SessionID) // it was deleted or purged meanwhile
	}
	switch {
	case err != nil:
		return nil, err
	case len(recs) == 0:
		return nil, fmt.Errorf("session %s: turn %s: record %d is not there", t.SessionID, t.ID, first)
	}
	var f struct {
		Parts record.Parts `json:"parts"` // of a TurnStarted, or a TurnQueued
	}
	if err := logjson.Unmarshal(recs[0].Data, &f); err != nil {
		return nil, fmt.Errorf("session %s: record %d: %w", t.SessionID, first, err)
	}
	return f.Parts, nil
}

// turnRow finds the row of a turn. One that there is not is a *fault.Error of code NOT_FOUND, whether or
// not there is the session.
func (l *Lists) turnRow(ctx context.Context, sessionID, turnID string) (store.Row, error) {
	row, err := l.Store.Row(ctx, store.RowTurn, sessionID, turnID)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return store.Row{}, refusal.NoTurn(sessionID, turnID)
	case err != nil:
		return store.Row{}, fmt.Errorf("session %s: turn %s: %w", sessionID, turnID, err)
	}
	return row, nil
}

// hasTurn is nil if a session is kept and has a turn; "" asks for the session alone.
func (l *Lists) hasTurn(ctx context.Context, sessionID, turnID string) error {
	if _, err := l.Known(ctx, sessionID); err != nil || turnID == "" {
		return err
	}
	_, err := l.turnRow(ctx, sessionID, turnID)
	return err
}

// Known returns what the store has of a session whose log is kept.
func (l *Lists) Known(ctx context.Context, sessionID string) (store.Info, error) {
	info, err := l.Store.Info(ctx, sessionID)
	switch {
	case errors.Is(err, store.ErrNoSession):
		return store.Info{}, refusal.NoSession(sessionID)
	case err != nil:
		return store.Info{}, fmt.Errorf("session %s: %w", sessionID, err)
	case info.Purged > 0:
		return store.Info{}, refusal.Purged(sessionID)
	}
	return info, nil
}

// turnNow adds to a row what is not in it: of a turn that is not over, all that has happened since it
// began.
func (l *Lists) turnNow(ctx context.Context, row store.Row) (Turn, error) {
	var t *Turn
	// A turn that ends while it is looked at has a new row.
	for range 2 {
		var err error
		if t, err = readTurn(row); err != nil {
			return Turn{}, fmt.Errorf("session %s: turn %s: its row: %w", row.SessionID, row.ID, err)
		}
		// What is written counts once it is shown too.
		if t.Status != 0 && !l.Live.InMemory(row.SessionID) {
			return *t, nil
		}
		live, ok, err := l.Live.TurnNow(ctx, row.SessionID, row.ID)
		switch {
		case err != nil:
			return Turn{}, err
		case ok:
			return live, nil
		case t.Status != 0:
			return *t, nil
		}
		if row, err = l.Store.Row(ctx, store.RowTurn, row.SessionID, row.ID); err != nil {
			return Turn{}, fmt.Errorf("session %s: turn %s: %w", row.SessionID, t.ID, err)
		}
	}
	// The row is ahead of the session, which has not applied the append yet.
	t.Status = Running
	if t.recorded == rowPending {
		t.Status = Pending
	}
	return *t, nil
}

// ListTurns returns at most limit turns, fewer if they say much, newest first, and the token of the next
// page, "" on the last one. page is a token of the same query, "" for the first page. Turns that are not
// over are read from their sessions' logs unless those are in memory.
func (l *Lists) ListTurns(
	ctx context.Context, q TurnQuery, at string, limit int,
) (turns []Turn, next string, err error) {
	hash := page.Hash(q)
	after, err := page.Read(at, hash)
	if err != nil {
		return nil, "", err
	}
	if q.SessionID != "" {
		if _, err := l.Known(ctx, q.SessionID); err != nil {
			return nil, "", err
		}
	}
	rq := store.RowQuery{
		Kind: store.RowTurn, Tenant: &q.Tenant, SessionID: q.SessionID, Statuses: recorded(q.Statuses),
		CreatedFrom: q.CreatedFrom, CreatedBefore: q.CreatedBefore, Limit: min(limit+1, listRows),
	}
	if after != nil {
		rq.After = &store.Row{CreatedAt: after.Time(), SessionID: after.Session, Seq: after.Seq, ID: after.ID}
	}
	bytes, listed := 0, l.madeBy(q.Tenant, q.Maker)
	for {
		rows, err := l.Store.Rows(ctx, rq)
		if err != nil {
			return nil, "", fmt.Errorf("session: list turns: %w", err)
		}
		for _, row := range rows {
			if ok, err := listed(ctx, &row); err != nil {
				return nil, "", err
			} else if !ok {
				continue
			}
			t, err := l.turnNow(ctx, row)
			if _, known := errors.AsType[*fault.Error](err); err != nil && !known && !gone(err) && ctx.Err() == nil {
				l.Logger.LogAttrs(ctx, slog.LevelWarn, "a turn is listed without what has happened in it",
					slog.String("session", row.SessionID),
					slog.String("turn", row.ID), slog.String("error", err.Error()))
				t, err = asRecorded(row)
			}
			switch {
			case gone(err):
				continue
			case err != nil:
				return nil, "", err
			case len(q.Statuses) > 0 && !slices.Contains(q.Statuses, t.Status):
				continue
			case page.Full(len(turns), limit, bytes, t.size()):
				last := turns[len(turns)-1]
				next := page.Token{
					Query: hash, Created: last.Created.UnixMicro(), Session: last.SessionID,
					Seq: position.Record(last.After + 1), ID: last.ID,
				}
				return turns, next.String(), nil
			}
			turns = append(turns, t)
			bytes += t.size()
		}
		if rq.IsLast(rows) {
			return turns, "", nil
		}
		rq.After = &rows[len(rows)-1]
	}
}

// gone reports whether a session that a list has found was deleted or purged meanwhile.
func gone(err error) bool {
	return refusal.IsGone(err) || errors.Is(err, store.ErrNotFound)
}

// FirstRecord is the record with which a turn begins that is over: the log before it does not matter. It
// is 1 for a turn of which that is not known, or that waited for its start: what ran then may matter.
func (l *Lists) FirstRecord(ctx context.Context, sessionID, turnID string) (int64, error) {
	row, err := l.Store.Row(ctx, store.RowTurn, sessionID, turnID)
	if errors.Is(err, store.ErrNotFound) {
		return 1, nil
	}
	if err != nil {
		return 0, fmt.Errorf("session %s: turn %s: %w", sessionID, turnID, err)
	}
	t, err := readTurn(row)
	if err != nil || !t.Started.Equal(t.Created) {
		return 1, err
	}
	return row.Seq, nil
}
