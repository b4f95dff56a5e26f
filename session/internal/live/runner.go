package live

import (
	"context"
	"encoding/json"

	"github.com/apzuk3/agentd/session/internal/keys"
	"github.com/apzuk3/agentd/session/record"
)

// Runner is the agent engine. Its methods may be called from any goroutine.
type Runner interface {
	// Check refuses a spec that cannot run (a malformed tree, an unknown tool, a model that
	// cannot be served, a missing key) before a token is spent. Its errors are of type
	// *fault.Error.
	Check(ctx context.Context, spec *record.Spec, keys keys.Of) error

	// CheckState refuses a spec that cannot run with the state at the start of its turn. The
	// spec has passed Check. Its errors are of type *fault.Error. It must not change the state.
	CheckState(spec *record.Spec, state map[string]any) error

	// CheckInput returns why a JSON object cannot be the arguments of a tool of the spec, which
	// has passed Check. The text is for the author of the object.
	CheckInput(spec *record.Spec, tool string, input json.RawMessage) error

	// Decode returns the fact of an event that this runner has appended. It is a pure
	// function of data.
	Decode(data []byte) (*record.Event, error)

	// Run drives a turn to its end and returns nil when the tree has finished. When ctx ends,
	// it aborts what is under way and returns the cause.
	//
	// Before Run returns, every tool call in the history must have a result, so that the
	// session can take another turn. To that end Run may append after ctx has ended, with a
	// context of its own. It hands results of its own making to Run.AppendAtEnd: until the end
	// is durable, the turn may be resumed in another process. If the cause is ErrSuspended,
	// Run leaves open calls as they are.
	//
	// If the log already has events of the turn, Run replays them and continues where the log
	// ends. It repeats no model call whose response the log has, and awaits no call whose
	// result the log has.
	//
	// An error of type *fault.Error reaches the client; any other is internal. Run must not
	// panic and must leave no goroutine behind.
	Run(ctx context.Context, run *Run) error
}
