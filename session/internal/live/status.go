package live

import (
	"context"

	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/phase"
)

// TurnNow returns a turn that is not over; false for any other.
func (s *Session) TurnNow(id string) (index.Turn, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.index.Turn(s.key, id, s.limits().Retention)
	if t.Status == index.Running {
		t.Status = s.statusLocked()
	}
	return t, ok
}

// LastIs returns the status of a turn if it is the session's last one, else 0.
func (s *Session) LastIs(id string) index.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	is := s.index.StatusOf(id)
	if is == index.Running {
		is = s.statusLocked()
	}
	return is
}

// statusLocked returns the status of the open turn.
func (s *Session) statusLocked() index.Status {
	t := s.turn
	switch {
	case s.starting != nil:
		return index.Running
	case t == nil:
		return index.WaitingForClient
	case !t.runs():
		return t.waitsFor()
	case len(t.pending) == 0 || len(t.modelCalls) > 0:
		return index.Running
	}
	for _, p := range t.pending {
		if p.owner != nil && !p.isAsked() || p.phase == phase.CallRecording {
			return index.Running
		}
	}
	return t.waitsFor()
}

// waitsFor returns the status of a turn that only waits.
func (t *Turn) waitsFor() index.Status {
	for _, p := range t.pending {
		if p.isAsked() {
			return index.WaitingForInput
		}
	}
	return index.WaitingForClient
}

// IsArchived reports whether the session takes no new turns.
func (s *Session) IsArchived() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.archived
}

// IsOpen reports whether the session has a turn that has started and not ended.
func (s *Session) IsOpen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turn != nil && s.turn.ended == nil
}

// OpenTurn returns the id of the turn that has started and not ended, or "".
func (s *Session) OpenTurn() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.openTurnLocked()
}

func (s *Session) openTurnLocked() string {
	if s.turn == nil || s.turn.ended != nil {
		return ""
	}
	return s.turn.id
}

// IsSuspended reports whether the session's last turn is suspended and not about to be resumed.
func (s *Session) IsSuspended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.turn
	return t != nil && t.phase == phase.TurnSuspended && s.starting == nil
}

// RunningOrOver returns the last turn if it runs or has ended, else nil.
func (s *Session) RunningOrOver() *Turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.turn != nil && (s.turn.runs() || s.turn.phase == phase.TurnEnded) {
		return s.turn
	}
	return nil
}

// AwaitSuspended waits while the last turn is suspending.
func (s *Session) AwaitSuspended(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return lock.Await(ctx, &s.mu, func() <-chan struct{} {
		if t := s.turn; t != nil && t.phase == phase.TurnSuspending {
			return t.done
		}
		return nil
	})
}

// IsQuiet reports whether no turn runs or is about to.
func (s *Session) IsQuiet() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.starting == nil && (s.turn == nil || !s.turn.runs())
}

// Last returns the session's last turn, nil before the first.
func (s *Session) Last() *Turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turn
}
