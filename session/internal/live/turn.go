package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/apzuk3/agentd/internal/tracecontext"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/alarm"
	"github.com/apzuk3/agentd/session/internal/clock"
	"github.com/apzuk3/agentd/session/internal/given"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/internal/phase"
	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/internal/shared"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/record"
)

// Turn is what one prompt sets off. Its methods may be called from any goroutine, also after it has ended.
//
// It has the facts of its records, and an attempt, which is its run in this process. A turn that is
// resumed gets a new attempt.
type Turn struct {
	s  *Session
	id string

	// The fields below are protected by s.mu.
	phase phase.Turn
	landmarks
	facts
	*attempt
	waits *record.TurnQueued // of a queued turn, else nil
	into  string             // the turn that takes, or has taken, the prompt as a message
}

// landmarks are what a session keeps of its last turn when that is over.
type landmarks struct {
	startSeq  int64          // of TurnStarted; 0 before
	queuedSeq int64          // of TurnQueued; 0 if it was not queued
	besideSeq int64          // the startSeq of the turn that ran at queuedSeq
	snapshot  map[string]any // the whole state at the start, without scope temp
	injected  []string       // queued turns whose prompts have become messages of this one
	ended     *record.TurnEnded
}

// facts are the rest of what the records of a turn say. Only [Session.applyLocked] changes them, except
// cancelAt.
type facts struct {
	started      time.Time // by the clock, as in the log
	began        time.Time // the same moment by the time of this process
	onDisconnect record.OnDisconnect
	toolTimeout  time.Duration                // 0 is the server's
	trace        tracecontext.Context         // what the turn is part of
	pending      map[string]*pending          // calls without a result
	opened       int                          // the number of calls that were ever in pending
	results      map[string]record.ToolResult // of settled calls
	resolved     map[string]record.Resolution // by call
	steps        [][]record.ToolCall          // the calls of each response that has calls without a result
	usage        record.Usage
	said         *record.GoalSaid // of the goal of the turn; nil for nothing
	called       int64            // model calls whose end is in the log
	cancelAt     clock.Due        // when the turn is canceled if no client comes back; zero: one is there, or none came
	cancelLogged time.Time        // cancelAt as in the log
}

// newTurn returns a turn that does not run.
func newTurn(s *Session, id string) *Turn {
	t := &Turn{s: s, id: id, facts: facts{
		pending:  map[string]*pending{},
		results:  map[string]record.ToolResult{},
		resolved: map[string]record.Resolution{},
	}}
	t.attempt = t.noAttempt()
	return t
}

// over returns the part of an ended turn that the session keeps.
func (t *Turn) over() *Turn {
	kept := &Turn{s: t.s, id: t.id, landmarks: t.landmarks, phase: phase.TurnEnded}
	kept.attempt = kept.noAttempt()
	return kept
}

// pending is a tool call without a result.
type pending struct {
	call  record.ToolCall
	order int       // rises with each call of the turn
	asked time.Time // when the model has called it, or a person has approved it, as in the log

	// The fields below are protected by s.mu.
	phase     phase.Call
	alarm     alarm.Alarm        // of the phase
	owner     *Watcher           // whose client has the offer
	recording *record.ToolResult // of CallRecording: the result on its way
	tried     chan struct{}      // of CallRecording and CallResolving: closed when the write has succeeded or failed
	newer     int                // of CallHandover: only clients of a higher Watcher.order get the offer; 0 is any
	leftAt    time.Time          // of newer: when the client with the offer left
	unserved  bool               // no client has had the tool for unservedAfter; watchers are notified
	expires   time.Time          // of unserved in a session that is followed, as the owner says
	raised    uint32             // the number of the last question that a client has raised
	asks      []*raised          // those that nobody has resolved
	raising   chan struct{}      // not nil while another one is on its way into the log; closed when that has ended
	due       time.Time          // of callOffered: when it times out
	left      time.Duration      // of callOffered: the time that it has, while that stands still
	done      chan struct{}      // closed when result is set
	result    *record.ToolResult // written before done is closed
}

// SessionID returns the session's id.
func (t *Turn) SessionID() string { return t.s.id }

// ID returns the turn's id.
func (t *Turn) ID() string { return t.id }

// Done is closed when nothing of the turn runs here any more: it is over or suspended, the store has
// failed, or its prompt has become a message of another turn. The end of the running turn does not close
// it for a queued one.
func (t *Turn) Done() <-chan struct{} {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return t.done
}

