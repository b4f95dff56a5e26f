package live

import (
	"github.com/apzuk3/agentd/session/internal/halt"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/phase"
)

// Lose breaks a session that another server owns, or may own: nothing of it is written or shown any more. Its turn is
// left in the log as it is, for that server.
func (s *Session) Lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loseLocked(&flight{})
}

// loseLocked is Lose after an append was refused.
func (s *Session) loseLocked(f *flight) {
	s.Lease.Lose()
	if f.unsure {
		f.entries = refuse(f.entries, halt.ErrUnsure, func(*entry) bool { return true })
	}
	s.breakLocked(f, halt.ErrMoved)
	for w := range s.watchers {
		w.backlog.Fail(halt.ErrMoved)
		delete(s.watchers, w)
	}
	s.rouse()
}

// IsLost reports whether another server owns the session, or may own it.
func (s *Session) IsLost() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return halt.IsMoved(s.broken)
}

// Yield has the open turn begin no further step, as in a server that stops, because clients of the server at an
// address want to take part in it. It reports false, and changes nothing, if a client takes part already: one that
// another server has forwarded, or none. Those of that server are not reached any more. It stands until Stay.
func (s *Session) Yield(to string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watchers {
		if w.asks && (w.by == "" || w.by != to) {
			return false
		}
	}
	s.yields = true
	s.reconcileLocked()
	return true
}

// Yields reports whether Yield was called, and Rests whether nothing is done in the session: no turn runs or is about
// to, and nothing is being written.
func (s *Session) Yields() bool { return lock.Get(&s.mu, func() bool { return s.yields }) }

// Rests is described at Yields.
func (s *Session) Rests() bool {
	return lock.Get(&s.mu, func() bool {
		runs := s.turn != nil && (s.turn.runs() || s.turn.phase == phase.TurnStarting)
		return !runs && s.starting == nil && !s.flushing && len(s.waiting)+len(s.queue) == 0
	})
}

// Stay ends Yield, for a session whose turn does not run.
func (s *Session) Stay() { lock.Do(&s.mu, func() { s.yields = false }) }

// drainsLocked reports whether turns begin no further step.
func (s *Session) drainsLocked() bool { return s.yields || s.store.Draining.Load() }

// IsWriting reports whether an append is under way, or waits for the store.
func (s *Session) IsWriting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flushing || len(s.waiting)+len(s.queue) > 0
}

// Has reports whether the session is as its log was when it ended with a record.
func (s *Session) Has(lastSeq int64, archived bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seq == lastSeq && s.archived == archived && s.broken == nil
}

// IsLeft reports whether another server drives the turn, or is to: the session is lost, or its turn is suspended in a
// server that stops.
func (t *Turn) IsLeft() bool { return t.s.IsLost() || t.s.store.Draining.Load() && t.s.IsSuspended() }
