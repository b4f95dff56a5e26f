package session

import (
	"context"
	"errors"
	"sync"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/live"
)

// An observer has a watcher that takes no part (see Watcher.asks). It keeps its session in memory, also
// while the turn is suspended, but does not keep the session from being removed.

// observe is Attach for an observer.
func (m *Manager) observe(ctx context.Context, req AttachRequest) (*Turn, *Watcher, error) {
	if len(req.Tools) > 0 || req.Starter {
		return nil, nil, fault.Errorf(fault.Invalid,
			"observe together with tools: a client that only watches is asked for none").
			Breaking("tool_names", fault.RuleExcluded)
	}
	ref, err := m.acquireAt(ctx, req.SessionID, req.After)
	if err != nil && req.Follow && isElsewhere(err) {
		return m.observeFar(ctx, req, err)
	}
	if err != nil {
		return nil, nil, err
	}
	t, w, err := ref.Value.Observe(ctx, req.wanted(), sync.OnceFunc(func() { m.releaseObserver(ref) }))
	if err != nil {
		m.release(ref)
		return nil, nil, err
	}
	m.sessions.Observe(ref)
	m.observes(ref.Value)
	return t, w, nil
}

// observeFar is observe for a session that another server owns, as an error says, which it returns if the session
// cannot be followed.
func (m *Manager) observeFar(ctx context.Context, req AttachRequest, owned error) (*Turn, *Watcher, error) {
	key, err := m.keyOf(ctx, req.SessionID)
	if err != nil {
		return nil, nil, err
	}
	s, done, err := m.followFor(ctx, key)
	switch {
	case errors.Is(err, errUnheard):
		return nil, nil, owned
	case err != nil:
		return nil, nil, err
	}
	t, w, err := s.Observe(ctx, req.wanted(), done)
	if err != nil {
		done()
		return nil, nil, err
	}
	return t, w, nil
}

// endObserversOfSuspended ends the observers of suspended turns in a server that stops.
func (m *Manager) endObserversOfSuspended() {
	m.sessions.Each(func(s *live.Session, _, observers int) {
		if observers > 0 && s.IsSuspended() {
			s.EndObservers(m.errSuspended(s))
		}
	})
}
