package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/record"
)

// Resolve records what a person says to an interaction of the session, durably,
// before it returns. The first resolution stands: an equal repeat under the same
// key is no error; a second one, like one that comes after the call was canceled
// or the turn has ended, is a *fault.Error of code FAILED_PRECONDITION. One that the
// session does not have is NOT_FOUND, a decision that does not fit it
// INVALID_REQUEST; neither changes anything.
func (t *Turn) Resolve(ctx context.Context, id string, r record.Resolution) error {
	return t.present(ctx, func(now *Turn) error { return now.s.resolve(ctx, id, r) })
}

// Resolve is Turn.Resolve for a session that may run nowhere: its turn goes on,
// if it can, and otherwise when a client comes. It returns the interaction as it
// is then.
func (m *Manager) Resolve(ctx context.Context, req AttachRequest, id string, r record.Resolution) (*index.Interaction, error) {
	h, err := m.acquire(ctx, req.SessionID)
	if err != nil {
		return nil, err
	}
	defer m.release(h)
	s := h.Value
	if err := s.resolve(ctx, id, r); err != nil {
		return nil, err
	}
	m.resumeAfter(ctx, s, AttachRequest{SessionID: s.id, Keys: req.Keys})
	return m.Interaction(ctx, s.id, id)
}

func (s *Session) resolve(ctx context.Context, id string, r record.Resolution) error {
	t, p, err := s.callToResolve(ctx, id)
	switch {
	case err != nil:
		return err
	case p == nil:
		return s.unasked(ctx, id, r)
	}
	e, err := s.resolution(ctx, t, p, r)
	if err != nil {
		return err
	}
	_, err = s.commit(ctx, e)
	if over, ok := errors.AsType[*fault.Error](err); ok && over.Code == fault.Invalid {
		return errNotAsked(id) // the turn has ended meanwhile
	}
	return err
}

// callToResolve returns the call about which an interaction asks, nil for none that is
// pending, and its turn. Nobody else may resolve it from now on. It waits for who does, and
// for a run that ends and has sealed the call: see callLocked.
func (s *Session) callToResolve(ctx context.Context, id string) (t *Turn, p *pending, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err = lock.Await(ctx, &s.mu, func() <-chan struct{} {
		if t, p = s.turn, nil; t != nil {
			p = t.asking(id)
		}
		switch {
		case p == nil:
			return nil
		case p.phase == callResolving:
			return p.tried
		case p.phase == callSealed, t.phase == turnEnding && p.phase != callRecording:
			return t.done
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, nil, err
	case p == nil:
		return t, nil, nil
	case p.phase == callRecording:
		return nil, nil, errNotAsked(id)
	}
	p.enter(s, callResolving)
	p.tried = make(chan struct{})
	return t, p, nil
}

// asking is the call about which an interaction asks, nil for none that is pending.
func (t *Turn) asking(id string) *pending {
	for _, p := range t.pending {
		if p.call.Asks != nil && p.call.InteractionID() == id {
			return p
		}
	}
	return nil
}

// resolution checks what a person says about a call, and makes the record of it.
// If there is none, somebody else may say something.
func (s *Session) resolution(ctx context.Context, t *Turn, p *pending, r record.Resolution) (e *entry, err error) {
	call := lock.Get(&s.mu, func() record.ToolCall { return p.call })
	defer func() {
		if e == nil { // also when the engine panics
			lock.Do(&s.mu, func() { p.triedLocked(s) })
		}
	}()
	if err := s.fits(t, call, &r); err != nil {
		return nil, err
	}
	fact := &record.InteractionResolved{ID: call.ID, By: principal.Of(ctx).ID, Resolution: r}
	data, err := logjson.Marshal(fact)
	if err != nil {
		return nil, err
	}
	return &entry{turn: t, kind: record.KindInteractionResolved, data: data, fact: fact, asked: true, resolves: p}, nil
}

// triedLocked says that a try to record a result, or what a person says, has come to an end.
// Where nothing was recorded somebody else may say something.
func (p *pending) triedLocked(s *Session) {
	if p.isBusy() {
		p.reopen(s)
		s.reconcileLocked()
	}
	p.recording = nil
	close(p.tried)
}

// fits says whether a resolution can be one of a call, and brings its arguments
// into the form that the log has.
func (s *Session) fits(t *Turn, call record.ToolCall, r *record.Resolution) error {
	if most := s.limits.MaxResultBytes; len(r.Answer)+len(r.Input)+len(r.Reason) > most {
		return fault.Errorf(fault.LimitExceeded, "interaction %q: the resolution takes more than %d bytes", call.InteractionID(), most).
			Breaking("resolution", fault.RuleRange).Over("resolution_bytes", most, len(r.Answer)+len(r.Input)+len(r.Reason))
	}
	switch approval := call.Asks.Kind == agentdv1.InteractionKind_INTERACTION_KIND_APPROVAL; {
	case r.Decision == record.Deny:
		return nil
	case r.Decision == record.Approve && !approval:
		return fault.Errorf(fault.Invalid, "interaction %q is %v: answer it, or deny", call.InteractionID(), call.Asks).
			Breaking("resolution.approve", fault.RuleExcluded)
	case r.Decision == record.Reply && approval:
		return fault.Errorf(fault.Invalid, "interaction %q is %v: approve, or deny", call.InteractionID(), call.Asks).
			Breaking("resolution.answer", fault.RuleExcluded)
	case r.Input == nil:
		return nil
	}
	var b bytes.Buffer
	if err := json.Compact(&b, r.Input); err != nil || !bytes.HasPrefix(b.Bytes(), []byte("{")) {
		return fault.Errorf(fault.Invalid, "interaction %q: tool_input must be a JSON object", call.InteractionID()).
			Breaking("resolution.approve.tool_input", fault.RuleFormat)
	}
	r.Input = b.Bytes()
	spec, err := s.specOf(t)
	if err != nil {
		return err
	}
	if err := s.runner.CheckInput(spec, call.Name, r.Input); err != nil {
		return fault.Errorf(fault.Invalid, "interaction %q: tool_input does not fit the input_schema of %q: %w",
			call.InteractionID(), call.Name, err).
			Breaking("resolution.approve.tool_input", fault.RuleFormat)
	}
	return nil
}

// specOf returns what the session's turn runs, also while it runs nowhere.
func (s *Session) specOf(t *Turn) (*record.Spec, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.spec != nil {
		return t.spec, nil
	}
	spec, err := s.lastSpec.ReadSpec()
	if err != nil {
		return nil, fmt.Errorf("session %s: %w", s.id, err)
	}
	return spec, nil
}

// unasked is what becomes of a resolution that nobody waits for.
func (s *Session) unasked(ctx context.Context, id string, r record.Resolution) error {
	in, err := s.manager.Interaction(ctx, s.id, id)
	switch {
	case err != nil:
		return err
	case in.Resolution != nil:
		return in.Resolution.Repeats(id, r)
	case in.Status == agentdv1.InteractionStatus_INTERACTION_STATUS_PENDING: // the log is ahead of what has been applied
		return fault.Errorf(fault.Unavailable, "interaction %q is just being asked: try again", id).After(refusal.Soon)
	default:
		return errNotAsked(id)
	}
}

func errNotAsked(id string) error {
	return fault.Errorf(fault.Precondition, "interaction %q: nobody waits for it any more, the call was cancelled or its "+
		"turn is over", id)
}

// Resolved returns what a person has said about a call of this turn; false if
// nobody has.
func (r *Run) Resolved(callID string) (record.Resolution, bool) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	f, ok := r.t.resolved[callID]
	return f, ok
}
