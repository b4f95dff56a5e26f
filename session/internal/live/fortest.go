package live

import (
	"fmt"
	"slices"
	"time"

	"github.com/apzuk3/agentd/session/internal/alarm"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/internal/phase"
)

// What tests of a manager do with its sessions.

// HoldStart makes a session look as if somebody who has just started its turn had not yet let go of it.
func (s *Session) HoldStart() (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starting = make(chan struct{})
	return s.Unreserve
}

// StartedAt returns when a turn has started.
func StartedAt(t *Turn) time.Time {
	return lock.Get(&t.s.mu, func() time.Time { return t.started })
}

// CheckTimers returns what of the timers in force does not follow from the phases, or the other way round.
// Nothing may happen meanwhile.
func (s *Session) CheckTimers() (wrong []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	turns := slices.Clone(s.queued)
	if s.turn != nil {
		turns = append(turns, s.turn)
	}
	for _, t := range turns {
		wrong = append(wrong, s.checkTurnLocked(t)...)
		for _, p := range t.pending {
			wrong = append(wrong, p.check(t)...)
		}
	}
	return wrong
}

// checkTurnLocked is CheckTimers for the timers of a turn.
func (s *Session) checkTurnLocked(t *Turn) (wrong []string) {
	last := t == s.turn
	left, bounded := s.wallLeftLocked(t)
	leaves := last && s.cancelsIfLeftLocked(t)
	counts := t.runs() && !t.expired && !t.stalled && !s.awaitsClientLocked(t) && !t.awaitsPerson()
	for name, timer := range map[string]struct {
		is     *alarm.Alarm
		wanted bool
	}{
		"deadline": {&t.deadline, last && counts},
		"leave":    {&t.leave, !last && s.dropsIfLeftLocked(t) || leaves && t.stop == nil},
		"idle":     {&t.idle, last && s.suspendsIfIdleLocked(t) && !leaves},
		"wall":     {&t.wall, last && bounded && left > 0},
		"calm":     {&t.calm, last && s.isCalmLocked(t)},
	} {
		if is := timer.is.IsSet(); is != timer.wanted {
			wrong = append(wrong, fmt.Sprintf("turn %s is %v: its timer %s is set: %v, want %v",
				t.id, t.phase, name, is, timer.wanted))
		}
	}
	return wrong
}

// check is CheckTimers for a call.
func (p *pending) check(t *Turn) (wrong []string) {
	waits := p.phase == phase.CallOffered && len(p.asks) == 0 || p.phase == phase.CallHandover ||
		p.phase == phase.CallUnserved && !p.unserved
	is, may := p.alarm.IsSet(), waits || p.phase == phase.CallUnserved
	if is && !may || !is && waits && t.runs() {
		wrong = append(wrong, fmt.Sprintf("turn %s is %v: call %s is %v, its timer is set: %v",
			t.id, t.phase, p.call.ID, p.phase, is))
	}
	if p.open() && p.phase != phase.CallOpen && !t.runs() {
		wrong = append(wrong, fmt.Sprintf("turn %s is %v: call %s is %v", t.id, t.phase, p.call.ID, p.phase))
	}
	return wrong
}
