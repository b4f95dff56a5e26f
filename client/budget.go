package client

import (
	"math"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// Budget bounds what a turn or a session may spend; a zero field is no bound. A session
// has one of its own from [NewSessionInfo] or [SessionUpdate]; see [WithSessionBudget].
// It is checked before each model call, so what is under way may overshoot it.
// When it is used up, the turn fails with BUDGET_EXHAUSTED: what it has produced
// is kept, [Error].Usage says what it has used, and the session can continue. A
// server may have limits of its own; the smaller one holds.
type Budget struct {
	// ModelCalls counts model calls, also those that failed.
	ModelCalls int64
	// Tokens counts all tokens as the providers report them.
	Tokens int64
	// CostUSD is in US dollars. A tree with a model whose price the server does not
	// know is refused.
	CostUSD float64
	// WallTime is from the start of the turn, waiting included; of a session the
	// sum over its turns. When it is over no model call begins and nothing is waited
	// for; a model call that is under way may finish, and if that was all that the
	// turn needed, it completes. At most a year.
	WallTime time.Duration
}

// maxWallTime is the protocol's.
const maxWallTime = 365 * 24 * time.Hour

// WithBudget bounds what the turn may spend.
func WithBudget(b Budget) TurnOption {
	return option{useRun, func(c *runConfig) { c.budget = c.checked("client.WithBudget", b) }}
}

// WithSessionBudget bounds what the session may spend from its beginning, this turn
// included. A session with a budget of its own, see [NewSessionInfo] and
// [SessionUpdate], is bounded by both in this turn, amount for amount the smaller one.
// In a session without one it holds for the turns that follow too, until another one is
// given; the zero Budget lifts it.
func WithSessionBudget(b Budget) PromptOption {
	return option{useRun, func(c *runConfig) { c.sessionBudget = c.checked("client.WithSessionBudget", b) }}
}

// checked returns the budget as it is sent, or fails the run.
func (c *runConfig) checked(option string, b Budget) *agentdv1.Budget {
	out, err := b.checked(option)
	if err != nil {
		c.failf(err)
	}
	return out
}

// checked returns the budget as it is sent; what names it in the error.
func (b Budget) checked(what string) (*agentdv1.Budget, error) {
	switch {
	case b.ModelCalls < 0 || b.Tokens < 0 || !(b.CostUSD >= 0) || math.IsInf(b.CostUSD, 0):
		return nil, errorf(ErrInvalidRequest, "%s: amounts must be numbers of at least 0, got %+v", what, b)
	case b.WallTime < 0 || b.WallTime > maxWallTime:
		return nil, errorf(ErrInvalidRequest, "%s: WallTime must be between 0 and %s, got %s",
			what, maxWallTime, b.WallTime)
	}
	out := &agentdv1.Budget{ModelCalls: b.ModelCalls, Tokens: b.Tokens, CostUsd: b.CostUSD}
	if b.WallTime > 0 {
		out.WallTime = durationpb.New(b.WallTime)
	}
	return out, nil
}

// budgetOf is the zero Budget for nil.
func budgetOf(m *agentdv1.Budget) Budget {
	return Budget{
		ModelCalls: m.GetModelCalls(),
		Tokens:     m.GetTokens(),
		CostUSD:    m.GetCostUsd(),
		WallTime:   m.GetWallTime().AsDuration(),
	}
}
