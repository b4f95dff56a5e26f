package live

import (
	"context"
	"fmt"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/keys"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/past"
	"github.com/apzuk3/agentd/session/internal/phase"
	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/record"
)

// A turn is found by its id in one of four places: it is the session's last turn, it is queued, the last
// turn has taken its prompt as a message, or it is over and only in the log.

// Find returns the turn that a request names; "" is the session's last turn. The session must have a
// turn: see CheckPosition.
func (s *Session) Find(ctx context.Context, w Wanted) (*Turn, error) {
	if t, ok := s.findLast(w.TurnID); ok {
		return t, nil
	}
	if t, ok := s.findQueued(w.TurnID, w.Keys); ok {
		return t, nil
	}
	if t, ok := s.findInjected(w.TurnID); ok {
		if !w.Starter {
			return t, nil
		}
		var err error
		t.spec, err = s.queuedSpec(ctx, w.TurnID)
		return t, err
	}
	return s.FindOver(ctx, w)
}

// FindOwner is find for the turn's calls: for an injected prompt it returns the turn that took it as a
// message.
func (s *Session) FindOwner(ctx context.Context, id string) (*Turn, error) {
	if t, ok := s.findOpenOwner(id); ok {
		return t, nil
	}
	return s.Find(ctx, Wanted{TurnID: id})
}

// findOpenOwner is FindOwner for the session's last turn.
func (s *Session) findOpenOwner(id string) (*Turn, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turn, id == "" || s.turn.isOrTook(id)
}

// IsLast reports whether a turn is the session's last one.
func (s *Session) IsLast(t *Turn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turn == t
}

// findLast returns the session's last turn if it has the id; "" is any.
func (s *Session) findLast(id string) (*Turn, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turn, id == "" || s.turn.id == id
}

// findQueued returns a queued turn. A turn without keys gets those of the caller.
func (s *Session) findQueued(id string, keys keys.Of) (*Turn, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.queued {
		if t.id == id {
			if t.keys == nil {
				t.keys = keys
			}
			return t, true
		}
	}
	return nil, false
}

// findInjected returns a turn whose prompt the last turn has taken as a message.
func (s *Session) findInjected(id string) (*Turn, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.turn.id == id || !s.turn.isOrTook(id) {
		return nil, false
	}
	t := newTurn(s, id)
	t.into, t.phase = s.turn.id, phase.TurnInjected
	return t, true
}

// FindOver returns from the log a turn that is over, or whose prompt is a message of such a turn. A turn
// whose end the client already has is refused.
func (s *Session) FindOver(ctx context.Context, w Wanted) (*Turn, error) {
	first, err := s.host.FirstRecord(ctx, s.key, w.TurnID)
	if err != nil {
		return nil, err
	}
	t := newTurn(s, w.TurnID)
	t.besideSeq, t.phase = first, phase.TurnEnded
	after := int64(0)
	if w.After != nil {
		after = position.Record(*w.After)
	}
	end, exists, err := s.past(ctx, first-1).End(w.TurnID, after)
	if err != nil {
		return nil, err
	}
	if t.ended = end; end != nil {
		return t, nil
	}
	if !exists {
		return nil, refusal.NoTurn(s.key, w.TurnID)
	}
	return nil, fault.Errorf(fault.Invalid, "turn_id %q: session %q has no such turn whose end comes after after_seq",
		w.TurnID, s.id).
		OfTurn(w.TurnID).Breaking("turn_id", fault.RuleRange)
}

// queuedSpec returns the spec of an injected prompt of the session's last turn.
func (s *Session) queuedSpec(ctx context.Context, id string) (*record.Spec, error) {
	began := lock.Get(&s.mu, func() int64 { return s.turn.startSeq })
	spec, err := s.past(ctx, began).QueuedSpec(id)
	switch {
	case err != nil:
		return nil, fmt.Errorf("session %s: %w", s.id, err)
	case spec != nil:
		return spec, nil
	}
	return nil, refusal.NoTurn(s.key, id) // not reached: the log has what the session knows
}

// WithResults returns a turn with the results of its calls. It reads those of an ended turn from the log.
func (s *Session) WithResults(ctx context.Context, t *Turn) (*Turn, error) {
	t = s.now(t)
	if lock.Get(&s.mu, func() bool { return t.ended == nil || len(t.results) > 0 }) {
		return t, nil
	}
	over := newTurn(s, t.id)
	over.ended, over.phase = t.ended, phase.TurnEnded
	var err error
	if over.results, err = s.past(ctx, max(t.startSeq, 1)-1).Results(t.id); err != nil {
		return nil, err
	}
	return over, nil
}

// past is the log after a sequence number.
func (s *Session) past(ctx context.Context, after int64) past.Log {
	return past.Log{Records: s.records(ctx, after, ReadPage), Decode: s.decode}
}

// CheckPosition refuses a session without turns, and a position that the session has not reached.
func (s *Session) CheckPosition(after *int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.turn == nil:
		return fault.Errorf(fault.NotFound, "session %q has no turn to attach to", s.id)
	case after == nil:
		return nil
	case *after < 0, *after >= position.Of(s.seq+1, 0):
		return fault.Errorf(fault.Invalid, "after_seq %d: session %q has not come that far", *after, s.id).
			Breaking("after_seq", fault.RuleRange)
	}
	return nil
}
