package live

import (
	"context"
	"time"

	"github.com/apzuk3/agentd/session/internal/alarm"
	"github.com/apzuk3/agentd/session/internal/halt"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/phase"
)

// A running turn that only waits for results lets its engine go after a while: it hibernates. Its phase, its offers,
// its timers and its clients stay as they are. When a response has all of its results, or the turn is to end, the
// engine runs once more, from the log, as it does when a turn is resumed.

// hibernateAfter is how long a turn must only wait before it hibernates: longer in a long session, so that what the
// engine has to read again is little beside the wait.
func (s *Session) hibernateAfter() time.Duration {
	after := s.limits().HibernateAfter
	return after + after/1000*time.Duration(min(s.seq, 10_000))
}

// hibernation is the part of an attempt that is about it. Session.mu protects it.
type hibernation struct {
	alarm alarm.Alarm             // the turn only waits
	let   context.CancelCauseFunc // ends the run of the engine; nil before the first
	begun bool                    // the engine was let go, or is about to be
	due   bool                    // it has to run again
	wake  func()                  // has it run again; nil while it still runs
	busy  int                     // answeredLocked when another agent had work to do; 0 for never
}

// answered is a number that changes with what a turn waits for.
func (t *Turn) answered() int { return t.opened + len(t.results) }

// hibernatesLocked reports whether a turn only waits for results, and may hibernate.
func (s *Session) hibernatesLocked(t *Turn) bool {
	a := t.attempt
	return t.phase == phase.TurnRunning && t.stop == nil && !a.asleep.begun && a.awaited > 0 &&
		a.awaited >= len(t.pending) && len(a.modelCalls)+a.held == 0 && a.asleep.busy != t.answered()
}

// hibernateLocked lets the engine of a turn go, unless something is being written or another agent may work.
func (s *Session) hibernateLocked(t *Turn) {
	if s.flushing || len(s.waiting) > 0 || t.recordsResult() || !s.hibernatesLocked(t) {
		return // if it still waits, the alarm is set again
	}
	var paths [][]string
	for _, p := range t.pending {
		paths = append(paths, p.call.Path)
	}
	if !t.spec.Blocked(paths) {
		t.asleep.busy = t.answered()
		return
	}
	s.tail.Shorten()
	t.asleep.begun = true
	t.asleep.let(halt.ErrSuspended)
}

// wakeLocked has the engine of a turn that hibernates run again.
func (a *attempt) wakeLocked() {
	h := &a.asleep
	h.due = h.begun
	if h.due && h.wake != nil {
		h.wake()
		h.wake = nil
	}
}

// Hibernates reports whether the engine has returned because the turn hibernates. Then wake is called once, with the
// session locked, when the attempt has to be driven again: it must not wait.
func (d *Driver) Hibernates(ctx context.Context, wake func()) bool {
	a := d.a
	return lock.Get(&a.t.s.mu, func() bool {
		if !a.asleep.begun {
			return false
		}
		stop := context.AfterFunc(ctx, func() { lock.Do(&a.t.s.mu, a.wakeLocked) })
		a.asleep.wake = func() {
			stop()
			wake()
		}
		if a.asleep.due {
			a.wakeLocked()
		}
		return true
	})
}

// runsAgain marks that the engine begins to run; let ends its run.
func (d *Driver) runsAgain(let context.CancelCauseFunc) {
	t := d.a.t
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	h := &d.a.asleep
	if h.begun {
		d.a.begun = t.called // a call that was let go with the engine is no call
		d.run = &Run{s: t.s, t: t, a: d.a, state: d.run.state}
	}
	h.let, h.begun, h.due, h.wake = let, false, false, nil
}
