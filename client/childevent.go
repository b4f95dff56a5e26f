package client

import (
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// ChildEvent is what has happened to a child of the session: an agent that another one has spawned, and which works in
// the background towards a goal in a session of its own.
type ChildEvent struct {
	// Name is the child's, unique among the children of the session, and SessionID names the session of its goal.
	Name, SessionID string
	// Branch is where it is in the tree of sessions, and Depth how many parents are above it; both when it is spawned.
	Branch string
	Depth  int
	// Goal is what it is to reach, MaxCostUSD what it may spend (0 is no limit), MaxTurns how many turns it may make,
	// and MaxWallclock how long it may take; when it is spawned.
	Goal         string
	MaxCostUSD   float64
	MaxTurns     int
	MaxWallclock time.Duration
	// TurnID is the turn in which it was spawned.
	TurnID string
	// Report is what the report is about: "" is an alert, "started" says that its goal has begun; "completed",
	// "failed" or "stopped". Text is what it says.
	Report, Text string
	// Ended is true if its goal has ended, Reason says why, and the others are what it has used then, with its own
	// children.
	Ended   bool
	Reason  GoalReason
	Turns   int
	Tokens  int64
	CostUSD float64
}

func childSpawnedOf(m *agentdv1.ChildSpawned) *ChildEvent {
	return &ChildEvent{
		Name: m.GetName(), SessionID: m.GetSessionId(), Branch: m.GetBranch(), Depth: int(m.GetDepth()),
		Goal: m.GetGoal(), MaxCostUSD: m.GetMaxCost(), MaxTurns: int(m.GetMaxTurns()),
		MaxWallclock: m.GetMaxWallclock().AsDuration(), TurnID: m.GetTurnId(),
	}
}

func childReportedOf(m *agentdv1.ChildReported) *ChildEvent {
	return &ChildEvent{
		Name: m.GetName(), SessionID: m.GetSessionId(), Report: m.GetKind(), Text: m.GetText(), Ended: m.GetEnded(),
		Reason: goalReasonOf(m.GetReason()), Turns: int(m.GetTurns()), Tokens: m.GetTokens(), CostUSD: m.GetCostUsd(),
	}
}
