package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// TurnQuery says which turns; what is zero does not matter.
type TurnQuery struct {
	// SessionID is the session they belong to.
	SessionID string
	// Statuses are those of which a turn has to have one.
	Statuses []Status
	// CreatedFrom is the first time of the prompt that counts, CreatedBefore the
	// first one after that which does not.
	CreatedFrom, CreatedBefore time.Time
}

// Turn says how a turn is; "" is the session's last one. Its errors are of type
// *fault.Error if a client may see them.
func (m *Manager) Turn(ctx context.Context, sessionID, turnID string) (TurnInfo, error) {
	if turnID == "" {
		info, err := m.known(ctx, sessionID)
		if err != nil {
			return TurnInfo{}, err
		}
		if turnID = info.LastTurn; turnID == "" {
			return TurnInfo{}, fault.Errorf(fault.NotFound, "session %q has no turn", sessionID)
		}
	}
	row, err := m.turnRow(ctx, sessionID, turnID)
	if e, ok := errors.AsType[*fault.Error](err); ok && e.Code == fault.NotFound {
		if _, err := m.known(ctx, sessionID); err != nil {
			return TurnInfo{}, err
		}
	}
	if err != nil {
		return TurnInfo{}, err
	}
	return m.turnNow(ctx, row)
}

// Said returns the parts of a turn's prompt, as they were sent. Its errors are of
// type *fault.Error if a client may see them.
func (m *Manager) Said(ctx context.Context, t *TurnInfo) (record.Parts, error) {
	first := position.Record(t.After + 1)
	recs, err := m.store.Read(ctx, t.SessionID, first-1, 1)
	if err == nil && len(recs) == 0 || errors.Is(err, store.ErrNoSession) {
		_, err = m.known(ctx, t.SessionID) // it was deleted or purged meanwhile
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

// turnRow finds the row of a turn. One that there is not is a *fault.Error of code
// NOT_FOUND, whether or not there is the session.
func (m *Manager) turnRow(ctx context.Context, sessionID, turnID string) (store.Row, error) {
	row, err := m.store.Row(ctx, store.RowTurn, sessionID, turnID)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return store.Row{}, fault.Errorf(fault.NotFound, "turn_id: session %q has no turn %q", sessionID, turnID).OfTurn(turnID)
	case err != nil:
		return store.Row{}, fmt.Errorf("session %s: turn %s: %w", sessionID, turnID, err)
	}
	return row, nil
}

// hasTurn is nil if a session is kept and has a turn; "" asks for the session
// alone.
func (m *Manager) hasTurn(ctx context.Context, sessionID, turnID string) error {
	if _, err := m.known(ctx, sessionID); err != nil || turnID == "" {
		return err
	}
	_, err := m.turnRow(ctx, sessionID, turnID)
	return err
}

// known returns what the store has of a session whose log is kept.
func (m *Manager) known(ctx context.Context, sessionID string) (store.Info, error) {
	info, err := m.store.Info(ctx, sessionID)
	switch {
	case errors.Is(err, store.ErrNoSession):
		return store.Info{}, errNoSession(sessionID)
	case err != nil:
		return store.Info{}, fmt.Errorf("session %s: %w", sessionID, err)
	case info.Purged > 0:
		return store.Info{}, errPurged(sessionID)
	}
	return info, nil
}

// turnNow adds to a row what is not in it: of a turn that is not over, all that
// has happened since it began.
func (m *Manager) turnNow(ctx context.Context, row store.Row) (TurnInfo, error) {
	var t *TurnInfo
	// A turn that ends while it is looked at has a new row.
	for range 2 {
		var err error
		if t, err = turnOf(row); err != nil {
			return TurnInfo{}, fmt.Errorf("session %s: turn %s: its row: %w", row.SessionID, row.ID, err)
		}
		// What is written counts once it is shown too.
		if t.Status != 0 && !m.inMemory(row.SessionID) {
			return *t, nil
		}
		h, err := m.acquire(ctx, row.SessionID)
		if err != nil {
			return TurnInfo{}, err
		}
		live, ok := h.s.turnNow(row.ID)
		m.release(h)
		switch {
		case ok:
			return live, nil
		case t.Status != 0:
			return *t, nil
		}
		if row, err = m.store.Row(ctx, store.RowTurn, row.SessionID, row.ID); err != nil {
			return TurnInfo{}, fmt.Errorf("session %s: turn %s: %w", row.SessionID, t.ID, err)
		}
	}
	// The row is ahead of the session, which is just told that it was written.
	t.Status = Running
	if t.recorded == rowPending {
		t.Status = Pending
	}
	return *t, nil
}

// inMemory tells whether a session is, or is about to be.
func (m *Manager) inMemory(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.inTableLocked(id) != nil
}

// turnNow says how a turn is that is not over; false for any other.
func (s *Session) turnNow(id string) (TurnInfo, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.index.turns[id]
	if t == nil {
		return TurnInfo{}, false
	}
	out := *t
	out.SessionID, out.Open = s.id, slices.Clone(t.Open)
	for _, in := range s.index.asked.pending {
		if in.TurnID == id {
			asking := *in
			asking.SessionID, asking.Expires = s.id, in.Created.Add(s.limits.Retention)
			out.Asking = append(out.Asking, &asking)
		}
	}
	out.Status = Pending
	if t.recorded == rowOpen {
		out.Status = s.statusLocked()
	}
	return out, true
}

// statusLocked is how the open turn is.
func (s *Session) statusLocked() Status {
	t := s.turn
	switch {
	case s.starting != nil:
		return Running
	case t == nil:
		return WaitingForClient
	case !t.runs():
		return t.waitsFor()
	case len(t.pending) == 0 || len(t.modelCalls) > 0:
		return Running
	}
	for _, p := range t.pending {
		if p.owner != nil || p.phase == callRecording {
			return Running
		}
	}
	return t.waitsFor()
}

// onlyWaits tells whether a turn that runs waits for a person, or for a client
// that is not there, and nothing else of it goes on.
func (s *Session) onlyWaits(a *attempt) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := a.t
	if t != s.turn || a != t.attempt || !t.runs() {
		return false
	}
	status := s.statusLocked()
	return status == WaitingForClient || status == WaitingForInput
}

