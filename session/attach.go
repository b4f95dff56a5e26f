package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/internal/shared"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// AttachRequest asks for a watcher of a turn.
type AttachRequest struct {
	// SessionID names the session.
	SessionID string
	// TurnID names the turn; "" is the session's last turn. It may be queued, its prompt
	// may be a message of another turn, or it may be over if its end comes after After.
	TurnID string
	// After is the position of the last message the client has; nil is the
	// beginning of the turn.
	After *int64
	// Tools are the names of the tools that the client runs.
	Tools []string
	// Starter says that this client has sent the prompt: it runs all tools of the turn.
	Starter bool
	// Observe says that the client is an observer: it resumes no turn and receives no
	// offer, and the turn does not count it as a client. Not with Tools or Starter.
	Observe bool
	// Keys are the caller's own provider keys.
	Keys Keys
}

// Attach returns a turn and a watcher that begins after the client's position. It resumes a suspended
// turn. An error that a client may see is of type *fault.Error.
func (m *Manager) Attach(ctx context.Context, req AttachRequest) (*Turn, *Watcher, error) {
	if req.Observe {
		return m.observe(ctx, req)
	}
	ref, err := m.acquire(ctx, req.SessionID)
	if err != nil {
		return nil, nil, err
	}
	defer m.release(ref)
	s := ref.Value
	if err := s.checkPosition(req.After); err != nil {
		return nil, nil, err
	}
	t, err := m.findAndResume(ctx, s, req)
	if err != nil {
		return nil, nil, err
	}
	from := req.from(t)
	from.asks = true
	tools := req.Tools
	if req.Starter {
		tools = t.toolNames()
	}
	if len(tools) > 0 {
		from.tools = map[string]bool{}
		for _, name := range tools {
			from.tools[name] = true
		}
	}
	return t, s.watch(t, from), nil
}

// toolNames returns the names of the tools of a turn that is not over.
func (t *Turn) toolNames() []string {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	spec := t.spec
	if spec == nil && t.waits != nil { // it was read from the log
		spec, _ = t.waits.ReadSpec() // an error comes up when the turn starts
	}
	if spec == nil {
		return nil
	}
	var names []string
	for _, tool := range spec.Tools {
		names = append(names, tool.GetName())
	}
	return names
}

// from returns what a watcher of the turn begins with. If the request names no turn, the watcher receives
// the session's events from the start of the turn, and none from the time in the queue.
func (req *AttachRequest) from(t *Turn) watch {
	first := max(t.startSeq, 1)
	if req.TurnID != "" && t.queuedSeq > 0 {
		first = t.queuedSeq
	}
	from := watch{only: req.TurnID != "", after: position.Of(first, 0) - 1}
	if req.After != nil {
		from.after = *req.After
	}
	return from
}

// checkPosition refuses a session without turns, and a position that the session has not reached.
func (s *Session) checkPosition(after *int64) error {
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

// resumeLast returns the session's last turn. It resumes a suspended turn, once for all callers at the same
// time.
func (m *Manager) resumeLast(ctx context.Context, req AttachRequest) (*Turn, error) {
	ref, err := m.acquire(ctx, req.SessionID)
	if err != nil {
		return nil, err
	}
	ref.Value.resuming.Lock()
	defer ref.Value.resuming.Unlock()
	if err := m.closeInherited(ctx, ref.Value); err != nil {
		m.release(ref)
		return nil, err
	}
	if err := ref.Value.awaitSuspended(ctx); err != nil {
		m.release(ref)
		return nil, err
	}
	if t := ref.Value.runningOrOver(); t != nil {
		m.release(ref)
		return t, nil
	}
	t, err := m.resume(ctx, ref, req.Keys)
	if e, ok := errors.AsType[*fault.Error](err); ok && e.Code == fault.Busy {
		return nil, fault.Errorf(fault.Unavailable, "session %q is starting another turn: attach again", req.SessionID).
			After(refusal.Soon)
	}
	return t, err
}

// awaitSuspended waits while the last turn is suspending.
func (s *Session) awaitSuspended(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return lock.Await(ctx, &s.mu, func() <-chan struct{} {
		if t := s.turn; t != nil && t.phase == turnSuspending {
			return t.done
		}
		return nil
	})
}

// runningOrOver returns the last turn if it runs or has ended, else nil.
func (s *Session) runningOrOver() *Turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.turn != nil && (s.turn.runs() || s.turn.phase == turnEnded) {
		return s.turn
	}
	return nil
}

