package session

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/alarm"
	"github.com/apzuk3/agentd/session/internal/render"
	"github.com/apzuk3/agentd/session/record"
)

// calmAfter is how long a turn that only waits for results has to run before it counts as
// suspended: what it does to the process it has done by then.
const calmAfter = 10 * time.Second

// reconcileLocked brings what follows from the phases in line with them, with the clients
// that are there, and with what is under way: whom each call is asked of, which timers are
// in force, and what is woken. It is called when one of them has changed, and may be called
// at any time.
func (s *Session) reconcileLocked() {
	for _, q := range s.queued {
		s.alarms.Keep(&q.leave, s.wantsDropLocked(q), q.cancelAt.Left, func() { s.leftQueuedLocked(q) })
	}
	t := s.turn
	if t == nil {
		return
	}
	s.reconcileCallsLocked(t)
	s.reconcileDeadlineLocked(t)
	leaves := s.wantsLeaveLocked(t)
	s.alarms.Keep(&t.leave, leaves && t.stop == nil, t.cancelAt.Left, func() { s.cancelLeftLocked(t) })
	s.alarms.Keep(&t.idle, s.wantsIdleLocked(t) && !leaves, alarm.In(s.limits.IdleTurn), func() { s.suspendLocked(t) })
	left, bounded := s.wallLeftLocked(t)
	s.alarms.Keep(&t.wall, bounded && left > 0, alarm.In(left), func() {})
	s.alarms.Keep(&t.calm, s.isCalmLocked(t), alarm.In(calmAfter), func() { s.calmedLocked(t) })
	if !t.runs() {
		return
	}
	if bounded && left <= 0 && len(t.pending) > 0 && len(t.modelCalls) == 0 {
		// It waits, for tools or a person, though its time is used up. One with a model call
		// under way may finish that; one that waits for nothing is about to end, or to be
		// refused its next model call.
		t.cancel(s.lateLocked(t))
	}
	s.noteLeaveLocked(t)
}

// reconcileCallsLocked has each open call of a turn that runs asked of a client, or wait
// for one.
func (s *Session) reconcileCallsLocked(t *Turn) {
	if !t.runs() {
		for _, p := range t.pending {
			if p.open() && p.phase != callOpen {
				p.enter(s, callOpen)
			}
		}
		return
	}
	var unasked []*pending // a call that a client was asked for stays with that client
	for _, p := range t.pending {
		if p.open() && (p.owner == nil || p.phase != callOffered) {
			unasked = append(unasked, p)
		}
	}
	if len(unasked) == 0 {
		return
	}
	why := s.unattendedLocked()
	slices.SortFunc(unasked, byOrder)
	for _, p := range unasked {
		s.askLocked(t, p, why)
	}
}

// askLocked finds the client to ask for an open call. A call that comes into another phase,
// or to another client, gets the timer of the phase. why is not empty if no client can
// answer.
func (s *Session) askLocked(t *Turn, p *pending, why string) {
	before := p.owner
	if p.owner == nil {
		p.owner = s.clientForLocked(p.call.Name, p.newer)
	}
	to := callUnserved
	switch {
	case p.owner != nil:
		to, p.newer = callOffered, 0
	case p.newer > 0:
		to = callHandover
	case why != "":
		to = callAbandoned
	}
	if to == p.phase && p.owner == before {
		return
	}
	p.enter(s, to)
	switch to {
	case callOffered:
		p.owner.push(render.Item{Offer: &p.call})
		after := t.timeout(p.call.Name)
		late := fmt.Sprintf("no answer within %v", after)
		s.alarms.Set(&p.alarm, after, func() { s.settleSoonLocked(t, p, record.TimedOut, late) })
	case callHandover:
		s.alarms.Set(&p.alarm, time.Until(p.leftAt.Add(s.limits.HandoverGrace)), func() { s.handOverLocked(t) })
	case callAbandoned:
		s.alarms.Set(&p.alarm, 0, func() { s.settleSoonLocked(t, p, record.Abandoned, why) })
	default:
		s.alarms.Set(&p.alarm, unservedAfter, func() { s.notifyUnservedLocked(t, p) })
	}
}

// handOverLocked lets other clients be asked for the calls whose client has left and not
// come back within the grace; for all calls of that client at once, in order.
func (s *Session) handOverLocked(t *Turn) {
	for _, p := range t.pending {
		if p.newer > 0 && time.Since(p.leftAt) >= s.limits.HandoverGrace {
			p.newer = 0
		}
	}
}

