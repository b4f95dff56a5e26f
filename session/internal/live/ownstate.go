package live

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/shared"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// MadeBy returns the owner, whose `user:` keys the session has.
func (s *Session) MadeBy() principal.Principal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owner
}

// adopt gives a session that is not in the store yet to the principal whose turn begins, with its labels: others may
// have wanted to make it under the same id.
func (s *Session) adopt(p principal.Principal, labels map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.create != nil {
		made := *s.create
		made.Creator, made.Labels = p.Key(), labels
		s.owner, s.create = p, &made
	}
}

// sharedValues returns the keys of state that sessions share.
func (s *Session) sharedValues(state map[string]any) []store.SharedValue {
	return shared.ValuesOf(s.MadeBy(), state)
}

// wholeState returns the session's own keys and the shared ones.
func (s *Session) wholeState(ctx context.Context) (map[string]any, error) {
	out := lock.Get(&s.mu, s.state.Copy)
	for _, scope := range shared.ScopesOf(s.MadeBy()) {
		keys, err := s.store.SharedKeys.Now(ctx, scope)
		if err != nil {
			return nil, fmt.Errorf("session %s: %w", s.id, err)
		}
		maps.Copy(out, keys)
	}
	return out, nil
}

// writeState sets keys, and removes those whose value is null.
func writeState(state, delta map[string]any) {
	for k, v := range delta {
		if v == nil {
			delete(state, k)
		} else {
			state[k] = v
		}
	}
}

// ownFits refuses a delta that takes the session's own keys past their bounds.
func (s *Session) ownFits(delta map[string]any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Fits(delta, shared.Use{Keys: s.limits().MaxOwnKeys, Bytes: s.limits().MaxOwnBytes})
}

// stateFits refuses a delta that takes the session, or a scope, past its bounds. It reserves nothing.
func (s *Session) stateFits(ctx context.Context, delta map[string]any) error {
	if err := s.ownFits(delta); err != nil {
		return err
	}
	reserved, err := s.store.SharedKeys.Reserve(ctx, s.sharedValues(delta))
	if err == nil {
		reserved.Release()
	}
	return err
}

// reserveState reserves room for the shared keys of entries, and refuses entries that take the session,
// or a scope, past its bounds. It does not refuse entries that are appended with the end of a turn.
func (s *Session) reserveState(ctx context.Context, entries []*entry) error {
	ends := slices.ContainsFunc(entries, func(e *entry) bool { return e.kind == record.KindTurnEnded })
	for _, e := range entries {
		var own map[string]any
		switch f := e.fact.(type) {
		case *record.TurnStarted:
			own = f.State
		case *record.Event:
			own = f.State
		}
		if len(own) == 0 {
			continue
		}
		err := s.ownFits(own)
		if err == nil {
			e.reserved, err = s.store.SharedKeys.Reserve(ctx, e.shared)
		}
		if err != nil && ends {
			// Finish or AppendAtEnd has checked them.
			err, e.reserved = nil, s.store.SharedKeys.ReserveUnbounded(e.shared)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
