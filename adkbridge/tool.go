package adkbridge

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"google.golang.org/adk/v2/agent"
	adkmodel "google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/tool"
	"google.golang.org/adk/v2/tool/toolutils"
	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/lineage"
	"github.com/apzuk3/agentd/session/record"
)

// baseTool is the part that all tools share.
type baseTool struct {
	t    *turn
	name string
	decl *genai.FunctionDeclaration // nil: not offered to the model by this tool
}

func (b *baseTool) Name() string                            { return b.name }
func (b *baseTool) Declaration() *genai.FunctionDeclaration { return b.decl }
func (*baseTool) IsLongRunning() bool                       { return false }

func (b *baseTool) Description() string {
	if b.decl == nil {
		return ""
	}
	return b.decl.Description
}

// runGuarded runs a tool unless its call was refused. A panic stops the turn: ADK
// runs tools on goroutines of its own, where it would end the process.
func (b *baseTool) runGuarded(ctx agent.Context, run func() (map[string]any, error)) (out map[string]any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicError("tool "+b.name, p)
			b.t.stop(err)
			out = nil
		}
	}()
	if reason := b.t.refusal(ctx.FunctionCallID()); reason != "" {
		return errorResult(reason), nil
	}
	return run()
}

// remoteTool is a tool that the client runs.
//
// ADK appends the response before it runs its tools, so by the time of Run the session
// knows the call and has sent it to the client.
type remoteTool struct{ baseTool }

func (r *remoteTool) ProcessRequest(_ agent.Context, req *adkmodel.LLMRequest) error {
	return toolutils.PackTool(req, r)
}

// Run waits for the client's result.
func (r *remoteTool) Run(ctx agent.Context, _ any) (map[string]any, error) {
	return r.runGuarded(ctx, func() (map[string]any, error) {
		res, err := r.t.run.Await(ctx, ctx.FunctionCallID())
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			r.t.stop(err) // there is no result, so nothing may be appended as one
			return nil, err
		}
		// The state itself changes when the event that holds the result is appended.
		for k, v := range res.State {
			ctx.Actions().StateDelta[k] = cloneValue(v)
		}
		return r.t.result(ctx.FunctionCallID(), res), nil
	})
}

// exitTool ends the innermost loop around the agent that calls it, once the
// agent that runs in it has finished.
type exitTool struct {
	baseTool
	loop *node
}

func (e *exitTool) ProcessRequest(_ agent.Context, req *adkmodel.LLMRequest) error {
	return toolutils.PackTool(req, e)
}

// Run ignores arguments: models like to give reasons.
func (e *exitTool) Run(ctx agent.Context, _ any) (map[string]any, error) {
	return e.runGuarded(ctx, func() (map[string]any, error) {
		e.t.setExit(placed{e.loop, lineage.Room(ctx.Branch())}, true)
		ctx.Actions().SkipSummarization = true
		return map[string]any{}, nil
	})
}

// doneTool takes note that a task is done: see prompt.noteWish.
type doneTool struct{ baseTool }

func (d *doneTool) ProcessRequest(_ agent.Context, req *adkmodel.LLMRequest) error {
	return toolutils.PackTool(req, d)
}

// Run answers the same whatever the arguments are: they are in the history already.
func (d *doneTool) Run(ctx agent.Context, _ any) (map[string]any, error) {
	return d.runGuarded(ctx, func() (map[string]any, error) { return map[string]any{"output": doneText}, nil })
}

// doneText is the result of mark_task_done. It is a part of logs.
const doneText = "noted"

// toolbox is all tools of an agent as one, which only offers them: for each tool of an agent ADK makes a context and
// a random id at each model call. ADK finds the tool that it runs in the request, where the toolbox has put it.
type toolbox []interface {
	tool.Tool
	ProcessRequest(ctx agent.Context, req *adkmodel.LLMRequest) error
}

func (toolbox) Name() string        { return "agentd.tools" }
func (toolbox) Description() string { return "" }
func (toolbox) IsLongRunning() bool { return false }

