package session

import (
	"context"
	"errors"
	"fmt"
	"iter"
)

// TurnLog is the log of a session, for those who want to know more of one of its
// turns than is kept.
type TurnLog struct {
	// SessionID and TurnID name the turn; it may be one that has not begun.
	SessionID, TurnID string
	// Records are those of the session from its first one on, as many as there are
	// when they are read. Who has seen enough stops.
	Records iter.Seq2[Record, error]
	// State are the keys that sessions have in common, as they are now.
	State map[string]any
}

// TurnLog finds a turn, "" is the session's last one. A prompt that has become a
// message of another turn stands for that. Its errors are of type *Error if a
// client may see them.
func (m *Manager) TurnLog(ctx context.Context, sessionID, turnID string) (TurnLog, error) {
	if _, err := m.known(ctx, sessionID); err != nil {
		return TurnLog{}, err
	}
	t, err := m.Turn(ctx, sessionID, turnID)
	if err != nil {
		return TurnLog{}, err
	}
	out := TurnLog{SessionID: sessionID, TurnID: t.ID, Records: m.logOf(ctx, sessionID)}
	if t.Into != "" {
		out.TurnID = t.Into
	}
	out.State, err = SharedState(ctx, m.store)
	return out, err
}

// logOf reads a session's records, a page at a time.
func (m *Manager) logOf(ctx context.Context, sessionID string) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for last := int64(0); ; {
			recs, err := m.store.Read(ctx, sessionID, last, readPage)
			if err != nil {
				if errors.Is(err, ErrNoSession) {
					err = errNoSession(sessionID)
				} else {
					err = fmt.Errorf("session %s: %w", sessionID, err)
				}
				yield(Record{}, err)
				return
			}
			for _, rec := range recs {
				if last = rec.Seq; !yield(rec, nil) {
					return
				}
			}
			if LastPage(recs, readPage) {
				return
			}
		}
	}
}