// settleSoonLocked has a call settled without a result of a client. An error means that it
// is settled already, or that the store has failed, which the turn itself meets.
func (s *Session) settleSoonLocked(t *Turn, p *pending, outcome record.Outcome, text string) {
	s.store.flushers.Spawn(func() { _ = s.settleAs(context.Background(), t, p.call.ID, outcome, text) })
}

// reconcileDeadlineLocked bounds the time that a turn runs without waiting: for a client
// that is not there, for a person, whoever is there, or for the store.
func (s *Session) reconcileDeadlineLocked(t *Turn) {
	a := t.attempt
	counts := t.runs() && !a.expired && !a.stalled && !s.awaitsClientLocked(t) && !t.awaitsPerson()
	switch {
	case counts && !a.deadline.IsSet():
		a.due = time.Now().Add(a.left)
		s.alarms.Set(&a.deadline, a.left, func() {
			a.expired = true
			a.cancel(fault.Errorf(fault.Timeout, "the turn took longer than %v", s.limits.TurnTimeout).
				Over("turn_time_ms", int(s.limits.TurnTimeout.Milliseconds()), 0))
		})
	case !counts && a.deadline.IsSet():
		a.left = max(time.Until(a.due), 1)
		a.deadline.Stop()
	}
}

// restartDeadline gives the turn its whole time again.
func (s *Session) restartDeadline(a *attempt) {
	a.deadline.Stop()
	a.left = s.limits.TurnTimeout
}

// wallLeftLocked is how much of the time is left that its budget gives a turn which runs.
// bounded is false if it has no such budget.
func (s *Session) wallLeftLocked(t *Turn) (left time.Duration, bounded bool) {
	if !t.runs() {
		return 0, false
	}
	turn, session := s.spentLocked(t)
	left = time.Duration(math.MaxInt64)
	if b := t.spec.Budget.Wall; b > 0 {
		left = b - turn.Wall
	}
	if b := s.sessionBudgetNowLocked(t).Wall; b > 0 {
		left = min(left, b-session.Wall)
	}
	return left, left != math.MaxInt64
}

// wantsDropLocked tells whether a turn that waits for its start is dropped if no client
// comes back.
func (s *Session) wantsDropLocked(q *Turn) bool { return q.onDisconnect.Cancel && !q.cancelAt.IsZero() }

// wantsLeaveLocked tells whether a turn that runs is canceled if no client comes back.
func (s *Session) wantsLeaveLocked(t *Turn) bool {
	return t.runs() && t.onDisconnect.Cancel && !t.cancelAt.IsZero() && !s.attendedLocked()
}

// wantsIdleLocked tells whether a turn waits for a client that is not there: it is suspended
// after a while.
func (s *Session) wantsIdleLocked(t *Turn) bool {
	return t.phase == turnRunning && s.awaitsClientLocked(t)
}

// isCalmLocked tells whether a turn that the process may have died of only waits for
// results. After a while it is no suspect any more.
func (s *Session) isCalmLocked(t *Turn) bool {
	return s.attempts >= 2 && t.runs() && t.awaited > 0 && t.awaited >= len(t.pending) && len(t.modelCalls) == 0
}

func (s *Session) calmedLocked(t *Turn) {
	if s.isCalmLocked(t) {
		s.store.flushers.Spawn(func() { s.store.calmed(s) })
	}
}

// awaitsClientLocked tells whether the running turn needs a client, and none is
// there.
func (s *Session) awaitsClientLocked(t *Turn) bool {
	return len(t.pending) > 0 && !s.attendedLocked()
}

// awaitsPerson tells whether a person is all that is waited for.
func (t *Turn) awaitsPerson() bool {
	for _, p := range t.pending {
		if p.call.Asks == nil {
			return false
		}
	}
	return len(t.pending) > 0 && len(t.modelCalls) == 0
}

// recordsResult tells whether a result is on its way into the log.
func (t *Turn) recordsResult() bool {
	for _, p := range t.pending {
		if p.phase == callRecording {
			return true
		}
	}
	return false
}

// suspendLocked has a waiting turn leave memory, unless somebody came, or a part of it still
// works. Where another prompt waits for its end, it ends.
func (s *Session) suspendLocked(t *Turn) {
	switch {
	case !s.wantsIdleLocked(t):
	case len(t.modelCalls) > 0, len(s.queued) > 0 && s.asksPersonLocked() != "":
	case len(s.queueing) > 0, t.recordsResult(): // what comes is just being recorded
	case len(s.queued) > 0:
		t.haltLocked(interrupted)
	default:
		t.enter(turnSuspending)
		t.cancel(ErrSuspended)
	}
}
