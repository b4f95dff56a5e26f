package live

import (
	"context"
	"errors"
	"fmt"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/given"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/internal/phase"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/record"
)

// Resolve records a resolution of an interaction of the session, durably, before it returns. The first
// resolution stands: an equal repeat under the same key is no error. Another one, and one after the call
// was canceled or the turn has ended, is a *fault.Error of code FAILED_PRECONDITION. An unknown
// interaction is NOT_FOUND, a decision that does not fit it INVALID_REQUEST; neither changes anything.
func (t *Turn) Resolve(ctx context.Context, id string, r record.Resolution) error {
	return t.present(ctx, func(now *Turn) error { return now.s.Resolve(ctx, id, r) })
}

// Resolve is [Turn.Resolve] for the session's last turn.
func (s *Session) Resolve(ctx context.Context, id string, r record.Resolution) error {
	q, err := s.raisedToResolve(ctx, id)
	switch {
	case err != nil:
		return err
	case q != nil:
		return s.answer(ctx, q, r)
	}
	t, p, err := s.callToResolve(ctx, id)
	switch {
	case err != nil:
		return err
	case p == nil:
		return s.resolveNotPending(ctx, id, r)
	}
	e, err := s.resolution(ctx, t, p, r)
	if err != nil {
		return err
	}
	_, err = s.commit(ctx, e)
	if over, ok := errors.AsType[*fault.Error](err); ok && over.Code == fault.Invalid {
		return errNotAsked(id) // the turn has ended
	}
	return err
}

// callToResolve claims the call of a pending interaction for the caller, and returns it with its turn;
// nil if there is none. It waits for another resolution, and for a run that has sealed the call: see
// callLocked.
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
		case p.phase == phase.CallResolving:
			return p.tried
		}
		return p.fateLocked(t)
	})
	switch {
	case err != nil:
		return nil, nil, err
	case p == nil:
		return t, nil, nil
	case p.phase == phase.CallRecording:
		return nil, nil, errNotAsked(id)
	}
	p.enter(s, phase.CallResolving)
	p.tried = make(chan struct{})
	return t, p, nil
}

// asking returns the pending call of an interaction, or nil.
func (t *Turn) asking(id string) *pending {
	for _, p := range t.pending {
		if p.call.Asks != nil && p.call.InteractionID() == id {
			return p
		}
	}
	return nil
}

// resolution checks a resolution of a call and returns its entry. If it fails, the call may be resolved by another one.
func (s *Session) resolution(ctx context.Context, t *Turn, p *pending, r record.Resolution) (e *entry, err error) {
	call := lock.Get(&s.mu, func() record.ToolCall { return p.call })
	defer func() {
		if e == nil { // also when the engine panics
			lock.Do(&s.mu, func() { p.triedLocked(s) })
		}
	}()
	if err := s.checkResolution(t, call, &r); err != nil {
		return nil, err
	}
	fact := &record.InteractionResolved{ID: call.ID, By: principal.Of(ctx).ID, Resolution: r}
	data, err := logjson.Marshal(fact)
	if err != nil {
		return nil, err
	}
	return &entry{turn: t, kind: record.KindInteractionResolved, data: data, fact: fact, asked: true, resolves: p}, nil
}

// triedLocked ends the write of a result or a resolution. If nothing was recorded, the call takes another one.
func (p *pending) triedLocked(s *Session) {
	if p.isBusy() {
		p.reopen(s)
		s.reconcileLocked()
	}
	p.recording = nil
	close(p.tried)
}

// checkResolution refuses a resolution that does not fit the call, and compacts its arguments as the log has them.
func (s *Session) checkResolution(t *Turn, call record.ToolCall, r *record.Resolution) error {
	if err := given.CheckResolution(call, r, s.limits()); err != nil || r.Decision != record.Approve || r.Input == nil {
		return err
	}
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

// specOf returns the spec of the session's turn, also of a suspended one.
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

// resolveNotPending returns nil for a repeat of the recorded resolution, else why the interaction takes none.
func (s *Session) resolveNotPending(ctx context.Context, id string, r record.Resolution) error {
	in, err := s.host.Interaction(ctx, s.key, id)
	switch {
	case err != nil:
		return err
	case in.Resolution != nil:
		return in.Resolution.Repeats(id, r)
	case in.Status == agentdv1.InteractionStatus_INTERACTION_STATUS_PENDING:
		// The log is ahead of the session in memory.
		return fault.Errorf(fault.Unavailable, "interaction %q is just being asked: try again", id).After(refusal.Soon)
	default:
		return errNotAsked(id)
	}
}

func errNotAsked(id string) error {
	return fault.Errorf(fault.Precondition,
		"interaction %q: nobody waits for it any more, the call was canceled or its turn is over", id)
}

// Resolved returns the resolution of a call of this turn, if it has one.
func (r *Run) Resolved(callID string) (record.Resolution, bool) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	f, ok := r.t.resolved[callID]
	return f, ok
}
