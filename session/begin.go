package session

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/internal/shared"
	"github.com/apzuk3/agentd/session/record"
)

// reserve reserves the session for a turn that starts. It refuses while a turn starts or runs.
func (s *Session) reserve() error {
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

func (s *Session) unreserve() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.starting != nil {
		close(s.starting)
		s.starting = nil
	}
}

// awaitStart waits until nobody has reserved the session: the turn runs, or has failed to start.
func (s *Session) awaitStart(ctx context.Context) error {
	starting := lock.Get(&s.mu, func() chan struct{} { return s.starting })
	if starting == nil {
		return nil
	}
	return lock.Wait(ctx, starting)
}

// repeatSpec returns the session's last tree and tools, without a prompt.
func (s *Session) repeatSpec() (*record.Spec, error) {
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

// begin records the turn's start. The caller has reserved the session.
func (s *Session) begin(ctx context.Context, spec *record.Spec, req Request) (*Turn, *Run, error) {
	s.adopt(req.by)
	whole, err := s.wholeState(ctx)
	if err != nil {
		return nil, nil, err
	}
	started, err := newTurnStarted(spec, req)
	if err != nil {
		return nil, nil, err
	}
	if err := s.checkState(spec, whole, started); err != nil {
		return nil, nil, err
	}
	writeState(whole, started.State)
	id, err := s.nameTurn(ctx, req.TurnID)
	if err != nil {
		return nil, nil, err
	}
	t := newTurn(s, id)
	t.attempt = t.newAttempt()
	t.spec, t.keys, t.snapshot = spec, req.Keys, maps.Clone(whole)
	data, err := logjson.Marshal(started)
	if err != nil {
		return nil, nil, fmt.Errorf("session %s: %w", s.id, err)
	}
	e := &entry{
		turn: t, kind: record.KindTurnStarted, data: data, fact: started,
		shared: s.sharedValues(started.State), key: req.key(s.id, t.id), asked: true,
	}
	if _, err := s.commit(ctx, e); err != nil {
		return nil, nil, err
	}
	state := maps.Clone(whole)
	writeState(state, started.Temp)
	return t, &Run{s: s, t: t, a: t.attempt, state: state}, nil
}

// retire drops from the session what it needs no more of an ended turn: its results, its facts and its
// records. They stay in memory only with those that have a reference to the turn.
func (s *Session) retire(t *Turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.turn == t && t.ended != nil {
		s.turn = t.over()
		s.tail.Shorten() // the session may stay in memory for long
	}
}

func newTurnStarted(spec *record.Spec, req Request) (*record.TurnStarted, error) {
	agent, err := protojson.Marshal(spec.Agent)
	if err != nil {
		return nil, fault.Errorf(fault.Invalid, "agent: %v", err)
	}
	started := &record.TurnStarted{
		Prompt:        spec.Prompt,
		Parts:         spec.Parts,
		Before:        spec.Before,
		After:         spec.After,
		Agent:         agent,
		OnDisconnect:  req.OnDisconnect,
		OwnKeys:       slices.Sorted(maps.Keys(req.Keys)),
		Budget:        req.Budget,
		SessionBudget: req.SessionBudget,
		ToolTimeout:   req.ToolTimeout,
		Raw:           spec.Raw,
		By:            req.by.ID,
		Warnings:      req.warnings,
		Alone:         loneAgent(spec.Agent),
	}
	for _, tool := range spec.Tools {
		data, err := protojson.Marshal(tool)
		if err != nil {
			return nil, fault.Errorf(fault.Invalid, "tool %q: %v", tool.GetName(), err)
		}
		started.Tools = append(started.Tools, json.RawMessage(data))
	}
	started.State, started.Temp = map[string]any{}, map[string]any{}
	for k, v := range req.InitialState {
		if shared.ScopeOf(k) == shared.Temp {
			started.Temp[k] = v
		} else {
			started.State[k] = v
		}
	}
	return started, nil
}