func (b toolbox) ProcessRequest(ctx agent.Context, req *adkmodel.LLMRequest) error {
	for _, t := range b {
		if err := t.ProcessRequest(ctx, req); err != nil {
			return err
		}
	}
	return nil
}

// forADK returns the tools as ADK takes them.
func (b toolbox) forADK() []tool.Tool {
	if len(b) == 0 {
		return nil
	}
	return []tool.Tool{b}
}

// transferRunner replaces ADK's transfer tool, which lets a model transfer to agents
// that do not exist. classify has checked the target.
type transferRunner struct{ t *turn }

func (*transferRunner) Name() string                            { return transferTool }
func (*transferRunner) Description() string                     { return "" }
func (*transferRunner) IsLongRunning() bool                     { return false }
func (*transferRunner) Declaration() *genai.FunctionDeclaration { return nil }

// Run names the agent to ADK, which runs it when all calls of the response are over.
func (h *transferRunner) Run(ctx agent.Context, args any) (map[string]any, error) {
	b := baseTool{t: h.t, name: transferTool}
	return b.runGuarded(ctx, func() (map[string]any, error) {
		m, _ := args.(map[string]any)
		name, _ := m["agent_name"].(string)
		ctx.Actions().TransferToAgent = name
		return map[string]any{}, nil
	})
}

// unknownTool replaces a tool that the model made up.
type unknownTool struct{ baseTool }

func (u *unknownTool) Run(ctx agent.Context, _ any) (map[string]any, error) {
	return u.runGuarded(ctx, func() (map[string]any, error) {
		return errorResult("there is no such tool"), nil
	})
}

var (
	_ tool.Tool = (*remoteTool)(nil)
	_ tool.Tool = (*exitTool)(nil)
	_ tool.Tool = (*doneTool)(nil)
	_ tool.Tool = (*transferRunner)(nil)
	_ tool.Tool = (*unknownTool)(nil)
)

// resultOf returns what the model sees of a result. A JSON object stays as it is; any
// other JSON value, and any other text, becomes {"output": …}. Without an output it is
// {"error": text}.
func resultOf(res record.ToolResult) map[string]any {
	if res.Outcome == record.Returned && res.Output != nil {
		v, ok := parseJSON(*res.Output)
		if !ok {
			v = *res.Output
		}
		if m, ok := v.(map[string]any); ok {
			return m
		}
		return map[string]any{"output": v}
	}
	text := cmp.Or(res.Error, "the tool gave no result")
	switch res.Outcome {
	case record.Returned:
	case record.Cancelled:
		text = "cancelled: " + text
	case record.TimedOut:
		text = "timed out: " + text
	case record.Abandoned:
		text = "abandoned: " + text
	case record.Denied:
		text = "denied: " + text
	}
	return errorResult(text)
}

// maxOutputDepth is how deeply a result may nest to reach the model as a value.
// Decoders have limits, those of providers lower ones than Go's, and a history
// that one of them refuses would end the session.
const maxOutputDepth = 32

// parseJSON reads text that is one JSON value, with its numbers as they are
// written. A value that not every provider can read counts as text.
func parseJSON(text string) (any, bool) {
	var v any
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		return nil, false
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, false
	}
	return v, portable(v, maxOutputDepth)
}

// portable reports whether a JSON value nests at most depth levels and whether float64
// can hold all its numbers, even with less precision.
func portable(v any, depth int) bool {
	switch v := v.(type) {
	case json.Number:
		_, err := v.Float64()
		return err == nil
	case map[string]any:
		if depth == 0 {
			return false
		}
		for _, sub := range v {
			if !portable(sub, depth-1) {
				return false
			}
		}
	case []any:
		if depth == 0 {
			return false
		}
		for _, sub := range v {
			if !portable(sub, depth-1) {
				return false
			}
		}
	}
	return true
}

// cloneValue copies a JSON value: ADK merges the deltas of a response's tools in
// place.
func cloneValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, sub := range v {
			out[k] = cloneValue(sub)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, sub := range v {
			out[i] = cloneValue(sub)
		}
		return out
	default:
		return v
	}
}
