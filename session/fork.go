package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/internal/live"
	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/internal/tenant"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/store"
)

// ForkRequest asks for a fork of a session.
type ForkRequest struct {
	// SessionID is the session to inherit from.
	SessionID string
	// At is the position of the last message to inherit; nil inherits all.
	At *int64
	// Names are those of the fork.
	Names
	// Once, if it has a key, keeps the request from making a second fork.
	Once Once
	// scope is that of the key; "" is scopeFork.
	scope string
}

// ForkSession makes a session that begins with a copy of another session's log up to a position. The
// usage of the fork starts at zero, under the budget that the parent has now. The fork ends a turn that
// is open at the position, and drops queued prompts. An error that a client may see is of type
// *fault.Error.
func (m *Manager) ForkSession(ctx context.Context, req ForkRequest) (index.Session, error) {
	if err := req.check(req.Labels); err != nil {
		return index.Session{}, err
	}
	req.scope = principal.Of(ctx).Key() + cmp.Or(req.scope, scopeFork)
	done, err := m.once(ctx, req.scope, req.Once)
	if err != nil {
		return m.forkedBefore(ctx, err)
	}
	defer done()
	if err := m.store.Refuses(); err != nil {
		return index.Session{}, err
	}
	f, err := m.fork(ctx, req)
	if err == nil {
		err = m.store.Fork(ctx, *f)
	}
	if errors.Is(err, store.ErrKeyTaken) { // by another server
		return m.forkedBefore(ctx, m.madeBefore(ctx, req.scope, req.Once))
	}
	switch {
	case f != nil && f.Into.IsTooMany(err):
		return index.Session{}, refusal.TooManySessions(f.Into.MaxOfTenant)
	case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrNoSession):
		return index.Session{}, fault.Errorf(fault.Unavailable, "session %q has changed while it was forked; try again",
			req.SessionID).
			After(refusal.Soon)
	case err != nil:
		return index.Session{}, fmt.Errorf("session %s: fork: %w", req.SessionID, err)
	}
	return m.finishFork(ctx, f.Into.ID)
}

// forkedBefore returns the fork that err, if it is *Repeated, says was made before.
func (m *Manager) forkedBefore(ctx context.Context, err error) (index.Session, error) {
	before, ok := errors.AsType[*Repeated](err)
	if !ok {
		return index.Session{}, err
	}
	key, err := m.keyOf(ctx, before.SessionID)
	if err != nil {
		return index.Session{}, err
	}
	return m.finishFork(ctx, key)
}

// fork reads what the fork inherits.
func (m *Manager) fork(ctx context.Context, req ForkRequest) (*store.Fork, error) {
	from, err := m.keyOf(ctx, req.SessionID)
	if err != nil {
		return nil, err
	}
	parent, err := m.lists.Known(ctx, from)
	if err != nil {
		return nil, err
	}
	f := &store.Fork{
		From: parent.ID, Seq: parent.LastSeq, At: position.LastOf(parent.LastSeq),
		Into: m.newSession(ctx, req.Names),
	}
	f.Into.Budget, f.Into.DropToolPayloads = parent.Budget, parent.DropToolPayloads
	f.Into.Metadata, f.Into.Agent = parent.Metadata, parent.Agent
	if req.At != nil {
		if f.At = *req.At; f.At < 0 || position.Record(f.At) > parent.LastSeq {
			return nil, fault.Errorf(fault.Invalid,
				"seq %d: session %q has not come that far", f.At, tenant.ID(parent.ID)).
				Breaking("seq", fault.RuleRange)
		}
		f.Seq = position.Record(f.At)
	}
	x, rows, err := m.reader(parent.ID).ReadIndex(ctx, 0, f.Seq, f.Into.ID)
	if err != nil {
		return nil, err
	}
	// Goals stay the parent's.
	f.Rows = slices.DeleteFunc(rows, func(r store.Row) bool { return r.Kind == store.RowGoal })
	f.LastTurn, f.LastStatus, f.OpenTurn = x.Last, x.LastAs, x.OpenTurn()
	f.Key = req.Once.names(req.scope, f.Into.ID, "")
	return f, nil
}

// finishFork ends the open turns that a fork has inherited, and returns the fork.
func (m *Manager) finishFork(ctx context.Context, key string) (index.Session, error) {
	ref, err := m.acquireKey(ctx, key)
	if isElsewhere(err) { // another server closes it, or has
		s, err := m.lists.Session(ctx, key)
		return seen(s), err
	}
	if err != nil {
		return index.Session{}, err
	}
	defer m.release(ref)
	ref.Value.Resuming.Lock()
	defer ref.Value.Resuming.Unlock()
	if err := m.closeInherited(ctx, ref.Value); err != nil {
		return index.Session{}, err
	}
	s, err := m.lists.Session(ctx, key)
	return seen(s), err
}

// closeInherited ends an open turn that a fork has inherited, and drops inherited prompts: they never
// run. The caller holds s.resuming.
func (m *Manager) closeInherited(ctx context.Context, s *live.Session) error {
	if !s.Inherits() {
		return nil
	}
	if err := m.admitEnd(); err != nil {
		return err
	}
	defer m.turns.Done()
	if err := s.Reserve(); err != nil {
		return err
	}
	defer s.Unreserve()
	_, err := s.CloseOpen(ctx, live.Forked)
	if err != nil {
		m.log.LogAttrs(ctx, slog.LevelWarn, "a fork is left with an open turn",
			slog.String("session", s.ID()), slog.String("error", err.Error()))
	}
	return err
}

// forkPage is how many queued prompts closeForks reads at a time.
const forkPage = 256

// closeForks drops the inherited prompts of forks without an open turn: the server died, or its store was
// full, before finishFork dropped them. In a session with an open turn, queued prompts follow that turn.
// The next round retries what fails.
func (m *Manager) closeForks(ctx context.Context) {
	q := store.RowQuery{Kind: store.RowTurn, Statuses: []string{index.Pending.Recorded()}, Limit: forkPage}
	last := ""
	for {
		rows, err := m.store.Rows(ctx, q)
		if err != nil {
			if ctx.Err() == nil {
				m.log.LogAttrs(ctx, slog.LevelWarn, "prompts that wait cannot be read",
					slog.String("error", err.Error()))
			}
			return
		}
		for _, row := range rows {
			if row.SessionID == last {
				continue
			}
			last = row.SessionID
			err := m.closeFork(ctx, last)
			if err != nil && !refusal.IsGone(err) && !isElsewhere(err) && ctx.Err() == nil {
				m.log.LogAttrs(ctx, slog.LevelWarn, "a prompt that never runs is left waiting",
					slog.String("session", last),
					slog.String("error", err.Error()))
			}
		}
		if q.IsLast(rows) {
			return
		}
		q.After = &rows[len(rows)-1]
	}
}

// closeFork is closeForks for one session.
func (m *Manager) closeFork(ctx context.Context, key string) error {
	head, err := m.store.Head(ctx, key)
	if errors.Is(err, store.ErrNoSession) || err == nil && (head.OpenTurn != "" || head.Purged > 0) {
		return nil
	}
	if err != nil {
		return err
	}
	ref, err := m.acquireKey(ctx, key)
	if err != nil {
		return err
	}
	defer m.release(ref)
	ref.Value.Resuming.Lock()
	defer ref.Value.Resuming.Unlock()
	return m.closeInherited(ctx, ref.Value)
}
