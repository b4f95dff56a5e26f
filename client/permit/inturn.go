package permit

import (
	"context"
	"errors"
	"fmt"

	"github.com/apzuk3/agentd/client"
)

// InTurn asks in the turn: the question is an interaction of the call whose handler asks, which the run's own
// [client.Prompter] or anybody else may resolve, and which outlives this program. See [client.Call.Ask]. Where there is
// no such call, or the server does not know such questions, otherwise is asked, which may be nil.
func InTurn(otherwise Prompter) Prompter { return inTurn{otherwise} }

type inTurn struct{ otherwise Prompter }

// does says what a request does, by its Access.
var does = map[string]string{"r": "read ", "w": "write ", "x": "run ", "n": "reach "}

// scopes are the decisions that approve, by the words of [client.Resolution].
var scopes = map[string]Decision{
	"": Once, "once": Once, "always": Always,
	"session": Session, "session_verb": SessionVerb, "session_tool": SessionTool,
}

// Question is the request as a question of the call whose handler asks.
func (r *PromptRequest) Question() client.Question {
	q := client.Question{
		Kind: client.InteractionApproval, Text: does[r.Access] + r.Detail, Source: r.Source,
		Choices: []string{"once", "session"},
	}
	if r.Verb != "" {
		q.Choices = append(q.Choices, "session_verb")
	}
	q.Choices = append(q.Choices, "session_tool")
	if r.PersistKey != "" {
		q.Choices = append(q.Choices, "always")
	}
	return q
}

// DecisionOf is what was said to a [PromptRequest.Question]. Of a denial with a reason the error has that, and matches
// [ErrDenied].
func DecisionOf(said *client.Resolution) (Decision, error) {
	if said.Kind != client.ResolutionApproval {
		if said.Reason != "" {
			return Deny, fmt.Errorf("%w: %s", ErrDenied, said.Reason)
		}
		return Deny, nil
	}
	d, ok := scopes[said.Scope]
	if !ok { // a scope of a newer protocol, which may mean anything
		d = Once
	}
	return d, nil
}

func (p inTurn) AskApproval(ctx context.Context, r PromptRequest) (Decision, error) {
	said, err := client.CallFrom(ctx).Ask(ctx, r.Question())
	switch {
	case errors.Is(err, errors.ErrUnsupported) && p.otherwise != nil:
		return p.otherwise.AskApproval(ctx, r)
	case errors.Is(err, errors.ErrUnsupported):
		return Deny, ErrNoPrompter
	case err != nil:
		return Deny, err
	}
	return DecisionOf(said)
}
