package live

import "github.com/apzuk3/agentd/session/internal/probation"

// stepsForward returns the count of attempts after entries are written: 1 if one is a step forward, 0 for
// no change.
func stepsForward(entries []*entry) int64 {
	for _, e := range entries {
		if probation.IsStep(e.kind) {
			return 1
		}
	}
	return 0
}

// steppedLocked applies the count of stepsForward.
func (s *Session) steppedLocked(attempts int64) {
	if attempts > 0 {
		if s.attempts > 1 {
			s.host.Cleared(s)
		}
		s.attempts = attempts
	}
}

// AttemptsNow returns how often the open turn was made to run since its last step forward: see store.Head.
func (s *Session) AttemptsNow() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attempts
}

// SetAttempts applies a count that the store has.
func (s *Session) SetAttempts(attempts int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts = attempts
	s.reconcileLocked()
}
