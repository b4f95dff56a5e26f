package cli

import (
	"fmt"
	"slices"
	"strings"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// maxAwaited is how many tools are named, and how many characters each name takes.
const (
	maxAwaited     = 3
	maxAwaitedName = 40
)

// awaited is what a turn waits for, as its events say.
type awaited struct {
	begun  bool // the daemon has said something
	over   bool
	queued bool              // another turn of the session runs
	models map[string]string // of the tree, by agent
	only   string            // the tree's only model; "" for none or several
	model  string            // the model that is called, as far as is known
	tools  []openTool        // the tools that run; the turn bounds them
	asked  []string          // ids of the interactions that are open
}

type openTool struct{ call, name string }

func newAwaited(tree *agentdv1.Agent) awaited {
	a := awaited{models: map[string]string{}}
	a.read(tree)
	for _, m := range a.models {
		if a.only = m; m != a.model && a.model != "" {
			a.only, a.model = "", ""
			return a
		}
		a.model = m
	}
	return a
}

// read notes the models of a tree.
func (a *awaited) read(agent *agentdv1.Agent) {
	if llm := agent.GetLlm(); llm != nil {
		a.models[agent.GetName()] = llm.GetModel()
	}
	for _, sub := range slices.Concat(agent.GetLlm().GetSubAgents(), agent.GetSequential().GetAgents(),
		agent.GetParallel().GetAgents(), agent.GetLoop().GetAgents()) {
		a.read(sub)
	}
	for _, t := range agent.GetLlm().GetAgentTools() {
		a.read(t.GetAgent())
	}
}

// what names it; "" is nothing.
func (a *awaited) what() string {
	switch {
	case a.over:
		return ""
	case !a.begun:
		return "the daemon"
	case len(a.asked) > 0:
		return "a person"
	case a.queued:
		return "the session's running turn"
	case len(a.tools) > maxAwaited:
		return fmt.Sprintf("%s and %d more", a.names(maxAwaited-1), len(a.tools)-maxAwaited+1)
	case len(a.tools) > 0:
		return a.names(maxAwaited)
	case a.model != "":
		return line(a.model, maxAwaitedName)
	}
	return "the model"
}

// names are those of the first tools.
func (a *awaited) names(most int) string {
	var out []string
	for _, t := range a.tools[:min(most, len(a.tools))] {
		out = append(out, line(t.name, maxAwaitedName))
	}
	return strings.Join(out, ", ")
}

// event notes what an event says of it.
func (a *awaited) event(event *agentdv1.RunResponse) {
	a.begun, a.queued = true, event.GetTurnQueued() != nil
	switch r := event.GetResponse().(type) {
	case *agentdv1.RunResponse_ToolCall:
		a.called(r.ToolCall.GetToolCallId(), r.ToolCall.GetToolName(), r.ToolCall.GetAgentPath())
	case *agentdv1.RunResponse_ToolCallAnnounced:
		call := r.ToolCallAnnounced
		a.called(call.GetToolCallId(), call.GetToolName(), call.GetAgentPath())
	case *agentdv1.RunResponse_ToolCallAnswered:
		a.closed(r.ToolCallAnswered.GetToolCallId())
	case *agentdv1.RunResponse_ToolCallCanceled:
		a.closed(r.ToolCallCanceled.GetToolCallId())
	case *agentdv1.RunResponse_InteractionRequested:
		a.asked = append(a.asked, r.InteractionRequested.GetInteraction().GetId())
	case *agentdv1.RunResponse_InteractionResolved:
		id := r.InteractionResolved.GetInteraction().GetId()
		a.asked = slices.DeleteFunc(a.asked, func(open string) bool { return open == id })
	case *agentdv1.RunResponse_OutputChunk_:
		a.works(r.OutputChunk.GetAgentPath())
	case *agentdv1.RunResponse_ModelCallRetried:
		a.works(r.ModelCallRetried.GetAgentPath())
	case *agentdv1.RunResponse_ModelCallFellBack:
		a.model = r.ModelCallFellBack.GetNextModel()
	case *agentdv1.RunResponse_ModelCallEnded:
		a.model = a.only // which agent is next is not known
	case *agentdv1.RunResponse_End:
		a.over = true
	}
}

// called notes a call, whose agent is the next to ask its model.
func (a *awaited) called(call, name string, path []string) {
	a.closed(call) // the daemon may offer a call twice
	a.tools = append(a.tools, openTool{call, name})
	a.works(path)
}

// closed notes that a call is open no longer.
func (a *awaited) closed(call string) {
	a.tools = slices.DeleteFunc(a.tools, func(t openTool) bool { return t.call == call })
}

// works notes whose model is called.
func (a *awaited) works(path []string) {
	if len(path) > 0 {
		a.model = a.models[path[len(path)-1]]
	}
}
