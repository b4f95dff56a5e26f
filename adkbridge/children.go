package adkbridge

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"google.golang.org/adk/v2/agent"
	adkmodel "google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/tool"
	"google.golang.org/adk/v2/tool/toolutils"
	"google.golang.org/genai"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/record"
)

// An agent with background agents spawns children: goals in sessions of their own, which the session starts and looks
// after. The tools for that are run here. What such a call has brought is in the event of its results: a run that
// begins again takes it from there, and does nothing twice. A call without a result is made again, under the same id.

// The tools of an agent with background agents.
const (
	spawnTool      = "spawn_agent"
	listAgentsTool = "list_agents"
	checkTool      = "check_agent"
	messageTool    = "message_agent"
	waitTool       = "wait_agent"
	stopAgentTool  = "stop_agent"
)

// The tools of a child, beside that which ends its goal.
const (
	alertTool     = "report_alert"
	completedTool = "report_completed"
)

const (
	// defaultDepth and defaultAtOnce are those of BackgroundAgents.
	defaultDepth  = 2
	defaultAtOnce = 8
	// maxDepth and maxAtOnce bound them.
	maxDepth  = 8
	maxAtOnce = 64
	// maxChildTools bounds the names of tools in one call.
	maxChildTools = 256
	// instructionState is the key of the state that has the instruction of a child in whose text keys would be found.
	instructionState = "instruction"
)

// backgroundTools are the names, in the order in which models read them.
var backgroundTools = []string{spawnTool, listAgentsTool, checkTool, messageTool, waitTool, stopAgentTool}

// checkBackground checks the background agents of an agent.
func (p *planner) checkBackground(n *node, b *agentdv1.BackgroundAgents) error {
	if b == nil {
		return nil
	}
	for _, name := range backgroundTools {
		switch {
		case p.tools[name] != nil:
			return n.errorf("background_agents: the request offers a tool %q, too: offer it under another name", name)
		case n.agentTool(name) != nil:
			return n.errorf("background_agents: an agent is called %q as a tool, too: set another tool_name", name)
		case p.goal != nil && name == p.goal.Done:
			return n.errorf("background_agents: the goal has a tool %q, too: set another done_tool.name", name)
		}
	}
	switch {
	case b.GetMaxDepth() > maxDepth:
		return n.errorf("background_agents: max_depth is %d, at most %d are allowed", b.GetMaxDepth(), maxDepth)
	case b.GetMaxAtOnce() > maxAtOnce:
		return n.errorf("background_agents: max_at_once is %d, at most %d are allowed", b.GetMaxAtOnce(), maxAtOnce)
	}
	n.background = &background{
		depth: cmp.Or(int(b.GetMaxDepth()), defaultDepth), atOnce: cmp.Or(int(b.GetMaxAtOnce()), defaultAtOnce),
	}
	return nil
}

// background is what an agent may spawn.
type background struct{ depth, atOnce int }

// isBackgroundTool reports whether a tool of the agent is one of those for its children.
func (n *node) isBackgroundTool(name string) bool {
	return n.background != nil && slices.Contains(backgroundTools, name)
}

// childTool is a tool for children.
type childTool struct {
	baseTool
	n   *node
	run func(c *childTool, ctx agent.Context, args map[string]any) (map[string]any, error)
}

var _ tool.Tool = (*childTool)(nil)

func (c *childTool) ProcessRequest(_ agent.Context, req *adkmodel.LLMRequest) error {
	return toolutils.PackTool(req, c)
}

// refusalError is an error that models read.
type refusalError string

func (r refusalError) Error() string { return string(r) }

// refuse returns an error that the model reads.
func refuse(format string, args ...any) error { return refusalError(fmt.Sprintf(format, args...)) }

// Run does what the model asks for, unless the log has the result already.
func (c *childTool) Run(ctx agent.Context, args any) (map[string]any, error) {
	return c.runGuarded(ctx, func() (map[string]any, error) {
		if out, done := c.t.results[ctx.FunctionCallID()]; done {
			return out, nil
		}
		m, _ := args.(map[string]any)
		out, err := c.run(c, ctx, m)
		if no, is := errors.AsType[refusalError](err); is {
			return errorResult(string(no)), nil
		}
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			c.t.stop(err) // there is no result, so nothing may be appended as one
			c.t.halt(err)
			return nil, err
		}
		return out, nil
	})
}

