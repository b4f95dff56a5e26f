package live

import (
	"context"
	"fmt"
	"maps"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/keys"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/internal/shared"
	"github.com/apzuk3/agentd/session/record"
)

// Reopen makes an attempt of the session's open turn, with the state at the turn's start. resume or
// beginClosing makes it the turn's own.
func (s *Session) Reopen(ctx context.Context, keys keys.Of) (*Driver, error) {
	whole, err := s.wholeState(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, started := s.turn, s.lastSpec
	for _, provider := range started.OwnKeys {
		if keys[provider] == "" {
			return nil, fault.Errorf(agentdv1.ErrorCode_ERROR_CODE_AUTH_FAILED,
				"this turn runs on its caller's own key for %s: "+
					"attach with the key in the header that the turn was started with", provider)
		}
	}
	spec, err := started.ReadSpec()
	if err != nil {
		return nil, fmt.Errorf("session %s: turn %s: %w", s.id, t.id, err)
	}
	state := maps.Clone(t.snapshot)
	for k, v := range whole {
		if shared.ScopeOf(k) != "" {
			state[k] = v
		}
	}
	s.limitLocked(spec, started)
	a := t.newAttempt()
	a.spec, a.keys, a.begun = spec, keys, t.called
	for _, p := range t.pending {
		p.owner, p.newer = nil, 0
	}
	writeState(state, started.Temp)
	return &Driver{a: a, run: &Run{s: s, t: t, a: a, state: state}}, nil
}

// Resume checks that an attempt of Reopen can run, and records TurnResumed, which makes it the turn's own.
func (d *Driver) Resume(ctx context.Context) error {
	a := d.a
	if err := a.t.s.runner.Check(ctx, a.spec, a.keys); err != nil {
		return err
	}
	fact := &record.TurnResumed{}
	data, err := logjson.Marshal(fact)
	if err != nil {
		return err
	}
	e := &entry{turn: a.t, attempt: a, kind: record.KindTurnResumed, data: data, fact: fact, asked: true}
	_, err = a.t.s.commit(ctx, e)
	return err
}

// ownKeysOf returns placeholders of the caller's keys, for a run that calls no model.
func ownKeysOf(s *Session) keys.Of {
	s.mu.Lock()
	defer s.mu.Unlock()
	own := keys.Of{}
	for _, provider := range s.lastSpec.OwnKeys {
		own[provider] = "none"
	}
	return own
}
