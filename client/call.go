package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// Call is the tool call that a handler runs; see [CallFrom]. Its methods may be
// called concurrently, until the handler returns. Those of a nil Call, which a
// handler has that a test calls by itself, find nothing and set nothing.
type Call struct {
	req  *agentdv1.RunResponse_ToolCallRequest // immutable
	seen *stateView                            // guards itself
	// begin notes in the journal that the call has begun; ended is closed when the run is over.
	begin func() error
	ask   func(context.Context, Question) (*Resolution, error)
	ended <-chan struct{}

	mu    sync.Mutex // protects the fields below
	delta map[string]json.RawMessage
	err   error // the first SetState that failed
}

// callContextKey is the key of the call in its handler's context.
type callContextKey struct{}

// CallFrom returns the call that the handler runs to which ctx, or a context that
// ctx comes from, was given; nil anywhere else.
func CallFrom(ctx context.Context) *Call {
	c, _ := ctx.Value(callContextKey{}).(*Call)
	return c
}

// ID returns the id of the call, unique within the session.
func (c *Call) ID() string {
	if c == nil {
		return ""
	}
	return c.req.GetToolCallId()
}

// SessionID returns the session that asks.
func (c *Call) SessionID() string {
	if c == nil {
		return ""
	}
	return c.req.GetSessionId()
}

// Child returns the name of the background agent whose session asks, with those of the agents above it before it and
// dots between them, as in "scout.reader"; "" for a session that is no child's.
func (c *Call) Child() string {
	_, below, _ := strings.Cut(c.SessionID(), childMark)
	return strings.ReplaceAll(below, childMark, ".")
}

// AgentPath returns the names from the root of the tree to the agent that calls.
func (c *Call) AgentPath() []string {
	if c == nil {
		return nil
	}
	return slices.Clone(c.req.GetAgentPath())
}

// Metadata returns what the caller of the turn tells its tools, and models do not see; see [WithMetadata].
func (c *Call) Metadata() map[string]string {
	if c == nil {
		return nil
	}
	return maps.Clone(c.req.GetMetadata())
}

// Trace returns the trace that the call is part of, as the headers traceparent and tracestate of W3C's Trace Context
// have it; "" for none. It is for handlers that pass it on without OpenTelemetry, which finds it in their context.
func (c *Call) Trace() (parent, state string) {
	if c == nil {
		return "", ""
	}
	return c.req.GetTraceparent(), c.req.GetTracestate()
}

// Begin says that from here on the call does what must not be done twice: it writes a file, runs a command, sends a
// request. A handler calls it after all questions and checks, and does nothing if it fails. With [WithToolJournal]
// the beginning is on disk when Begin returns. If the program ends before the call has a result, the call is asked
// again, and Begin fails with an error for the model: what the tool does may have happened. Without a journal Begin
// does nothing.
func (c *Call) Begin() error {
	if c == nil || c.begin == nil {
		return nil
	}
	return c.begin()
}

// Ended is closed when the run that asked is over. What a handler leaves running, such as a command in the
// background, has to end then. It is nil for a nil Call.
func (c *Call) Ended() <-chan struct{} {
	if c == nil {
		return nil
	}
	return c.ended
}

// State returns the value of a key of the session's state, as this handler set
// it or as the run last saw it; see [StateUpdate] for its type. What other agents do
// at the same time may not have arrived yet.
func (c *Call) State(key string) (any, bool) {
	if c == nil {
		return nil, false
	}
	c.mu.Lock()
	value, ok := c.delta[key]
	c.mu.Unlock()
	if ok {
		return valueOf(value), !isNull(value)
	}
	return c.seen.get(key)
}

// errNoCall is what SetState says outside of a call.
var errNoCall = errors.New("client.Call.SetState: this context is not that of a tool call")

// SetState sets a key of the session's state. The server writes it together
// with this call's result, and not at all if the handler fails; nil removes the
// key. The value is encoded as encoding/json does, and no digit of a number is lost; one
// that cannot be encoded is an error. If that is ignored, the call fails with it.
func (c *Call) SetState(key string, value any) error {
	if c == nil {
		return errNoCall
	}
	encoded, err := stateText(value)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		err = fmt.Errorf("state key %q: %w", key, err)
		if c.err == nil {
			c.err = err
		}
		return err
	}
	if c.delta == nil {
		c.delta = make(map[string]json.RawMessage)
	}
	c.delta[key] = encoded
	return nil
}

// takeDelta returns what the handler set as JSON text, "" if nothing.
func (c *Call) takeDelta() (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || len(c.delta) == 0 {
		return "", c.err
	}
	return marshalJSON(c.delta)
}
