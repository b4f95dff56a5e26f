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

// AttachRequest asks to follow a turn of a session.
type AttachRequest struct {
	// SessionID names the session.
	SessionID string
	// TurnID names the turn: one that waits for its start, one whose prompt has
	// become a message of another, or one that is over and whose end comes after
	// After. "" is the session's last turn.
	TurnID string
	// After is the position of the last message the client has; nil is the
	// beginning of the turn.
	After *int64
	// Tools are the names of the tools that this client can be asked for.
	Tools []string
	// Starter says that this client has asked for the turn: it can be asked for all
	// tools of the turn.
	Starter bool
	// Observe says that this client only watches: it resumes no turn, is asked for
	// nothing, and the turn goes on as if it were not there. Not with Tools or Starter.
	Observe bool
	// Keys are the caller's own provider keys.
	Keys Keys
}

// Attach returns a turn and a watcher that begins after the client's position. A
// suspended turn is resumed. An error that a client may see is of type
// *fault.Error.
func (m *Manager) Attach(ctx context.Context, req AttachRequest) (*Turn, *Watcher, error) {
	if req.Observe {
		return m.observe(ctx, req)
	}
	h, err := m.acquire(ctx, req.SessionID)
	if err != nil {
		return nil, nil, err
	}
	defer m.release(h)
	s := h.Value
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

// toolNames are the tools of a turn that is not over.
func (t *Turn) toolNames() []string {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	spec := t.spec
	if spec == nil && t.waits != nil { // it was read from the log
		spec, _ = t.waits.ReadSpec() // an error is met, and told, when it starts
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

// from is what a watcher of a turn begins with. The watcher of a turn that is not named
// receives what the session does, and nothing of the time for which the turn has waited.
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

// resumeLast returns the session's last turn; one that is open and runs nowhere is
// resumed, once for all who attach at the same time.
func (m *Manager) resumeLast(ctx context.Context, req AttachRequest) (*Turn, error) {
	h, err := m.acquire(ctx, req.SessionID)
	if err != nil {
		return nil, err
	}
	h.Value.resuming.Lock()
	defer h.Value.resuming.Unlock()
	if err := m.closeInherited(ctx, h.Value); err != nil {
		m.release(h)
		return nil, err
	}
	if err := h.Value.awaitSuspended(ctx); err != nil {
		m.release(h)
		return nil, err
	}
	if t := h.Value.settled(); t != nil {
		m.release(h)
		return t, nil
	}
	t, err := m.resume(ctx, h, req.Keys)
	if e, ok := errors.AsType[*fault.Error](err); ok && e.Code == fault.Busy {
		return nil, fault.Errorf(fault.Unavailable, "session %q is starting another turn: attach again", req.SessionID).
			After(refusal.Soon)
	}
	return t, err
}

// awaitSuspended waits until a turn that is being suspended is.
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

// settled returns the last turn if it runs or is over.
func (s *Session) settled() *Turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.turn != nil && (s.turn.runs() || s.turn.phase == turnEnded) {
		return s.turn
	}
	return nil
}

// resume has the open turn of a session run again. It lets go of h: on success
// the turn's goroutine does.
func (m *Manager) resume(ctx context.Context, h *held, keys Keys) (_ *Turn, err error) {
	launched := false
	defer func() {
		if !launched { // also when the engine panics
			m.release(h)
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
	s := h.Value
	if err := s.reserve(); err != nil {
		return nil, err
	}
	if m.probation.Quarantined(s.attemptsNow()) {
		return m.endQuarantined(ctx, h)
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
	m.launch(ctx, h, run)
	return run.t, nil
}

// reopen makes an attempt of the open turn of a session, with the state at its start. It
// is the turn's when TurnResumed is recorded, or the turn is closed.
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
				"this turn runs on its caller's own key for %s: attach with the key in the header that the turn was "+
					"started with", provider)
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

// recordResumed makes an attempt that reopen has made that of its turn.
func (s *Session) recordResumed(ctx context.Context, a *attempt) error {
	fact := &record.TurnResumed{}
	data, err := logjson.Marshal(fact)
	if err != nil {
		return err
	}
	_, err = s.commit(ctx, &entry{turn: a.t, attempt: a, kind: record.KindTurnResumed, data: data, fact: fact, asked: true})
	return err
}

// ownKeysOf satisfies reopen for a run that calls no model.
func ownKeysOf(s *Session) Keys {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := Keys{}
	for _, provider := range s.lastSpec.OwnKeys {
		keys[provider] = "none"
	}
	return keys
}

// stopRunning says that nothing drives the turn any more. One that has not ended
// goes on some time, and its calls are open until then; its watchers are told why.
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

// sweep ends turns that nobody came for, and removes the logs of sessions that
// nobody uses.
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

// expireAll leaves what fails to the next round; Ping tells the operator of a
// store that does not work.
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

// expire ends a turn that was suspended too long ago.
func (m *Manager) expire(ctx context.Context, head store.Head) error {
	last, err := m.store.Read(ctx, head.ID, head.LastSeq-1, 1)
	if err != nil || len(last) == 0 || m.store.Stamp().Sub(last[0].Time) < m.limits.Retention {
		return err
	}
	h, err := m.acquire(ctx, head.ID)
	if err != nil {
		return err
	}
	defer m.release(h)
	reason := fmt.Sprintf("expired: no client came within %v", m.limits.Retention)
	if t := h.Value.settled(); t != nil { // it runs
		h.Value.haltWaiting(t, reason)
		return nil
	}
	if err := h.Value.reserve(); err != nil {
		return err
	}
	next, err := m.closeOpen(ctx, h.Value, reason)
	if next == nil {
		h.Value.unreserve()
		return err
	}
	m.launchNext(ctx, h, next) // this goroutine is counted in m.turns
	return err
}
