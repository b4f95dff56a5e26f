package session

import (
	"context"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/record"
)

// loneAgent returns the start of the agent of a tree of one LLM agent, nil for any other tree.
func loneAgent(tree *agentdv1.Agent) *record.AgentChange {
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

// AgentsChangedAtEnd is AgentsChanged in the append of the turn's end; see AppendAtEnd.
func (r *Run) AgentsChangedAtEnd(f record.AgentsChanged) error {
	data, err := logjson.Marshal(f)
	if err != nil {
		return err
	}
	r.atEnd = append(r.atEnd, &entry{turn: r.t, attempt: r.a, kind: record.KindAgentsChanged, data: data, fact: &f})
	return nil
}
