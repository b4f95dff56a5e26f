package session

import (
	"context"
	"sync"

	"github.com/apzuk3/agentd/session/fault"
)

// A client that observes has a watcher that takes no part (see Watcher.asks). It keeps
// its session in memory while it watches, also while the turn is suspended, but it
// keeps nobody from removing the session.

// observe is Attach for a client that only watches.
func (m *Manager) observe(ctx context.Context, req AttachRequest) (*Turn, *Watcher, error) {
	if len(req.Tools) > 0 || req.Starter {
		return nil, nil, fault.Errorf(fault.Invalid, "observe together with tools: a client that only watches is "+
			"asked for none").
			Breaking("tool_names", fault.RuleExcluded)
	}
	h, err := m.acquire(ctx, req.SessionID)
	if err != nil {
		return nil, nil, err
	}
	t, w, err := h.Value.observe(ctx, req)
	if err != nil {
		m.release(h)
		return nil, nil, err
	}
	m.sessions.Observe(h)
	w.onClose = sync.OnceFunc(func() { m.sessions.ReleaseObserver(h) })
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

// endObservers tells the watchers that take no part of a session that nothing more
// comes here.
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

// endObserversOfSuspended does so, in a server that stops, for all sessions whose
// turn does not run.
func (m *Manager) endObserversOfSuspended() {
	m.sessions.Each(func(s *Session, _, observers int) {
		if observers > 0 && s.isSuspended() {
			s.endObservers(errSuspended)
		}
	})
}
