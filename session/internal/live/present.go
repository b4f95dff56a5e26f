package live

import "context"

// present calls f with the current turn of the session in memory, since a caller may keep a Turn for longer
// than its session stays in memory. If f succeeds and the session's turn is suspended, it is resumed.
func (t *Turn) present(ctx context.Context, f func(now *Turn) error) error {
	if t.s.host == nil {
		return f(t.s.now(t))
	}
	return t.s.host.Present(ctx, t.s.key, func(s *Session) error {
		now, err := s.present(ctx, t)
		if err != nil {
			return err
		}
		return f(now)
	})
}

// present returns the session's turn for a Turn that may belong to an earlier Session of the same id,
// with the results of its calls.
func (s *Session) present(ctx context.Context, t *Turn) (*Turn, error) {
	if s == t.s {
		if now := s.now(t); now == t {
			return t, nil
		}
	}
	now, err := s.FindOwner(ctx, t.id)
	if err != nil {
		return nil, err
	}
	return s.WithResults(ctx, now)
}
