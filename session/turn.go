package session

import (
	"github.com/apzuk3/agentd/session/internal/given"
	"github.com/apzuk3/agentd/session/internal/halt"
	"github.com/apzuk3/agentd/session/internal/keys"
	"github.com/apzuk3/agentd/session/internal/live"
	"github.com/apzuk3/agentd/session/internal/prompt"
	"github.com/apzuk3/agentd/session/internal/team"
)

// A session in memory is of package live. What callers and engines have of it is named here; its methods
// are documented there.
type (
	// Spawn asks for a child of a session, and Child is one; see [live.Run.Spawn].
	Spawn = live.Spawn
	// Child is described at Spawn. It must not be changed.
	Child = team.Child
	// Turn is a turn as its callers have it: ID, SessionID and Done, Watch, SubmitResult and Resolve,
	// CancelCall, Cancel and End. Its methods may be called from any goroutine.
	Turn = live.Turn
	// ClientResult is the result that a client gives to a tool call; see [live.Turn.SubmitResult].
	ClientResult = given.Result
	// Watcher renders the records of a session, and the deltas between them, as protocol messages, until a
	// turn is over: Ready, Next, Weight and Lags, Unattended, Close and CloseAndCancel. One goroutine at a
	// time may use it; Close may be called from any.
	Watcher = live.Watcher

	// Runner is the agent engine: Check, CheckState, CheckInput, Decode and Run.
	Runner = live.Runner
	// Run gives a Runner access to the turn that it drives: what the turn runs, its log and its state,
	// Append, AppendLater and AppendAtEnd, Delta, BeginCall, Await and Ask. Its methods may be called from any
	// goroutine until Runner.Run returns.
	Run = live.Run
	// Injected is a prompt that is to become a message of the running turn; see [live.Run.Injected].
	Injected = prompt.Injected

	// Keys are a caller's own provider keys by provider name.
	Keys = keys.Of
	// Secret is a provider key. It prints as *** and does not marshal.
	Secret = keys.Secret
)

// ErrSuspended is the cause with which the context of a run ends when its turn is suspended. The runner
// must leave the history as it is: the turn is resumed later, here or on another server.
var ErrSuspended = halt.ErrSuspended
