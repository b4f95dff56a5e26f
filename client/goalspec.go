package client

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// NoTurnLimit is a [GoalSpec].MaxTurns.
const NoTurnLimit = -1

// RetryDecision is what follows a turn of a goal that has failed.
type RetryDecision string

// What may follow a turn that has failed. Turns that are retried or skipped count.
const (
	AbortGoal RetryDecision = "abort" // the goal ends
	RetryTurn RetryDecision = "retry" // the next turn has the same prompt
	SkipTurn  RetryDecision = "skip"  // the next turn has the continuation prompt
)

// GoalSpec says what a goal is, and how far it may go. A zero field is no limit, or what a server does by default.
type GoalSpec struct {
	// SessionID is the session, "" a new one. With Create it is made if there is none.
	SessionID string
	Create    bool
	// Agent is the tree, or AgentRef one that the server keeps. Without both: that of the session's last turn.
	Agent    *Agent
	AgentRef AgentRef
	// Goal is what is to be reached: the prompt of the first turn. Continuation is that of the others, "" "continue".
	Goal, Continuation string
	// DoneTool is the tool with which an agent says that the goal is reached, "" is report_done, and DoneDescription
	// what models read about it, "" is a text of the server's.
	DoneTool, DoneDescription string
	// Schedule gives agents the tool schedule_next_turn, with which they say when the next turn begins. MaxDefer bounds
	// how far ahead that may be.
	Schedule bool
	MaxDefer time.Duration

	// MaxTurns is how many turns there may be, 0 is 50, and [NoTurnLimit] no limit.
	MaxTurns int
	// MaxInputTokens, MaxOutputTokens and MaxCostUSD are what all turns may use. A tree with a model whose price is not
	// known is refused with MaxCostUSD.
	MaxInputTokens, MaxOutputTokens int64
	MaxCostUSD                      float64
	// MaxWallclock is the time from the start of the goal, waits included; PerTurnTimeout that of each turn.
	MaxWallclock, PerTurnTimeout time.Duration

	// OnFailure is what follows a turn that has failed, "" is AbortGoal: the server does it, also while this program
	// does not run.
	OnFailure RetryDecision
	// RetryPolicy is asked in place of OnFailure: err is what the turn has failed with, and attempt how many turns in a
	// row have failed, from 1. Without an answer the goal ends after 30 seconds, so this program has to be there.
	RetryPolicy func(err error, attempt int) RetryDecision
	// BeforeTurn is called before each turn, after the limits were checked, with its number from 1; its error ends the
	// goal as retry_policy_aborted, and stands in [GoalResult].Err. It has 30 seconds. ctx ends with the handle.
	BeforeTurn func(ctx context.Context, n int) error

	// LeaveDeferred ends the handle, and not the goal, when the goal begins to wait for a time that an agent has named:
	// its result has the reason deferred, and NextWake. A handle of [Client.FollowGoal] waits for a time that was named
	// before.
	LeaveDeferred bool
}

// WithProgress has f see each event of the turns of a goal, in order and once, with the number of the turn from 1. It
// is called by one goroutine, which waits for it.
func WithProgress(f func(turn int, event *Event)) GoalOption {
	return option{0, func(c *runConfig) { c.goalProgress = f }}
}

