package session

import (
	"context"
	"encoding/json"

	"github.com/apzuk3/agentd/session/record"
)

// Runner is the agent engine. Its methods may be called from any goroutine.
type Runner interface {
	// Check refuses a spec that cannot run (a malformed tree, an unknown tool, a
	// model that cannot be served, a missing key) before a token is spent. Its
	// errors are of type *fault.Error.
	Check(ctx context.Context, spec *record.Spec, keys Keys) error

	// CheckState refuses a spec that has passed Check and that cannot run with the
	// state with which its turn would begin. Its errors are of type *fault.Error. It
	// must not change the state.
	CheckState(spec *record.Spec, state map[string]any) error

	// CheckInput says what is wrong with a JSON object as the arguments of a tool of
	// the spec.
	CheckInput(spec *record.Spec, tool string, input json.RawMessage) error

	// Decode says what an event that this runner has appended means. It is a
	// pure function of data.
	Decode(data []byte) (*record.Event, error)

	// Run drives a turn to its end and returns nil when the tree has finished
	// naturally. When ctx ends it aborts what is under way and returns the
	// context's cause. Before it returns, whatever the outcome, every tool call
	// in the history has its result, so that the session can go on; to that end
	// it may still append after ctx has ended, with a context of its own. Results
	// that it makes up are handed to Run.AppendAtEnd: until the end is durable the
	// turn may go on in another process. Only when the cause is ErrSuspended does it
	// leave open calls as they are.
	//
	// The log may already hold events of the turn: then it was interrupted, and
	// Run goes on where the log ends. No model call is made again whose answer
	// the log holds, no call is awaited anew whose result it holds.
	//
	// An error of type *fault.Error reaches the client; any other is internal. Run
	// must not panic and must leave no goroutine behind.
	Run(ctx context.Context, run *Run) error
}
