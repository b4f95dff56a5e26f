package live

import (
	"time"

	"github.com/apzuk3/agentd/session/internal/tenant"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// sessionBudgetLocked returns what the session may spend during a turn whose request has the session
// budget asked, or none. The session's own budget applies to all of its turns; a request can only tighten
// it, for its own turn. If the session has no budget of its own, that of a request also applies to the
// turns that follow.
func (s *Session) sessionBudgetLocked(asked *record.Budget) record.Budget {
	switch {
	case s.own != record.Budget{} && asked != nil:
		return s.own.Least(*asked).Least(s.limits().SessionBudget)
	case s.own != record.Budget{}:
		return s.own.Least(s.limits().SessionBudget)
	case asked != nil:
		return asked.Least(s.limits().SessionBudget)
	default:
		return s.asked.Least(s.limits().SessionBudget)
	}
}

// sessionBudgetNowLocked returns the current session budget of a running turn.
func (s *Session) sessionBudgetNowLocked(t *Turn) record.Budget {
	if t != s.turn || s.lastSpec == nil {
		return t.spec.SessionBudget
	}
	return s.sessionBudgetLocked(s.lastSpec.SessionBudget)
}

// SetOwn applies an update of the session. A new budget applies at once, also to the running turn: see
// [Session.exhaustedLocked].
func (s *Session) SetOwn(info store.Info) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.archived = info.Archived
	if s.own == info.Budget {
		return
	}
	s.own = info.Budget
	if s.turn != nil {
		s.turn.wall.Stop() // the time that is left may have changed
		s.reconcileLocked()
	}
}

// spentLocked returns what the turn and the session have spent so far. What their children may spend counts.
func (s *Session) spentLocked(t *Turn) (turn, session record.Spent) {
	ran := time.Since(t.began)
	turn = record.Spent{Calls: t.begun, Tokens: t.usage.Total, Cost: t.usage.Cost, Wall: ran}
	session = record.Spent{
		Calls:  s.index.Usage.Calls - t.usage.Calls + t.begun,
		Tokens: s.index.Usage.Total,
		Cost:   s.index.Usage.Cost,
		Wall:   s.wall + ran,
	}
	children := s.index.Team()
	below, all := children.Held(t.id), children.Held("")
	turn.Tokens, turn.Cost = turn.Tokens+below.Tokens, turn.Cost+below.Cost
	session.Tokens, session.Cost = session.Tokens+all.Tokens, session.Cost+all.Cost
	return turn, session
}

// exhaustedLocked returns an error if a budget leaves no room for another model call.
func (s *Session) exhaustedLocked(t *Turn) error {
	turn, session := s.spentLocked(t)
	if err := t.spec.Budget.Exhausted("turn", turn); err != nil {
		return err
	}
	return s.sessionBudgetNowLocked(t).Exhausted("session", session)
}

// lateLocked returns an error if the wall time of a budget is used up.
func (s *Session) lateLocked(t *Turn) error {
	turn, session := s.spentLocked(t)
	if err := (record.Budget{Wall: t.spec.Budget.Wall}).Exhausted("turn", turn); err != nil {
		return err
	}
	return record.Budget{Wall: s.sessionBudgetNowLocked(t).Wall}.Exhausted("session", session)
}

// Limit sets whose turn a spec is, and what the turn may spend by the budgets of its request.
func (s *Session) Limit(spec *record.Spec, turn record.Budget, session *record.Budget) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limitLocked(spec, &record.TurnStarted{Budget: turn, SessionBudget: session})
}

// limitLocked sets whose turn a spec is, and what it may spend.
func (s *Session) limitLocked(spec *record.Spec, f *record.TurnStarted) {
	spec.Tenant = tenant.Of(s.key)
	spec.Budget = f.Budget.Least(s.limits().Budget)
	spec.SessionBudget = s.sessionBudgetLocked(f.SessionBudget)
}
