package live

import (
	"fmt"
	"slices"
	"time"

	"github.com/apzuk3/agentd/session/internal/alarm"
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
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return t.started
}

// CheckTimers returns what of the timers in force does not follow from the phases, or the other way round.
// Nothing may happen meanwhile.
func (s *Session) CheckTimers() (wrong []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	check := func(t *Turn, what string, a *alarm.Alarm, wanted bool) {
		if a.IsSet() != wanted {
			wrong = append(wrong, fmt.Sprintf("turn %s is %v: its timer %s is set: %v, want %v", t.id, t.phase, what, a.IsSet(), wanted))
		}
	}
	turns := slices.Clone(s.queued)
	if s.turn != nil {
		turns = append(turns, s.turn)
	}
	for _, t := range turns {
		last := t == s.turn
		left, bounded := s.wallLeftLocked(t)
		leaves := s.cancelsIfLeftLocked(t)
		check(t, "deadline", &t.deadline, last && t.runs() && !t.expired && !t.stalled && !s.awaitsClientLocked(t) && !t.awaitsPerson())
		check(t, "leave", &t.leave, !last && s.dropsIfLeftLocked(t) || last && leaves && t.stop == nil)
		check(t, "idle", &t.idle, last && s.suspendsIfIdleLocked(t) && !leaves)
		check(t, "wall", &t.wall, last && bounded && left > 0)
		check(t, "calm", &t.calm, last && s.isCalmLocked(t))
		for _, p := range t.pending {
			waits := p.phase == callOffered || p.phase == callHandover || p.phase == callUnserved && !p.unserved
			if may := waits || p.phase == callUnserved; p.alarm.IsSet() && !may || !p.alarm.IsSet() && waits && t.runs() {
				wrong = append(wrong, fmt.Sprintf("turn %s is %v: call %s is %v, its timer is set: %v", t.id, t.phase, p.call.ID, p.phase, p.alarm.IsSet()))
			}
			if p.open() && p.phase != callOpen && !t.runs() {
				wrong = append(wrong, fmt.Sprintf("turn %s is %v: call %s is %v", t.id, t.phase, p.call.ID, p.phase))
			}
		}
	}
	return wrong
}
