package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/alarm"
	"github.com/apzuk3/agentd/session/internal/clock"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/internal/shared"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/record"
)

// Turn is what one prompt sets off. Its methods may be called from any
// goroutine, also after it has ended.
//
// It is what its records say, and an attempt: what this process does about it. A turn that
// is resumed stays the same and gets a new attempt.
type Turn struct {
	s  *Session
	id string

	// The fields below are protected by s.mu.
	phase turnPhase
	landmarks
	facts
	*attempt
	// Of a turn that waits for its start.
	waits *record.TurnQueued
	into  string // the turn its prompt becomes, or has become, a message of
}

// landmarks are what a session keeps of its last turn when that is over.
type landmarks struct {
	startSeq  int64          // its first record; 0 before
	queuedSeq int64          // the record of its prompt, if it has waited for its start
	besideSeq int64          // first record of the turn that ran then
	snapshot  map[string]any // the whole state at the start, without scope temp
	injected  []string       // queued turns whose prompts have become messages of this one
	ended     *record.TurnEnded
}

// facts are what else the records of a turn say. They change in [Session.applyLocked]
// alone, but for cancelAt.
type facts struct {
	started      time.Time // by the clock, as the log has it
	began        time.Time // the same by this process's time
	onDisconnect record.OnDisconnect
	toolTimeout  time.Duration                // 0 is the server's
	pending      map[string]*pending          // calls nobody has settled yet
	opened       int                          // calls that were ever in pending
	results      map[string]record.ToolResult // calls that are settled
	resolved     map[string]record.Resolution // what people have said, by call
	steps        [][]record.ToolCall          // the calls of each response that has open ones
	usage        record.Usage
	called       int64     // model calls whose end is in the log
	cancelAt     clock.Due // when the turn is over if no client comes back; zero while one is there, or none came
	cancelLogged time.Time // cancelAt, as the log has it
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

// over returns what the session keeps of a turn that is over.
func (t *Turn) over() *Turn {
	kept := newTurn(t.s, t.id)
	kept.landmarks, kept.phase = t.landmarks, turnEnded
	return kept
}

// ErrSuspended is the cause with which a run's context ends when its turn is to
// go on later, here or on another server: the runner must leave the history as
// it is.
var ErrSuspended = errors.New("session: the turn is suspended")

// pending is a tool call that nobody has settled yet.
type pending struct {
	call  record.ToolCall
	order int // rises with each call of the turn

	// The fields below are protected by s.mu.
	phase     callPhase
	alarm     alarm.Alarm        // of the phase
	owner     *Watcher           // whose client is asked
	recording *record.ToolResult // of callRecording, what is on its way
	tried     chan struct{}      // closed when that has come to an end; made with callRecording and callResolving
	newer     int                // until the grace is over, only a client that came after so many is asked; 0 is any
	leftAt    time.Time          // when the client left that was asked; of newer
	unserved  bool               // no client has had the tool for a while: whoever watches is told
	done      chan struct{}      // closed when result is set
	result    *record.ToolResult // written before done is closed
}

// Answer is a client's answer to a tool call.
type Answer struct {
	// CallID is the call.
	CallID string
	// Output is the tool's result; Error why it failed. With neither, and without
	// Parts, the model sees a tool error that says so.
	Output, Error *string
	// Parts are more of the result; not together with Error.
	Parts record.Parts
	// State are keys to write with the result. Numbers may be of type json.Number, as
	// they are written.
	State map[string]any
	// StateField is what State is called in what the client is told, "" for state_delta.
	StateField string
	// by and warnings are who answers, and what of the answer was left out; set by
	// [Turn.Answer].
	by       string
	warnings []record.Warning
	// Refused, if set, is why the answer cannot be taken. Nothing else of it counts
	// then but CallID; see [Turn.Answer].
	Refused *fault.Error
}

// SessionID returns the session's id.
func (t *Turn) SessionID() string { return t.s.id }

// ID returns the turn's id.
func (t *Turn) ID() string { return t.id }

// Done is closed when nothing of the turn runs here any more: it is over, was
// suspended, the store has failed, or its prompt has become a message of another
// turn. A turn that waits for its start when that happens to the one before stays
// as it is.
func (t *Turn) Done() <-chan struct{} {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return t.done
}

// Watch returns a watcher for the client that has asked for the turn; it begins
// with the turn's first record.
func (t *Turn) Watch() *Watcher {
	from := watch{tools: map[string]bool{}, asks: true, live: true}
	for _, tool := range t.toolNames() {
		from.tools[tool] = true
	}
	from.after, from.only = t.first()
	return t.s.watch(t, from)
}

// first is the position in front of the turn's first record. waited tells that the turn
// has waited for its start, with the session's other events in between.
func (t *Turn) first() (after int64, waited bool) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.queuedSeq > 0 {
		return position.Of(t.queuedSeq, 0) - 1, true
	}
	return position.Of(t.startSeq, 0) - 1, false
}

