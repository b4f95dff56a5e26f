package session

import (
	"context"
	"errors"
	"fmt"
	"iter"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/internal/live"
	"github.com/apzuk3/agentd/session/internal/page"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// TurnLog is the log of a session, from which a caller derives what is not stored of one of its turns.
type TurnLog struct {
	// SessionID and TurnID name the turn; it may not have started.
	SessionID, TurnID string
	// After is the record after which the page begins, 0 for the first page.
	After int64
	// Records yields the records of the session from the first one to the last one that there
	// is when it gets there.
	Records iter.Seq2[record.Record, error]
	// State are the shared keys as they are now.
	State map[string]any

	query uint64 // distinguishes the pages of one request from those of others
}

// ReportedCall is a model call with its prompt.
type ReportedCall struct {
	// Seq is the record with which the call ended.
	Seq int64
	// Details are the details of the call.
	Details *agentdv1.ModelCallDetails
	// Operator is the server's own text in the instruction, which only operators may read.
	Operator string
}

// modelCallsQuery identifies a list of model calls.
type modelCallsQuery struct{ CallsOfSession, CallsOfTurn string }

// Page returns the token of the page that begins after a record.
func (l *TurnLog) Page(after int64) string {
	return page.Token{Query: l.query, Session: l.SessionID, Seq: after, ID: l.TurnID}.String()
}

// TurnLog returns the log of a turn; "" is the session's last one, and all pages are of the turn of the
// first page. For an injected prompt it is the turn that took it as a message. at is a token of
// TurnLog.Page for the same session and turn, "" for the first page. An error that a client may see is of
// type *fault.Error.
func (m *Manager) TurnLog(ctx context.Context, sessionID, turnID, at string) (TurnLog, error) {
	hash := page.Hash(modelCallsQuery{sessionID, turnID})
	after, err := page.Read(at, hash)
	if err != nil {
		return TurnLog{}, err
	}
	if after != nil {
		turnID = after.ID
	}
	key, err := m.keyOf(ctx, sessionID)
	if err != nil {
		return TurnLog{}, err
	}
	if _, err := m.lists.Known(ctx, key); err != nil {
		return TurnLog{}, err
	}
	t, err := m.lists.Turn(ctx, key, turnID)
	if err != nil {
		return TurnLog{}, err
	}
	out := TurnLog{SessionID: sessionID, TurnID: t.ID, Records: m.logOf(ctx, key), query: hash}
	if after != nil {
		out.After = after.Seq
	}
	if t.Into != "" {
		out.TurnID = t.Into
	}
	info, err := m.lists.Known(ctx, key)
	if err != nil {
		return TurnLog{}, err
	}
	out.State, err = SharedState(ctx, m.store, info.Owner())
	return out, err
}

// logOf yields a session's records, which it reads in pages.
func (m *Manager) logOf(ctx context.Context, key string) iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		for last := int64(0); ; {
			recs, err := m.store.Read(ctx, key, last, live.ReadPage)
			if err != nil {
				if errors.Is(err, store.ErrNoSession) {
					err = refusal.NoSession(key)
				} else {
					err = fmt.Errorf("session %s: %w", key, err)
				}
				yield(record.Record{}, err)
				return
			}
			for _, rec := range recs {
				if last = rec.Seq; !yield(rec, nil) {
					return
				}
			}
			if store.LastPage(recs, live.ReadPage) {
				return
			}
		}
	}
}
