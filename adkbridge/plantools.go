package adkbridge

import (
	"cmp"
	"slices"

	"google.golang.org/genai"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// Bounds of how deep calls of agents nest.
const (
	defaultCallDepth = 2
	maxCallDepth     = 16
)

// agentTool is an agent that another one calls as a tool. It is immutable.
type agentTool struct {
	name, branch string
	decl         *genai.FunctionDeclaration
	root         *node
	maxDepth     int  // of the call itself, from 1
	forks        bool // the agent sees what its caller has seen
}

// agentTool finds a tool of the agent's that is an agent; nil for none.
func (n *node) agentTool(name string) *agentTool {
	i := slices.IndexFunc(n.agentTools, func(t *agentTool) bool { return t.name == name })
	if i < 0 {
		return nil
	}
	return n.agentTools[i]
}

// above returns the agent above this one in a room, and the room of that one; nil for the root of the tree.
func (n *node) above(room string) (*node, string) {
	if n.caller != nil {
		return n.caller, outside(room)
	}
	return n.parent, room
}

// toolName is what a model calls an agent that is a tool.
func toolName(t *agentdv1.AgentTool) string { return cmp.Or(t.GetToolName(), t.GetAgent().GetName()) }

// agentTools checks the agents that an agent calls as tools, each with all below it.
func (p *planner) agentTools(n *node, tools []*agentdv1.AgentTool) error {
	if len(tools) > p.limits.Width {
		return n.errorf("%d agent_tools, at most %d are allowed", len(tools), p.limits.Width)
	}
	if listed := len(n.tools) - len(n.deferred()) + len(tools); len(tools) > 0 && listed > p.limits.AgentTools {
		return n.errorf("%d tools with its agent_tools, at most %d are allowed beside deferred ones", listed,
			p.limits.AgentTools)
	}
	for i, t := range tools {
		tool, err := p.agentTool(n, i, t)
		if err != nil {
			return err
		}
		n.agentTools = append(n.agentTools, tool)
	}
	return nil
}

// agentTool checks one agent that is called as a tool.
func (p *planner) agentTool(n *node, i int, t *agentdv1.AgentTool) (*agentTool, error) {
	if t.GetAgent() == nil {
		return nil, n.errorf("agent_tools[%d]: the agent is missing", i)
	}
	name := toolName(t)
	out := &agentTool{
		name: name, branch: cmp.Or(t.GetBranch(), name), maxDepth: int(t.GetMaxDepth()),
		forks: t.GetHistory() == agentdv1.AgentTool_HISTORY_FORK,
	}
	if out.maxDepth == 0 {
		out.maxDepth = defaultCallDepth
	}
	description := cmp.Or(t.GetDescription(), t.GetAgent().GetDescription())
	switch {
	case !toolNameOK(name):
		return nil, n.errorf("agent_tools[%d]: tool name %q: must be a letter or _, then letters, digits and _.:-, "+
			"at most %d in all; set tool_name", i, cut(name, maxName), maxName)
	case slices.Contains(reservedTools, name), name == askLoopTool, name == taskDoneTool, providerHas(name):
		return nil, n.errorf("agent_tools[%d]: tool name %q is reserved; set another tool_name", i, name)
	case p.tools[name] != nil:
		return nil, n.errorf("agent_tools[%d]: the request offers a tool %q, too; set another tool_name", i, name)
	case p.goal != nil && (name == p.goal.Done || p.goal.Schedules && name == scheduleTurnTool):
		return nil, n.errorf("agent_tools[%d]: the goal has a tool %q, too; set another tool_name", i, name)
	case n.agentTool(name) != nil:
		return nil, n.errorf("agent_tools[%d]: another one is called %q, too; set another tool_name", i, name)
	case !nameOK(out.branch):
		return nil, n.errorf("agent_tools[%d]: branch %q: only letters, digits, _ and - are allowed, at most %d", i,
			cut(out.branch, maxName), maxName)
	case description == "":
		return nil, n.errorf("agent_tools[%d]: %q has no description, nor has its agent; models choose tools by it", i,
			name)
	case len(description) > p.limits.DescriptionBytes:
		return nil, n.errorf("agent_tools[%d]: the description has %d bytes, at most %d are allowed", i,
			len(description), p.limits.DescriptionBytes)
	case out.maxDepth > maxCallDepth:
		return nil, n.errorf("agent_tools[%d]: max_depth is %d, at most %d are allowed", i, out.maxDepth, maxCallDepth)
	}
	out.decl = &genai.FunctionDeclaration{
		Name: name, Description: description,
		ParametersJsonSchema: map[string]any{
			"type": "object",
			"properties": map[string]any{
				requestArg: map[string]any{"type": "string",
					"description": "What the agent is to do, with all that it has to know for it."},
			},
			"required": []any{requestArg},
		},
	}
	var err error
	out.root, err = p.agent(t.GetAgent(), &node{caller: n})
	return out, err
}

// requestArg and resultArg name what an agent that is called as a tool is given, and gives.
const (
	requestArg = "request"
	resultArg  = "result"
)

// providerHas reports whether a provider may run a tool of that name.
func providerHas(name string) bool {
	_, ok := providerTools[name]
	return ok
}
