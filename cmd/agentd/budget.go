package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/internal/daemon"
)

// budgetFlag is a budget as a flag has it: "calls=100,tokens=2000000,cost=5,time=30m",
// each part at most once and above 0; what is left out has no bound.
type budgetFlag daemon.Budget

// of returns the budget as package client has it.
func (b budgetFlag) of() client.Budget {
	m := daemon.Budget(b).Proto()
	return client.Budget{
		ModelCalls: m.GetModelCalls(),
		Tokens:     m.GetTokens(),
		CostUSD:    m.GetCostUsd(),
		WallTime:   m.GetWallTime().AsDuration(),
	}
}

// String is the budget as UnmarshalText takes it.
func (b budgetFlag) String() string {
	var parts []string
	if b.ModelCalls > 0 {
		parts = append(parts, fmt.Sprint("calls=", b.ModelCalls))
	}
	if b.Tokens > 0 {
		parts = append(parts, fmt.Sprint("tokens=", b.Tokens))
	}
	if b.Cost > 0 {
		parts = append(parts, fmt.Sprint("cost=", b.Cost.Dollars()))
	}
	if b.Wall > 0 {
		parts = append(parts, fmt.Sprint("time=", b.Wall))
	}
	return strings.Join(parts, ",")
}

// newBudgetFlag is a budget that takes the place of another one; "none" takes that away.
type newBudgetFlag budgetFlag

// UnmarshalText reads a flag's value.
func (b *newBudgetFlag) UnmarshalText(text []byte) error {
	*b = newBudgetFlag{}
	if string(text) == "none" {
		return nil
	}
	return (*budgetFlag)(b).UnmarshalText(text)
}

// UnmarshalText reads a flag's value.
func (b *budgetFlag) UnmarshalText(text []byte) error {
	*b = budgetFlag{}
	seen := map[string]bool{}
	for part := range strings.SplitSeq(string(text), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		if seen[name] {
			return fmt.Errorf("%q is there twice", name)
		}
		seen[name] = true
		var err error
		var positive bool
		switch name {
		case "calls":
			b.ModelCalls, err = strconv.ParseInt(value, 10, 64)
			positive = b.ModelCalls > 0
		case "tokens":
			b.Tokens, err = strconv.ParseInt(value, 10, 64)
			positive = b.Tokens > 0
		case "cost":
			var dollars float64
			dollars, err = strconv.ParseFloat(value, 64)
			b.Cost, positive = daemon.BudgetUSD(dollars), dollars > 0 && dollars < 1e12
		case "time":
			b.Wall, err = time.ParseDuration(value)
			positive = b.Wall > 0
		default:
			return fmt.Errorf("%q: want calls=N, tokens=N, cost=DOLLARS and time=DURATION, separated by commas", part)
		}
		if err != nil || !positive {
			return fmt.Errorf("%q: want an amount above 0", part)
		}
	}
	return nil
}
