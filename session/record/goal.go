package record

import (
	"slices"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// GoalStarted says that the session works towards a goal from here on: the server starts a turn after the other. It and
// the other records of goals are of no turn.
type GoalStarted struct {
	// ID is the goal's, unique in the session.
	ID string `json:"id"`
	// Goal is the prompt of the first turn, and Continuation that of the others.
	Goal         string `json:"goal"`
	Continuation string `json:"continuation"`
	// Prompt is that of the next turn: Continuation in a goal that goes on where an earlier one has ended.
	Prompt string `json:"prompt"`
	// Tools are what the agents of its turns have beside those of their tree.
	Tools GoalTools `json:"tools"`
	// Limits are how far it may go.
	Limits GoalLimits `json:"limits,omitzero"`
	// OnFailure says what follows a turn that has failed.
	OnFailure agentdv1.StartGoalRequest_OnFailure `json:"on_failure,omitempty"`
	// Hold has each turn wait for a caller.
	Hold bool `json:"hold,omitempty"`
	// Turn is what each turn runs: without a prompt, and without what is for the first one alone.
	Turn TurnStarted `json:"turn"`
	// First is what the first turn has besides, nil for nothing.
	First *GoalFirst `json:"first,omitempty"`
	// Resumed is true for one that goes on where an earlier one has ended, and Totals are what that one has used.
	Resumed bool       `json:"resumed,omitempty"`
	Totals  GoalTotals `json:"totals,omitzero"`
	// By is the id of the principal who has started it.
	By string `json:"by,omitempty"`
	// Parent is set in the session of a child.
	Parent *GoalParent `json:"parent,omitempty"`
}

// GoalFirst is what the first turn of a goal has.
type GoalFirst struct {
	State map[string]any          `json:"state,omitempty"`
	Temp  map[string]any          `json:"temp,omitempty"`
	Seed  []*agentdv1.SeedMessage `json:"seed,omitempty"`
}

// GoalTools are what agents of a goal have beside the tools of their tree.
type GoalTools struct {
	// Done and DoneText are the name and the description of the tool that ends the goal.
	Done     string `json:"done"`
	DoneText string `json:"done_text,omitempty"`
	// Schedules has them say when the next turn begins, at most MaxDefer ahead; 0 is as far as they like. In
	// nanoseconds.
	Schedules bool          `json:"schedules,omitempty"`
	MaxDefer  time.Duration `json:"max_defer,omitempty"`
	// Reports has them tell the parent of their session what they find.
	Reports bool `json:"reports,omitempty"`
}

// GoalLimits are how far a goal may go; 0 is no limit. Times are in nanoseconds.
type GoalLimits struct {
	Turns   int64         `json:"turns,omitempty"`
	Input   int64         `json:"input_tokens,omitempty"`
	Output  int64         `json:"output_tokens,omitempty"`
	Tokens  int64         `json:"tokens,omitempty"` // of both
	Cost    NanoUSD       `json:"cost_usd,omitempty"`
	Wall    time.Duration `json:"wall,omitempty"`
	PerTurn time.Duration `json:"per_turn,omitempty"`
}

// GoalTotals are what the turns of a goal that have ended have used.
type GoalTotals struct {
	Turns    int64   `json:"turns,omitempty"`
	Input    int64   `json:"input_tokens,omitempty"`
	Output   int64   `json:"output_tokens,omitempty"`
	Cost     NanoUSD `json:"cost_usd,omitempty"`
	Unpriced int64   `json:"unpriced_calls,omitempty"`
}

// Add returns the totals with one more turn.
func (g GoalTotals) Add(u Usage) GoalTotals {
	u = u.whole()
	return GoalTotals{
		Turns: g.Turns + 1, Input: plus(g.Input, u.Prompt), Output: plus(g.Output, u.Completion),
		Cost: plus(g.Cost, u.Cost), Unpriced: plus(g.Unpriced, u.Unpriced),
	}
}

// GoalTurn says that a turn is one of a goal.
type GoalTurn struct {
	// ID is the goal's.
	ID string `json:"id"`
	// N is the number of the turn, from 1.
	N int64 `json:"n"`
	// Prompt is that of the turn without the messages before it, if there are any.
	Prompt string `json:"prompt,omitempty"`
	// Inbox is the record of the last message that the prompt has, 0 for none.
	Inbox int64 `json:"inbox,omitempty"`
	// Tools are those of the goal.
	Tools GoalTools `json:"tools"`
}

// GoalSaid is what agents have said of their goal in a turn, with its tools.
type GoalSaid struct {
	// Done is true when the goal is reached, and Detail is what was said with it.
	Done   bool   `json:"done,omitempty"`
	Detail string `json:"detail,omitempty"`
	// Wake is when the next turn is to begin, and Prompt its prompt, "" for the continuation.
	Wake   time.Time `json:"wake,omitzero"`
	Prompt string    `json:"prompt,omitempty"`
	// Alerts are for the parent of the session.
	Alerts []GoalAlert `json:"alerts,omitempty"`
}

// Add returns what was said with what is said later. That the goal is reached stands.
func (g *GoalSaid) Add(later *GoalSaid) *GoalSaid {
	switch {
	case later == nil:
		return g
	case g == nil:
		return later
	}
	out := *later
	if g.Done && !later.Done || !later.Done && later.Wake.IsZero() {
		out = *g
	}
	out.Alerts = slices.Concat(g.Alerts, later.Alerts)
	return &out
}

// GoalCheckpointed says how a goal stands: after each turn of it, and when it begins to wait later.
type GoalCheckpointed struct {
	// ID is the goal's.
	ID string `json:"id"`
	// Turn is the turn that has ended with it, "" for none.
	Turn string `json:"turn,omitempty"`
	// Totals are those of the goal.
	Totals GoalTotals `json:"totals,omitzero"`
	// Goal and Continuation are those of GoalStarted, for who reads the newest checkpoint alone.
	Goal         string `json:"goal"`
	Continuation string `json:"continuation"`
	// Final is what the turn said last, and Detail what was said with the done tool.
	Final  string `json:"final_text,omitempty"`
	Detail string `json:"done_detail,omitempty"`
	// Stop is why the goal has ended, 0 if it has not.
	Stop agentdv1.GoalReason `json:"stop_reason,omitempty"`
	// Failure is why the turn has failed, "" if it has not, and Failures is how many in a row have.
	Failure  string `json:"failure,omitempty"`
	Failures int64  `json:"failures,omitempty"`
	// Prompt is that of the next turn.
	Prompt string `json:"prompt,omitempty"`
	// Wait is what the goal waits for, and Until when that ends.
	Wait  agentdv1.GoalWait `json:"wait,omitempty"`
	Until time.Time         `json:"until,omitzero"`
}

// GoalPaused says that no turn of the goal begins any more.
type GoalPaused struct {
	ID string `json:"id"`
	By string `json:"by,omitempty"`
}

// GoalResumed says that the goal goes on.
type GoalResumed struct {
	ID string `json:"id"`
	// Action is RESUME, PROCEED, RETRY or SKIP.
	Action agentdv1.GoalAction `json:"action"`
	By     string              `json:"by,omitempty"`
}

// GoalEnded is the end of a goal.
type GoalEnded struct {
	ID string `json:"id"`
	// Reason says why, and Message more about it; it may be "".
	Reason  agentdv1.GoalReason `json:"reason"`
	Message string              `json:"message,omitempty"`
	// Totals, Final and Detail are those of the last checkpoint.
	Totals GoalTotals `json:"totals,omitzero"`
	Final  string     `json:"final_text,omitempty"`
	Detail string     `json:"done_detail,omitempty"`
	// Took is from GoalStarted to here, in nanoseconds.
	Took time.Duration `json:"took"`
	// By is the id of the principal who has stopped it, "" if nobody has.
	By string `json:"by,omitempty"`
}

// Status is how the goal is then.
func (f *GoalEnded) Status() agentdv1.GoalStatus {
	switch f.Reason {
	case agentdv1.GoalReason_GOAL_REASON_COMPLETED:
		return agentdv1.GoalStatus_GOAL_STATUS_COMPLETED
	case agentdv1.GoalReason_GOAL_REASON_CONTEXT_CANCELLED:
		return agentdv1.GoalStatus_GOAL_STATUS_STOPPED
	default:
		return agentdv1.GoalStatus_GOAL_STATUS_FAILED
	}
}

// MessageInjected is a message for the next turn of a goal.
type MessageInjected struct {
	Text string `json:"text"`
	// Key is the idempotency key of its request, "" for none.
	Key string `json:"key,omitempty"`
	By  string `json:"by,omitempty"`
}
