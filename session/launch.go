package session

import (
	"context"
	"errors"
	"log/slog"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/halt"
	"github.com/apzuk3/agentd/session/internal/live"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/retry"
	"github.com/apzuk3/agentd/session/internal/tenant"
)

// launch runs an attempt of a turn on a goroutine, which releases ref.
func (m *Manager) launch(ctx context.Context, ref *sessionRef, d *live.Driver) {
	ctx, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	d.Begin(stop)
	ref.Value.Lease.DueIn(Never)
	payer := tenant.Of(ref.Value.Key())
	m.runs(payer)
	lock.Do(&m.mu, func() {
		m.running[d] = struct{}{}
		m.runningOf[payer]++
		if m.stopping {
			stop(ErrSuspended)
		}
	})
	m.carry(ctx, ref, d)
}

// carry drives an attempt on a goroutine, which ends when the turn hibernates; then another one follows.
func (m *Manager) carry(ctx context.Context, ref *sessionRef, d *live.Driver) {
	go func() {
		err := d.Drive(ctx)
		if err != nil && d.Hibernates(ctx, func() { m.carry(ctx, ref, d) }) {
			return
		}
		defer m.turns.Done()
		next := m.finish(ctx, ref.Value, d, err)
		payer := tenant.Of(ref.Value.Key())
		lock.Do(&m.mu, func() {
			delete(m.running, d)
			if m.runningOf[payer]--; m.runningOf[payer] == 0 {
				delete(m.runningOf, payer)
			}
		})
		m.ran(payer)
		m.signalRoom()
		if next != nil {
			m.launchNext(ctx, ref, next)
		}
		d.Retire()
		m.release(ref)
		d.Over()
	}()
}

// launchNext runs the queued turn that Session.Finish has started. The caller is counted in m.turns and uses ref.
func (m *Manager) launchNext(ctx context.Context, ref *sessionRef, next *live.Driver) {
	s := ref.Value
	defer s.Unreserve()
	if next.LacksKey() {
		m.resetAttempts(s, true)
		next.Over()
		m.clientsLost(s)
		m.log.LogAttrs(ctx, slog.LevelInfo, "turn waits for its caller's key",
			slog.String("session", s.ID()), slog.String("turn", next.Turn().ID()))
		return
	}
	next.Unqueue()
	m.sessions.Keep(ref)
	m.turns.Add(1)
	m.launch(ctx, ref, next)
}

// finish records the end of a turn whose engine has returned err, or suspends it. It runs on the turn's own goroutine
// and returns the turn to run next.
func (m *Manager) finish(ctx context.Context, s *live.Session, d *live.Driver, err error) (next *live.Driver) {
	if s.IsLost() {
		m.cleared(s)
		m.stopped(d, true)
		d.StopRunning(halt.ErrMoved)
		m.log.LogAttrs(ctx, slog.LevelInfo, "turn set aside: another server owns its session",
			slog.String("session", s.ID()), slog.String("turn", d.Turn().ID()))
		return nil
	}
	// A turn does not fail because the store does.
	unread := errors.Is(err, retry.ErrUnavailable) && context.Cause(ctx) == nil
	if err != nil && errors.Is(context.Cause(ctx), ErrSuspended) || unread {
		m.resetAttempts(s, d.WaitsForClient())
		m.stopped(d, true)
		d.StopRunning(m.errSuspended(s))
		s.Lease.DueIn(dueAfter(unread))
		level, attrs := slog.LevelInfo, []slog.Attr{slog.String("session", s.ID()), slog.String("turn", d.Turn().ID())}
		if unread {
			m.clientsLost(s)
			level, attrs = slog.LevelWarn, append(attrs, slog.String("error", fault.As(err).Err.Error()))
		}
		m.log.LogAttrs(ctx, level, "turn suspended", attrs...)
		return nil
	}
	end, err := halt.EndOf(ctx, err)
	m.tendChildrenNow(context.WithoutCancel(ctx), s)
	next, unwritten := s.Finish(context.WithoutCancel(ctx), d, end)
	if s.IsLost() {
		return m.finish(ctx, s, d, err)
	}
	if unwritten != nil {
		m.resetAttempts(s, false)
		s.Lease.DueIn(recoverInterval)
	}
	m.cleared(s)
	m.stopped(d, unwritten != nil)
	if unwritten == nil {
		d.StopRunning(nil)
		d.Log(end, err)
		return next
	}
	d.StopRunning(fault.As(unwritten))
	m.clientsLost(s)
	level := slog.LevelWarn // the store is away
	if fault.As(unwritten).Code == fault.Internal {
		level = slog.LevelError
	}
	m.log.LogAttrs(ctx, level, "the end of a turn is not written", slog.String("session", s.ID()),
		slog.String("turn", d.Turn().ID()), slog.String("error", errors.Join(err, unwritten).Error()))
	return next
}
