package session

import "context"

// present has f called with the turn as it is now. Who holds a Turn may do so for
// longer than its session stays in memory: what is asked of it is done by the session
// that the manager has. A turn that is suspended is resumed when f has changed it.
func (t *Turn) present(ctx context.Context, f func(now *Turn) error) error {
	m := t.s.manager
	if m == nil {
		return f(t.s.now(t))
	}
	h, err := m.acquire(ctx, t.s.id)
	if err != nil {
		return err
	}
	defer m.release(h)
	now, err := h.Value.present(ctx, t)
	if err != nil {
		return err
	}
	if err := f(now); err != nil {
		return err
	}
	if !h.Value.isSuspended() {
		return nil
	}
	m.resumeAfter(ctx, h.Value, AttachRequest{SessionID: h.Value.id})
	return nil
}

// present is the turn that this session has for one that may be of an earlier one,
// with the results of its calls.
func (s *Session) present(ctx context.Context, t *Turn) (*Turn, error) {
	if s == t.s {
		if now := s.now(t); now == t {
			return t, nil
		}
	}
	now, err := s.findOwner(ctx, t.id)
	if err != nil {
		return nil, err
	}
	return s.withResults(ctx, now)
}

// isSuspended tells whether the session's last turn is open and nobody makes it run.
func (s *Session) isSuspended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.turn
	return t != nil && t.phase == turnSuspended && s.starting == nil
}
