package session

import (
	"context"
	"errors"
	"regexp"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/internal/table"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/store"
)

// held is a session in memory, as Manager.sessions counts its users.
type held = table.Entry[*Session]

// newTable returns the table of the sessions that are in memory. One that is broken leaves it, though it may have
// users yet.
func newTable(limits limits.Limits) *table.Table[*Session] {
	return table.New(table.Policy[*Session]{
		MaxIdle: limits.MaxIdleSessions,
		Broken:  (*Session).isBroken,
		Useless: (*Session).useless,
	})
}

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
		if err == nil && id != "" && h.Value.isUnmade() {
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
	h, found := m.sessions.Use(id)
	if found {
		if err := h.Wait(ctx); err != nil {
			m.release(h)
			return nil, err
		}
		return h, nil
	}
	var s *Session
	var err error
	if !fresh {
		// Others may wait for this read, so it does not end with this caller.
		readCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadTimeout)
		s, err = load(readCtx, m.store, m.runner, m.limits, id)
		cancel()
	}
	var refused error // to this caller alone
	if errors.Is(err, store.ErrNoSession) {
		err = refusal.NoSession(id)
		if create {
			refused = checkChosenID(id)
			fresh = refused == nil
		}
	}
	if fresh {
		s, err = m.makeSession(ctx, id), nil
	}
	if s != nil {
		s.manager = m
	}
	h.Set(s, err)
	if refused != nil {
		err = refused
	}
	if err != nil {
		m.release(h)
		return nil, err
	}
	return h, nil
}

// makeSession makes a session in memory, whose first record makes it in the store, too.
func (m *Manager) makeSession(ctx context.Context, id string) *Session {
	s := newSession(m.store, m.runner, m.limits, id)
	s.owner = principal.Of(ctx)
	s.create = &store.NewSession{ID: id, CreatedAt: m.store.Stamp(), Creator: s.owner.Key()}
	return s
}

// checkChosenID refuses an id under which a caller may not make a session.
func checkChosenID(id string) error {
	if !idPattern.MatchString(id) {
		return fault.Errorf(fault.Invalid, "session_id %.140q: there is no such session, and none is made under that "+
			"id: it must be 1 to 128 of A-Z, a-z, 0-9 and . _ : @ -, a letter or a digit first", id).
			Breaking("session_id", fault.RuleFormat)
	}
	return nil
}

// release counts a user down. An unused session stays for a while, unless it
// is of no use.
func (m *Manager) release(h *held) { m.sessions.Release(h) }

// sessionInMemory is a session that is in memory and has been read, or nil.
func (m *Manager) sessionInMemory(id string) *Session {
	h := m.sessions.Find(id)
	if h == nil {
		return nil
	}
	s, _ := h.Now()
	return s
}

// isBroken tells whether the session takes no more writes: its log has to be read again.
func (s *Session) isBroken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken != nil
}

// useless tells whether the session must not be kept: its log has to be read
// again, or was never begun.
func (s *Session) useless() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	open := s.turn != nil && s.turn.ended == nil // suspended: its log is all there is to keep
	return s.broken != nil || s.seq == 0 || open
}

// alone does something to a session that nobody uses, and makes those who ask for the
// session meanwhile wait; they get gone if it succeeds, else the session. A session
// that somebody uses is ErrConflict. Those who observe it are told gone.
func (m *Manager) alone(id string, gone *fault.Error, f func() error) error {
	h := m.sessions.Replace(id, func(s *Session) { s.endObservers(gone) })
	if h == nil {
		return store.ErrConflict
	}
	err := f()
	if err == nil {
		h.Set(nil, gone)
	} else {
		m.sessions.Remove(h) // who comes now reads it anew
		h.Set(nil, errKept)
	}
	m.release(h)
	m.rouseReaders(id)
	return err
}