// proto is the message, with what each turn runs.
func (g *GoalSpec) proto(execute *agentdv1.RunRequest_ExecuteRequest) (*agentdv1.StartGoalRequest, error) {
	req := &agentdv1.StartGoalRequest{
		Execute: execute, Goal: g.Goal, ContinuationPrompt: g.Continuation,
		MaxInputTokens: g.MaxInputTokens, MaxOutputTokens: g.MaxOutputTokens, MaxCost: g.MaxCostUSD,
		MaxWallclock: spanOf(g.MaxWallclock), PerTurnTimeout: spanOf(g.PerTurnTimeout), HoldTurns: g.BeforeTurn != nil,
	}
	if g.DoneTool != "" || g.DoneDescription != "" {
		req.DoneTool = &agentdv1.StartGoalRequest_DoneTool{Name: g.DoneTool, Description: g.DoneDescription}
	}
	if g.Schedule {
		req.Schedule = &agentdv1.StartGoalRequest_Schedule{MaxDefer: spanOf(g.MaxDefer)}
	}
	switch {
	case g.MaxTurns == NoTurnLimit:
		req.MaxTurns = new(int32(0))
	case g.MaxTurns < 0 || g.MaxTurns > 1<<31-1:
		return nil, errorf(ErrInvalidRequest,
			"client.GoalSpec.MaxTurns: want client.NoTurnLimit, or 0 to %d, got %d", 1<<31-1, g.MaxTurns)
	case g.MaxTurns > 0:
		req.MaxTurns = new(int32(g.MaxTurns))
	}
	switch {
	case g.MaxDefer != 0 && !g.Schedule:
		return nil, errorf(ErrInvalidRequest, "client.GoalSpec.MaxDefer is for a goal with Schedule")
	case g.RetryPolicy != nil && g.OnFailure != "":
		return nil, errorf(ErrInvalidRequest, "client.GoalSpec has OnFailure and a RetryPolicy: give one of them")
	case g.RetryPolicy != nil:
		req.OnFailure = agentdv1.StartGoalRequest_ON_FAILURE_ASK
	case g.OnFailure != "":
		n := numberOf(string(g.OnFailure), "ON_FAILURE_", agentdv1.StartGoalRequest_OnFailure_value)
		if req.OnFailure = agentdv1.StartGoalRequest_OnFailure(n); req.OnFailure.Descriptor().Values().ByNumber(
			req.OnFailure.Number()) == nil || g.OnFailure == "ask" {
			return nil, errorf(ErrInvalidRequest, "client.GoalSpec.OnFailure: want client.AbortGoal, client.RetryTurn "+
				"or client.SkipTurn, got %.40q", string(g.OnFailure))
		}
	}
	return req, nil
}

// spanOf is nil for no time at all.
func spanOf(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// GoalInfo is a goal as a server knows it.
type GoalInfo struct {
	// SessionID and ID name it. One that was resumed has a new ID.
	SessionID, ID string
	// Goal is what is to be reached.
	Goal string
	// Status is how it is, and Reason why it has ended.
	Status GoalStatus
	Reason GoalReason
	// Turns are its turns that have ended, and the others what they have used, with those from before it was resumed.
	// CostUSD is without the UnpricedCalls, those whose price is not known.
	Turns                     int
	InputTokens, OutputTokens int64
	CostUSD                   float64
	UnpricedCalls             int64
	// FinalText is what the last turn said last, and DoneDetail what was said with the done tool.
	FinalText, DoneDetail string
	// TurnID is the turn that is under way, "" for none.
	TurnID string
	// Wait is what it waits for, and WaitUntil when that ends.
	Wait      GoalWait
	WaitUntil time.Time
	// Holder is the server that drives it, as HOST/PID/RANDOM; "" when it has ended, and in lists.
	Holder string
	// WaitingMessages are how many messages wait for its next turn.
	WaitingMessages int
	// Message is why its last turn has failed, or why it ended; "" if neither.
	Message string
	// StartTime is when it was started, or resumed, and EndTime when it has ended; zero before. Duration is how long it
	// took, or has taken so far.
	StartTime, EndTime time.Time
	Duration           time.Duration
	// Cursor is what [WithCursor] takes to begin with the goal; "" is the beginning of the session.
	Cursor string

	message *agentdv1.Goal
}

// Proto returns the message that it was made from.
func (g *GoalInfo) Proto() *agentdv1.Goal { return proto.CloneOf(g.message) }

// HasEnded reports whether it has ended.
func (g *GoalInfo) HasEnded() bool { return g.Status != GoalRunning && g.Status != GoalPaused }

func goalInfoOf(m *agentdv1.Goal) *GoalInfo {
	if m == nil {
		return nil
	}
	return &GoalInfo{
		SessionID: m.GetSessionId(), ID: m.GetGoalId(), Goal: m.GetGoal(), Status: goalStatusOf(m.GetStatus()),
		Reason: goalReasonOf(m.GetReason()), Turns: int(m.GetTurns()), InputTokens: m.GetInputTokens(),
		OutputTokens: m.GetOutputTokens(), CostUSD: m.GetCostUsd(), UnpricedCalls: m.GetUnpricedCalls(),
		FinalText: m.GetFinalText(), DoneDetail: m.GetDoneDetail(), TurnID: m.GetTurnId(),
		Wait: goalWaitOf(m.GetWait()), WaitUntil: timeOf(m.GetWaitUntil()), Holder: m.GetHolder(),
		WaitingMessages: int(m.GetWaitingMessages()), Message: m.GetMessage(),
		StartTime: timeOf(m.GetStartTime()), EndTime: timeOf(m.GetEndTime()),
		Duration: m.GetDuration().AsDuration(), Cursor: m.GetCursor(), message: m,
	}
}
