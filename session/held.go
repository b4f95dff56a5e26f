package session

import (
	"context"
	"errors"
	"regexp"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/store"
)

// errKept is the error of a session that was about to be removed and was not.
var errKept = errors.New("session: not removed")

// acquire returns a session in memory and counts its user; "" makes a new one.
func (m *Manager) acquire(ctx context.Context, id string) (*held, error) {
	for {
		if h, err := m.tryAcquire(ctx, id, false); !errors.Is(err, errKept) {
			return h, err
		}
	}
}

// acquireToStart is acquire for a turn that is about to start. With create, a session
// that does not exist is made under its id; the first record that is written makes it
// in the store, too. Without create a session that another caller is only about to make
// does not exist.
func (m *Manager) acquireToStart(ctx context.Context, id string, create bool) (*held, error) {
	if id == "" || !create {
		h, err := m.acquire(ctx, id)
		if err == nil && id != "" && h.s.isUnmade() {
			m.release(h)
			return nil, refusal.NoSession(id)
		}
		return h, err
	}
	for {
		h, err := m.tryAcquire(ctx, id, true)
		if err == nil || !errors.Is(err, errKept) && fault.As(err).Code != fault.SessionNotFound {
			return h, err
		}
		// Another caller has found that there is none, or has just removed it.
	}
}

func (s *Session) isUnmade() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.create != nil
}

// idPattern is what a caller may call a session that it has made, or a turn.
var idPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$`)

// tryAcquire is acquire, or errKept. With create it makes the session that id names if
// there is none; an error of SESSION_NOT_FOUND then is another caller's.
func (m *Manager) tryAcquire(ctx context.Context, id string, create bool) (*held, error) {
	fresh := id == ""
	if fresh {
		id = newSessionID()
	}
	h, found := m.use(id)
	if found {
		err := lock.Wait(ctx, h.ready)
		if err == nil {
			err = h.err
		}
		if err != nil {
			m.release(h)
			return nil, err
		}
		return h, nil
	}
	var refused error // to this caller alone
	if !fresh {
		// Others may wait for this read, so it does not end with this caller.
		readCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadTimeout)
		h.s, h.err = load(readCtx, m.store, m.runner, m.limits, id)
		cancel()
		if errors.Is(h.err, store.ErrNoSession) {
			h.err = refusal.NoSession(id)
			if create {
				refused = checkChosenID(id)
			}
			if create && refused == nil {
				fresh, h.err = true, nil
			}
		}
	}
	if fresh && h.err == nil {
		h.s = newSession(m.store, m.runner, m.limits, id)
		h.s.owner = principal.Of(ctx)
		h.s.create = &store.NewSession{ID: id, CreatedAt: m.store.Stamp(), Creator: h.s.owner.Key()}
	}
	if h.s != nil {
		h.s.manager = m
	}
	close(h.ready)
	switch {
	case refused != nil:
		m.release(h)
		return nil, refused
	case h.err != nil:
		m.release(h)
		return nil, h.err
	}
	return h, nil
}

// use counts a user of the table's entry for a session. If there is none it makes one that
// is not ready, and reports false: the caller reads the session.
func (m *Manager) use(id string) (h *held, found bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := m.inTableLocked(id); h != nil {
		h.users++
		if h.idle != nil {
			m.idle.Remove(h.idle)
			h.idle = nil
		}
		return h, true
	}
	h = &held{id: id, ready: make(chan struct{}), users: 1}
	m.sessions[id] = h
	return h, false
}

// checkChosenID refuses an id under which a caller may not make a session.
func checkChosenID(id string) error {
	if !idPattern.MatchString(id) {
		return fault.Errorf(fault.Invalid, "session_id %.140q: there is no such session, and none is made under that id: "+
			"it must be 1 to 128 of A-Z, a-z, 0-9 and . _ : @ -, a letter or a digit "+
			"first", id).Breaking("session_id", fault.RuleFormat)
	}
	return nil
}

// inTableLocked is a session in memory, or nil. One whose log has to be read again
// leaves the table, though it may have users yet: it takes no more writes.
func (m *Manager) inTableLocked(id string) *held {
	h := m.sessions[id]
	if h == nil {
		return nil
	}
	select {
	case <-h.ready:
	default:
		return h
	}
	if h.err != nil || !h.s.isBroken() {
		return h
	}
	delete(m.sessions, id)
	if h.idle != nil {
		m.idle.Remove(h.idle)
		h.idle = nil
	}
	return nil
}

func (s *Session) isBroken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken != nil
}

// release counts a user down. An unused session stays for a while, unless it
// is of no use.
func (m *Manager) release(h *held) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h.users--
	if h.users > 0 || m.sessions[h.id] != h {
		return
	}
	if h.err != nil || h.s.useless() {
		delete(m.sessions, h.id)
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
	open := s.turn != nil && s.turn.ended == nil // suspended: its log is all there is to keep
	return s.broken != nil || s.seq == 0 || open
}
