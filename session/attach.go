package session

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/live"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/internal/tenant"
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
	// Follow says that an observer may be served from the log and what the owner says on the bus. Its watcher ends with
	// an error of IsMoved where that does not do.
	Follow bool
	// Keys are the caller's own provider keys.
	Keys Keys
}

// Attach returns a turn and a watcher that begins after the client's position. It resumes a suspended
// turn. An error that a client may see is of type *fault.Error.
func (m *Manager) Attach(ctx context.Context, req AttachRequest) (*Turn, *Watcher, error) {
	if req.Observe {
		return m.observe(ctx, req)
	}
	ref, err := m.acquireAt(ctx, req.SessionID, req.After)
	if err != nil {
		return nil, nil, err
	}
	defer m.release(ref)
	s := ref.Value
	if err := s.CheckPosition(req.After); err != nil {
		return nil, nil, err
	}
	t, err := m.findAndResume(ctx, s, req)
	if err != nil {
		return nil, nil, err
	}
	return t, s.Attach(t, req.wanted()), nil
}

// wanted returns what the request asks of its session.
func (req *AttachRequest) wanted() live.Wanted {
	return live.Wanted{TurnID: req.TurnID, After: req.After, Tools: req.Tools, Starter: req.Starter, Keys: req.Keys}
}

// resumeLast returns the session's last turn. It resumes a suspended turn, once for all callers at the same
// time.
func (m *Manager) resumeLast(ctx context.Context, key string, keys Keys) (*Turn, error) {
	t, err := m.resumeOpen(ctx, key, keys)
	if isBusy(err) {
		return nil, fault.Errorf(fault.Unavailable,
			"session %q is starting another turn: attach again", tenant.ID(key)).
			After(refusal.Soon)
	}
	return t, err
}

// resumeOpen is resumeLast. Its error is fault.Busy while somebody else starts a turn of the session.
func (m *Manager) resumeOpen(ctx context.Context, key string, keys Keys) (*Turn, error) {
	ref, err := m.acquireKey(ctx, key)
	if err != nil {
		return nil, err
	}
	ref.Value.Resuming.Lock()
	defer ref.Value.Resuming.Unlock()
	if err := m.closeInherited(ctx, ref.Value); err != nil {
		m.release(ref)
		return nil, err
	}
	if err := ref.Value.AwaitSuspended(ctx); err != nil {
		m.release(ref)
		return nil, err
	}
	if t := ref.Value.RunningOrOver(); t != nil {
		m.release(ref)
		return t, nil
	}
	return m.resume(ctx, ref, keys)
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
	payer := tenant.Of(ref.Value.Key())
	if err := m.admit(payer, false); err != nil {
		return nil, err
	}
	defer func() {
		m.admitted(payer)
		if !launched {
			m.turns.Done()
		}
	}()
	s := ref.Value
	if err := s.Reserve(); err != nil {
		return nil, err
	}
	if m.probation.Quarantined(s.AttemptsNow()) {
		return m.endQuarantined(ctx, ref)
	}
	defer s.Unreserve()
	d, err := s.Reopen(ctx, keys)
	if err != nil {
		return nil, err
	}
	undo, err := m.attempt(ctx, s)
	if err != nil {
		return nil, err
	}
	if err := d.Resume(ctx); err != nil {
		undo()
		return nil, err
	}
	launched = true
	m.launch(ctx, ref, d)
	return d.Turn(), nil
}

// sweep periodically expires turns, drops what forks have inherited, and purges unused sessions.
func (m *Manager) sweep(ctx context.Context) {
	every := m.limits().Retention
	if after := m.limits().PurgeAfter; after > 0 {
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
		if m.limits().PurgeAfter > 0 {
			m.purgeAll(ctx)
		}
	}
}

// expireAll expires suspended turns. The next round retries what fails. It logs no error of OpenTurns: Ping
// reports a store that does not work.
func (m *Manager) expireAll(ctx context.Context) {
	after := ""
	for {
		heads, err := m.store.OpenTurns(ctx, after, live.ReadPage)
		if err != nil {
			return
		}
		for _, head := range heads {
			after = head.ID
			if err := m.expire(ctx, head); err != nil && !isElsewhere(err) && ctx.Err() == nil {
				m.log.LogAttrs(ctx, slog.LevelWarn, "a turn that has waited too long is left open",
					slog.String("session", head.ID), slog.String("error", err.Error()))
			}
		}
		if len(heads) < live.ReadPage {
			return
		}
	}
}

// expire ends an open turn whose log has not changed for the retention.
func (m *Manager) expire(ctx context.Context, head store.Head) error {
	last, err := m.store.Read(ctx, head.ID, head.LastSeq-1, 1)
	if err != nil || len(last) == 0 || m.store.Stamp().Sub(last[0].Time) < m.limits().Retention {
		return err
	}
	ref, err := m.acquireKey(ctx, head.ID)
	if err != nil {
		return err
	}
	defer m.release(ref)
	reason := fmt.Sprintf(live.Expired+"no client came within %v", m.limits().Retention)
	if t := ref.Value.RunningOrOver(); t != nil {
		ref.Value.HaltWaiting(t, reason)
		return nil
	}
	if err := ref.Value.Reserve(); err != nil {
		return err
	}
	next, err := ref.Value.CloseOpen(ctx, reason)
	if next == nil {
		ref.Value.Unreserve()
		return err
	}
	m.launchNext(ctx, ref, next) // this goroutine is counted in m.turns
	return err
}

// findAndResume is find for a client that takes part: it also resumes the session's open turn.
func (m *Manager) findAndResume(ctx context.Context, s *live.Session, req AttachRequest) (*Turn, error) {
	for {
		t, err := s.Find(ctx, req.wanted())
		if err != nil {
			return nil, err
		}
		if !s.IsLast(t) {
			if s.IsOpen() {
				_, err = m.resumeLast(ctx, s.Key(), req.Keys)
			}
			return t, err
		}
		if t, err = m.resumeLast(ctx, s.Key(), req.Keys); err != nil {
			return nil, err
		}
		if req.TurnID == "" || t.ID() == req.TurnID { // otherwise it has ended meanwhile
			return t, nil
		}
	}
}
