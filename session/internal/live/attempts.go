package live

// steppedLocked applies the count of attempts after an append: 1 if it is a step forward, 0 for no change.
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
