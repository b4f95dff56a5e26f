package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/apzuk3/agentd/session/internal/live"
	"github.com/apzuk3/agentd/session/internal/phase"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/internal/retry"
	"github.com/apzuk3/agentd/session/store"
)

// The passes of a recovery over the open turns. Turns that work come first, so that turns that only wait
// do not take their room. Suspects come last, one at a time.
const (
	passWorking  = iota // turns that work at once, and those that are quarantined
	passBeside          // turns that wait, and may have agents that work
	passSuspects        // turns that may have killed the process
	passes
)

// recoverInterval is the wait before a recovery retries turns that failed because of the store.
const recoverInterval = time.Minute

// recovery is the progress of a recovery through the open turns.
type recovery struct {
	pass   int
	after  string // the last session of this pass so far
	beside bool   // there are turns for passBeside
	seen   bool   // each open turn was visited once, for Manager.clientsLost
	full   bool   // before seen: a turn found no room
	failed bool   // a turn failed because of the store
}

// Recover resumes the turns that were running when the last server on this store stopped. As many run as
// the limit allows; the others are resumed as those end. Turns that wait for a client are left until one
// attaches. A turn that was running at several deaths of the process is failed: see
// Limits.QuarantineAfter.
//
// Recover also starts the sweep, which from then on expires turns after Limits.Retention and drops
// prompts that a fork has inherited. It is called once, before the first Start. With Owners it resumes only what they
// offer, from then on until the manager stops.
func (m *Manager) Recover(ctx context.Context) error {
	if err := m.indexAll(ctx); err != nil {
		return err
	}
	r := &recovery{}
	if m.owners != nil { // which offer what is due
		m.closeForks(ctx)
		return m.startSweep(ctx, r, true)
	}
	done, err := m.recoverOn(ctx, r)
	if err == nil {
		err = m.recoverGoals(ctx)
	}
	if err != nil {
		return err
	}
	m.closeForks(ctx)
	return m.startSweep(ctx, r, done)
}

// startSweep starts what goes on after Recover.
func (m *Manager) startSweep(ctx context.Context, r *recovery, done bool) error {
	sweepCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.draining {
		stop()
		return nil
	}
	m.endSweep = stop
	m.turns.Go(func() { m.sweep(sweepCtx) })
	switch {
	case m.front:
	case m.owners != nil:
		m.turns.Go(func() { m.adopt(sweepCtx) })
		m.turns.Go(func() { m.tend(sweepCtx) })
	case !done || r.failed:
		m.turns.Go(func() { m.recoverRest(sweepCtx, r) })
	}
	return nil
}

// recoverRest continues a recovery whenever there is room for a turn.
func (m *Manager) recoverRest(ctx context.Context, r *recovery) {
	tick := time.NewTicker(recoverInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.room:
		case <-tick.C:
			if r.pass == passes {
				*r = recovery{seen: true}
			}
		}
		done, err := m.recoverOn(ctx, r)
		if err != nil {
			r.failed = true
			m.log.LogAttrs(ctx, slog.LevelWarn, "open turns cannot be read, some do not go on yet",
				slog.String("error", err.Error()))
		}
		if done && !r.failed {
			return
		}
	}
}

// recoverOn resumes open turns until the limit of running turns is reached. It reports whether it has
// visited all of them.
func (m *Manager) recoverOn(ctx context.Context, r *recovery) (done bool, err error) {
	for r.pass < passes {
		heads, err := m.store.OpenTurns(ctx, r.after, live.ReadPage)
		if err != nil {
			return false, fmt.Errorf("session: find open turns: %w", err)
		}
		for _, head := range heads {
			err := m.recoverTurn(ctx, r, head)
			blocked := errors.Is(err, errNoRoom) || errors.Is(err, errSuspectRuns)
			if blocked && r.seen {
				return false, nil
			}
			r.full = r.full || blocked
			if err != nil && !blocked && !refusal.IsGone(err) {
				r.failed = r.failed || errors.Is(err, retry.ErrUnavailable)
				m.log.LogAttrs(ctx, slog.LevelWarn, "a turn is left open", slog.String("session", head.ID),
					slog.String("turn", head.OpenTurn), slog.String("error", err.Error()))
			}
			r.after = head.ID
		}
		if len(heads) < live.ReadPage {
			if r.after = ""; !r.seen && r.full {
				r.seen = true
				continue
			}
			r.pass, r.seen = r.pass+1, true
			if r.pass == passBeside && !r.beside {
				r.pass++
			}
		}
	}
	return true, nil
}

// recoverTurn resumes, quarantines or skips an open turn, by the pass.
func (m *Manager) recoverTurn(ctx context.Context, r *recovery, head store.Head) error {
	suspect := m.probation.Suspected(head.Attempts) && !m.probation.Quarantined(head.Attempts)
	mine := suspect == (r.pass == passSuspects)
	if head.Waits || r.seen && !mine {
		return nil
	}
	ref, err := m.acquireKey(ctx, head.ID)
	if err != nil {
		return err
	}
	s := ref.Value
	if mine && suspect && m.probation.Busy(s) { // resume would refuse it, and signal room for the next try
		m.release(ref)
		return errSuspectRuns
	}
	s.Resuming.Lock()
	defer s.Resuming.Unlock()
	if s.Inherits() {
		defer m.release(ref)
		return m.closeInherited(ctx, s)
	}
	if !r.seen {
		m.clientsLost(s)
	}
	prospect := s.Prospect()
	if m.probation.Quarantined(s.AttemptsNow()) {
		prospect = phase.Works
	}
	later := prospect == phase.OnlyWaits || prospect == phase.MayWork && r.pass == passWorking
	if !mine || s.RunningOrOver() != nil || later {
		r.beside = r.beside || prospect == phase.MayWork
		m.release(ref)
		return nil
	}
	_, err = m.resume(ctx, ref, nil)
	return err
}
