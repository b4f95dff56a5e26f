package session

import (
	"context"
	"errors"
)

// errKept is the error of a session that was about to be removed and was not.
var errKept = errors.New("session: not removed")

// acquire returns a session in memory and counts its user; "" makes a new one.
func (m *Manager) acquire(ctx context.Context, id string) (*held, error) {
	for {
		if h, err := m.tryAcquire(ctx, id); !errors.Is(err, errKept) {
			return h, err
		}
	}
}

// tryAcquire is acquire, or errKept.
func (m *Manager) tryAcquire(ctx context.Context, id string) (*held, error) {
	m.mu.Lock()
	fresh := id == ""
	if fresh {
		id = newSessionID()
	}
	h := m.sessions[id]
	if h != nil {
		h.users++
		if h.idle != nil {
			m.idle.Remove(h.idle)
			h.idle = nil
		}
		m.mu.Unlock()
		select {
		case <-h.ready:
		case <-ctx.Done():
			m.release(h)
			return nil, context.Cause(ctx)
		}
		if h.err != nil {
			m.release(h)
			return nil, h.err
		}
		return h, nil
	}
	h = &held{id: id, ready: make(chan struct{}), users: 1}
	m.sessions[id] = h
	m.mu.Unlock()
	if fresh {
		h.s = newSession(m.store, m.runner, m.limits, id)
		h.s.create = &NewSession{ID: id, CreatedAt: now(), Creator: creator}
	} else {
		// Others may wait for this read, so it does not end with this caller.
		readCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadTimeout)
		h.s, h.err = load(readCtx, m.store, m.runner, m.limits, id)
		cancel()
		if errors.Is(h.err, ErrNoSession) {
			h.err = errNoSession(id)
		}
	}
	close(h.ready)
	if h.err != nil {
		m.release(h)
		return nil, h.err
	}
	return h, nil
}

// release counts a user down. An unused session stays for a while, unless it
// is of no use.
func (m *Manager) release(h *held) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h.users--
	if h.users > 0 {
		return
	}
	if h.err != nil || h.s.useless() {
		if m.sessions[h.id] == h { // see alone
			delete(m.sessions, h.id)
		}
		return
	}
	h.idle = m.idle.PushBack(h)
	for m.idle.Len() > m.limits.MaxIdleSessions {
		oldest := m.idle.Remove(m.idle.Front()).(*held)
		oldest.idle = nil
		delete(m.sessions, oldest.id)
	}
}

// useless tells whether the session must not be kept: its log has to be read
// again, or was never begun.
func (s *Session) useless() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	open := s.turn != nil && s.turn.ended == nil // put aside: its log is all there is to keep
	return s.broken != nil || s.seq == 0 || open
}
