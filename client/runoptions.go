package client

import (
	"context"
	"net/http"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// runConfig is what the options of a run, or of a request, set.
type runConfig struct {
	agent       *Agent             // of a session's turn; nil: that of the turn before
	agentRef    *agentdv1.AgentRef // a tree that the server keeps; nil for none
	sessionID   string
	create      bool
	state       string      // JSON text of an object, "" for none
	header      http.Header // holds provider keys: never print
	tools       []*ToolSet  // the last one wins
	timeout     time.Duration
	concurrency int
	control     *Control
	after       *int64 // of an attach
	turnID      string // to follow, or of a Run: of the new turn
	observe     bool   // of an attach
	cursor      string // of a watch
	onLeave     OnLeave
	// failureEvents has the run yield the Error and the End of a turn that failed.
	failureEvents bool
	toolTimeout   time.Duration
	instruction   string
	parts         []*agentdv1.Part // behind the prompt
	rawPayloads   bool
	planMode      bool
	conversation
	beforeCall func(context.Context, *ToolCall) // nil for none
	// idempotencyKey is the caller's own, of a Run; "" stands for one of its own.
	idempotencyKey string

	onDisconnect agentdv1.OnDisconnect
	grace        time.Duration // of onDisconnect
	onBusy       agentdv1.OnBusy

	budget, sessionBudget *agentdv1.Budget // nil: not said

	prompter Prompter // nil: nobody is asked

	onAlert      func(*ChildEvent)            // of Serve; nil: nobody is told
	goalProgress func(turn int, event *Event) // of a goal; nil: nobody is told

	attach    bool             // the turn is not this run's own; filled in by prepare
	available map[string]*tool // what calls may name; filled in by prepare
	offered   []string         // names of the tools that a stream which attaches offers; filled in by prepare
	err       error            // the first wrong option
}

// WithSessionID continues a session. An unknown one is SESSION_NOT_FOUND, see
// [WithSessionOrNew]; an empty id is a new session, which the server names.
func WithSessionID(id string) RunOption {
	return option{useRun, func(c *runConfig) { c.sessionID, c.create = id, false }}
}

// WithSessionOrNew is [WithSessionID] that makes the session, under that id, if
// there is none. Of two runs that make it at the same time one does. It is for runs
// that start a turn; servers that do not know it respond SESSION_NOT_FOUND.
func WithSessionOrNew(id string) RunOption {
	return option{useRun, func(c *runConfig) {
		if id == "" {
			c.failf(errorf(ErrInvalidRequest, "client.WithSessionOrNew needs the id of a session"))
			return
		}
		c.sessionID, c.create = id, true
	}}
}

// WithInitialState sets session state before the turn: a map with string keys
// or a struct, encoded as encoding/json does. On a continued session these
// keys overwrite the stored ones. No digit of a number is lost: what a float64 does
// not hold may be a json.Number, or a [*math/big.Int].
func WithInitialState(state any) PromptOption {
	return option{useRun, func(c *runConfig) {
		object, err := stateObject(state)
		if err != nil {
			c.failf(errorf(ErrInvalidRequest, "client.WithInitialState: %w", err))
			return
		}
		c.state = object
	}}
}

// WithProviderKey uses the caller's own key of a model provider: "gemini",
// "anthropic" or "openai". The server uses it for what it is sent with alone, and
// neither stores nor logs it. An empty key is ignored.
func WithProviderKey(provider, key string) EveryOption {
	return option{useEvery, func(c *runConfig) {
		header := providerHeaders[provider]
		if header == "" {
			c.failf(errorf(ErrInvalidRequest,
				`client.WithProviderKey: want "gemini", "anthropic" or "openai", got %.40q`, provider))
			return
		}
		if key != "" {
			c.header.Set(header, key)
		}
	}}
}

var providerHeaders = map[string]string{
	"gemini": "X-Agentd-Gemini-Api-Key", "anthropic": "X-Agentd-Anthropic-Api-Key", "openai": "X-Agentd-Openai-Api-Key",
}

// WithHeader sets a request header, such as Authorization.
func WithHeader(key, value string) EveryOption {
	return option{useEvery, func(c *runConfig) { c.header.Set(key, value) }}
}

// WithTools adds tools for this run. A tool of the same name that the client
// or an earlier set holds is hidden. [Client.Attach] offers these tools alone.
func WithTools(tools *ToolSet) FollowOption {
	return option{useStream, func(c *runConfig) {
		if tools != nil {
			c.tools = append(c.tools, tools)
		}
	}}
}

// WithTimeout bounds the whole run, lost connections included. When it passes,
// the turn is left as [WithOnLeave] says, and the run fails with TIMEOUT. 0 sets no
// bound; a time below 0, such as that until a deadline which has passed, is over:
// nothing is sent.
func WithTimeout(d time.Duration) StreamOption {
	return option{useStream, func(c *runConfig) { c.timeout = d }}
}

// WithConcurrency sets how many tool handlers of one run may run at a time, at least
// 1; default [DefaultConcurrency]. Up to 1,024 more calls wait; calls beyond those get a
// tool error.
func WithConcurrency(n int) StreamOption {
	return option{useStream, func(c *runConfig) {
		if c.concurrency = n; n < 1 {
			c.failf(errorf(ErrInvalidRequest, "client.WithConcurrency: want at least 1, got %d", n))
		}
	}}
}

// WithToolTimeout bounds each tool call that has no [ToolTimeout], by more than 0 and
// at most a day; without it this side sets no bound, and servers have one of their
// own. It counts from when the client is asked, the wait for a free handler included.
// When it passes, the handler's context is canceled with [ErrToolTimeout] and the
// model is told at once. A server is told when a turn begins, and waits that long and
// two seconds more.
func WithToolTimeout(d time.Duration) StreamOption {
	return option{useStream, func(c *runConfig) {
		if c.toolTimeout = d; d <= 0 || d > maxToolTimeout {
			c.failf(errorf(ErrInvalidRequest,
				"client.WithToolTimeout: want more than 0 and at most %s, got %s", maxToolTimeout, d))
		}
	}}
}

// WithPrompter has p asked what the turns ask people that this client starts:
// whether a tool may be called that needs approval, and what a model asks by the
// builtin tool ask_user. With nil nobody is asked.
//
// [Client.Attach] follows a turn of which somebody else may be in charge: it asks a
// person only if this option is among its own, not for the one given to [New].
//
// Up to 16 prompts of a run are open at a time, more wait. What p says is sent
// until the server has it, as [WithReconnect] says; that another client was first
// is silent. An interaction is prompted for once in a run, also when the
// connection is lost meanwhile. Without a Prompter a turn that asks waits until
// somebody else answers: see [InteractionRequested] and [Client.Resolve].
func WithPrompter(p Prompter) StreamOption {
	return option{useRun, func(c *runConfig) { c.prompter = p }}
}

// OnLeave is what leaving a run does to its turn.
type OnLeave int

// Ways to leave a run.
const (
	// OnLeaveCancel cancels the turn on the server.
	OnLeaveCancel OnLeave = iota + 1
	// OnLeaveDetach leaves the turn as it is.
	OnLeaveDetach
)

// WithOnLeave says what becomes of the turn when its loop is left, or its context or
// its time ends: a turn of [Client.Run] is canceled, one that [Client.Attach]
// follows continues, unless this option says otherwise. A turn that is left continues
// with the clients it still has, else as [WithOnDisconnect] says.
func WithOnLeave(what OnLeave) FollowOption {
	return option{useStream, func(c *runConfig) {
		if c.onLeave = what; what != OnLeaveCancel && what != OnLeaveDetach {
			c.failf(errorf(ErrInvalidRequest,
				"client.WithOnLeave: want client.OnLeaveCancel or client.OnLeaveDetach, got %d", what))
		}
	}}
}

// cancelsOnLeave reports whether leaving the run cancels the turn.
func (c *runConfig) cancelsOnLeave() bool {
	if c.onLeave == 0 {
		return !c.attach
	}
	return c.onLeave == OnLeaveCancel
}

// WithFailureEvents has the run also yield as events how its turn failed: the [Error]
// that ended it, and its [End], before the error with which the sequence ends. It is for
// programs that pass events on.
func WithFailureEvents() StreamOption {
	return option{useStream, func(c *runConfig) { c.failureEvents = true }}
}

// WithBeforeCall has f run before the handler of each call that this run yields as [ToolCall], in the goroutine of the
// handler, which waits for it: f may wait in turn until the caller has seen that event, or ctx ends. It is for programs
// that show a call before it runs. Calls run at the same time, and so does f.
func WithBeforeCall(f func(ctx context.Context, call *ToolCall)) FollowOption {
	return option{useStream, func(c *runConfig) { c.beforeCall = f }}
}

// WithControl lets the caller end or cancel the run through control while it
// ranges over the events.
func WithControl(control *Control) FollowOption {
	return option{useStream, func(c *runConfig) { c.control = control }}
}

// WithAfterSeq has [Client.Attach] begin after a position in the session: the
// [Event].Seq of the last event that the caller has seen. A position that the
// server no longer keeps is HISTORY_PURGED.
func WithAfterSeq(seq int64) AttachOption {
	return option{useAttach, func(c *runConfig) {
		if seq < 0 {
			c.failf(errorf(ErrInvalidRequest, "client.WithAfterSeq: a position is at least 0, got %d", seq))
			return
		}
		c.after = &seq
	}}
}

// WithTurnID has [Client.Attach] follow a turn other than the session's last: the
// [Event].TurnID of the event whose Seq [WithAfterSeq] has, or of [TurnQueued]. The
// turn may wait for its start, be running, or be over if its end comes after
// that position; otherwise the run fails with INVALID_REQUEST.
//
// It has [Client.Run] start its turn under this id: 1 to 128 of A-Z, a-z, 0-9 and
// . _ : @ -, a letter or a digit first. If the session has a turn of that id, the run
// fails with CONFLICT, unless [WithIdempotencyKey] makes it the same run.
func WithTurnID(id string) FollowOption {
	return option{useStream, func(c *runConfig) {
		if id == "" || len(id) > maxTurnID {
			c.failf(errorf(ErrInvalidRequest,
				"client.WithTurnID: an id has between 1 and %d bytes, got %d", maxTurnID, len(id)))
			return
		}
		c.turnID = id
	}}
}

// maxTurnID is the protocol's.
const maxTurnID = 128

// WithInstruction adds a text to the instruction of every agent of a [Client.Run],
// for this turn; [WithInstructionMode] says where. At most 256 KiB.
func WithInstruction(text string) TurnOption {
	return option{useRun, func(c *runConfig) { c.instruction = text }}
}

// maxIdempotencyKey is the protocol's.
const maxIdempotencyKey = 128

// WithIdempotencyKey has the turn of a [Client.Run] start once for all runs with
// this key and the same request, also of other processes and at other times: the
// first one starts it, the others follow it from its beginning. A key with another
// request is refused with CONFLICT. Without this option every run has a key of its
// own. At most 128 bytes.
func WithIdempotencyKey(key string) PromptOption {
	return option{useRun, func(c *runConfig) {
		if key == "" || len(key) > maxIdempotencyKey {
			c.failf(errorf(ErrInvalidRequest,
				"client.WithIdempotencyKey: want 1 to %d bytes, got %d", maxIdempotencyKey, len(key)))
			return
		}
		c.idempotencyKey = key
	}}
}

// Observe has [Client.Attach] only watch, and the turn runs as if this client were
// not there: it is asked for no tool and no person is asked; it neither wakes a
// suspended turn nor keeps one from being suspended, or canceled by
// [WithOnDisconnect]. All tools are left out. A [WithPrompter] or an [OnLeaveCancel]
// among the options of the same Attach is refused, and so is what [Control] asks for.
func Observe() AttachOption {
	return option{useAttach, func(c *runConfig) { c.observe = true }}
}

// OnDisconnect is what becomes of a turn whose last client is gone.
type OnDisconnect agentdv1.OnDisconnect

// Ways to continue without a client.
const (
	// OnDisconnectContinue lets the turn continue; it waits when it needs a tool. This is
	// what servers do by default.
	OnDisconnectContinue = OnDisconnect(agentdv1.OnDisconnect_ON_DISCONNECT_CONTINUE)
	// OnDisconnectCancel cancels the turn.
	OnDisconnectCancel = OnDisconnect(agentdv1.OnDisconnect_ON_DISCONNECT_CANCEL)
)

// maxDisconnectGrace is the protocol's.
const maxDisconnectGrace = 24 * time.Hour

// WithOnDisconnect says what becomes of the turn that a Run starts when its
// last client is gone without a word. grace is how long [OnDisconnectCancel] waits for
// one to come back, at most a day; with [OnDisconnectContinue] it is 0.
func WithOnDisconnect(what OnDisconnect, grace time.Duration) TurnOption {
	return option{useRun, func(c *runConfig) {
		limit := maxDisconnectGrace
		switch what {
		case OnDisconnectCancel:
		case OnDisconnectContinue:
			limit = 0
		default:
			c.failf(errorf(ErrInvalidRequest,
				"client.WithOnDisconnect: want client.OnDisconnectContinue or client.OnDisconnectCancel, got %d", what))
			return
		}
		if grace < 0 || grace > limit {
			c.failf(errorf(ErrInvalidRequest,
				"client.WithOnDisconnect: the grace must be between 0 and %s here, got %s", limit, grace))
			return
		}
		c.onDisconnect, c.grace = agentdv1.OnDisconnect(what), grace
	}}
}
