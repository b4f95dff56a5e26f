package session

import (
	"time"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// sessionBudgetLocked is what the session may spend while a turn runs whose request came
// with asked, or with none. A budget of the session's own holds for all of its turns; a
// request bounds its own turn further, and lifts nothing. In a session without one, the
// last that a request came with holds for the turns that follow too.
func (s *Session) sessionBudgetLocked(asked *record.Budget) record.Budget {
	switch {
	case s.own != record.Budget{} && asked != nil:
		return s.own.Least(*asked).Least(s.limits.SessionBudget)
	case s.own != record.Budget{}:
		return s.own.Least(s.limits.SessionBudget)
	case asked != nil:
		return asked.Least(s.limits.SessionBudget)
	default:
		return s.asked.Least(s.limits.SessionBudget)
	}
}

// sessionBudgetNowLocked is what the session of a turn that runs may spend by now.
func (s *Session) sessionBudgetNowLocked(t *Turn) record.Budget {
	if t != s.turn || s.lastSpec == nil {
		return t.spec.SessionBudget
	}
	return s.sessionBudgetLocked(s.lastSpec.SessionBudget)
}

// setOwn has the session be as an update has made it. A new budget holds at once, also
// for the turn that runs: see [Session.exhaustedLocked].
func (s *Session) setOwn(info store.Info) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.archived = info.Archived
	if s.own == info.Budget {
		return
	}
	s.own = info.Budget
	if s.turn != nil {
		s.turn.wall.Stop() // the time that is left may be another
		s.reconcileLocked()
	}
}

// spentLocked is what the turn and the session have taken so far.
func (s *Session) spentLocked(t *Turn) (turn, session record.Spent) {
	ran := time.Since(t.began)
	turn = record.Spent{Calls: t.begun, Tokens: t.usage.Total, Cost: t.usage.Cost, Wall: ran}
	session = record.Spent{
		Calls:  s.index.Usage.Calls - t.usage.Calls + t.begun,
		Tokens: s.index.Usage.Total,
		Cost:   s.index.Usage.Cost,
		Wall:   s.wall + ran,
	}
	return turn, session
}

// exhaustedLocked says which budget leaves no room for another model call.
func (s *Session) exhaustedLocked(t *Turn) error {
	turn, session := s.spentLocked(t)
	if err := t.spec.Budget.Exhausted("turn", turn); err != nil {
		return err
	}
	return s.sessionBudgetNowLocked(t).Exhausted("session", session)
}

// lateLocked says whose time is used up, or nil.
func (s *Session) lateLocked(t *Turn) error {
	turn, session := s.spentLocked(t)
	if err := (record.Budget{Wall: t.spec.Budget.Wall}).Exhausted("turn", turn); err != nil {
		return err
	}
	return record.Budget{Wall: s.sessionBudgetNowLocked(t).Wall}.Exhausted("session", session)
}
