package record

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

// Least returns what both budgets allow.
func (b Budget) Least(o Budget) Budget {
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

// Check refuses what is not an amount.
func (b Budget) Check(field string) error {
	if b.ModelCalls < 0 || b.Tokens < 0 || b.Wall < 0 || b.Cost < 0 {
		return fault.Errorf(fault.Invalid, "%s: an amount must be a number that is not negative", field).
			Breaking(field, fault.RuleRange)
	}
	return nil
}

// Spent is what has been taken of a budget.
type Spent struct {
	Calls, Tokens int64
	Cost          NanoUSD
	Wall          time.Duration
}

// Exhausted says which part of a budget is used up, or nil. whose is "turn" or "session".
func (b Budget) Exhausted(whose string, s Spent) error {
	var used string
	var limit fault.Limit
	switch {
	case b.ModelCalls > 0 && s.Calls >= b.ModelCalls:
		used = fmt.Sprintf("%d of %d model calls", s.Calls, b.ModelCalls)
		limit = fault.Limit{Name: "model_calls", Value: b.ModelCalls, Received: s.Calls}
	case b.Tokens > 0 && s.Tokens >= b.Tokens:
		used = fmt.Sprintf("%d of %d tokens", s.Tokens, b.Tokens)
		limit = fault.Limit{Name: "tokens", Value: b.Tokens, Received: s.Tokens}
	case b.Cost > 0 && s.Cost >= b.Cost:
		used = fmt.Sprintf("%v of %v US dollars", s.Cost, b.Cost)
		limit = fault.Limit{Name: "cost_nano_usd", Value: int64(b.Cost), Received: int64(s.Cost)}
	case b.Wall > 0 && s.Wall >= b.Wall:
		used = fmt.Sprintf("%v of %v of time", s.Wall.Round(time.Millisecond), b.Wall)
		limit = fault.Limit{Name: "wall_time_ms", Value: b.Wall.Milliseconds(), Received: s.Wall.Milliseconds()}
	default:
		return nil
	}
	limit.Name = whose + "_" + limit.Name
	e := fault.Errorf(codeBudget, "the %s's budget is used up: %s", whose, used)
	e.Limit = &limit
	return e
}
