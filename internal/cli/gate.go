package cli

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/client/permit"
	"github.com/apzuk3/agentd/client/terminal"
)

// Gate has the person of a turn asked what tools may do. It is made before its turn and asks nobody until then.
type Gate struct{ turn atomic.Pointer[Turn] }

// For says whose turn it is. It is called before the turn starts; a tool of the turn before may still ask.
func (g *Gate) For(t *Turn) { g.turn.Store(t) }

// AskApproval is that of permit.Prompter. It is called by one goroutine at a time, see permit.Serialize. The question
// becomes one of the turn, which its person sees as any other.
func (g *Gate) AskApproval(ctx context.Context, r permit.PromptRequest) (permit.Decision, error) {
	turn := g.turn.Load()
	if turn == nil || turn.Person == nil {
		return permit.Deny, permit.ErrNoPrompter
	}
	q := turn.asked.Load()
	if q == nil {
		return permit.Deny, permit.ErrNoPrompter
	}
	return permit.InTurn(here{q}).AskApproval(ctx, r)
}

// here asks the person of a turn alone, since the daemon takes no questions of tools.
type here struct{ q *questions }

func (h here) AskApproval(ctx context.Context, r permit.PromptRequest) (permit.Decision, error) {
	d, err := h.q.permission(ctx, r)
	if errors.Is(err, terminal.ErrNobody) {
		err = permit.ErrNoPrompter
	}
	return d, err
}

// permission asks what a tool may do, when no other question is open.
func (q *questions) permission(ctx context.Context, r permit.PromptRequest) (permit.Decision, error) {
	if id := client.CallFrom(ctx).ID(); id != "" { // first the person sees the call
		select {
		case <-q.request(ofCall(id)):
		case <-ctx.Done():
			return permit.Deny, context.Cause(ctx)
		}
	}
	select {
	case q.free <- struct{}{}:
	case <-ctx.Done():
		return permit.Deny, context.Cause(ctx)
	}
	defer func() { <-q.free }()
	if err := q.hold(true); err != nil {
		return permit.Deny, err
	}
	defer func() { _ = q.hold(false) }() // a screen that cannot be written says so with the next event
	does := map[string]string{"r": "read", "w": "write", "x": "run", "n": "reach"}[r.Access]
	before := fmt.Sprintf("%s wants to %s: ", terminal.Line(r.ToolName, maxAsker), does)
	if r.Source != "" {
		before = "[" + terminal.Line(r.Source, maxAsker) + "] " + before
	}
	keys := []string{"y", "n", "s", "t"}
	question := "Allow? [y]es, [n]o, this for the [s]ession, "
	if r.Verb != "" {
		keys = append(keys, "v")
		question += fmt.Sprintf("each %s for it ([v]), ", terminal.Line(r.Verb, maxAsker))
	}
	question += "all of this [t]ool for it"
	if r.PersistKey != "" {
		keys = append(keys, "a")
		question += ", this [a]lways"
	}
	said, err := q.turn.Person.Choose(ctx, before, r.Detail, question+": ", keys...)
	if err != nil {
		return permit.Deny, err
	}
	d, _ := permit.Key(said)
	return d, nil
}

// maxAsker bounds the names in a question.
const maxAsker = 200
