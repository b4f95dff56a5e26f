package session

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/apzuk3/agentd/session/internal/alarm"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/store"
)

// HoldResuming keeps a session's turn from being made to run again until the
// function it returns is called.
func (m *Manager) HoldResuming(id string) (release func()) {
	s := m.sessions.Find(id).Value
	s.resuming.Lock()
	return s.resuming.Unlock
}

// Reserve makes a session look as if somebody who has just started its turn had
// not yet let go of it.
func (m *Manager) Reserve(id string) (release func()) {
	s := m.sessions.Find(id).Value
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starting = make(chan struct{})
	return s.unreserve
}

// Started returns when the turn has started.
func (t *Turn) Started() time.Time {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return t.started
}

// IndexOf is what the log of a session says of it: rows in order of their ids.
func IndexOf(ctx context.Context, db store.Store, runner Runner, info store.Info) (store.Batch, error) {
	cfg := Config{Store: db, Runner: runner, Logger: slog.New(slog.DiscardHandler), Limits: limits.Limits{}.WithDefaults()}
	s := newSession(newSessionStore(cfg, func(error) {}), runner, cfg.Limits, info.ID)
	x, rows, err := s.readIndex(ctx, info.Inherited, info.LastSeq, info.ID)
	if err != nil {
		return store.Batch{}, err
	}
	slices.SortFunc(rows, func(a, b store.Row) int { return strings.Compare(a.ID, b.ID) })
	return store.Batch{SessionID: info.ID, Rows: rows, Usage: x.Usage, LastTurn: x.Last, LastStatus: x.LastAs}, nil
}

// Users is how many hold a session in memory.
func (m *Manager) Users(id string) (n int) {
	m.sessions.Each(func(s *Session, users, _ int) {
		if s.id == id {
			n = users
		}
	})
	return n
}

// WakeReaders has those who read a session look, as if something had happened.
func (m *Manager) WakeReaders(id string) { m.rouseReaders(id) }

// Rouse has a reading look, as if something had happened.
func (w *SessionWatcher) Rouse() { w.rouse() }

// PanicOnUndrawnPhases has a change of phase panic that is not drawn.
func PanicOnUndrawnPhases() { undrawn = func(_ *Session, change string) { panic(change) } }

// CheckTimers says what is in force of the timers of all sessions that does not follow from
// their phases, or the other way round. Nothing may happen meanwhile.
func (m *Manager) CheckTimers() []string {
	var wrong []string
	m.sessions.Each(func(s *Session, _, _ int) { wrong = append(wrong, s.checkTimers()...) })
	return wrong
}

func (s *Session) checkTimers() (wrong []string) {
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

// PhasesNotDrawn are phases that a turn, or a call, that begins cannot come to.
func PhasesNotDrawn() (missing []string) {
	turns := map[turnPhase]bool{turnNew: true}
	for range turnPhaseNames {
		for from := range turns {
			for _, to := range turnTransitions[from] {
				turns[to] = true
			}
		}
	}
	for p, name := range turnPhaseNames {
		if !turns[turnPhase(p)] {
			missing = append(missing, "turn "+name)
		}
	}
	calls := map[callPhase]bool{callAsking: true}
	for p := callOpen; p <= callAbandoned; p++ {
		calls[p] = true
	}
	for range callPhaseNames {
		for from := range calls {
			for _, to := range callTransitions[from] {
				calls[to] = true
			}
		}
	}
	for p, name := range callPhaseNames {
		if !calls[callPhase(p)] {
			missing = append(missing, "call "+name)
		}
	}
	return missing
}

// EnterPhases changes phases of a turn and a call that are over, which is not drawn.
func EnterPhases(t *Turn) {
	over := newTurn(t.s, t.id)
	over.phase = turnEnded
	over.enter(turnRunning)
}
