package permit

import (
	"context"
	"errors"
)

// Decision is what a person says to a question. The zero value denies.
type Decision int

// Decisions, by the keys that a terminal has for them.
const (
	Deny        Decision = iota // n, or nothing: this call
	Once                        // y: this call
	Session                     // s: this exact request, in this session
	SessionVerb                 // v: commands with this first word, in this session
	SessionTool                 // t: all of this tool, in this session
	Always                      // a: this exact request, from now on
)

// Key returns the decision of a key, false for a key that has none.
func Key(text string) (Decision, bool) {
	d, ok := keys[text]
	return d, ok
}

var keys = map[string]Decision{
	"": Deny, "n": Deny, "y": Once, "s": Session, "v": SessionVerb, "t": SessionTool, "a": Always,
}

// PromptRequest is a question to a person.
type PromptRequest struct {
	Kind, ToolName, Detail  string // Detail: the command, path or URL, or the name of what is called
	PersistTool, PersistKey string // the rule that Always writes; PersistKey "" if none can be: Always is Session then
	Verb                    string // a command's first word; "" if there is more than one
	Source                  string // the sub-agent that asks; "" for the root
	Access                  string // r, w, x or n
}

// Prompter asks a person.
type Prompter interface {
	// AskApproval returns what a person says. It is called concurrently, unless [Serialize] stands before it; ctx ends
	// when the call does. An error refuses the call, and the model reads it; one that matches [ErrDenied] says why a
	// person has said no.
	AskApproval(ctx context.Context, req PromptRequest) (Decision, error)
}

var (
	// ErrNoPrompter says that a person would have to be asked and nobody is there.
	ErrNoPrompter = errors.New("nobody is there to be asked")
	// ErrDenied says that a person, a rule or the mode refuses.
	ErrDenied = errors.New("denied")
)

// Serialize has one question asked at a time, in their order. A question whose answer has become known while it waited
// is not asked.
func Serialize(p Prompter) Prompter {
	if p == nil {
		return nil
	}
	return &serial{p: p, turn: make(chan struct{}, 1)}
}

type serial struct {
	p    Prompter
	turn chan struct{} // holds one while a question is open
}

func (s *serial) AskApproval(ctx context.Context, req PromptRequest) (Decision, error) {
	d, _, err := s.ask(ctx, req, func() bool { return false })
	return d, err
}

// ask is AskApproval, unless the answer is known when its turn has come.
func (s *serial) ask(ctx context.Context, req PromptRequest, known func() bool) (d Decision, skipped bool, err error) {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return Deny, false, context.Cause(ctx)
	}
	defer func() { <-s.turn }()
	if ctx.Err() != nil {
		return Deny, false, context.Cause(ctx)
	}
	if known() {
		return Once, true, nil
	}
	d, err = s.p.AskApproval(ctx, req)
	return d, false, err
}
