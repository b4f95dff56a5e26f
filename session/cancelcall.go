package session

import (
	"context"
	"errors"
	"slices"
)

const callCancelled = "cancelled by the client"

// CancelCall settles a call of a turn as canceled, durably, before it returns:
// the model sees a canceled tool, and the turn goes on, also one that was put
// aside. "" is the session's last turn. A call that has its result stays as it is,
// and so does a turn that is over; a turn or a call that there is not is an *Error
// of code NOT_FOUND.
func (m *Manager) CancelCall(ctx context.Context, req AttachRequest, callID string) error {
	h, err := m.acquire(ctx, req.SessionID)
	if err != nil {
		return err
	}
	defer m.release(h)
	s := h.s
	if err := s.checkPosition(nil); err != nil {
		return err
	}
	if s.inherits() { // what it has inherited open is over
		if _, err := m.goOn(ctx, AttachRequest{SessionID: s.id}); err != nil {
			return err
		}
	}
	if err := s.cancelCall(ctx, req.TurnID, callID); err != nil {
		return err
	}
	m.goOnAfter(ctx, s, AttachRequest{SessionID: s.id, Keys: req.Keys})
	return nil
}

// cancelCall settles a call.
func (s *Session) cancelCall(ctx context.Context, turnID, callID string) error {
	res := ToolResult{CallID: callID, Outcome: Cancelled, Error: callCancelled}
	data, err := marshal(res)
	if err != nil {
		return err
	}
	// What is being written about the call, or its turn, comes first: then look again.
	for {
		s.mu.Lock()
		t := s.turn
		p := t.pending[callID]
		_, settled := t.results[callID]
		var over <-chan struct{}
		switch {
		case turnID != "" && t.id != turnID && !slices.Contains(t.injected, turnID):
			s.mu.Unlock()
			return s.hasCall(ctx, turnID, callID)
		case t.ended != nil:
			s.mu.Unlock()
			return s.hasCall(ctx, t.id, callID)
		case settled:
			s.mu.Unlock()
			return nil
		case p == nil:
			s.mu.Unlock()
			return errNoCall(t.id, callID)
		case p.answering != nil, p.resolving:
			over = p.tried
		case t.ending:
			over = t.endTried
		case p.barred: // by a run that ends, or is suspended meanwhile
			over = t.done
		}
		if over != nil {
			err := s.waitLocked(ctx, over)
			s.mu.Unlock()
			if err != nil {
				return err
			}
			continue
		}
		p.answering, p.tried = &res, make(chan struct{})
		s.arrangeLocked()
		s.mu.Unlock()
		_, err := s.commit(ctx, &entry{turn: t, kind: KindToolResult, data: data, fact: &res, asked: true, settles: p})
		if over, ok := errors.AsType[*Error](err); ok && over.Code == codeInvalid {
			continue // the turn has ended or goes on meanwhile
		}
		return err
	}
}

// hasCall is nil if the log holds a call of a turn, or of the turn that its prompt
// has become a message of.
func (s *Session) hasCall(ctx context.Context, turnID, callID string) error {
	id, exists := turnID, false
	callers := map[string]bool{}
	first, err := s.firstRecord(ctx, turnID)
	if err != nil {
		return err
	}
	for rec, err := range s.records(ctx, first-1, readPage) {
		if err != nil {
			return err
		}
		exists = exists || rec.TurnID == turnID
		if rec.Kind == KindTurnEnded && rec.TurnID == id {
			break
		}
		if rec.Kind != KindEvent && rec.Kind != KindToolCall {
			continue
		}
		fact, err := s.decode(rec)
		if err != nil {
			return err
		}
		if ev, ok := fact.(*Event); ok && ev.Injected == turnID {
			id = rec.TurnID
		}
		if slices.ContainsFunc(callsOf(fact), func(c ToolCall) bool { return c.ID == callID }) {
			callers[rec.TurnID] = true
		}
	}
	switch {
	case !exists:
		return Errorf(codeNoSuch, "turn_id: session %q has no turn %q", s.id, turnID).OfTurn(turnID)
	case !callers[id]:
		return errNoCall(turnID, callID)
	}
	return nil
}

func errNoCall(turnID, callID string) error {
	return Errorf(codeNoSuch, "tool_call_id: turn %q has no call %q", turnID, callID).OfTurn(turnID)
}