// resume runs the open turn of a session from its log. It releases ref; on success the turn's goroutine
// does.
func (m *Manager) resume(ctx context.Context, ref *sessionRef, keys Keys) (_ *Turn, err error) {
	launched := false
	defer func() {
		if !launched { // also when the engine panics
			m.release(ref)
		}
	}()
	if err := m.admit(); err != nil {
		return nil, err
	}
	defer func() {
		m.admitted()
		if !launched {
			m.turns.Done()
		}
	}()
	s := ref.Value
	if err := s.reserve(); err != nil {
		return nil, err
	}
	if m.probation.Quarantined(s.attemptsNow()) {
		return m.endQuarantined(ctx, ref)
	}
	defer s.unreserve()
	run, err := s.reopen(ctx, keys)
	if err != nil {
		return nil, err
	}
	undo, err := m.attempt(ctx, s)
	if err != nil {
		return nil, err
	}
	err = m.runner.Check(ctx, run.a.spec, keys)
	if err == nil {
		err = s.recordResumed(ctx, run.a)
	}
	if err != nil {
		undo()
		return nil, err
	}
	launched = true
	m.launch(ctx, ref, run)
	return run.t, nil
}

// reopen makes an attempt of the session's open turn, with the state at the turn's start. recordResumed or
// beginClosing makes it the turn's own.
func (s *Session) reopen(ctx context.Context, keys Keys) (*Run, error) {
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
	return &Run{s: s, t: t, a: a, state: state}, nil
}

// recordResumed records TurnResumed, which makes an attempt of reopen the turn's own.
func (s *Session) recordResumed(ctx context.Context, a *attempt) error {
	fact := &record.TurnResumed{}
	data, err := logjson.Marshal(fact)
	if err != nil {
		return err
	}
	e := &entry{turn: a.t, attempt: a, kind: record.KindTurnResumed, data: data, fact: fact, asked: true}
	_, err = s.commit(ctx, e)
	return err
}

// ownKeysOf returns placeholders of the caller's keys, for a run that calls no model.
func ownKeysOf(s *Session) Keys {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := Keys{}
	for _, provider := range s.lastSpec.OwnKeys {
		keys[provider] = "none"
	}
	return keys
}

// stopRunning marks that nothing drives the turn any more. A turn that has not ended is suspended with open
// calls; its watchers fail with why, if it is not nil.
func (s *Session) stopRunning(t *Turn, why *fault.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	waits := t.phase == turnSuspending
	if t.phase != turnEnded {
		t.enter(turnSuspended)
	}
	t.unseal()
	s.reconcileLocked()
	if why != nil {
		s.failLocked(t, why, waits)
	}
}

// sweep periodically expires turns, drops what forks have inherited, and purges unused sessions.
func (m *Manager) sweep(ctx context.Context) {
	every := m.limits.Retention
	if after := m.limits.PurgeAfter; after > 0 {
		every = min(every, after)
	}
	tick := time.NewTicker(max(every/24, time.Second))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		m.expireAll(ctx)
		m.closeForks(ctx)
		if m.limits.PurgeAfter > 0 {
			m.purgeAll(ctx)
		}
	}
}

// expireAll expires suspended turns. The next round retries what fails. It logs no error of OpenTurns: Ping
// reports a store that does not work.
func (m *Manager) expireAll(ctx context.Context) {
	after := ""
	for {
		heads, err := m.store.OpenTurns(ctx, after, readPage)
		if err != nil {
			return
		}
		for _, head := range heads {
			after = head.ID
			if err := m.expire(ctx, head); err != nil && ctx.Err() == nil {
				m.log.LogAttrs(ctx, slog.LevelWarn, "a turn that has waited too long is left open",
					slog.String("session", head.ID), slog.String("error", err.Error()))
			}
		}
		if len(heads) < readPage {
			return
		}
	}
}

// expire ends an open turn whose log has not changed for the retention.
func (m *Manager) expire(ctx context.Context, head store.Head) error {
	last, err := m.store.Read(ctx, head.ID, head.LastSeq-1, 1)
	if err != nil || len(last) == 0 || m.store.Stamp().Sub(last[0].Time) < m.limits.Retention {
		return err
	}
	ref, err := m.acquire(ctx, head.ID)
	if err != nil {
		return err
	}
	defer m.release(ref)
	reason := fmt.Sprintf("expired: no client came within %v", m.limits.Retention)
	if t := ref.Value.runningOrOver(); t != nil {
		ref.Value.haltWaiting(t, reason)
		return nil
	}
	if err := ref.Value.reserve(); err != nil {
		return err
	}
	next, err := m.closeOpen(ctx, ref.Value, reason)
	if next == nil {
		ref.Value.unreserve()
		return err
	}
	m.launchNext(ctx, ref, next) // this goroutine is counted in m.turns
	return err
}
