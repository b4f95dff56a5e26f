package live

import "github.com/apzuk3/agentd/session/internal/phase"

// Prospect returns the prospect of the session's open turn.
func (s *Session) Prospect() phase.Prospect {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.turn == nil || s.turn.ended != nil || s.lastSpec == nil || len(s.lastSpec.OwnKeys) > 0:
		return phase.OnlyWaits
	case len(s.turn.pending) == 0, len(s.queued) > 0:
		return phase.Works
	}
	var paths [][]string
	for _, p := range s.turn.pending {
		paths = append(paths, p.call.Path)
	}
	spec, err := s.lastSpec.ReadSpec()
	if err == nil && spec.Blocked(paths) {
		return phase.OnlyWaits
	}
	return phase.MayWork
}
