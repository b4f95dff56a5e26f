package adkbridge

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"

	"google.golang.org/genai"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/models"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/session/fault"
)

// googleSearchTool is the first name of Gemini's search, webSearchTool the name of each
// provider's search.
const (
	googleSearchTool = "google_search"
	webSearchTool    = "web_search"
)

// providerTools are the tools that providers run, with the field of genai that asks for
// each. Adapters translate the field. A provider lists its own tools in Model.Builtins.
var providerTools = map[string]genai.Tool{
	googleSearchTool: {GoogleSearch: &genai.GoogleSearch{}},
	webSearchTool:    {GoogleSearch: &genai.GoogleSearch{}},
	"url_context":    {URLContext: &genai.URLContext{}},
	"code_execution": {CodeExecution: &genai.ToolCodeExecution{}},
	toolSearchTool:   {}, // asked for by Request.ToolSearch
}

// llm checks what only LLM agents have.
func (p *planner) llm(n *node, a *agentdv1.LlmAgent) error {
	if got := len(a.GetInstruction()); got > p.limits.InstructionBytes {
		return n.errorf("the instruction has %d bytes, at most %d are allowed", got, p.limits.InstructionBytes)
	}
	n.spec = a
	var err error
	if n.instruction, err = parseInstruction(a.GetInstruction()); err != nil {
		return n.errorf("instruction: %w", err)
	}
	if err := n.setOutputKey(a.GetOutputKey()); err != nil {
		return err
	}
	if n.output, err = readOutputSchema(a.GetOutputSchema()); err != nil {
		return n.errorf("output_schema: %w", err)
	}
	if err := p.clientToolsOf(n, a.GetToolNames(), a.GetGeneration().GetToolChoice().GetToolNames()); err != nil {
		return err
	}
	if err := p.openModel(n, a.GetModel()); err != nil {
		return err
	}
	if err := p.builtins(n, a.GetBuiltinTools()); err != nil {
		return err
	}
	if err := p.fallbacks(n, a); err != nil {
		return err
	}
	n.turnOnly = a.GetIncludeHistory() == agentdv1.IncludeHistory_INCLUDE_HISTORY_TURN
	if n.compaction, err = p.compaction(n, a.GetCompaction()); err != nil {
		return err
	}
	return p.generation(n, a.GetGeneration())
}

// setOutputKey sets the key of the state that receives what the agent ends with.
func (n *node) setOutputKey(key string) error {
	if n.outputKey = key; key != "" && !stateKeyOK(key) {
		return n.errorf("output_key %q: must be a letter or _, then letters, digits, _, . and -, at most %d, "+
			`perhaps after "app:", "user:" or "temp:"`, cut(key, maxName), maxStateKey)
	}
	return nil
}

// clientToolsOf resolves the names of an agent's tools, and bounds the tools that its
// model sees without a search. Tools of tool_choice count, deferred or not.
func (p *planner) clientToolsOf(n *node, names, chosen []string) error {
	listed := 0
	for i, name := range names {
		switch {
		case name == exitLoopTool, name == askUserTool:
			return n.errorf("tool %q belongs into builtin_tools", name)
		case name == askLoopTool:
			return n.errorf("tool %q is asked by loops, no agent can call it; offer it in tools alone", name)
		case slices.Contains(reservedTools, name):
			return n.errorf("tool name %q is reserved", name)
		case slices.Contains(names[:i], name):
			return n.errorf("tool %q is listed twice", name)
		}
		t := p.tools[name]
		if t == nil {
			return n.errorf("unknown tool %q; the request offers %s", cut(name, maxName),
				quoteAll(slices.Sorted(maps.Keys(p.tools))))
		}
		n.tools = append(n.tools, t)
		if !t.deferred || slices.Contains(chosen, name) {
			listed++
		}
	}
	if listed > p.limits.AgentTools {
		return n.errorf("%d tools, at most %d are allowed beside deferred ones", listed, p.limits.AgentTools)
	}
	return nil
}

// openModel resolves the agent's model. A model that cannot be served is no fault of
// the tree, so the error has the code of its cause.
func (p *planner) openModel(n *node, name string) error {
	if name == "" {
		return n.errorf("the model is missing")
	}
	n.modelName = name
	// Agents often share a model; it is opened once per tree.
	m, ok := p.opened[name]
	if !ok {
		var err error
		if m, err = p.resolve(name, p.keys); err != nil {
			if e, ok := errors.AsType[*models.NotAllowedError](err); ok {
				return fault.Errorf(fault.Denied, "%s: model %q: %w", n.at(), cut(name, maxName), e)
			}
			if _, ok := errors.AsType[*model.Error](err); !ok {
				err = &model.Error{Kind: model.KindUnavailable, Provider: "model", Message: "cannot be served",
					Err: err}
			}
			return modelError(n, err)
		}
		p.opened[name] = m
	}
	if m.Cost == nil && p.priced {
		return fault.Errorf(codeInvalid,
			"%s: a budget in money needs the price of every model, and that of %q is not known", n.at(), name)
	}
	n.model = m
	return nil
}

// maxFallbacks bounds an agent's fallback models.
const maxFallbacks = 8

