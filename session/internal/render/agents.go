package render

import (
	"slices"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/lineage"
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

// working is an agent that has started and not ended, in the room of a call of an agent; "" is outside of all.
type working struct {
	path []string
	room string
}

// lineageOf returns where what happens on a branch comes from; nil for the tree itself.
func lineageOf(branch string) *agentdv1.Lineage {
	depth := lineage.Depth(branch)
	if depth == 0 {
		return nil
	}
	return &agentdv1.Lineage{Branch: lineage.Shown(branch), Depth: uint32(depth)}
}

// agentsChanged renders which agents have started and ended, and keeps those that have not
// ended.
func (v *view) agentsChanged(first int, changes ...record.AgentChange) {
	for i, c := range changes {
		slot := first + min(i, position.Deltas-1-first)
		if c.Ended != "" {
			at := slices.IndexFunc(v.agents, func(w working) bool {
				return w.room == c.Room && slices.Equal(w.path, c.Path)
			})
			if at >= 0 {
				v.agents = slices.Delete(v.agents, at, at+1)
			}
			v.agentEnded(slot, working{c.Path, c.Room}, agentOutcomes[c.Ended])
			continue
		}
		v.agents = append(v.agents, working{c.Path, c.Room})
		v.emit(slot, &agentdv1.RunResponse{Lineage: lineageOf(c.Room), Response: &agentdv1.RunResponse_AgentStarted{
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

func (v *view) agentEnded(slot int, a working, outcome agentdv1.AgentEnded_Outcome) {
	v.emit(slot, &agentdv1.RunResponse{Lineage: lineageOf(a.room), Response: &agentdv1.RunResponse_AgentEnded{
		AgentEnded: &agentdv1.AgentEnded{SessionId: v.sessionID, AgentPath: a.path, Outcome: outcome},
	}})
}
