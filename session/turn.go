package session

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

const (
	codeInternal    = agentdv1.ErrorCode_ERROR_CODE_INTERNAL
	codeNotFound    = agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND
	codeTimeout     = agentdv1.ErrorCode_ERROR_CODE_TIMEOUT
	codeBusy        = agentdv1.ErrorCode_ERROR_CODE_SESSION_BUSY
	codeInvalid     = agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST
	codeLimit       = agentdv1.ErrorCode_ERROR_CODE_LIMIT_EXCEEDED
	codeUnavailable = agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE
)

// Turn is what one prompt sets off. Its methods may be called from any
// goroutine, also after it has ended.
type Turn struct {
	s        *Session
	id       string
	spec     *Spec
	keys     Keys
	snapshot map[string]any // the whole state at the start, without scope temp
	startSeq int64
	started  time.Time
	cancel   context.CancelCauseFunc // set once, under s.mu, before the turn runs
	done     chan struct{}           // closed when the turn is over and nothing of it runs

	stopOnce sync.Once
	stop     *stopped // set by stopOnce before cancel is called

	// The fields below are protected by s.mu.
	pending    map[string]*pending   // calls nobody has settled yet
	results    map[string]ToolResult // calls that are settled
	streamed   map[string]*message   // messages on their way
	usage      Usage
	unattended string // why nobody can answer any more; "" while somebody can
	ending     bool   // the end is on its way into the log: nothing may follow
	ended      *TurnEnded
	failed     *Error // why the turn has no end in the log
}

// stopped is the cause with which a turn's context ends when a client stops
// it.
type stopped struct{ reason string }

func (e *stopped) Error() string { return e.reason }

// pending is a tool call that nobody has settled yet.
type pending struct {
	call      ToolCall
	answering *ToolResult   // being made durable; protected by s.mu
	tried     chan struct{} // closed when the attempt to do so has ended; made with answering
	barred    bool          // no result is taken any more; protected by s.mu
	timer     *time.Timer   // settles the call when its time is over
	done      chan struct{} // closed when result is set
	result    *ToolResult   // written before done is closed
}

// message is what has been said of a message that is on its way, for watchers
// that come later. The model bounds it.
type message struct {
	path           []string
	text, thoughts strings.Builder
}

// streamed counts what a watcher has been shown of a message.
type streamed struct{ text, thoughts int }

// of returns the count of one kind.
func (s *streamed) of(thought bool) *int {
	if thought {
		return &s.thoughts
	}
	return &s.text
}

// Answer is a client's answer to a tool call.
type Answer struct {
	// CallID is the call.
	CallID string
	// Output is the tool's result; Error why it failed. With neither the model
	// sees a tool error that says so.
	Output, Error *string
	// State are keys to write with the result.
	State map[string]any
}

// SessionID returns the session's id.
func (t *Turn) SessionID() string { return t.s.id }

// ID returns the turn's id.
func (t *Turn) ID() string { return t.id }

// Done is closed when the turn is over: its last record is durable, or the
// store has failed.
func (t *Turn) Done() <-chan struct{} { return t.done }

// Watch returns a watcher that begins with the turn's first record.
func (t *Turn) Watch() *Watcher { return t.s.watch(t) }

// Answer records the client's answer to a call, durably, before it returns.
// The first answer stands: an equal repeat is no error, anything else about a
// call that is unknown or settled is an *Error of code INVALID_REQUEST and
// changes nothing.
func (t *Turn) Answer(ctx context.Context, a Answer) error {
	res := ToolResult{CallID: a.CallID, Outcome: Answered, State: a.State}
	switch {
	case a.Output != nil:
		res.Output = a.Output
	case a.Error != nil:
		res.Error = *a.Error
		if res.Error == "" {
			res.Error = "the tool failed without saying why"
		}
	default:
		res.Error = "the client answered without output and without error"
	}
	data, err := marshal(res)
	if err != nil {
		return Errorf(codeInvalid, "tool call %q: the answer cannot be stored: %v", a.CallID, err)
	}
	if n, most := len(data), t.s.limits.MaxResultBytes; n > most {
		return Errorf(codeLimit, "tool call %q: the answer takes %d bytes, at most %d are allowed", a.CallID, n, most)
	}
	return t.s.settle(ctx, t, res, data)
}

// CancelCall settles a call as cancelled: the model sees a cancelled tool and
// the turn goes on. An unknown or settled call is an *Error of code
// INVALID_REQUEST, a call that was cancelled before is none.
func (t *Turn) CancelCall(ctx context.Context, callID string) error {
	return t.s.settleAs(ctx, t, callID, Cancelled, "cancelled by the client")
}

// Cancel stops the turn. It returns at once; a watcher tells the end.
func (t *Turn) Cancel(reason string) {
	if reason == "" {
		reason = "cancelled by the client"
	}
	t.halt(&stopped{reason: reason})
}

// End stops the turn at the client's wish; the reason is echoed as it is.
func (t *Turn) End(reason string) { t.halt(&stopped{reason: reason}) }

func (t *Turn) halt(cause *stopped) {
	t.stopOnce.Do(func() {
		t.stop = cause
		t.cancel(cause)
	})
}

// Unattended says that nobody is left who could answer tool calls: those that
// are open, and all that come, are settled as abandoned. The reason is part of
// what the model sees.
func (t *Turn) Unattended(reason string) {
	s := t.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.unattended != "" {
		return
	}
	t.unattended = reason
	for _, p := range t.pending {
		s.scheduleLocked(t, p)
	}
}

// equal tells whether two results say the same.
func (r ToolResult) equal(o ToolResult) bool {
	a, errA := json.Marshal(r)
	b, errB := json.Marshal(o)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}
