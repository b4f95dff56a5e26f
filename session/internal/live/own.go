package live

import (
	"github.com/apzuk3/agentd/session/internal/halt"
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

// Yield has the open turn begin no further step, as in a server that stops, unless a client takes part in it.
func (s *Session) Yield() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watchers {
		if w.asks {
			return
		}
	}
	s.yields = true
	s.reconcileLocked()
}

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
