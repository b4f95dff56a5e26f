package session

import (
	"context"
	"log/slog"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/internal/live"
	"github.com/apzuk3/agentd/session/record"
)

// CancelCall settles a call of a turn as canceled, durably, before it returns. The model sees a canceled
// tool, and the turn continues; a suspended turn is resumed. "" is the session's last turn. A call with a
// result, and a turn that is over, stay as they are. An unknown turn or call is a *fault.Error of code
// NOT_FOUND.
func (m *Manager) CancelCall(ctx context.Context, req AttachRequest, callID string) error {
	ref, err := m.acquire(ctx, req.SessionID)
	if err != nil {
		return err
	}
	defer m.release(ref)
	s := ref.Value
	if err := s.CheckPosition(nil); err != nil {
		return err
	}
	if s.Inherits() { // ends the inherited turn
		if _, err := m.resumeLast(ctx, s.Key(), nil); err != nil {
			return err
		}
	}
	if err := s.CancelCall(ctx, req.TurnID, callID); err != nil {
		return err
	}
	m.resumeAfter(ctx, s, req.Keys)
	return nil
}

// Resolve is Turn.Resolve for a session that need not be in memory. It resumes a suspended turn if that is
// possible without a client, and returns the interaction as it is then.
func (m *Manager) Resolve(
	ctx context.Context, req AttachRequest, id string, r record.Resolution,
) (*index.Interaction, error) {
	ref, err := m.acquire(ctx, req.SessionID)
	if err != nil {
		return nil, err
	}
	defer m.release(ref)
	s := ref.Value
	if err := s.Resolve(ctx, id, r); err != nil {
		return nil, err
	}
	in, err := m.Interaction(ctx, s.ID(), id)
	if in == nil || !in.Raised() { // one that was raised is for the client that runs the call
		m.resumeAfter(ctx, s, req.Keys)
	}
	return in, err
}

// Raise has a person asked about a call of a session's last turn by the client that runs it, durably, before it
// returns. It returns the interaction as it is then; again reports that one of that number was asked before, which
// stands and may be resolved. A call that no client runs, or that is over, is a *fault.Error of code
// FAILED_PRECONDITION; a number that would leave a gap is INVALID_REQUEST.
func (m *Manager) Raise(
	ctx context.Context, sessionID, callID string, q record.Question,
) (in *index.Interaction, again bool, err error) {
	ref, err := m.acquire(ctx, sessionID)
	if err != nil {
		return nil, false, err
	}
	defer m.release(ref)
	id, again, err := ref.Value.Raise(ctx, callID, q)
	if err != nil {
		return nil, false, err
	}
	in, err = m.Interaction(ctx, ref.Value.ID(), id)
	return in, again, err
}

// CompactSession has summaries replace what the models of a session have read so far, before the next model call of
// each, durably. It returns the position of what comes last before the request. A session without a turn, and an
// archived one, is a *fault.Error of code FAILED_PRECONDITION.
func (m *Manager) CompactSession(ctx context.Context, id, focus string) (pos int64, err error) {
	ref, err := m.acquire(ctx, id)
	if err != nil {
		return 0, err
	}
	defer m.release(ref)
	if err := takesTurns(ref.Value); err != nil {
		return 0, err
	}
	return ref.Value.AskCompaction(ctx, focus)
}

// takesTurns refuses a session that is archived.
func takesTurns(s *live.Session) error {
	if !s.IsArchived() {
		return nil
	}
	return fault.Errorf(fault.Precondition,
		"session %q is archived: make it active with UpdateSession before it takes a new turn", s.ID())
}

// SubmitResults records results of tool calls of a turn, and returns for each what Turn.SubmitResult returns. It
// resumes the session's last turn if it is suspended. A turn that is over takes no more results, but a
// repeat of a recorded result is no error.
func (m *Manager) SubmitResults(ctx context.Context, req AttachRequest, results []ClientResult) ([]error, error) {
	ref, err := m.acquire(ctx, req.SessionID)
	if err != nil {
		return nil, err
	}
	defer m.release(ref)
	if err := ref.Value.CheckPosition(nil); err != nil {
		return nil, err
	}
	t, err := ref.Value.FindOwner(ctx, req.TurnID)
	if err == nil && ref.Value.IsLast(t) {
		t, err = m.resumeLast(ctx, ref.Value.Key(), req.Keys)
	}
	if err == nil {
		t, err = ref.Value.WithResults(ctx, t)
	}
	if err != nil {
		return nil, err
	}
	errs := make([]error, len(results))
	for i, r := range results {
		errs[i] = t.SubmitResult(ctx, r)
	}
	m.resumeAfter(ctx, ref.Value, req.Keys) // the turn may have been suspended meanwhile
	return errs, nil
}

// resumeAfter resumes the open turn of a session after something of it was recorded. It only logs an error:
// what was recorded stands.
func (m *Manager) resumeAfter(ctx context.Context, s *live.Session, keys Keys) {
	if !s.IsOpen() {
		return
	}
	if _, err := m.resumeLast(ctx, s.Key(), keys); err != nil {
		m.log.LogAttrs(ctx, slog.LevelInfo, "a turn that could go on waits for a client",
			slog.String("session", s.Key()), slog.String("error", err.Error()))
	}
}
