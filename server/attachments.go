package server

import (
	"slices"
	"strings"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
)

// checkAttachments refuses the first attachment of a tree that no client has resolved.
// One that is resolved may still be set: deployed clients leave it beside the names of
// its tools, and some put a prefix before those. So an attachment is resolved when each
// tool that it includes is, or ends, one of the agent's tool_names; and one that includes
// all tools when the agent has any tool_names.
func checkAttachments(agent *agentdv1.Agent, above []string) *fault.Error {
	at := append(slices.Clip(above), agent.GetName())
	llm := agent.GetLlm()
	for i, a := range llm.GetMcpAttachments() {
		if missing, resolved := unresolved(a, llm.GetToolNames()); !resolved {
			return fault.Errorf(codeInvalidTree,
				"agent %s: mcp_attachments[%d] attaches %s, and %s: the server calls no MCP server; "+
					"the client lists the tools of the attachment, "+
					"offers them in execute.tools and adds their names to tool_names",
				quote(strings.Join(at, "/")), i, quote(a.GetMcpName()), missing)
		}
	}
	for _, children := range [][]*agentdv1.Agent{
		llm.GetSubAgents(), agent.GetSequential().GetAgents(),
		agent.GetParallel().GetAgents(), agent.GetLoop().GetAgents(), calledBy(llm),
	} {
		for _, child := range children {
			if e := checkAttachments(child, at); e != nil {
				return e
			}
		}
	}
	return nil
}

// calledBy returns the agents that an agent calls as tools.
func calledBy(llm *agentdv1.LlmAgent) []*agentdv1.Agent {
	var out []*agentdv1.Agent
	for _, t := range llm.GetAgentTools() {
		out = append(out, t.GetAgent())
	}
	return out
}

// unresolved returns what an unresolved attachment lacks.
func unresolved(a *agentdv1.McpAttachment, toolNames []string) (missing string, resolved bool) {
	if len(a.GetIncludeToolNames()) == 0 && len(toolNames) == 0 {
		return "the agent has no tool_names", false
	}
	for _, include := range a.GetIncludeToolNames() {
		if !slices.ContainsFunc(toolNames, func(name string) bool { return strings.HasSuffix(name, include) }) {
			return "its tool " + quote(include) + " is not among the agent's tool_names", false
		}
	}
	return "", true
}
