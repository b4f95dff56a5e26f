package record

import (
	"slices"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// Blocked reports whether the tree only waits for calls; paths are those of the agents that have made them.
func (s *Spec) Blocked(paths [][]string) bool { return blocked(s.Agent, paths) }

// blocked reports whether an agent only waits for calls. paths are the paths, from this agent on, of the
// agents that have made the calls. A parallel agent is blocked if each of its agents is. An agent that calls others as
// tools is blocked if one of them is: another one may work at the time, which then waits as well.
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
	for _, t := range a.GetLlm().GetAgentTools() {
		subs = append(subs, t.GetAgent())
	}
	return slices.ContainsFunc(subs, waits)
}
