package client

import (
	"context"
	"net/http"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// runConfig is what the options of Run set.
type runConfig struct {
	sessionID   string
	create      bool
	state       *structpb.Struct
	header      http.Header // holds provider keys: never print
	tools       []*ToolSet  // the last one wins
	timeout     time.Duration
	concurrency int
	control     *Control
	after       *int64 // of an attach
	turnID      string // to follow, or of a Run: of the new turn
	observe     bool   // of an attach
	toolTimeout time.Duration
	instruction string
	parts       []*agentdv1.Part // behind the prompt
	rawPayloads bool
	// idempotencyKey is the caller's own, of a Run; "" stands for one of its own.
	idempotencyKey string

	onDisconnect agentdv1.OnDisconnect
	grace        time.Duration // of onDisconnect
	onBusy       agentdv1.OnBusy

	budget, sessionBudget *agentdv1.Budget // nil: not said

	prompter    Prompter // nil: nobody is asked
	hasPrompter bool     // prompter was set for this run

	attach    bool             // the turn is not this run's own; filled in by prepare
	available map[string]*tool // what calls may name; filled in by prepare
	offered   []string         // names of the tools that a stream which attaches offers; filled in by prepare
	err       error            // the first wrong option
}

// RunOption configures one run.
type RunOption func(*runConfig)

// WithSessionID continues a session. An unknown one is SESSION_NOT_FOUND, see
// [WithSessionOrNew]; an empty id is a new session, which the server names.
func WithSessionID(id string) RunOption {
	return func(c *runConfig) { c.sessionID, c.create = id, false }
}

// WithSessionOrNew is [WithSessionID] that makes the session, under that id, if
// there is none. Of two runs that make it at the same time one does. It is for runs
// that start a turn; servers that do not know it answer SESSION_NOT_FOUND.
func WithSessionOrNew(id string) RunOption {
	return func(c *runConfig) {
		if id == "" {
			c.fail(errorf(ErrInvalidRequest, "client.WithSessionOrNew needs the id of a session"))
			return
		}
		c.sessionID, c.create = id, true
	}
}

// WithInitialState sets session state before the turn: a map with string keys
// or a struct, encoded as encoding/json does. On a continued session these
// keys overwrite the stored ones. Integers that a float64 does not hold
// exactly, as some beyond ±2^53, are refused, because that is what state uses.
func WithInitialState(state any) RunOption {
	return func(c *runConfig) {
		value, err := stateValue(state)
		if err != nil {
			c.fail(errorf(ErrInvalidRequest, "client.WithInitialState: %w", err))
			return
		}
		object := value.GetStructValue()
		if object == nil {
			c.fail(errorf(ErrInvalidRequest, "client.WithInitialState: state must be a map with string keys or a struct, got %T", state))
			return
		}
		c.state = object
	}
}

// WithGeminiAPIKey uses the caller's own Gemini key for this run alone. The
// server neither stores nor logs it. An empty key is ignored.
func WithGeminiAPIKey(key string) RunOption { return withSecret("X-Agentd-Gemini-Api-Key", key) }

// WithAnthropicAPIKey is [WithGeminiAPIKey] for Anthropic.
func WithAnthropicAPIKey(key string) RunOption { return withSecret("X-Agentd-Anthropic-Api-Key", key) }

// WithOpenAIAPIKey is [WithGeminiAPIKey] for OpenAI.
func WithOpenAIAPIKey(key string) RunOption { return withSecret("X-Agentd-Openai-Api-Key", key) }

func withSecret(header, key string) RunOption {
	return func(c *runConfig) {
		if key != "" {
			c.header.Set(header, key)
		}
	}
}

// WithHeader sets a request header of the run, such as Authorization.
func WithHeader(key, value string) RunOption {
	return func(c *runConfig) { c.header.Set(key, value) }
}

// WithTools adds tools for this run. A tool of the same name that the client
// or an earlier set holds is hidden. [Client.Attach] offers these tools alone.
func WithTools(tools *ToolSet) RunOption {
	return func(c *runConfig) {
		if tools != nil {
			c.tools = append(c.tools, tools)
		}
	}
}

// WithTimeout bounds the whole run, lost connections included. When it passes,
// the turn is cancelled, or left by [Client.Attach], and the run fails with
// TIMEOUT. 0 sets no bound; a time below 0, such as that until a deadline which has
// passed, is over: nothing is sent.
func WithTimeout(d time.Duration) RunOption {
	return func(c *runConfig) { c.timeout = d }
}

// WithRunConcurrency is [WithConcurrency] for one run.
func WithRunConcurrency(n int) RunOption {
	return func(c *runConfig) { c.concurrency = max(n, 1) }
}

// WithRunToolTimeout is [WithToolTimeout] for one run.
func WithRunToolTimeout(d time.Duration) RunOption {
	return func(c *runConfig) { c.toolTimeout = max(d, 0) }
}

// WithControl lets the caller end or cancel the run through control while it
// ranges over the events.
func WithControl(control *Control) RunOption {
	return func(c *runConfig) { c.control = control }
}

// WithAfterSeq has [Client.Attach] begin after a position in the session: the
// [Event].Seq of the last event that the caller has seen. A position that the
// server no longer keeps is HISTORY_PURGED.
func WithAfterSeq(seq int64) RunOption {
	return func(c *runConfig) {
		if seq < 0 {
			c.fail(errorf(ErrInvalidRequest, "client.WithAfterSeq: a position is at least 0, got %d", seq))
			return
		}
		c.after = &seq
	}
}

// WithTurnID has [Client.Attach] follow a turn other than the session's last: the
// [Event].TurnID of the event whose Seq [WithAfterSeq] has, or of [Queued]. The
// turn may wait for its start, be running, or be over if its end comes after
// that position; otherwise the run fails with INVALID_REQUEST.
//
// It has [Client.Run] start its turn under this id: 1 to 128 of A-Z, a-z, 0-9 and
// . _ : @ -, a letter or a digit first. If the session has a turn of that id, the run
// fails with CONFLICT, unless [WithIdempotencyKey] makes it the same run.
func WithTurnID(id string) RunOption {
	return func(c *runConfig) {
		if id == "" || len(id) > maxTurnID {
			c.fail(errorf(ErrInvalidRequest, "client.WithTurnID: an id has between 1 and %d bytes, got %d", maxTurnID, len(id)))
			return
		}
		c.turnID = id
	}
}

// maxTurnID is the protocol's.
const maxTurnID = 128

// WithInstruction adds a text to the instruction of every agent of a [Client.Run],
// for this turn. At most 64 KiB.
func WithInstruction(text string) RunOption {
	return func(c *runConfig) { c.instruction = text }
}

// maxIdempotencyKey is the protocol's.
const maxIdempotencyKey = 128

// WithIdempotencyKey has the turn of a [Client.Run] start once for all runs with
// this key and the same request, also of other processes and at other times: the
// first one starts it, the others follow it from its beginning. A key with another
// request is refused with CONFLICT. Without this option every run has a key of its
// own. At most 128 bytes.
func WithIdempotencyKey(key string) RunOption {
	return func(c *runConfig) {
		if key == "" || len(key) > maxIdempotencyKey {
			c.fail(errorf(ErrInvalidRequest, "client.WithIdempotencyKey: want 1 to %d bytes, got %d", maxIdempotencyKey, len(key)))
			return
		}
		c.idempotencyKey = key
	}
}

// Observe has [Client.Attach] only watch, and the turn runs as if this client were
// not there: it is asked for no tool and no person is asked; it neither wakes a
// suspended turn nor keeps one from being suspended, or cancelled by
// [WithOnDisconnect]. All tools, and prompters of the client and of
// [WithRunDefaults], are left out; [WithRunPrompter] among the options of the same
// Attach is refused, and so is what [Control] asks for.
func Observe() RunOption {
	return func(c *runConfig) { c.observe = true }
}

// WithoutTools is [Observe] by its first name.
func WithoutTools() RunOption { return Observe() }

// WithRunPrompter has p asked in place of the client's [WithPrompter], for one
// run: it makes a [Client.Attach] one that may resolve what the turn asks people.
// With nil nobody is asked.
func WithRunPrompter(p Prompter) RunOption {
	return func(c *runConfig) { c.prompter, c.hasPrompter = p, true }
}

// OnDisconnect is what becomes of a turn whose last client is gone.
type OnDisconnect agentdv1.OnDisconnect

// Ways to go on without a client.
const (
	// Continue lets the turn go on; it waits when it needs a tool. This is what
	// servers do if they are not told.
	Continue = OnDisconnect(agentdv1.OnDisconnect_ON_DISCONNECT_CONTINUE)
	// Cancel cancels the turn.
	Cancel = OnDisconnect(agentdv1.OnDisconnect_ON_DISCONNECT_CANCEL)
)

// maxDisconnectGrace is the protocol's.
const maxDisconnectGrace = 24 * time.Hour

// WithOnDisconnect says what becomes of the turn that a Run starts when its
// last client is gone without a word. grace is how long [Cancel] waits for one
// to come back, at most a day; with [Continue] it is 0.
func WithOnDisconnect(what OnDisconnect, grace time.Duration) RunOption {
	return func(c *runConfig) {
		limit := maxDisconnectGrace
		switch what {
		case Cancel:
		case Continue:
			limit = 0
		default:
			c.fail(errorf(ErrInvalidRequest, "client.WithOnDisconnect: want client.Continue or client.Cancel, got %d", what))
			return
		}
		if grace < 0 || grace > limit {
			c.fail(errorf(ErrInvalidRequest, "client.WithOnDisconnect: the grace must be between 0 and %s here, got %s", limit, grace))
			return
		}
		c.onDisconnect, c.grace = agentdv1.OnDisconnect(what), grace
	}
}

// context returns the context of the run, with its timeout.
func (c *runConfig) context(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.timeout != 0 {
		return context.WithTimeout(ctx, c.timeout)
	}
	return context.WithCancel(ctx)
}

func (c *runConfig) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}
