package cli

import (
	"context"
	"errors"
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
	call := client.CallFrom(ctx).ID()
	if call == "" {
		return permit.Deny, permit.ErrNoPrompter
	}
	q := r.Question()
	said, err := h.q.put(ctx, &client.Interaction{ // its id is that of what the person sees first, the call
		ID: ofCall(call), ToolCallID: call, ToolName: r.ToolName, N: 1,
		Kind: q.Kind, Question: q.Text, Choices: q.Choices, Source: q.Source,
	})
	switch {
	case errors.Is(err, terminal.ErrNobody):
		return permit.Deny, permit.ErrNoPrompter
	case err != nil:
		return permit.Deny, err
	}
	return permit.DecisionOf(said)
}