// backgroundTools returns the tools for the children of an agent.
func (t *turn) backgroundTools(n *node) (tools toolbox) {
	if n.background == nil {
		return nil
	}
	for _, d := range []struct {
		name, text string
		args       map[string]any
		required   []any
		run        func(c *childTool, ctx agent.Context, args map[string]any) (map[string]any, error)
	}{
		{spawnTool, "Spawns an agent that works in the background towards a goal of its own, beside you. It knows " +
			"nothing but what you tell it, and goes on when your turn ends. What it reports is in front of your next " +
			"turn.",
			spawnSchema, []any{"name", "system_prompt", "goal"}, (*childTool).spawn},
		{listAgentsTool, "Lists the agents that you have spawned, and how they are.",
			map[string]any{}, nil, (*childTool).list},
		{checkTool, "Says how an agent is that you have spawned, and what has come of it if it has ended.",
			nameSchema, []any{"name"}, (*childTool).check},
		{messageTool, "Leaves a message for an agent that you have spawned: its next turn reads it.",
			map[string]any{"name": nameSchema["name"], "text": textSchema("What it is to read.")},
			[]any{"name", "text"}, (*childTool).message},
		{waitTool, "Waits until an agent has ended that you have spawned, and says what has come of it.",
			nameSchema, []any{"name"}, (*childTool).wait},
		{stopAgentTool, "Stops an agent that you have spawned, and those that it has spawned.",
			nameSchema, []any{"name"}, (*childTool).stop},
	} {
		schema := map[string]any{"type": "object", "properties": d.args}
		if len(d.required) > 0 {
			schema["required"] = d.required
		}
		tools = append(tools, &childTool{n: n, run: d.run, baseTool: baseTool{t: t, name: d.name,
			decl: &genai.FunctionDeclaration{Name: d.name, Description: d.text, ParametersJsonSchema: schema}}})
	}
	return tools
}

// spawnSchema is that of spawn_agent.
var spawnSchema = map[string]any{
	"name":          textSchema("What you call it: letters, digits, _ and -. A name is used once only."),
	"system_prompt": textSchema("Who it is and how it is to work."),
	"goal":          textSchema("What it is to reach, with all that it has to know for it."),
	"tools": map[string]any{"type": "array", "items": map[string]any{"type": "string"},
		"description": "Which of your tools it has; all of them if you leave it out."},
	"extras": textSchema("More for it to know."),
	"max_turns": map[string]any{"type": "integer",
		"description": "How many turns it may make; 50 unless you say so."},
	"max_cost_usd": map[string]any{"type": "number",
		"description": "What it may spend of what is left to you, in US dollars."},
	"max_wallclock_seconds": map[string]any{"type": "integer",
		"description": "How long it may take; 600 unless you say so."},
}

func textSchema(text string) map[string]any {
	return map[string]any{"type": "string", "description": text}
}

// nameSchema is that of a call that names an agent.
var nameSchema = map[string]any{"name": textSchema("What you have called it.")}

func (c *childTool) spawn(ctx agent.Context, args map[string]any) (map[string]any, error) {
	ask := session.Spawn{
		Call: ctx.FunctionCallID(), MaxDepth: c.n.background.depth, MaxAtOnce: c.n.background.atOnce,
		Priced: !slices.ContainsFunc(append([]*node{c.n}, c.n.fallbacks...), func(o *node) bool {
			return o.model.Cost == nil
		}),
	}
	var prompt, extras string
	for _, in := range []struct {
		name string
		into *string
		most int
		need bool
	}{
		{"name", &ask.Name, maxName, true}, {"system_prompt", &prompt, c.t.limits.InstructionBytes, true},
		{"goal", &ask.Goal, maxSaidOfGoal, true}, {"extras", &extras, c.t.limits.InstructionBytes, false},
	} {
		text, err := textOf(args, in.name, in.most, in.need)
		if err != nil {
			return nil, err
		}
		*in.into = text
	}
	if !nameOK(ask.Name) || ask.Name == "user" {
		return nil, refuse("subagent %q refused: its name must be of letters, digits, _ and - alone, at most %d",
			cut(ask.Name, maxName), maxName)
	}
	var err error
	if ask.Limits, err = limitsOf(args); err != nil {
		return nil, err
	}
	names, err := namesOf(args, "tools")
	if err != nil {
		return nil, err
	}
	if err := c.runsAs(&ask, prompt, extras, names); err != nil {
		return nil, err
	}
	child, refused, err := c.t.run.Spawn(ctx, ask)
	switch {
	case err != nil:
		return nil, err
	case refused != "":
		return nil, refusalError(refused)
	case child.End != nil && child.Seen == 0:
		return nil, refuse("subagent %q refused: %s", ask.Name, child.End.Text)
	}
	return stands(child), nil
}

// stands is how a child is, as models read it.
func stands(c *session.Child) map[string]any {
	return map[string]any{"name": c.F.Name, "branch": c.F.Branch, "status": c.Status()}
}

// ended is stands with what has come of a child that has ended.
func ended(c *session.Child) map[string]any {
	out := stands(c)
	switch {
	case c.End == nil:
	case c.End.Kind == record.AlertCompleted:
		out["result"] = c.End.Text
	default:
		out["error"] = c.End.Text
	}
	return out
}