// Answer records the client's answer to a call, durably, before it returns.
// The first answer stands: an equal repeat is no error, anything else about a
// call that is unknown or settled is a *fault.Error of code INVALID_REQUEST and
// changes nothing. An answer that cannot be taken, because it is too large or no
// answer, settles an open call too: nobody may wait for another one. The model sees
// a tool error that says why, and so does the *fault.Error that is returned.
func (t *Turn) Answer(ctx context.Context, a Answer) error {
	p := principal.Of(ctx)
	a.by = p.ID
	field := cmp.Or(a.StateField, "state_delta")
	a.State, a.warnings = shared.Permitted(p, field, a.State)
	res, data, wrong := t.s.resultOf(a)
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
		res = record.ToolResult{CallID: a.CallID, Outcome: record.Answered, By: a.by}
		res.Error = "the tool's result was refused: " + wrong.Message
		if data, err = logjson.Marshal(res); err != nil {
			return err
		}
	}
	settle := func(now *Turn) error { return now.s.settle(ctx, now, res, data) }
	if err := t.present(ctx, settle); err != nil || wrong == nil {
		return err
	}
	refused := *wrong
	refused.Message, refused.Err = fmt.Sprintf("tool call %q: %s", a.CallID, wrong.Message), nil
	return refused.OfTurn(t.id)
}

// resultOf is what an answer becomes in the log, or why it cannot be taken.
func (s *Session) resultOf(a Answer) (res record.ToolResult, data json.RawMessage, wrong *fault.Error) {
	res = record.ToolResult{CallID: a.CallID, Outcome: record.Answered, State: a.State, By: a.by, Warnings: a.warnings}
	switch {
	case a.Refused != nil:
		return res, nil, a.Refused
	case a.Error != nil && len(a.Parts) > 0:
		return res, nil, fault.Errorf(fault.Invalid, "parts together with error: a tool that has failed has no result").
			Breaking("parts", fault.RuleExcluded)
	case a.Output != nil:
		res.Output = a.Output
	case len(a.Parts) > 0:
		res.Output = new("")
	case a.Error != nil:
		res.Error = *a.Error
		if res.Error == "" {
			res.Error = "the tool failed without saying why"
		}
	default:
		res.Error = "the client answered without output and without error"
	}
	data, err := logjson.Marshal(res)
	if err != nil {
		return res, nil, fault.Errorf(fault.Invalid, "the answer cannot be stored: %v", err)
	}
	if n, most := len(data), s.limits.MaxResultBytes; n > most {
		return res, nil, fault.Errorf(fault.LimitExceeded, "the answer takes %d bytes, at most %d are allowed", n, most).
			Breaking("output", fault.RuleRange).Over("result_bytes", most, n)
	}
	if len(a.Parts) == 0 {
		return res, data, nil
	}
	if wrong := a.Parts.Check("parts", true); wrong != nil {
		return res, nil, wrong
	}
	if wrong := a.Parts.CheckSize("parts", "output", len(*res.Output), s.limits.MaxPartsBytes); wrong != nil {
		return res, nil, wrong
	}
	res.Parts = a.Parts
	if data, err = logjson.Marshal(res); err != nil {
		return res, nil, fault.Errorf(fault.Invalid, "the answer cannot be stored: %v", err)
	}
	return res, data, nil
}

// CancelCall settles a call as canceled: the model sees a canceled tool and
// the turn goes on. An unknown or settled call is a *fault.Error of code
// INVALID_REQUEST, a call that was canceled before is none.
func (t *Turn) CancelCall(ctx context.Context, callID string) error {
	return t.present(ctx, func(now *Turn) error { return now.s.settleAs(ctx, now, callID, record.Cancelled, callCancelled) })
}

// openStep takes note of the calls of one answer.
func (t *Turn) openStep(calls []record.ToolCall) {
	if len(calls) > 0 {
		t.steps = append(t.steps, calls)
	}
}

// closeSteps forgets answers whose calls all have results.
func (t *Turn) closeSteps() {
	t.steps = slices.DeleteFunc(t.steps, func(step []record.ToolCall) bool {
		return !slices.ContainsFunc(step, func(c record.ToolCall) bool { _, ok := t.results[c.ID]; return !ok })
	})
}

// timeout is how long a client may take for a call of a tool.
func (t *Turn) timeout(tool string) time.Duration {
	after := cmp.Or(t.toolTimeout, t.s.limits.ToolTimeout)
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

// Unattended says that a watcher's client cannot answer any more, though it
// still reads. Calls that no other client can be asked for, open ones and those
// to come, are settled as abandoned; the reason is part of what the model sees.
// A client without tools changes nothing by it: it could not answer before.
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

// unattendedLocked is why nobody who takes part in the running turn can answer,
// or "".
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
