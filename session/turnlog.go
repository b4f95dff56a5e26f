package session

import (
	"context"
	"errors"
	"fmt"
	"iter"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/internal/page"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// TurnLog is the log of a session, for those who want to know more of one of its
// turns than is kept.
type TurnLog struct {
	// SessionID and TurnID name the turn; it may be one that has not begun.
	SessionID, TurnID string
	// After is the record behind which the page that is asked for begins, 0 for the
	// first page.
	After int64
	// Records are those of the session from its first one on, as many as there are
	// when they are read. Who has seen enough stops.
	Records iter.Seq2[record.Record, error]
	// State are the keys that sessions have in common, as they are now.
	State map[string]any

	query uint64 // tells the pages of one request from those of others
}

// ToldCall is what a model was told in one call.
type ToldCall struct {
	// Seq is the record with which the call ended.
	Seq int64
	// Details are what is known of it.
	Details *agentdv1.ModelCallDetails
	// Operator is the server's own text in the instruction, which is for operators.
	Operator string
}

// toldQuery is what a list of model calls is asked for.
type toldQuery struct{ CallsOfSession, CallsOfTurn string }

// Page is the token of the page that begins behind a record.
func (l *TurnLog) Page(after int64) string {
	return page.Token{Query: l.query, Session: l.SessionID, Seq: after, ID: l.TurnID}.String()
}

// TurnLog finds a turn, "" is the session's last one; all pages are of the one that
// the first page was of. A prompt that has become a message of another turn stands
// for that. page is a token of TurnLog.Page for the same session and turn, "" for the
// first page. Its errors are of type *fault.Error if a client may see them.
func (m *Manager) TurnLog(ctx context.Context, sessionID, turnID, at string) (TurnLog, error) {
	hash := page.Hash(toldQuery{sessionID, turnID})
	after, err := page.Read(at, hash)
	if err != nil {
		return TurnLog{}, err
	}
	if after != nil {
		turnID = after.ID
	}
	if _, err := m.Known(ctx, sessionID); err != nil {
		return TurnLog{}, err
	}
	t, err := m.Turn(ctx, sessionID, turnID)
	if err != nil {
		return TurnLog{}, err
	}
	out := TurnLog{SessionID: sessionID, TurnID: t.ID, Records: m.logOf(ctx, sessionID), query: hash}
	if after != nil {
		out.After = after.Seq
	}
	if t.Into != "" {
		out.TurnID = t.Into
	}
	info, err := m.Known(ctx, sessionID)
	if err != nil {
		return TurnLog{}, err
	}
	out.State, err = SharedState(ctx, m.store, info.Owner())
	return out, err
}

// logOf reads a session's records, a page at a time.
func (m *Manager) logOf(ctx context.Context, sessionID string) iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		for last := int64(0); ; {
			recs, err := m.store.Read(ctx, sessionID, last, readPage)
			if err != nil {
				if errors.Is(err, store.ErrNoSession) {
					err = refusal.NoSession(sessionID)
				} else {
					err = fmt.Errorf("session %s: %w", sessionID, err)
				}
				yield(record.Record{}, err)
				return
			}
			for _, rec := range recs {
				if last = rec.Seq; !yield(rec, nil) {
					return
				}
			}
			if store.LastPage(recs, readPage) {
				return
			}
		}
	}
}
