package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/halt"
	"github.com/apzuk3/agentd/session/internal/live"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// errSuspectRuns marks the refusal to run a suspect while another one runs.
var errSuspectRuns = errors.New("session: another turn that the process died of is being tried")

// attempt counts in the store that the open turn of a session is about to run. If the turn does not run
// after all, the caller calls undo.
func (m *Manager) attempt(ctx context.Context, s *live.Session) (undo func(), err error) {
	attempts := s.AttemptsNow()
	if m.probation.Suspected(attempts) && !m.probation.Enter(s) {
		message := fmt.Sprintf("the server died %d times in a row while this turn ran; "+
			"such turns go on one at a time, and another one does now: attach again later", attempts)
		return nil, &fault.Error{
			Code: fault.Unavailable, Err: errSuspectRuns, RetryAfter: refusal.Later,
			TurnID: s.OpenTurn(), Message: message,
		}
	}
	if err := m.setAttempts(ctx, s, max(attempts, 0)+1, false); err != nil {
		m.cleared(s)
		return nil, fmt.Errorf("session %s: %w", s.ID(), err)
	}
	return func() { m.restoreAttempts(s, max(attempts, 0), false) }, nil
}

// attemptsTimeout bounds the write that resets the count.
const attemptsTimeout = 2 * time.Second

// resetAttempts records that nothing of a session's open turn runs. waits says that the turn waits for a
// client.
func (m *Manager) resetAttempts(s *live.Session, waits bool) { m.restoreAttempts(s, 0, waits) }

// restoreAttempts resets the count to an earlier value. If that fails, the turn counts as running when the
// process dies.
func (m *Manager) restoreAttempts(s *live.Session, attempts int64, waits bool) {
	ctx, cancel := context.WithTimeout(m.store.Writing(), attemptsTimeout)
	defer cancel()
	if s.IsLost() { // it is another server's now
	} else if err := m.setAttempts(ctx, s, attempts, waits); err != nil {
		m.log.LogAttrs(ctx, slog.LevelDebug, "a turn that does not run counts as running",
			slog.String("session", s.ID()), slog.String("error", err.Error()))
	}
	m.cleared(s)
}

func (m *Manager) setAttempts(ctx context.Context, s *live.Session, attempts int64, waits bool) error {
	err := m.store.SetAttempts(ctx, s.Key(), attempts, waits)
	if err == nil {
		s.SetAttempts(attempts)
	}
	return fenced(s, err)
}

// fenced loses a session that the store says is another server's.
func fenced(s *live.Session, err error) error {
	if errors.Is(err, store.ErrFenced) {
		s.Lose()
		return halt.ErrMoved
	}
	return err
}

// cleared ends the probation of a session's turn: the next suspect may run.
func (m *Manager) cleared(s *live.Session) {
	if m.probation.Leave(s) {
		m.signalRoom()
	}
}

// endQuarantined is quarantine for resume: it releases the reservation and returns the turn.
func (m *Manager) endQuarantined(ctx context.Context, ref *sessionRef) (*Turn, error) {
	next, err := m.quarantine(ctx, ref.Value)
	if next != nil {
		m.launchNext(ctx, ref, next)
	} else {
		ref.Value.Unreserve()
	}
	if err != nil {
		return nil, err
	}
	return ref.Value.Last(), nil
}

// quarantine fails the open turn of a session. The caller has reserved the session; the turn to run next,
// if one is returned, takes over the reservation.
func (m *Manager) quarantine(ctx context.Context, s *live.Session) (next *live.Driver, err error) {
	turn, attempts := s.OpenTurn(), s.AttemptsNow()
	log := m.log.With(slog.String("session", s.ID()), slog.String("turn", turn), slog.Int64("deaths", attempts))
	if attempts == store.AttemptsClosing {
		log.Error("a quarantined turn is left open: the process died while the turn was ended")
		return nil, fault.Errorf(fault.Precondition,
			"session %q: its turn is quarantined, and the server died while it ended the turn; "+
				"delete the session, or fork it before the turn", s.ID())
	}
	if err := fenced(s, m.store.SetAttempts(ctx, s.Key(), store.AttemptsClosing, false)); err != nil {
		return nil, fmt.Errorf("session %s: %w", s.ID(), err)
	}
	why := fault.Errorf(fault.Internal,
		"the server died %d times in a row while this turn ran, and the turn made no step forward in between: "+
			"it is quarantined and does not run again; the session goes on with its next prompt", attempts)
	end := func() *record.TurnEnded { return new(record.TurnEnded).Fail(why) }
	next, err = s.CloseAs(ctx, func(record.Receipt) (func() *record.TurnEnded, error) { return end, why })
	if err != nil {
		m.undoClosing(ctx, s, attempts)
		log.Error("a turn that the process died of could not be ended", slog.String("error", err.Error()))
		return nil, err
	}
	log.Error("turn quarantined: it was running each time when the process died")
	return next, nil
}

// undoClosing resets the count from AttemptsClosing.
func (m *Manager) undoClosing(ctx context.Context, s *live.Session, attempts int64) {
	if err := m.store.SetAttempts(context.WithoutCancel(ctx), s.Key(), attempts, false); err != nil {
		m.log.LogAttrs(ctx, slog.LevelWarn, "a quarantined turn counts as one that cannot be ended",
			slog.String("session", s.ID()), slog.String("error", err.Error()))
	}
}
