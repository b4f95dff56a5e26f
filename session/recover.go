package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/internal/refusal"
	"github.com/apzuk3/agentd/session/internal/retry"
	"github.com/apzuk3/agentd/session/store"
)

// The passes of a recovery over the open turns. What works comes first, so that
// turns which only wait do not take its place; suspects come last, one at a time.
const (
	passWorking  = iota // turns that can go on now, and those that are failed
	passBeside          // turns that wait, and may work beside that
	passSuspects        // turns that the process may have died of
	passes
)

// recoverAgain is how long a recovery waits before it tries turns again that the
// store did not let go on.
const recoverAgain = time.Minute

// recovery is how far the open turns were looked through.
type recovery struct {
	pass   int
	after  string // the last session that was looked at in this pass
	beside bool   // there are turns for passBeside
	seen   bool   // each open turn was looked at once: see Manager.lost
	full   bool   // until then: there was no place for a turn
	failed bool   // the store did not let a turn go on
}

// Recover has the turns go on that were running when the last server on this
// store stopped, as many as may run; the others go on as those end. Turns that wait
// for a client are left until one attaches. A turn that was running each time when
// a server died is failed: see Limits.QuarantineAfter. Prompts that a fork has
// inherited and not dropped are dropped, now and from time to time. From then on it also ends
// turns that have waited for longer than Limits.Retention. It is called once, before
// the first Start.
func (m *Manager) Recover(ctx context.Context) error {
	if err := m.indexAll(ctx); err != nil {
		return err
	}
	r := &recovery{}
	done, err := m.recoverOn(ctx, r)
	if err != nil {
		return err
	}
	m.closeForks(ctx)
	sweepCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.draining {
		stop()
		return nil
	}
	m.endSweep = stop
	m.turns.Go(func() { m.sweep(sweepCtx) })
	if !done || r.failed {
		m.turns.Go(func() { m.recoverRest(sweepCtx, r) })
	}
	return nil
}

// recoverRest goes on with a recovery whenever a turn may start.
func (m *Manager) recoverRest(ctx context.Context, r *recovery) {
	again := time.NewTicker(recoverAgain)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.room:
		case <-again.C:
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

// recoverOn looks through the open turns until as many run as may. It reports
// whether it has seen all.
func (m *Manager) recoverOn(ctx context.Context, r *recovery) (done bool, err error) {
	for r.pass < passes {
		heads, err := m.store.OpenTurns(ctx, r.after, readPage)
		if err != nil {
			return false, fmt.Errorf("session: find open turns: %w", err)
		}
		for _, head := range heads {
			err := m.recoverTurn(ctx, r, head)
			blocked := errors.Is(err, errNoRoom) || errors.Is(err, errHeldBack)
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
		if len(heads) < readPage {
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

// recoverTurn does what is to be done about an open turn in a pass.
func (m *Manager) recoverTurn(ctx context.Context, r *recovery, head store.Head) error {
	suspect := m.probation.Suspected(head.Attempts) && !m.probation.Quarantined(head.Attempts)
	mine := suspect == (r.pass == passSuspects)
	if head.Waits || r.seen && !mine {
		return nil
	}
	h, err := m.acquire(ctx, head.ID)
	if err != nil {
		return err
	}
	s := h.Value
	if mine && suspect && m.probation.Busy(s) { // resume would refuse it, and free a place for the next try
		m.release(h)
		return errHeldBack
	}
	s.resuming.Lock()
	defer s.resuming.Unlock()
	if s.inherits() {
		defer m.release(h)
		return m.closeInherited(ctx, s)
	}
	if !r.seen {
		m.lost(s)
	}
	prospect := s.prospect()
	if m.probation.Quarantined(s.attemptsNow()) {
		prospect = works
	}
	if !mine || s.settled() != nil || prospect == onlyWaits || prospect == mayWork && r.pass == passWorking {
		r.beside = r.beside || prospect == mayWork
		m.release(h)
		return nil
	}
	_, err = m.resume(ctx, h, nil)
	return err
}

// prospect is what an open turn that runs nowhere can do without a client.
type prospect int

const (
	onlyWaits prospect = iota // nothing
	mayWork                   // it waits, and another of its agents may work
	works                     // it goes on
)

// prospect says what the open turn can do, by what is pending.
func (s *Session) prospect() prospect {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.turn == nil || s.turn.ended != nil || s.lastSpec == nil || len(s.lastSpec.OwnKeys) > 0:
		return onlyWaits
	case len(s.turn.pending) == 0, len(s.queued) > 0:
		return works
	}
	var paths [][]string
	for _, p := range s.turn.pending {
		paths = append(paths, p.call.Path)
	}
	spec, err := s.lastSpec.ReadSpec()
	if err == nil && blocked(spec.Agent, paths) {
		return onlyWaits
	}
	return mayWork
}

// blocked tells whether an agent does nothing but wait for calls: paths are those of
// the agents that have made them, from this agent on. Of agents that run at the
// same time each has to.
func blocked(a *agentdv1.Agent, paths [][]string) bool {
	var below [][]string
	for _, path := range paths {
		if len(path) == 0 || path[0] != a.GetName() {
			continue
		}
		if len(path) == 1 {
			return true // its own call
		}
		below = append(below, path[1:])
	}
	if len(below) == 0 {
		return false
	}
	waits := func(sub *agentdv1.Agent) bool { return blocked(sub, below) }
	if p := a.GetParallel(); p != nil {
		return !slices.ContainsFunc(p.GetAgents(), func(sub *agentdv1.Agent) bool { return !waits(sub) })
	}
	subs := slices.Concat(a.GetLlm().GetSubAgents(), a.GetSequential().GetAgents(), a.GetLoop().GetAgents())
	return slices.ContainsFunc(subs, waits)
}
