package shared

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/record"
)

// warnNoBackground is the code of the warning about background agents where a server has none.
const warnNoBackground = "background_agents_ignored"

// warnAppState is the code of the warning about a write of `app:` by a principal that is no operator.
const warnAppState = "app_state_ignored"

// maxWarnings bounds the warnings about one request. AddWarnings drops those beyond it.
const maxWarnings = 16

// AddWarnings adds to the warnings about a request as many as there may be.
func AddWarnings(warnings []record.Warning, more ...record.Warning) []record.Warning {
	return append(warnings, more[:min(len(more), maxWarnings-len(warnings))]...)
}

func ignored(field string) record.Warning {
	return record.Warning{
		Code: warnAppState, Field: field,
		Message: fmt.Sprintf("%s was ignored: keys of app: are set by operators", field),
	}
}

// Permitted returns the keys of a state that a principal may write, and a warning for each of the others:
// operators alone write `app:`. field is the name of the state in the request.
func Permitted(p principal.Principal, field string, state map[string]any) (map[string]any, []record.Warning) {
	if p.Role == principal.Operator {
		return state, nil
	}
	var warnings []record.Warning
	out := state
	for _, key := range slices.Sorted(maps.Keys(state)) {
		if ScopeOf(key) != App {
			continue
		}
		if warnings == nil {
			out = maps.Clone(state)
		}
		delete(out, key)
		warnings = AddWarnings(warnings, ignored(fmt.Sprintf("%s[%.80q]", field, key)))
	}
	return out, warnings
}

// PermittedTree returns the agent tree as a principal may run it, and a warning for each change: operators
// alone run agents whose output key is in `app:`.
func PermittedTree(p principal.Principal, agent *agentdv1.Agent) (*agentdv1.Agent, []record.Warning) {
	if p.Role == principal.Operator || !writesApp(agent) {
		return agent, nil
	}
	agent = proto.CloneOf(agent)
	var warnings []record.Warning
	walk(agent, "agent", func(at string, a *agentdv1.Agent) {
		if llm := a.GetLlm(); ScopeOf(llm.GetOutputKey()) == App {
			llm.OutputKey = ""
			warnings = AddWarnings(warnings, ignored(at+".llm.output_key"))
		}
		if remote := a.GetRemote(); ScopeOf(remote.GetOutputKey()) == App {
			remote.OutputKey = ""
			warnings = AddWarnings(warnings, ignored(at+".remote.output_key"))
		}
	})
	return agent, warnings
}

// WithoutBackground returns the agent tree without background agents, and a warning for each agent that has some.
func WithoutBackground(agent *agentdv1.Agent) (*agentdv1.Agent, []record.Warning) {
	has := false
	walk(agent, "", func(_ string, a *agentdv1.Agent) { has = has || a.GetLlm().GetBackgroundAgents() != nil })
	if !has {
		return agent, nil
	}
	agent = proto.CloneOf(agent)
	var warnings []record.Warning
	walk(agent, "agent", func(at string, a *agentdv1.Agent) {
		if llm := a.GetLlm(); llm.GetBackgroundAgents() != nil {
			llm.BackgroundAgents = nil
			field := at + ".llm.background_agents"
			warnings = AddWarnings(warnings, record.Warning{
				Code: warnNoBackground, Field: field, Message: field + " was ignored: this server has none",
			})
		}
	})
	return agent, warnings
}

func writesApp(agent *agentdv1.Agent) (writes bool) {
	walk(agent, "", func(_ string, a *agentdv1.Agent) {
		writes = writes || strings.HasPrefix(a.GetLlm().GetOutputKey(), App) ||
			strings.HasPrefix(a.GetRemote().GetOutputKey(), App)
	})
	return writes
}

// walk visits the agents of a tree, each with its path. Trees are of bounded depth.
func walk(agent *agentdv1.Agent, at string, visit func(at string, a *agentdv1.Agent)) {
	if agent == nil {
		return
	}
	visit(at, agent)
	for _, group := range []struct {
		field  string
		agents []*agentdv1.Agent
	}{
		{"llm.sub_agents", agent.GetLlm().GetSubAgents()},
		{"sequential.agents", agent.GetSequential().GetAgents()},
		{"parallel.agents", agent.GetParallel().GetAgents()},
		{"loop.agents", agent.GetLoop().GetAgents()},
	} {
		for i, child := range group.agents {
			walk(child, fmt.Sprintf("%s.%s[%d]", at, group.field, i), visit)
		}
	}
	for i, t := range agent.GetLlm().GetAgentTools() {
		walk(t.GetAgent(), fmt.Sprintf("%s.llm.agent_tools[%d].agent", at, i), visit)
	}
}
