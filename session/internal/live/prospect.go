package live

import (
	"slices"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

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
	if err == nil && blocked(spec.Agent, paths) {
		return OnlyWaits
	}
	return MayWork
}

// blocked reports whether an agent only waits for calls. paths are the paths, from this agent on, of the
// agents that have made the calls. A parallel agent is blocked if each of its agents is.
func blocked(a *agentdv1.Agent, paths [][]string) bool {
	var below [][]string
	for _, path := range paths {
		if len(path) == 0 || path[0] != a.GetName() {
			continue
		}
		if len(path) == 1 {
			return true // its own call
		}
		below = append(below, path[1:])
	}
	if len(below) == 0 {
		return false
	}
	waits := func(sub *agentdv1.Agent) bool { return blocked(sub, below) }
	if p := a.GetParallel(); p != nil {
		return !slices.ContainsFunc(p.GetAgents(), func(sub *agentdv1.Agent) bool { return !waits(sub) })
	}
	subs := slices.Concat(a.GetLlm().GetSubAgents(), a.GetSequential().GetAgents(), a.GetLoop().GetAgents())
	return slices.ContainsFunc(subs, waits)
}
