package session

import "context"

// present calls f with the current turn of the session in memory, since a caller may keep a Turn for longer
// than its session stays in memory. If f succeeds and the session's turn is suspended, it is resumed.
func (t *Turn) present(ctx context.Context, f func(now *Turn) error) error {
	m := t.s.manager
	if m == nil {
		return f(t.s.now(t))
	}
	ref, err := m.acquire(ctx, t.s.id)
	if err != nil {
		return err
	}
	defer m.release(ref)
	now, err := ref.Value.present(ctx, t)
	if err != nil {
		return err
	}
	if err := f(now); err != nil {
		return err
	}
	if !ref.Value.isSuspended() {
		return nil
	}
	m.resumeAfter(ctx, ref.Value, AttachRequest{SessionID: ref.Value.id})
	return nil
}

// present returns the session's turn for a Turn that may belong to an earlier Session of the same id,
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

// isSuspended reports whether the session's last turn is suspended and not about to be resumed.
func (s *Session) isSuspended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.turn
	return t != nil && t.phase == turnSuspended && s.starting == nil
}
