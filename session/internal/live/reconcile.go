package live

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/halt"
	"github.com/apzuk3/agentd/session/internal/phase"
	"github.com/apzuk3/agentd/session/internal/render"
	"github.com/apzuk3/agentd/session/record"
)

// calmAfter is how long a suspect must only wait for results before it is cleared: by then it would have
// killed the process.
const calmAfter = 10 * time.Second

// reconcileLocked derives offers, timers and wake-ups from the phases of the turn and its calls, from the
// connected clients, and from what is under way. It is called when one of these has changed, and may be
// called at any time.
func (s *Session) reconcileLocked() {
	if s.follows {
		return
	}
	for _, q := range s.queued {
		if q.leave.Lacks(s.dropsIfLeftLocked(q)) {
			s.alarms.Set(&q.leave, q.cancelAt.Left(), func() { s.leftQueuedLocked(q) })
		}
	}
	t := s.turn
	if t == nil {
		return
	}
	s.reconcileCallsLocked(t)
	s.reconcileDeadlineLocked(t)
	left, bounded := s.wallLeftLocked(t)
	s.reconcileTimersLocked(t, bounded && left > 0, left)
	if !t.runs() {
		return
	}
	if bounded && left <= 0 && len(t.pending) > 0 && len(t.modelCalls) == 0 {
		// The turn waits for results, and its wall time is used up. A turn with a model call under
		// way may finish the call. A turn without pending calls is about to end, or BeginCall
		// refuses its next model call.
		t.cancel(s.lateLocked(t))
	}
	s.recordLeaveLocked(t)
	s.drainLocked()
}

// reconcileTimersLocked sets and stops the timers of a turn but for its deadline. late says that a budget
// ends the turn after left. It allocates only what a timer that it sets needs: it runs often.
func (s *Session) reconcileTimersLocked(t *Turn, late bool, left time.Duration) {
	leaves := s.cancelsIfLeftLocked(t)
	if t.leave.Lacks(leaves && t.stop == nil) {
		s.alarms.Set(&t.leave, t.cancelAt.Left(), func() { s.cancelLeftLocked(t) })
	}
	if t.idle.Lacks(s.suspendsIfIdleLocked(t) && !leaves) {
		s.alarms.Set(&t.idle, s.limits().IdleTurn, func() { s.suspendLocked(t) })
	}
	if t.wall.Lacks(late) {
		s.alarms.Set(&t.wall, left, func() {})
	}
	if t.asleep.alarm.Lacks(s.hibernatesLocked(t)) {
		s.alarms.Set(&t.asleep.alarm, s.hibernateAfter(), func() { s.hibernateLocked(t) })
	}
	if t.calm.Lacks(s.isCalmLocked(t)) {
		s.alarms.Set(&t.calm, calmAfter, func() { s.calmedLocked(t) })
	}
}