// fallbacks resolves the agent's fallback models. The rules of the agent's own model
// hold for each.
func (p *planner) fallbacks(n *node, a *agentdv1.LlmAgent) error {
	names := a.GetFallbackModels()
	if got := len(names); got > maxFallbacks {
		return n.errorf("%d fallback_models, at most %d are allowed", got, maxFallbacks)
	}
	for i, name := range names {
		switch {
		case name == "":
			return n.errorf("fallback_models[%d] is empty", i)
		case name == n.modelName:
			return n.errorf("fallback_models[%d]: %q is the agent's own model", i, cut(name, maxName))
		case slices.Contains(names[:i], name):
			return n.errorf("fallback_models[%d]: %q is listed twice", i, cut(name, maxName))
		}
		other := *n
		other.builtins, other.fallbacks = nil, nil
		if err := p.openModel(&other, name); err != nil {
			return err
		}
		if err := p.builtins(&other, a.GetBuiltinTools()); err != nil {
			return err
		}
		n.fallbacks = append(n.fallbacks, &other)
	}
	return nil
}

// checkDistinct refuses a fallback, here or below, that is a model under another name
// which the agent has tried by then.
func (n *node) checkDistinct() error {
	for i, other := range n.fallbacks {
		if other.sameModel(n) {
			return n.errorf("fallback_models[%d]: %q is the agent's own model, %q", i, cut(other.modelName, maxName),
				cut(n.modelName, maxName))
		}
		if at := slices.IndexFunc(n.fallbacks[:i], other.sameModel); at >= 0 {
			return n.errorf("fallback_models[%d]: %q is the same model as %q, which is listed before",
				i, cut(other.modelName, maxName), cut(n.fallbacks[at].modelName, maxName))
		}
	}
	for _, kid := range n.kids {
		if err := kid.checkDistinct(); err != nil {
			return err
		}
	}
	for _, t := range n.agentTools {
		if err := t.root.checkDistinct(); err != nil {
			return err
		}
	}
	return nil
}

// sameModel reports whether two agents have the same model.
func (n *node) sameModel(o *node) bool {
	return n.model.Provider == o.model.Provider &&
		cmp.Or(n.model.Name, n.modelName) == cmp.Or(o.model.Name, o.modelName)
}

// builtins resolves control flow and the tools that the model's provider runs.
func (p *planner) builtins(n *node, names []string) error {
	if slices.Contains(names, webSearchTool) && slices.Contains(names, googleSearchTool) {
		return n.errorf("builtin tools %q and %q are one tool, name one of them", webSearchTool, googleSearchTool)
	}
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return n.errorf("builtin tool %q is listed twice", name)
		}
		if name == exitLoopTool {
			if n.loop == nil {
				return n.errorf("builtin tool %q: no loop agent is above this agent", name)
			}
			n.exitLoop = true
			continue
		}
		if name == askUserTool {
			n.askUser = true
			continue
		}
		if name == taskDoneTool {
			if slices.ContainsFunc(n.tools, func(d *declaration) bool { return d.name == name }) {
				return n.errorf("builtin tool %q: the agent has a tool of that name, too; name one of them", name)
			}
			n.taskDone = true
			continue
		}
		tool, known := providerTools[name]
		if !known || !slices.Contains(n.model.Builtins, name) {
			return n.errorf("builtin tool %q: not available for model %q; the server runs no tools itself, "+
				"it allows %q, %q, %q below a loop agent and what the model's provider runs: %s",
				cut(name, maxName), n.modelName, askUserTool, taskDoneTool, exitLoopTool, quoteAll(n.model.Builtins))
		}
		if name != toolSearchTool {
			n.builtins = append(n.builtins, &tool)
		}
	}
	return n.checkSearch(slices.Contains(names, toolSearchTool))
}

// checkSearch checks that the agent can search for tools if, and only if, some are
// deferred. A tool of the client may search too, see ToolReference.
func (n *node) checkSearch(can bool) error {
	deferred := n.deferred()
	switch {
	case can && len(deferred) == 0:
		return n.errorf("builtin tool %q: none of the agent's tools is deferred, so there is nothing to find",
			toolSearchTool)
	case !can && len(deferred) > 0 && len(deferred) == len(n.tools):
		return n.errorf("tool %q is deferred: an agent finds such tools with the builtin tool %q "+
			"or with a tool that is not deferred, and it has neither", deferred[0], toolSearchTool)
	}
	n.toolSearch = can
	return nil
}

// deferred returns the tools that the model finds by a search.
func (n *node) deferred() []string {
	var names []string
	for _, d := range n.tools {
		if d.deferred {
			names = append(names, d.name)
		}
	}
	return names
}

// maxStateKey bounds a state key without its scope, in bytes.
const maxStateKey = 128

// stateScopes are the prefixes of keys that are not the session's own.
var stateScopes = []string{"app:", "user:", "temp:"}

// stateKeyOK reports whether an output_key may be this key. Placeholders name keys, and
// keys travel as JSON names, so white space and braces are not allowed.
func stateKeyOK(key string) bool {
	for _, scope := range stateScopes {
		if rest, ok := strings.CutPrefix(key, scope); ok {
			key = rest
			break
		}
	}
	first := strings.IndexFunc(key, func(r rune) bool { return isAlnum(r) && !(r >= '0' && r <= '9') || r == '_' })
	return first == 0 && len(key) <= maxStateKey && strings.IndexFunc(key, func(r rune) bool {
		return !isAlnum(r) && !strings.ContainsRune("_.-", r)
	}) < 0
}
