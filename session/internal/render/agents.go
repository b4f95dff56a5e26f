package render

import (
	"slices"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/record"
)

var agentKinds = map[record.AgentKind]agentdv1.AgentKind{
	record.LLMAgent:        agentdv1.AgentKind_AGENT_KIND_LLM,
	record.SequentialAgent: agentdv1.AgentKind_AGENT_KIND_SEQUENTIAL,
	record.ParallelAgent:   agentdv1.AgentKind_AGENT_KIND_PARALLEL,
	record.LoopAgent:       agentdv1.AgentKind_AGENT_KIND_LOOP,
	record.RemoteAgent:     agentdv1.AgentKind_AGENT_KIND_REMOTE,
}

var agentOutcomes = map[record.AgentEnd]agentdv1.AgentEnded_Outcome{
	record.AgentCompleted:   agentdv1.AgentEnded_OUTCOME_COMPLETED,
	record.AgentTransferred: agentdv1.AgentEnded_OUTCOME_TRANSFERRED,
}

// agentsChanged renders which agents have started and ended, and keeps those that have not
// ended.
func (v *view) agentsChanged(first int, changes ...record.AgentChange) {
	for i, c := range changes {
		slot := first + min(i, position.Deltas-1-first)
		if c.Ended != "" {
			at := slices.IndexFunc(v.agents, func(path []string) bool { return slices.Equal(path, c.Path) })
			if at >= 0 {
				v.agents = slices.Delete(v.agents, at, at+1)
			}
			v.agentEnded(slot, c.Path, agentOutcomes[c.Ended])
			continue
		}
		v.agents = append(v.agents, c.Path)
		v.emit(slot, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_AgentStarted{
			AgentStarted: &agentdv1.AgentStarted{
				SessionId: v.sessionID, AgentPath: c.Path, Kind: agentKinds[c.Kind], Model: c.Model,
			},
		}})
	}
}

// endAgents renders the ends of the agents that end with the turn; those that have started last
// come first.
func (v *view) endAgents(f *record.TurnEnded) {
	outcome := agentdv1.AgentEnded_OUTCOME_FAILED
	switch {
	case f.Completed:
		outcome = agentdv1.AgentEnded_OUTCOME_COMPLETED
	case f.Receipt != nil:
		outcome = agentdv1.AgentEnded_OUTCOME_CANCELED
	}
	for i := range v.agents {
		v.agentEnded(position.Agents+min(i, position.Error-position.Agents-1), v.agents[len(v.agents)-1-i], outcome)
	}
	v.agents = nil
}

func (v *view) agentEnded(slot int, path []string, outcome agentdv1.AgentEnded_Outcome) {
	v.emit(slot, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_AgentEnded{
		AgentEnded: &agentdv1.AgentEnded{SessionId: v.sessionID, AgentPath: path, Outcome: outcome},
	}})
}
