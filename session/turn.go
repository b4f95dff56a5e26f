package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
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
	s            *Session
	id           string
	spec         *Spec
	keys         Keys
	snapshot     map[string]any // the whole state at the start, without scope temp
	startSeq     int64
	started      time.Time
	onDisconnect OnDisconnect
	cancel       context.CancelCauseFunc
	done         chan struct{} // closed when nothing of the turn runs here any more

	stopOnce sync.Once
	stop     *stopped // set by stopOnce before cancel is called

	// The fields below are protected by s.mu.
	running    bool                  // a goroutine here drives the turn
	pending    map[string]*pending   // calls nobody has settled yet
	results    map[string]ToolResult // calls that are settled
	onTheirWay map[string]*message   // by message id
	usage      Usage
	clients    int    // watchers whose client takes part
	working    int    // model calls under way
	unattended string // why nobody can answer any more; "" while somebody can
	ending     bool   // the end is on its way into the log: nothing may follow
	ended      *TurnEnded
	failed     *Error // why the turn has no end in the log
	// Timers: the turn's time is over; its last client stays away; it waits for
	// nobody; a client's calls go to another.
	deadline, leave, idle, handover *time.Timer
}

// newTurn returns a turn that does not run.
func newTurn(s *Session, id string) *Turn {
	done := make(chan struct{})
	close(done)
	return &Turn{
		s:          s,
		id:         id,
		cancel:     func(error) {},
		done:       done,
		pending:    map[string]*pending{},
		results:    map[string]ToolResult{},
		onTheirWay: map[string]*message{},
	}
}

// ErrPutAside is the cause with which a run's context ends when its turn is to
// go on later, here or on another server: the runner must leave the history as
// it is.
var ErrPutAside = errors.New("session: the turn was put aside")

// stopped is the cause with which a turn's context ends when a client stops
// it.
type stopped struct{ reason string }

func (e *stopped) Error() string { return e.reason }

// pending is a tool call that nobody has settled yet.
type pending struct {
	call      ToolCall
	owner     *Watcher      // whose client is asked; protected by s.mu
	answering *ToolResult   // being made durable; protected by s.mu
	tried     chan struct{} // closed when the attempt to do so has ended; made with answering
	barred    bool          // no result is taken any more; protected by s.mu
	timer     *time.Timer   // settles the call when its time is over; protected by s.mu
	done      chan struct{} // closed when result is set
	result    *ToolResult   // written before done is closed
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

// Done is closed when nothing of the turn runs here any more: it is over, was
// put aside, or the store has failed.
func (t *Turn) Done() <-chan struct{} { return t.done }

// Watch returns a watcher for the client that has started the turn; it begins
// with the turn's first record.
func (t *Turn) Watch() *Watcher {
	tools := map[string]bool{}
	for _, tool := range t.spec.Tools {
		tools[tool.GetName()] = true
	}
	return t.s.watch(t, watch{after: position(t.startSeq, 0) - 1, tools: tools, asks: true, live: true})
}

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

// Unattended says that a watcher's client cannot answer any more, though it
// still reads. Calls that no other client can be asked for, open ones and those
// to come, are settled as abandoned; the reason is part of what the model sees.
// A client without tools changes nothing by it: it could not answer before.
func (w *Watcher) Unattended(reason string) {
	s, t := w.s, w.t
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.watchers[w]; !ok || t != s.turn || w.tools == nil {
		return
	}
	w.tools = nil
	for _, p := range t.pending {
		if p.owner == w {
			p.owner = s.clientForLocked(p.call.Name)
			if p.owner != nil {
				p.owner.push(item{offer: &p.call})
			}
		}
	}
	if !slices.ContainsFunc(slices.Collect(maps.Keys(s.watchers)), func(o *Watcher) bool { return o.asks && o.tools != nil }) {
		t.unattended = reason
	}
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
