package session

import "time"

// HoldResuming keeps a session's turn from being made to run again until the
// function it returns is called.
func (m *Manager) HoldResuming(id string) (release func()) {
	m.mu.Lock()
	s := m.sessions[id].s
	m.mu.Unlock()
	s.resuming.Lock()
	return s.resuming.Unlock
}

// Reserve makes a session look as if somebody who has just started its turn had
// not yet let go of it.
func (m *Manager) Reserve(id string) (release func()) {
	m.mu.Lock()
	s := m.sessions[id].s
	m.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starting = make(chan struct{})
	return s.unreserve
}

// Started returns when the turn has started.
func (t *Turn) Started() time.Time {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return t.started
}
