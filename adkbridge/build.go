package adkbridge

import (
	"fmt"
	"iter"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/agent/llmagent"
	"google.golang.org/adk/v2/agent/workflowagents/parallelagent"
	"google.golang.org/adk/v2/agent/workflowagents/sequentialagent"
	adksession "google.golang.org/adk/v2/session"
	"google.golang.org/genai"
)

// entryName is the name of the agent above the root. No agent of a tree can
// have it.
const entryName = "agentd.entry"

// exitDecl declares exit_loop.
var exitDecl = &genai.FunctionDeclaration{
	Name:                 exitLoopTool,
	Description:          "Exits the loop. Call this function only when you are instructed to do so.",
	ParametersJsonSchema: map[string]any{"type": "object", "properties": map[string]any{}},
}

// doneDecl declares mark_task_done.
var doneDecl = &genai.FunctionDeclaration{
	Name: taskDoneTool,
	Description: "Marks a task as done. Call it when a task is complete and what comes next needs its outcome, " +
		"not its details: soon afterwards a summary stands in the place of the conversation so far.",
	ParametersJsonSchema: map[string]any{
		"type": "object",
		"properties": map[string]any{
			"detail": map[string]any{"type": "string",
				"description": "What was done, and what must be remembered of it: results, names, decisions."},
		},
	},
}

// build makes the ADK tree of a turn. Its root is an agent of ours above the
// client's root, which starts the turn where the last one has left off; with an
// LLM agent as root ADK would run the tree as a `workflow` node, on goroutines and
// with scans of the history that serve features we do not use.
func (t *turn) build() (agent.Agent, error) {
	built := map[string]agent.Agent{}
	root, err := t.buildNode(t.tree.root, built)
	if err != nil {
		return nil, err
	}
	start := root
	if name := t.startName(); name != "" {
		start = built[name]
	}
	return agent.New(agent.Config{
		Name:      entryName,
		SubAgents: append([]agent.Agent{root}, t.called...),
		Run: func(ctx agent.InvocationContext) iter.Seq2[*adksession.Event, error] {
			t.entry = ctx
			return start.Run(ctx)
		},
	})
}

// startName is the agent a turn begins with: below an LLM root the one that
// spoke last, if only LLM agents are above it.
func (t *turn) startName() string {
	return t.hist.lastAuthor(func(name string) bool {
		n := t.tree.byName[name]
		return n != nil && n.mayStart()
	})
}

// buildNode builds a subtree, bottom up, and enters its agents into built.
func (t *turn) buildNode(n *node, built map[string]agent.Agent) (agent.Agent, error) {
	kids := make([]agent.Agent, 0, len(n.kids))
	for _, kid := range n.kids {
		a, err := t.buildNode(kid, built)
		if err != nil {
			return nil, err
		}
		kids = append(kids, a)
	}
	cfg := agent.Config{
		Name: n.name, Description: n.description, SubAgents: kids,
		BeforeAgentCallbacks: t.beforeAgent(n), AfterAgentCallbacks: t.afterAgent(n),
	}
	var a agent.Agent
	var err error
	switch n.kind {
	case llmKind, remoteKind:
		a, err = t.buildLLM(n, kids, built)
	case sequentialKind:
		a, err = sequentialagent.New(sequentialagent.Config{AgentConfig: cfg})
	case parallelKind:
		a, err = parallelagent.New(parallelagent.Config{AgentConfig: cfg})
	case loopKind:
		cfg.Run = (&loop{t: t, n: n, kids: kids}).run
		a, err = agent.New(cfg)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", n.at(), err)
	}
	built[n.name] = a
	return a, nil
}

// buildLLM builds an LLM agent, or one that a backend runs: to ADK that is the agent's model.
//
// ADK's output key is not used: it stores the text
// of every event, that of tool calls and results included; see commit.
func (t *turn) buildLLM(n *node, kids []agent.Agent, built map[string]agent.Agent) (agent.Agent, error) {
	var tools toolbox
	for _, d := range n.tools {
		tools = append(tools, &remoteTool{baseTool{t: t, name: d.name, decl: d.decl}})
	}
	if n.exitLoop {
		tools = append(tools, &exitTool{baseTool: baseTool{t: t, name: exitLoopTool, decl: exitDecl}, loop: n.loop})
	}
	if n.askUser {
		tools = append(tools, &askTool{remoteTool{baseTool{t: t, name: askUserTool, decl: askDecl}}})
	}
	if n.taskDone {
		tools = append(tools, &doneTool{baseTool{t: t, name: taskDoneTool, decl: doneDecl}})
	}
	if n.kind == llmKind && !n.inTool { // the goal is not that of an agent that is called
		tools = append(tools, t.goalTools()...)
	}
	tools = append(tools, t.backgroundTools(n)...)
	for _, d := range n.agentTools {
		called, err := t.buildNode(d.root, built)
		if err != nil {
			return nil, err
		}
		t.called = append(t.called, called)
		base := baseTool{t: t, name: d.name, decl: d.decl}
		tools = append(tools, &calledAgent{baseTool: base, spec: d, agent: called})
	}
	alone := n.kind == remoteKind || n.parent == nil || n.parent.kind != llmKind
	cfg := llmagent.Config{
		Name:        n.name,
		Description: n.description,
		SubAgents:   kids,

		BeforeAgentCallbacks: t.beforeAgent(n),
		AfterAgentCallbacks:  t.afterAgent(n),

		Model: &agentModel{t: t, n: n},
		Tools: tools.forADK(),
		// Left unset, ADK writes it while the tree runs, which is a data race.
		Mode: llmagent.ModeChat,
		// Without an LLM agent above there is no transfer, but ADK would offer one to the
		// model.
		DisallowTransferToParent: alone,
		DisallowTransferToPeers:  alone,
	}
	if t.instructed(n) {
		cfg.InstructionProvider = func(agent.ReadonlyContext) (string, error) { return instructionMark, nil }
	}
	return llmagent.New(cfg)
}
