package session

import (
	"context"
	"slices"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/record"
)

var agentKinds = map[record.AgentKind]agentdv1.AgentKind{
	record.LLMAgent:        agentdv1.AgentKind_AGENT_KIND_LLM,
	record.SequentialAgent: agentdv1.AgentKind_AGENT_KIND_SEQUENTIAL,
	record.ParallelAgent:   agentdv1.AgentKind_AGENT_KIND_PARALLEL,
	record.LoopAgent:       agentdv1.AgentKind_AGENT_KIND_LOOP,
}

var agentOutcomes = map[record.AgentEnd]agentdv1.AgentEnded_Outcome{
	record.AgentCompleted:   agentdv1.AgentEnded_OUTCOME_COMPLETED,
	record.AgentTransferred: agentdv1.AgentEnded_OUTCOME_TRANSFERRED,
}

// alone is the start of the agent of a tree of one LLM agent, nil for another tree.
func alone(tree *agentdv1.Agent) *record.AgentChange {
	llm := tree.GetLlm()
	if llm == nil || len(llm.GetSubAgents()) > 0 {
		return nil
	}
	return &record.AgentChange{Path: []string{tree.GetName()}, Kind: record.LLMAgent, Model: llm.GetModel()}
}

// AgentsChanged records that agents have started and ended.
func (r *Run) AgentsChanged(ctx context.Context, f record.AgentsChanged) error {
	data, err := logjson.Marshal(f)
	if err != nil {
		return err
	}
	_, err = r.s.commit(ctx, &entry{turn: r.t, attempt: r.a, kind: record.KindAgentsChanged, data: data, fact: &f})
	return err
}

// AgentsChangedAtEnd hands over what is appended together with the turn's end, as
// AppendAtEnd does.
func (r *Run) AgentsChangedAtEnd(f record.AgentsChanged) error {
	data, err := logjson.Marshal(f)
	if err != nil {
		return err
	}
	r.atEnd = append(r.atEnd, &entry{turn: r.t, attempt: r.a, kind: record.KindAgentsChanged, data: data, fact: &f})
	return nil
}

// agentsChanged tells who has started and ended, and keeps who has not ended.
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
			AgentStarted: &agentdv1.AgentStarted{SessionId: v.sessionID, AgentPath: c.Path, Kind: agentKinds[c.Kind], Model: c.Model},
		}})
	}
}

// endAgents ends, with the turn, the agents that have not ended before it; those that
// have started last come first.
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