// waitsFor is the status of a turn that only waits.
func (t *Turn) waitsFor() Status {
	for _, p := range t.pending {
		if p.call.Asks != nil {
			return WaitingForInput
		}
	}
	return WaitingForClient
}

// size is about how many bytes of a message the turn takes.
func (t *TurnInfo) size() int {
	// A value of one digit takes two bytes as JSON and eleven in a message.
	const structured = 6
	n := len(t.Prompt) + len(t.Output)
	if t.Structured {
		n += structured * len(t.Output)
	}
	for _, c := range t.Open {
		n += c.Size()
	}
	for _, in := range t.Asking {
		n += in.Call.Size()
	}
	if t.End == nil {
		return n
	}
	return n + len(t.End.Reason) + t.End.Receipt.Size()
}

// ListTurns returns at most limit turns, fewer if they say much, newest first, and
// the token of the next page, "" on the last one. page is a token of the same
// query, "" for the first page. Turns that are not over are read from their
// sessions' logs unless those are in memory.
func (m *Manager) ListTurns(
	ctx context.Context, q TurnQuery, page string, limit int,
) (turns []TurnInfo, next string, err error) {
	hash := queryHash(q)
	after, err := readToken(page, hash)
	if err != nil {
		return nil, "", err
	}
	if q.SessionID != "" {
		if _, err := m.known(ctx, q.SessionID); err != nil {
			return nil, "", err
		}
	}
	rq := store.RowQuery{
		Kind: store.RowTurn, SessionID: q.SessionID, Statuses: recorded(q.Statuses),
		CreatedFrom: q.CreatedFrom, CreatedBefore: q.CreatedBefore, Limit: min(limit+1, listRows),
	}
	if after != nil {
		rq.After = &store.Row{CreatedAt: after.created(), SessionID: after.Session, Seq: after.Seq, ID: after.ID}
	}
	bytes := 0
	for {
		rows, err := m.store.Rows(ctx, rq)
		if err != nil {
			return nil, "", fmt.Errorf("session: list turns: %w", err)
		}
		for _, row := range rows {
			t, err := m.turnNow(ctx, row)
			if _, known := errors.AsType[*fault.Error](err); err != nil && !known && !gone(err) && ctx.Err() == nil {
				m.log.LogAttrs(ctx, slog.LevelWarn, "a turn is listed without what has happened in it",
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
			case full(len(turns), limit, bytes, t.size()):
				last := turns[len(turns)-1]
				next := token{hash, last.Created.UnixMicro(), last.SessionID, position.Record(last.After + 1), last.ID}
				return turns, next.String(), nil
			}
			turns = append(turns, t)
			bytes += t.size()
		}
		if store.LastRows(rows, rq.Limit) {
			return turns, "", nil
		}
		rq.After = &rows[len(rows)-1]
	}
}

// asRecorded is what a row says of a turn that runs nowhere.
func asRecorded(row store.Row) (TurnInfo, error) {
	t, err := turnOf(row)
	if err != nil {
		return TurnInfo{}, fmt.Errorf("session %s: turn %s: its row: %w", row.SessionID, row.ID, err)
	}
	switch t.recorded {
	case rowOpen:
		t.Status = WaitingForClient
	case rowPending:
		t.Status = Pending
	}
	return *t, nil
}

// gone tells whether a session that a list has found was deleted or purged
// meanwhile.
func gone(err error) bool {
	e, ok := errors.AsType[*fault.Error](err)
	return ok && (e.Code == fault.SessionNotFound || e.Code == fault.HistoryPurged) || errors.Is(err, store.ErrNotFound)
}

// recorded are the statuses that rows have for those that are looked for.
func recorded(want []Status) []string {
	var out []string
	for _, is := range want {
		if as := recordedAs[is]; !slices.Contains(out, as) {
			out = append(out, as)
		}
	}
	return out
}
