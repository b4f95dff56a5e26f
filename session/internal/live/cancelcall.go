package live

import (
	"context"
	"errors"
	"slices"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/internal/phase"
	"github.com/apzuk3/agentd/session/record"
)

const callCancelled = "cancelled by the client"

// CancelCall settles a call as canceled.
func (s *Session) CancelCall(ctx context.Context, turnID, callID string) error {
	res := record.ToolResult{CallID: callID, Outcome: record.Cancelled, Error: callCancelled}
	data, err := logjson.Marshal(res)
	if err != nil {
		return err
	}
	for {
		t, p, over, err := s.callToCancel(ctx, turnID, &res)
		switch {
		case err != nil:
			return err
		case over != "": // only the log has the calls of a turn that is over
			return s.hasCall(ctx, over, callID)
		case p == nil:
			return nil
		}
		e := &entry{turn: t, kind: record.KindToolResult, data: data, fact: &res, asked: true, settles: p}
		_, err = s.commit(ctx, e)
		if over, ok := errors.AsType[*fault.Error](err); ok && over.Code == fault.Invalid {
			continue // the turn has ended, or was resumed, meanwhile
		}
		return err
	}
}

// callToCancel claims the call of a result for the caller, and returns it with its turn. If the turn is
// over, it returns only the id of the turn; if the call has a result, nothing. It waits for a write under
// way about the call or its turn.
func (s *Session) callToCancel(
	ctx context.Context, turnID string, res *record.ToolResult,
) (t *Turn, p *pending, over string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err = lock.Await(ctx, &s.mu, func() <-chan struct{} {
		t = s.turn
		p = t.pending[res.CallID]
		switch {
		case turnID != "" && !t.isOrTook(turnID), t.ended != nil, p == nil:
			return nil
		case p.isBusy():
			return p.tried
		case t.phase == phase.TurnEnding:
			return t.endTried
		case p.phase == phase.CallSealed: // by a run that is about to end
			return t.done
		}
		return nil
	})
	if err != nil {
		return nil, nil, "", err
	}
	_, settled := t.results[res.CallID]
	switch {
	case turnID != "" && !t.isOrTook(turnID):
		return nil, nil, turnID, nil
	case t.ended != nil:
		return nil, nil, t.id, nil
	case settled:
		return nil, nil, "", nil
	case p == nil:
		return nil, nil, "", errNoCall(t.id, res.CallID)
	}
	s.recordLocked(p, res)
	return t, p, "", nil
}

// isOrTook reports whether the turn has the id, or has taken the prompt of that id as a message.
func (t *Turn) isOrTook(id string) bool { return t.id == id || slices.Contains(t.injected, id) }

// hasCall returns nil if the log has a call of a turn, or of the turn that took its prompt as a message.
func (s *Session) hasCall(ctx context.Context, turnID, callID string) error {
	first, err := s.host.FirstRecord(ctx, s.key, turnID)
	if err != nil {
		return err
	}
	exists, made, err := s.past(ctx, first-1).HasCall(turnID, callID)
	if err != nil {
		return err
	}
	switch {
	case !exists:
		return fault.Errorf(fault.NotFound, "turn_id: session %q has no turn %q", s.id, turnID).OfTurn(turnID)
	case !made:
		return errNoCall(turnID, callID)
	}
	return nil
}

func errNoCall(turnID, callID string) error {
	return fault.Errorf(fault.NotFound, "tool_call_id: turn %q has no call %q", turnID, callID).OfTurn(turnID)
}
