package live

// Prospect says whether a suspended turn can work without a client.
type Prospect int

// The prospects.
const (
	OnlyWaits Prospect = iota // it only waits for its pending calls
	MayWork                   // it has pending calls, and other agents that may work
	Works                     // it has no pending calls, or a prompt is queued behind it
)

// Prospect returns the prospect of the session's open turn.
func (s *Session) Prospect() Prospect {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.turn == nil || s.turn.ended != nil || s.lastSpec == nil || len(s.lastSpec.OwnKeys) > 0:
		return OnlyWaits
	case len(s.turn.pending) == 0, len(s.queued) > 0:
		return Works
	}
	var paths [][]string
	for _, p := range s.turn.pending {
		paths = append(paths, p.call.Path)
	}
	spec, err := s.lastSpec.ReadSpec()
	if err == nil && spec.Blocked(paths) {
		return OnlyWaits
	}
	return MayWork
}
