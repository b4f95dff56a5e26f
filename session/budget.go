package session

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
)

const codeBudget = agentdv1.ErrorCode_ERROR_CODE_BUDGET_EXHAUSTED

// Proto returns the protocol's form.
func (b Budget) Proto() *agentdv1.Budget {
	out := &agentdv1.Budget{ModelCalls: b.ModelCalls, Tokens: b.Tokens, CostUsd: b.Cost.Dollars()}
	if b.Wall > 0 {
		out.WallTime = durationpb.New(b.Wall)
	}
	return out
}

// least returns what both budgets allow.
func (b Budget) least(o Budget) Budget {
	if b.ModelCalls == 0 || o.ModelCalls != 0 && o.ModelCalls < b.ModelCalls {
		b.ModelCalls = o.ModelCalls
	}
	if b.Tokens == 0 || o.Tokens != 0 && o.Tokens < b.Tokens {
		b.Tokens = o.Tokens
	}
	if b.Cost == 0 || o.Cost != 0 && o.Cost < b.Cost {
		b.Cost = o.Cost
	}
	if b.Wall == 0 || o.Wall != 0 && o.Wall < b.Wall {
		b.Wall = o.Wall
	}
	return b
}

// check refuses what is not an amount.
func (b Budget) check(field string) error {
	if b.ModelCalls < 0 || b.Tokens < 0 || b.Wall < 0 || b.Cost < 0 {
		return fault.Errorf(fault.Invalid, "%s: an amount must be a number that is not negative", field).
			Breaking(field, fault.RuleRange)
	}
	return nil
}

// spent is what has been taken of a budget.
type spent struct {
	calls, tokens int64
	cost          NanoUSD
	wall          time.Duration
}

// exhausted says which part of a budget is used up, or nil. whose is "turn" or
// "session".
func (b Budget) exhausted(whose string, s spent) error {
	var used string
	var limit fault.Limit
	switch {
	case b.ModelCalls > 0 && s.calls >= b.ModelCalls:
		used = fmt.Sprintf("%d of %d model calls", s.calls, b.ModelCalls)
		limit = fault.Limit{Name: "model_calls", Value: b.ModelCalls, Received: s.calls}
	case b.Tokens > 0 && s.tokens >= b.Tokens:
		used = fmt.Sprintf("%d of %d tokens", s.tokens, b.Tokens)
		limit = fault.Limit{Name: "tokens", Value: b.Tokens, Received: s.tokens}
	case b.Cost > 0 && s.cost >= b.Cost:
		used = fmt.Sprintf("%v of %v US dollars", s.cost, b.Cost)
		limit = fault.Limit{Name: "cost_nano_usd", Value: int64(b.Cost), Received: int64(s.cost)}
	case b.Wall > 0 && s.wall >= b.Wall:
		used = fmt.Sprintf("%v of %v of time", s.wall.Round(time.Millisecond), b.Wall)
		limit = fault.Limit{Name: "wall_time_ms", Value: b.Wall.Milliseconds(), Received: s.wall.Milliseconds()}
	default:
		return nil
	}
	limit.Name = whose + "_" + limit.Name
	e := fault.Errorf(codeBudget, "the %s's budget is used up: %s", whose, used)
	e.Limit = &limit
	return e
}

// sessionBudgetLocked is what the session may spend while a turn runs whose request came
// with asked, or with none. A budget of the session's own holds for all of its turns; a
// request bounds its own turn further, and lifts nothing. In a session without one, the
// last that a request came with holds for the turns that follow too.
func (s *Session) sessionBudgetLocked(asked *Budget) Budget {
	switch {
	case s.own != Budget{} && asked != nil:
		return s.own.least(*asked).least(s.limits.SessionBudget)
	case s.own != Budget{}:
		return s.own.least(s.limits.SessionBudget)
	case asked != nil:
		return asked.least(s.limits.SessionBudget)
	default:
		return s.asked.least(s.limits.SessionBudget)
	}
}

// sessionBudgetNowLocked is what the session of a turn that runs may spend by now.
func (s *Session) sessionBudgetNowLocked(t *Turn) Budget {
	if t != s.turn || s.lastSpec == nil {
		return t.spec.SessionBudget
	}
	return s.sessionBudgetLocked(s.lastSpec.SessionBudget)
}

// setOwn has the session be as an update has made it. A new budget holds at once, also
// for the turn that runs: see [Session.exhaustedLocked].
func (s *Session) setOwn(info Info) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.archived = info.Archived
	if s.own == info.Budget {
		return
	}
	s.own = info.Budget
	if s.turn != nil {
		disarm(&s.turn.wall) // the time that is left may be another
		s.reconcileLocked()
	}
}

// spentLocked is what the turn and the session have taken so far.
func (s *Session) spentLocked(t *Turn) (turn, session spent) {
	ran := time.Since(t.began)
	turn = spent{calls: t.begun, tokens: t.usage.Total, cost: t.usage.Cost, wall: ran}
	session = spent{
		calls:  s.index.usage.Calls - t.usage.Calls + t.begun,
		tokens: s.index.usage.Total,
		cost:   s.index.usage.Cost,
		wall:   s.wall + ran,
	}
	return turn, session
}

// exhaustedLocked says which budget leaves no room for another model call.
func (s *Session) exhaustedLocked(t *Turn) error {
	turn, session := s.spentLocked(t)
	if err := t.spec.Budget.exhausted("turn", turn); err != nil {
		return err
	}
	return s.sessionBudgetNowLocked(t).exhausted("session", session)
}

// lateLocked says whose time is used up, or nil.
func (s *Session) lateLocked(t *Turn) error {
	turn, session := s.spentLocked(t)
	if err := (Budget{Wall: t.spec.Budget.Wall}).exhausted("turn", turn); err != nil {
		return err
	}
	return Budget{Wall: s.sessionBudgetNowLocked(t).Wall}.exhausted("session", session)
}
