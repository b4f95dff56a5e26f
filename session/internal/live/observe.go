package live

import (
	"context"

	"github.com/apzuk3/agentd/session/fault"
)

// Observe returns the turn that an observer wants, and a watcher that takes no part. Close calls onClose.
func (s *Session) Observe(ctx context.Context, want Wanted, onClose func()) (*Turn, *Watcher, error) {
	if err := s.CheckPosition(want.After); err != nil {
		return nil, nil, err
	}
	t, err := s.Find(ctx, want)
	if err != nil {
		return nil, nil, err
	}
	from := want.from(t)
	from.observes = true
	w := s.watch(t, from)
	w.onClose = onClose
	return t, w, nil
}

// EndObservers ends the watchers of a session that take no part, with an error.
func (s *Session) EndObservers(why *fault.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watchers {
		if !w.asks {
			w.backlog.Fail(why)
			delete(s.watchers, w)
		}
	}
}