func (c *childTool) list(ctx agent.Context, _ map[string]any) (map[string]any, error) {
	all, err := c.t.run.Children(ctx)
	if err != nil {
		return nil, err
	}
	agents := []any{}
	for _, child := range all {
		agents = append(agents, stands(child))
	}
	return map[string]any{"agents": agents}, nil
}

// child returns the child that a call names, as it is now.
func (c *childTool) child(ctx agent.Context, args map[string]any) (*session.Child, error) {
	name, err := textOf(args, "name", maxName, true)
	if err != nil {
		return nil, err
	}
	all, err := c.t.run.Children(ctx)
	if err != nil {
		return nil, err
	}
	var known []string
	for _, child := range all {
		if child.F.Name == name {
			return child, nil
		}
		known = append(known, child.F.Name)
	}
	return nil, refuse("there is no agent %q; you have spawned: %s", cut(name, maxName), quoteAll(known))
}

func (c *childTool) check(ctx agent.Context, args map[string]any) (map[string]any, error) {
	child, err := c.child(ctx, args)
	if err != nil {
		return nil, err
	}
	return ended(child), nil
}

func (c *childTool) message(ctx agent.Context, args map[string]any) (map[string]any, error) {
	child, err := c.child(ctx, args)
	if err != nil {
		return nil, err
	}
	text, err := textOf(args, "text", maxSaidOfGoal, true)
	switch {
	case err != nil:
		return nil, err
	case child.End != nil:
		return nil, refuse("agent %q reads no message any more: it is %s", child.F.Name, child.Status())
	case child.Seen == 0:
		return nil, refuse("agent %q has not begun: try again", child.F.Name)
	}
	err = c.t.run.TellChild(ctx, child, text, ctx.FunctionCallID())
	if e, is := errors.AsType[*fault.Error](err); is && ctx.Err() == nil {
		return nil, refuse("agent %q was not told: %s", child.F.Name, e.Message)
	}
	return stands(child), err
}

func (c *childTool) wait(ctx agent.Context, args map[string]any) (map[string]any, error) {
	child, err := c.child(ctx, args)
	if err != nil {
		return nil, err
	}
	if err := c.t.run.AwaitChild(ctx, child.F.Name); err != nil {
		return nil, err
	}
	return c.check(ctx, args)
}

func (c *childTool) stop(ctx agent.Context, args map[string]any) (map[string]any, error) {
	child, err := c.child(ctx, args)
	switch {
	case err != nil:
		return nil, err
	case child.End != nil:
		return ended(child), nil
	}
	err = c.t.run.StopChild(ctx, child)
	if e, is := errors.AsType[*fault.Error](err); is && ctx.Err() == nil {
		return nil, refuse("agent %q was not stopped: %s", child.F.Name, e.Message)
	}
	if err != nil {
		return nil, err
	}
	return c.check(ctx, args)
}

// runsAs sets what a child runs: the agent of its parent with another instruction, and those of its tools that the call
// names, all for none.
func (c *childTool) runsAs(ask *session.Spawn, prompt, extras string, names []string) error {
	spec, all := c.n.spec, c.t.run.Spec()
	has := c.childTools()
	if names == nil {
		names = has
	}
	for _, name := range names {
		if !slices.Contains(has, name) {
			return refuse("subagent %q refused: you have no tool %q to give; you have: %s", ask.Name,
				cut(name, maxName), quoteAll(has))
		}
	}
	given := func(name string) bool { return slices.Contains(names, name) }
	llm := &agentdv1.LlmAgent{
		Model: spec.GetModel(), FallbackModels: spec.GetFallbackModels(), Compaction: spec.GetCompaction(),
		Generation: proto.CloneOf(spec.GetGeneration()), BackgroundAgents: spec.GetBackgroundAgents(),
		Instruction: strings.TrimSpace(prompt + "\n\n" + extras),
	}
	if llm.Generation != nil {
		llm.Generation.ToolChoice = nil
	}
	if len(llm.Instruction) > c.t.limits.InstructionBytes {
		return refuse("subagent %q refused: system_prompt and extras have %d bytes together, at most %d are allowed",
			ask.Name, len(llm.Instruction), c.t.limits.InstructionBytes)
	}
	if t, err := parseInstruction(llm.Instruction); err != nil || len(t.uses) > 0 { // it is a text, no template
		ask.Run.State = map[string]any{instructionState: llm.Instruction}
		llm.Instruction = "{" + instructionState + "}"
	}
	finds := false
	for _, d := range c.n.tools {
		if given(d.name) {
			llm.ToolNames = append(llm.ToolNames, d.name)
			finds = finds || d.deferred
		}
	}
	for _, name := range spec.GetBuiltinTools() {
		if name == toolSearchTool && finds || given(name) {
			llm.BuiltinTools = append(llm.BuiltinTools, name)
		}
	}
	for _, t := range spec.GetAgentTools() {
		if given(toolName(t)) {
			llm.AgentTools = append(llm.AgentTools, t)
		}
	}
	data, err := protojson.Marshal(&agentdv1.Agent{Name: ask.Name, AgentType: &agentdv1.Agent_Llm{Llm: llm}})
	if err != nil {
		return err
	}
	ask.Run.Agent = data
	for _, t := range all.Tools { // agents that are tools have tools
		if len(llm.AgentTools) > 0 || slices.Contains(llm.ToolNames, t.GetName()) {
			data, err := protojson.Marshal(t)
			if err != nil {
				return err
			}
			ask.Run.Tools = append(ask.Run.Tools, json.RawMessage(data))
		}
	}
	return nil
}

