package session

// HoldResuming keeps a session's turn from being made to run again until the
// function it returns is called.
func (m *Manager) HoldResuming(id string) (release func()) {
	m.mu.Lock()
	s := m.sessions[id].s
	m.mu.Unlock()
	s.resuming.Lock()
	return s.resuming.Unlock
}
