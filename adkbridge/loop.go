package adkbridge

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"iter"
	"strings"

	"google.golang.org/adk/v2/agent"
	adksession "google.golang.org/adk/v2/session"

	"github.com/apzuk3/agentd/internal/lineage"
	"github.com/apzuk3/agentd/session/record"
)

// loop runs its agents in order, again and again, until it reaches its cap, an agent
// within it calls exit_loop, or the client stops it.
type loop struct {
	t    *turn
	n    *node
	kids []agent.Agent
}

// run is the loop as ADK runs it. It checks for exit_loop after each of its agents, so
// it never cuts an agent short, and only in its own mark, so loops around it continue.
func (l *loop) run(ctx agent.InvocationContext) iter.Seq2[*adksession.Event, error] {
	return func(yield func(*adksession.Event, error) bool) {
		at := placed{l.n, lineage.Room(ctx.Branch())}
		visit := l.t.enter(at)
		for i := 1; i <= l.n.maxIterations; i++ {
			l.t.setExit(at, false)
			if ctx.Err() != nil { // agents that say nothing do not notice
				yield(nil, context.Cause(ctx))
				return
			}
			for _, kid := range l.kids {
				for ev, err := range kid.Run(ctx) {
					if !yield(ev, err) || err != nil {
						return
					}
				}
				if l.t.hasExited(at) {
					return
				}
			}
			if !l.t.tree.askLoop {
				continue
			}
			more, ev, err := l.askContinue(ctx, visit, i)
			if err != nil {
				yield(nil, err)
				return
			}
			if ev != nil && !yield(ev, nil) {
				return
			}
			if !more {
				return
			}
		}
	}
}

// askContinue asks the client whether to continue. The loop ends when the output is an
// object whose "continue" is false, and when there is no output: a client that failed,
// canceled or went away has not agreed to further model calls. With any other output it
// continues. The event holds the state that came with the result, nil if none came.
func (l *loop) askContinue(
	ctx agent.InvocationContext, visit, iteration int,
) (more bool, ev *adksession.Event, err error) {
	defer func() {
		if p := recover(); p != nil { // below a parallel agent it would end the process
			more, ev, err = false, nil, panicError("loop "+l.n.name, p)
			l.t.stop(err)
		}
	}()
	input, err := json.Marshal(struct {
		Agent         string `json:"agent"`
		Iteration     int    `json:"iteration"`
		MaxIterations int    `json:"max_iterations"`
	}{l.n.name, iteration, l.n.maxIterations})
	if err != nil {
		return false, nil, err
	}
	room := lineage.Room(ctx.Branch())
	call := record.ToolCall{
		ID:    loopCallID(l.t.run.TurnID(), l.n.name, room, visit, iteration),
		Name:  askLoopTool,
		Input: input,
		Path:  l.n.path,
	}
	if room != "" {
		call.Branch = ctx.Branch()
	}
	if l.t.tree.askLeave {
		call.Asks = approval
	}
	err = l.t.recordAgents(ctx)
	var res record.ToolResult
	if err == nil {
		res, err = l.t.run.Ask(ctx, call)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		l.t.stop(err)
		return false, nil, err
	}
	if len(res.State) > 0 {
		ev = l.t.newEvent(ctx, l.n.name, ctx.Branch())
		for k, v := range res.State {
			ev.Actions.StateDelta[k] = cloneValue(v)
		}
	}
	if res.Outcome != record.Returned || res.Output == nil {
		return false, ev, nil
	}
	v, _ := parseJSON(*res.Output)
	m, _ := v.(map[string]any)
	proceed, said := m["continue"].(bool)
	return proceed || !said, ev, nil
}

// loopCallID returns the id of a question. A resumed turn asks under the same id.
func loopCallID(turnID, name, room string, visit, iteration int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s|%s%s|%d#%d", turnID, name, room, visit, iteration))
	return "loop_" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:16]))
}