// childTools are the names of the tools that a child of the agent may have.
func (c *childTool) childTools() []string {
	set := map[string]bool{}
	for _, d := range c.n.tools {
		set[d.name] = true
	}
	for _, name := range c.n.spec.GetBuiltinTools() {
		if name != exitLoopTool && name != toolSearchTool {
			set[name] = true
		}
	}
	for _, d := range c.n.agentTools {
		set[d.name] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// textOf returns a text of the arguments.
func textOf(args map[string]any, name string, most int, need bool) (string, error) {
	v, there := args[name]
	text, is := v.(string)
	text = strings.TrimSpace(text)
	switch {
	case there && v != nil && !is:
		return "", refuse("not done: %q must be a text", name)
	case need && text == "":
		return "", refuse("not done: %q must be a text that is not empty", name)
	case len(text) > most:
		return "", refuse("not done: %q has %d bytes, at most %d are allowed", name, len(text), most)
	}
	return text, nil
}

// namesOf returns a list of texts of the arguments, nil if there is none.
func namesOf(args map[string]any, name string) ([]string, error) {
	v := args[name]
	if v == nil {
		return nil, nil
	}
	list, is := v.([]any)
	if !is || len(list) > maxChildTools {
		return nil, refuse("not done: %q must be a list of at most %d names", name, maxChildTools)
	}
	names := []string{}
	for _, v := range list {
		text, is := v.(string)
		if !is {
			return nil, refuse("not done: %q must be a list of names", name)
		}
		names = append(names, text)
	}
	return names, nil
}

// limitsOf returns the limits that a call gives a child.
func limitsOf(args map[string]any) (l record.GoalLimits, err error) {
	number := func(name string, whole bool, most float64) (n float64) {
		v := args[name]
		if v == nil || err != nil {
			return 0
		}
		n, ok := numberArg(v)
		if !ok || n <= 0 || n > most || whole && n != math.Trunc(n) {
			kind := "number"
			if whole {
				kind = "whole number"
			}
			err = refuse("not done: %q must be a %s above 0 and at most %v", name, kind, most)
		}
		return n
	}
	l.Turns = int64(number("max_turns", true, math.MaxInt32))
	l.Cost = record.BudgetUSD(number("max_cost_usd", false, 1e6))
	l.Wall = time.Duration(number("max_wallclock_seconds", true, 365*24*3600)) * time.Second
	return l, err
}

// readAlert reads the arguments of a tool with which a child reports.
func readAlert(kind string) func(map[string]any, time.Time) (*record.GoalSaid, map[string]any, error) {
	return func(args map[string]any, _ time.Time) (*record.GoalSaid, map[string]any, error) {
		text, err := textArg(args, "text")
		if err == nil && text == "" {
			err = errors.New(`not taken: "text" must be a text that is not empty`)
		}
		if err != nil {
			return nil, nil, err
		}
		return &record.GoalSaid{Alerts: []record.GoalAlert{{Kind: kind, Text: text}}}, map[string]any{"ack": true}, nil
	}
}

// alertDecls declare the tools of a child.
var alertDecls = []struct{ name, kind, text string }{
	{alertTool, "", "Tells the agent that has spawned you something at once. You go on working."},
	{completedTool, record.AlertCompleted, "Tells the agent that has spawned you that something is done. You go on " +
		"working: only the tool that ends the goal does that."},
}

// alertTools returns the tools with which a child reports.
func (t *turn) alertTools() (tools toolbox) {
	for _, d := range alertDecls {
		tools = append(tools, &goalTool{read: readAlert(d.kind), baseTool: baseTool{t: t, name: d.name,
			decl: &genai.FunctionDeclaration{Name: d.name, Description: d.text, ParametersJsonSchema: map[string]any{
				"type": "object", "properties": map[string]any{"text": textSchema("What you report.")},
				"required": []any{"text"},
			}}}})
	}
	return tools
}
