package session

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

// warnAppState is of a write of `app:` by who is no operator.
const warnAppState = "app_state_ignored"

// warnRaw is of raw payloads that were asked for where the server has an instruction of
// its own, which a provider may repeat, by who is no operator.
const warnRaw = "raw_payloads_ignored"

// maxWarnings bounds the warnings about one request. What else was left out is not told.
const maxWarnings = 16

func ignored(field string) record.Warning {
	return record.Warning{
		Code: warnAppState, Field: field,
		Message: fmt.Sprintf("%s was ignored: keys of app: are set by operators", field),
	}
}

// permitted is the state that a principal may write: `app:` is the operator's. field is
// that of the state.
func permitted(p principal.Principal, field string, state map[string]any) (map[string]any, []record.Warning) {
	if p.Role == principal.Operator {
		return state, nil
	}
	var warnings []record.Warning
	out := state
	for _, key := range slices.Sorted(maps.Keys(state)) {
		if scopeOf(key) != scopeApp {
			continue
		}
		if warnings == nil {
			out = maps.Clone(state)
		}
		delete(out, key)
		warnings = warn(warnings, ignored(fmt.Sprintf("%s[%.80q]", field, key)))
	}
	return out, warnings
}

// permittedTree is the tree that a principal may run: its agents set no key of `app:`,
// unless it is an operator.
func permittedTree(p principal.Principal, agent *agentdv1.Agent) (*agentdv1.Agent, []record.Warning) {
	if p.Role == principal.Operator || !setsApp(agent) {
		return agent, nil
	}
	agent = proto.CloneOf(agent)
	var warnings []record.Warning
	walk(agent, "agent", func(at string, a *agentdv1.Agent) {
		if llm := a.GetLlm(); scopeOf(llm.GetOutputKey()) == scopeApp {
			llm.OutputKey = ""
			warnings = warn(warnings, ignored(at+".llm.output_key"))
		}
	})
	return agent, warnings
}

// warn adds a warning, as far as there may be more.
func warn(warnings []record.Warning, more ...record.Warning) []record.Warning {
	return append(warnings, more[:min(len(more), maxWarnings-len(warnings))]...)
}

func setsApp(agent *agentdv1.Agent) (sets bool) {
	walk(agent, "", func(_ string, a *agentdv1.Agent) {
		sets = sets || strings.HasPrefix(a.GetLlm().GetOutputKey(), scopeApp)
	})
	return sets
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
}

// WarningsProto is the protocol's form; in is put before the fields.
func WarningsProto(in string, warnings []record.Warning) []*agentdv1.Warning {
	var out []*agentdv1.Warning
	for _, w := range warnings {
		out = append(out, &agentdv1.Warning{Code: w.Code, Field: in + w.Field, Message: w.Message})
	}
	return out
}
