package live

import (
	"context"
	"fmt"
	"maps"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/internal/phase"
	"github.com/apzuk3/agentd/session/internal/prompt"
	"github.com/apzuk3/agentd/session/record"
)

// Reserve reserves the session for a turn that starts. It refuses while a turn starts or runs.
func (s *Session) Reserve() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.broken != nil:
		return s.broken
	case s.starting != nil, s.turn != nil && s.turn.runs():
		return fault.Errorf(fault.Busy, "session %q already runs a turn; wait for its end, or cancel it", s.id).
			OfTurn(s.openTurnLocked())
	}
	s.starting = make(chan struct{})
	return nil
}

// Unreserve ends a reservation, if there is one.
func (s *Session) Unreserve() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.starting != nil {
		close(s.starting)
		s.starting = nil
	}
}

// AwaitStart waits until nobody has reserved the session, and no turn is suspending or ending.
func (s *Session) AwaitStart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return lock.Await(ctx, &s.mu, func() <-chan struct{} {
		if t := s.turn; t != nil && t.runs() && t.phase != phase.TurnRunning {
			return t.done
		}
		return s.starting
	})
}

// RepeatSpec returns the session's last tree and tools, without a prompt.
func (s *Session) RepeatSpec() (*record.Spec, error) {
	last := lock.Get(&s.mu, func() *record.TurnStarted { return s.lastSpec })
	if last == nil {
		return nil, fault.Errorf(fault.Invalid, "agent is missing: session %q has not run a tree yet", s.id).
			Breaking("agent", fault.RuleRequired)
	}
	spec, err := last.ReadSpec()
	if err != nil {
		return nil, fmt.Errorf("session %s: last agent tree: %w", s.id, err)
	}
	spec.Prompt, spec.Parts = "", nil
	return spec, nil
}

// Begin records the turn's start. The caller has reserved the session.
func (s *Session) Begin(ctx context.Context, p prompt.Prompt) (*Driver, error) {
	s.adopt(p.By, p.Labels)
	spec, started := p.Spec, p.Started
	whole, err := s.wholeState(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.checkState(spec, whole, started); err != nil {
		return nil, err
	}
	writeState(whole, started.State)
	id, err := s.NameTurn(ctx, p.ID)
	if err != nil {
		return nil, err
	}
	t := newTurn(s, id)
	t.attempt = t.newAttempt()
	s.withReports(started)
	spec.Prompt = started.Prompt
	t.spec, t.keys, t.snapshot = spec, p.Keys, maps.Clone(whole)
	data, err := logjson.Marshal(started)
	if err != nil {
		return nil, fmt.Errorf("session %s: %w", s.id, err)
	}
	e := &entry{
		turn: t, kind: record.KindTurnStarted, data: data, fact: started,
		shared: s.sharedValues(started.State), key: p.KeyOf(s.key, t.id), asked: true,
	}
	if _, err := s.commit(ctx, e); err != nil {
		return nil, err
	}
	state := maps.Clone(whole)
	writeState(state, started.Temp)
	return &Driver{a: t.attempt, run: &Run{s: s, t: t, a: t.attempt, state: state}}, nil
}
