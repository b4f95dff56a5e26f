package session

import (
	"context"
	"sync"

	"github.com/apzuk3/agentd/session/fault"
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
	ref, err := m.acquire(ctx, req.SessionID)
	if err != nil {
		return nil, nil, err
	}
	t, w, err := ref.Value.observe(ctx, req)
	if err != nil {
		m.release(ref)
		return nil, nil, err
	}
	m.sessions.Observe(ref)
	w.onClose = sync.OnceFunc(func() { m.sessions.ReleaseObserver(ref) })
	return t, w, nil
}

func (s *Session) observe(ctx context.Context, req AttachRequest) (*Turn, *Watcher, error) {
	if err := s.checkPosition(req.After); err != nil {
		return nil, nil, err
	}
	t, err := s.find(ctx, req)
	if err != nil {
		return nil, nil, err
	}
	from := req.from(t)
	from.observes = true
	return t, s.watch(t, from), nil
}

// endObservers ends the watchers of a session that take no part, with an error.
func (s *Session) endObservers(why *fault.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watchers {
		if !w.asks {
			w.fail(why)
			delete(s.watchers, w)
		}
	}
}

// endObserversOfSuspended ends the observers of suspended turns in a server that stops.
func (m *Manager) endObserversOfSuspended() {
	m.sessions.Each(func(s *Session, _, observers int) {
		if observers > 0 && s.isSuspended() {
			s.endObservers(errSuspended)
		}
	})
}
