package adkbridge

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/adk/v2/agent"
	adkmodel "google.golang.org/adk/v2/model"
	"google.golang.org/adk/v2/tool"
	"google.golang.org/adk/v2/tool/toolutils"
	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/lineage"
)

// An agent that another one calls as a tool runs within the turn, on a branch of its own: its events are in the turn's
// log, in the place where they happened, and a replay takes them from there, call by call. The branch has the id of the
// call in it, so calls of one agent at the same time are told apart, and no call sees what another one did.
//
// What it is told is an event, the first one of its branch. What it says last is the result: last in the log, since
// agents below it may end at the same time.

// calledAgent is the tool.
type calledAgent struct {
	baseTool
	spec  *agentTool
	agent agent.Agent
}

var _ tool.Tool = (*calledAgent)(nil)

func (c *calledAgent) ProcessRequest(_ agent.Context, req *adkmodel.LLMRequest) error {
	return toolutils.PackTool(req, c)
}

// Run runs the agent to its end, on the goroutine of the call.
func (c *calledAgent) Run(ctx agent.Context, args any) (map[string]any, error) {
	return c.runGuarded(ctx, func() (map[string]any, error) {
		depth := lineage.Depth(ctx.Branch()) + 1
		if depth > c.spec.maxDepth {
			return map[string]any{resultArg: depthRefusal(c.name, c.spec.maxDepth)}, nil
		}
		m, _ := args.(map[string]any)
		request, _ := m[requestArg].(string)
		text, err := c.serve(ctx, request)
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			c.t.stop(err) // there is no result, so nothing may be appended as one
			c.t.halt(err) // what was called beside it need not come to its end
			return nil, err
		}
		return map[string]any{resultArg: text}, nil
	})
}

// depthRefusal is the result of a call that is too deep. It is a part of logs.
func depthRefusal(name string, most int) string {
	return fmt.Sprintf("subagent %q refused: depth limit reached (%d)", name, most)
}

// serve runs the agent and returns its last text.
func (c *calledAgent) serve(ctx agent.Context, request string) (string, error) {
	t, j := c.t, &journal{c.t}
	branch := lineage.Branch(ctx.Branch(), c.spec.branch, ctx.FunctionCallID())
	told := t.newEvent(ctx, user, branch)
	told.Content = genai.NewContentFromText(request, genai.RoleUser)
	told.CustomMetadata = map[string]any{
		metaKey: &meta{Path: c.spec.root.path, Request: ctx.FunctionCallID(), Forks: c.spec.forks},
	}
	if err := j.AppendEvent(ctx, nil, told); err != nil {
		return "", err
	}
	defer t.hist.leave(branch)
	var within context.Context = ctx
	ic := t.entry.WithICDelta(&agent.InvocationContextDelta{Context: &within, Agent: &c.agent, Branch: &branch})
	for ev, err := range c.agent.Run(ic) {
		if err == nil {
			err = j.AppendEvent(ctx, nil, ev)
		}
		if err != nil {
			return "", err // continuing would run the next agent
		}
	}
	if err := context.Cause(ctx); err != nil {
		return "", err // an agent that says nothing does not notice
	}
	return t.takeSaid(branch), nil
}

// said is a text of an agent in a room, at its place in the log.
type said struct {
	seq  int64
	text string
}

// noteSaidLocked notes what the agents of a room say last. An event is met in the order of the log or in another one.
func (t *turn) noteSaidLocked(seq int64, s *stored) {
	room := lineage.Room(s.Branch)
	if room == "" {
		return
	}
	n := t.nodeOf(s.Author)
	if n == nil || seq < t.said[room].seq {
		return
	}
	if text, ok := n.finalText(s.Content, &s.CustomMetadata.Agentd); ok {
		t.said[room] = said{seq, text}
	}
}

// takeSaid returns the last text of a room whose call is over.
func (t *turn) takeSaid(room string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer delete(t.said, room)
	return t.said[room].text
}

// refusesAgent returns why a call of an agent with so many bytes of arguments is not run, "" if it is.
func (m *agentModel) refusesAgent(call *genai.FunctionCall, bytes int) string {
	if most := m.t.limits.ValueBytes; bytes > most {
		return tooLong(bytes, most)
	}
	if text, _ := call.Args[requestArg].(string); strings.TrimSpace(text) == "" {
		return fmt.Sprintf("not run: %q must be a text that is not empty", requestArg)
	}
	return ""
}

// tooLong is why a call with so many bytes of arguments is not run.
func tooLong(bytes, most int) string {
	return fmt.Sprintf("not run: the arguments take %d bytes, at most %d are allowed", bytes, most)
}

// outside returns the room that a room is in; "" for none.
func outside(room string) string {
	if dot := strings.LastIndexByte(room, '.'); dot >= 0 {
		return lineage.Room(room[:dot])
	}
	return ""
}

// forkLocked notes what the agent sees that is called with a request: what is there before the call that asks it.
func (h *history) forkLocked(request *item) {
	f := *request.fork
	for _, it := range slices.Backward(h.items) {
		if it.content == nil || !it.response {
			continue
		}
		for _, p := range it.content.Parts {
			if p.FunctionCall != nil && p.FunctionCall.ID == f.callID {
				f.agent, f.branch, f.before = it.author, it.branch, it.seq
				h.forks[lineage.Room(request.branch)] = &f
				return
			}
		}
	}
}

// seesLocked reports whether an agent on a branch sees an event: what its branch may see, and in a room that is a fork
// what the caller had seen.
func (h *history) seesLocked(branch string, it *item) bool {
	if visible(branch, it.branch) {
		return true
	}
	f := h.forks[lineage.Room(branch)]
	return f != nil && it.seq < f.before && h.seesLocked(f.branch, it)
}

// summarizesLocked reports whether a summary is of what an agent sees: its own, or in a room that is a fork its
// caller's.
func (h *history) summarizesLocked(it *item, key promptKey) bool {
	if it.author == key.agent && it.branch == key.branch {
		return true
	}
	f := h.forks[lineage.Room(key.branch)]
	return f != nil && it.seq < f.before && h.summarizesLocked(it, promptKey{f.agent, f.branch})
}

// leave drops the prompts of a room whose call is over: nobody asks for them again.
func (h *history) leave(room string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key := range h.prompts {
		if lineage.Room(key.branch) == room {
			h.forgetLocked(key)
		}
	}
}