// Watch returns a watcher for the client that has sent the prompt. It begins with the turn's first record.
func (t *Turn) Watch() *Watcher {
	from := watch{tools: map[string]bool{}, asks: true, live: true}
	for _, tool := range t.toolNames() {
		from.tools[tool] = true
	}
	from.after, from.only = t.first()
	return t.s.watch(t, from)
}

// first returns the position before the turn's first record. waited reports whether the turn was queued,
// so that events of other turns lie in between.
func (t *Turn) first() (after int64, waited bool) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.queuedSeq > 0 {
		return position.Of(t.queuedSeq, 0) - 1, true
	}
	return position.Of(t.startSeq, 0) - 1, false
}

// SubmitResult records the client's result of a call, durably, before it returns. The first result stands: an
// equal repeat is no error; any other result of a settled call, and one of an unknown call, is a
// *fault.Error of code INVALID_REQUEST and changes nothing. A result that cannot be taken, because it is
// too large or malformed, still settles the call: the model sees a tool error with the reason, and the
// returned *fault.Error has the reason too.
func (t *Turn) SubmitResult(ctx context.Context, a given.Result) error {
	p := principal.Of(ctx)
	field := cmp.Or(a.StateField, "state_delta")
	var warnings []record.Warning
	a.State, warnings = shared.Permitted(p, field, a.State)
	res, data, wrong := a.Recorded(p.ID, warnings, t.s.limits())
	if wrong == nil {
		err := t.s.stateFits(ctx, a.State)
		if e, ok := errors.AsType[*fault.Error](err); ok && e.Code == fault.LimitExceeded {
			with := *e
			with.Message = field + ": " + e.Message
			wrong = with.Breaking(field, fault.RuleRange)
		} else if err != nil {
			return err
		}
	}
	if wrong != nil {
		var err error
		res = record.ToolResult{CallID: a.CallID, Outcome: record.Returned, By: p.ID}
		res.Error, a.Queued = "the tool's result was refused: "+wrong.Message, nil
		if data, err = logjson.Marshal(res); err != nil {
			return err
		}
	}
	e := entry{data: data, fact: &res, queued: a.Queued}
	settle := func(now *Turn) error { return now.s.settle(ctx, now, e) }
	if err := t.present(ctx, settle); err != nil || wrong == nil {
		return err
	}
	refused := *wrong
	refused.Message, refused.Err = fmt.Sprintf("tool call %q: %s", a.CallID, wrong.Message), nil
	return refused.OfTurn(t.id)
}

// CancelCall settles a call as canceled: the model sees a canceled tool, and the turn continues. An
// unknown or settled call is a *fault.Error of code INVALID_REQUEST; a call that was canceled before is
// no error.
func (t *Turn) CancelCall(ctx context.Context, callID string) error {
	return t.present(ctx, func(now *Turn) error {
		return now.s.settleAs(ctx, now, callID, record.Cancelled, callCancelled)
	})
}

// openStep remembers the calls of one response.
func (t *Turn) openStep(calls []record.ToolCall) {
	if len(calls) > 0 {
		t.steps = append(t.steps, calls)
	}
}

// closeSteps forgets the responses whose calls all have results, and returns how many are left.
func (t *Turn) closeSteps() int {
	t.steps = slices.DeleteFunc(t.steps, func(step []record.ToolCall) bool {
		return !slices.ContainsFunc(step, func(c record.ToolCall) bool { _, ok := t.results[c.ID]; return !ok })
	})
	return len(t.steps)
}

// timeout returns how long a client may take for a call of a tool.
func (t *Turn) timeout(tool string) time.Duration {
	after := cmp.Or(t.toolTimeout, t.s.limits().ToolTimeout)
	if t.spec == nil {
		return after
	}
	for _, declared := range t.spec.Tools {
		if declared.GetName() == tool && declared.GetTimeout() != nil {
			return declared.GetTimeout().AsDuration()
		}
	}
	return after
}

// Unattended marks that the watcher's client gives no results any more, though it still reads. Calls that
// can be offered to no other client, now or later, are settled as abandoned, with the reason, which the
// model sees. For a client without tools it changes nothing.
func (w *Watcher) Unattended(reason string) {
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.watchers[w]; !ok || w.tools == nil {
		return
	}
	w.tools, w.away = nil, reason
	if s.turn != nil {
		for _, p := range s.turn.pending {
			if p.owner == w {
				p.owner = nil
			}
		}
	}
	s.reconcileLocked()
}

// unattendedLocked returns why no client of the running turn gives results any more, or "".
func (s *Session) unattendedLocked() string {
	why := ""
	for w := range s.watchers {
		switch {
		case !s.takesPartLocked(w):
		case w.tools != nil:
			return ""
		case w.away != "":
			why = w.away
		}
	}
	return why
}