// reconcileCallsLocked offers each open call of a running turn to a client, or has it wait for one.
func (s *Session) reconcileCallsLocked(t *Turn) {
	if !t.runs() {
		for _, p := range t.pending {
			if p.open() && p.phase != phase.CallOpen {
				p.enter(s, phase.CallOpen)
			}
		}
		return
	}
	if s.drainsLocked() { // the next server offers them
		return
	}
	var unasked []*pending // a call stays with the client that has the offer
	for _, p := range t.pending {
		if p.open() && (p.owner == nil || p.phase != phase.CallOffered) {
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

// askLocked chooses the client for an open call and offers it the call. A call that enters another phase,
// or goes to another client, gets the timer of the phase. why is not empty if no client gives results any
// more.
func (s *Session) askLocked(t *Turn, p *pending, why string) {
	before := p.owner
	if p.owner == nil {
		p.owner = s.clientForLocked(p.call.Name, p.newer)
	}
	to := phase.CallUnserved
	switch {
	case p.owner != nil:
		to, p.newer = phase.CallOffered, 0
	case p.newer > 0:
		to = phase.CallHandover
	case why != "":
		to = phase.CallAbandoned
	}
	if to == p.phase && p.owner == before {
		return
	}
	p.enter(s, to)
	switch to {
	case phase.CallOffered:
		p.owner.push(render.Item{Offer: &p.call})
		p.left = t.timeout(p.call.Name)
		s.timeLocked(t, p)
	case phase.CallHandover:
		s.alarms.Set(&p.alarm, time.Until(p.leftAt.Add(s.limits().HandoverGrace)), func() { s.handOverLocked(t) })
	case phase.CallAbandoned:
		s.alarms.Set(&p.alarm, 0, func() { s.settleSoonLocked(t, p, record.Abandoned, why) })
	default:
		s.alarms.Set(&p.alarm, unservedAfter, func() { s.notifyUnservedLocked(t, p) })
	}
}

// handOverLocked releases the calls of clients that have left and not come back within the grace. It
// releases all calls of a client at once, so that they are offered in order.
func (s *Session) handOverLocked(t *Turn) {
	for _, p := range t.pending {
		if p.newer > 0 && time.Since(p.leftAt) >= s.limits().HandoverGrace {
			p.newer = 0
		}
	}
}

// settleSoonLocked settles a call without a result of a client, on a goroutine. An error means that the
// call is settled already, or that the store has failed, which ends the turn as well.
func (s *Session) settleSoonLocked(t *Turn, p *pending, outcome record.Outcome, text string) {
	s.store.Flushers.Spawn(func() { _ = s.settleAs(context.Background(), t, p.call.ID, outcome, text) })
}

// reconcileDeadlineLocked runs the deadline of the turn, except while the turn waits for an absent
// client, for a person, or for the store.
func (s *Session) reconcileDeadlineLocked(t *Turn) {
	a := t.attempt
	counts := t.runs() && !a.expired && !a.stalled && !s.awaitsClientLocked(t) && !t.awaitsPerson()
	switch {
	case counts && !a.deadline.IsSet():
		a.due = time.Now().Add(a.left)
		s.alarms.Set(&a.deadline, a.left, func() {
			a.expired = true
			a.cancel(fault.Errorf(fault.Timeout, "the turn took longer than %v", s.limits().TurnTimeout).
				Over("turn_time_ms", int(s.limits().TurnTimeout.Milliseconds()), 0))
		})
	case !counts && a.deadline.IsSet():
		a.left = max(time.Until(a.due), 1)
		a.deadline.Stop()
	}
}

// restartDeadline resets the deadline to the whole turn timeout.
func (s *Session) restartDeadline(a *attempt) {
	a.deadline.Stop()
	a.left = s.limits().TurnTimeout
}

// wallLeftLocked returns the wall time that the budgets leave to a running turn. bounded is false if no
// budget bounds it.
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

// dropsIfLeftLocked reports whether a queued turn is dropped at cancelAt if no client comes back.
func (s *Session) dropsIfLeftLocked(q *Turn) bool {
	return q.onDisconnect.Cancel && !q.cancelAt.IsZero()
}

// cancelsIfLeftLocked reports whether a running turn is canceled at cancelAt if no client comes back.
func (s *Session) cancelsIfLeftLocked(t *Turn) bool {
	return t.runs() && t.onDisconnect.Cancel && !t.cancelAt.IsZero() && !s.attendedLocked()
}

// suspendsIfIdleLocked reports whether a running turn waits for an absent client. It is suspended after
// Limits.IdleTurn.
func (s *Session) suspendsIfIdleLocked(t *Turn) bool {
	return t.phase == phase.TurnRunning && s.awaitsClientLocked(t)
}

// isCalmLocked reports whether a turn that was running when the process died only waits for results. After
// calmAfter it is cleared.
func (s *Session) isCalmLocked(t *Turn) bool {
	waits := t.awaited > 0 && t.awaited >= len(t.pending) || t.asleep.begun
	return s.attempts >= 2 && t.runs() && waits && len(t.modelCalls) == 0
}

func (s *Session) calmedLocked(t *Turn) {
	if s.isCalmLocked(t) {
		s.store.Flushers.Spawn(func() { s.host.Calmed(s) })
	}
}

// awaitsClientLocked reports whether the running turn has pending calls and no client.
func (s *Session) awaitsClientLocked(t *Turn) bool {
	return len(t.pending) > 0 && !s.attendedLocked()
}

// awaitsPerson reports whether the turn waits for a person and for nothing else.
func (t *Turn) awaitsPerson() bool {
	for _, p := range t.pending {
		if !p.isAsked() {
			return false
		}
	}
	return len(t.pending) > 0 && len(t.modelCalls) == 0
}

// recordsResult reports whether a result is on its way into the log.
func (t *Turn) recordsResult() bool {
	for _, p := range t.pending {
		if p.phase == phase.CallRecording {
			return true
		}
	}
	return false
}

// suspendLocked suspends a turn that waits, unless a client has come or a part of the turn works. If a
// prompt is queued behind it, the turn is interrupted instead, or, for a patient one, goes on waiting.
func (s *Session) suspendLocked(t *Turn) {
	switch {
	case !s.suspendsIfIdleLocked(t):
	case len(t.modelCalls) > 0, len(s.queued) > 0 && (s.asksPersonLocked() != "" || s.queued[0].waits.Patient):
	case len(s.queueing) > 0, t.recordsResult(): // a prompt or a result is being recorded
	case len(s.queued) > 0:
		t.haltLocked(Interrupted)
	default:
		t.enter(phase.TurnSuspending)
		t.cancel(halt.ErrSuspended)
	}
}
