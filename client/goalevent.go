package client

import (
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// GoalStatus is how a goal is.
type GoalStatus string

// How a goal may be. One of a newer server may be another one.
const (
	GoalRunning   GoalStatus = "running"   // a turn of it is under way, or it waits: see Goal.Wait
	GoalPaused    GoalStatus = "paused"    // it was paused; a turn that was under way then may still be
	GoalStopped   GoalStatus = "stopped"   // it was stopped
	GoalCompleted GoalStatus = "completed" // an agent has called the done tool
	GoalFailed    GoalStatus = "failed"    // a limit was reached, or a turn has failed
)

// GoalReason is why a goal has ended.
type GoalReason string

// Why a goal may have ended. One of a newer server may be another one.
const (
	GoalReasonCompleted          GoalReason = "completed"            // an agent has called the done tool
	GoalReasonMaxTurns           GoalReason = "max_turns_exceeded"   // it has made as many turns as it may
	GoalReasonMaxTokens          GoalReason = "max_tokens_exceeded"  //nolint:gosec // it has used up its tokens
	GoalReasonMaxCost            GoalReason = "max_cost_exceeded"    // it has spent what it may
	GoalReasonWallclock          GoalReason = "wallclock_exceeded"   // it has taken as long as it may
	GoalReasonCanceled           GoalReason = "context_cancelled"    // it was stopped, or its turn was canceled
	GoalReasonRetryPolicyAborted GoalReason = "retry_policy_aborted" // a turn failed, or nobody said how to go on
	GoalReasonDeferred           GoalReason = "deferred"             // it has not ended: it waits for a later turn
)

// GoalWait is what a goal waits for between two turns.
type GoalWait string

// What a goal may wait for. One of a newer server may be another one.
const (
	GoalWaitHold    GoalWait = "hold"    // for GoalProceed, before the next turn
	GoalWaitAsk     GoalWait = "ask"     // for GoalRetry, GoalSkip or GoalAbort, after a turn that has failed
	GoalWaitTimer   GoalWait = "timer"   // for the time that an agent has named
	GoalWaitBackoff GoalWait = "backoff" // for a while, after several turns in a row that have failed
)

// GoalEventKind is what has happened to a goal.
type GoalEventKind string

// What may happen to a goal.
const (
	GoalEventStarted      GoalEventKind = "started"      // it has begun
	GoalEventCheckpointed GoalEventKind = "checkpointed" // where it stands: after a turn, and when it begins to wait
	GoalEventPaused       GoalEventKind = "paused"       // no turn of it begins any more
	GoalEventResumed      GoalEventKind = "resumed"      // it goes on
	GoalEventEnded        GoalEventKind = "ended"        // it has ended
	GoalEventMessage      GoalEventKind = "message"      // a message for its next turn has come

	GoalEventChildSpawned  GoalEventKind = "child_spawned"  // an agent has spawned a child
	GoalEventChildReported GoalEventKind = "child_reported" // a child has reported something, or has ended
)

// GoalEvent says that something has happened to a goal of the session. Kind says what, and which other fields say more.
type GoalEvent struct {
	// GoalID names the goal; empty for a message.
	GoalID string
	// Kind is what has happened; empty where a newer server says something else.
	Kind GoalEventKind
	// By is who has started, paused or resumed it, or has sent the message.
	By string
	// Goal is what is to be reached, when it starts and in a checkpoint; Continuation is the prompt of its other turns.
	Goal, Continuation string
	// Resumed is true when it starts where an earlier one has ended.
	Resumed bool
	// Turns are its turns that have ended, and the others what they have used.
	Turns                     int
	InputTokens, OutputTokens int64
	CostUSD                   float64
	// FinalText is what the last turn said last, and DoneDetail what was said with the done tool.
	FinalText, DoneDetail string
	// EndedTurn is the turn with whose end the checkpoint is; empty when it begins to wait later.
	EndedTurn string
	// Wait is what it waits for, and WaitUntil until when.
	Wait      GoalWait
	WaitUntil time.Time
	// Failure is why the turn has failed; empty if it has not.
	Failure string
	// Reason is why it has ended, and Status how it is then.
	Reason GoalReason
	Status GoalStatus
	// Action is that with which it was resumed, such as "proceed".
	Action string
	// Message is more about the end, or the message that has come.
	Message string
	// Duration is how long it took.
	Duration time.Duration
	// Child is what has happened to a child; nil for anything else.
	Child *ChildEvent
}

func (*GoalEvent) eventData() {}

// goalEventOf translates what has happened to a goal.
func goalEventOf(m *agentdv1.GoalEvent) *GoalEvent {
	e := &GoalEvent{GoalID: m.GetGoalId()}
	switch r := m.GetEvent().(type) {
	case *agentdv1.GoalEvent_Started:
		e.Kind, e.Goal, e.Resumed = GoalEventStarted, r.Started.GetGoal(), r.Started.GetResumed()
		e.By, e.Turns = r.Started.GetStartedBy(), int(r.Started.GetTurns())
	case *agentdv1.GoalEvent_Checkpointed:
		c := r.Checkpointed
		e.Kind, e.Turns, e.EndedTurn = GoalEventCheckpointed, int(c.GetTurns()), c.GetTurnId()
		e.InputTokens, e.OutputTokens, e.CostUSD = c.GetInputTokens(), c.GetOutputTokens(), c.GetCostUsd()
		e.Reason, e.DoneDetail, e.FinalText = goalReasonOf(c.GetStopReason()), c.GetDoneDetail(), c.GetFinalText()
		e.Wait, e.WaitUntil, e.Failure = goalWaitOf(c.GetWait()), timeOf(c.GetWaitUntil()), c.GetFailure()
		e.Goal, e.Continuation = c.GetGoal(), c.GetContinuationPrompt()
	case *agentdv1.GoalEvent_Paused:
		e.Kind, e.By = GoalEventPaused, r.Paused.GetPausedBy()
	case *agentdv1.GoalEvent_Resumed:
		e.Kind, e.By = GoalEventResumed, r.Resumed.GetResumedBy()
		e.Action = wordOf(r.Resumed.GetAction(), "GOAL_ACTION_")
	case *agentdv1.GoalEvent_Ended:
		x := r.Ended
		e.Kind, e.Reason, e.Status = GoalEventEnded, goalReasonOf(x.GetReason()), goalStatusOf(x.GetStatus())
		e.Turns, e.InputTokens, e.OutputTokens = int(x.GetTurns()), x.GetInputTokens(), x.GetOutputTokens()
		e.CostUSD, e.FinalText, e.DoneDetail = x.GetCostUsd(), x.GetFinalText(), x.GetDoneDetail()
		e.Message, e.Duration = x.GetMessage(), x.GetDuration().AsDuration()
	case *agentdv1.GoalEvent_Message:
		e.Kind, e.Message, e.By = GoalEventMessage, r.Message.GetText(), r.Message.GetSentBy()
	case *agentdv1.GoalEvent_ChildSpawned:
		e.Kind, e.Child = GoalEventChildSpawned, childSpawnedOf(r.ChildSpawned)
	case *agentdv1.GoalEvent_ChildReported:
		e.Kind, e.Child = GoalEventChildReported, childReportedOf(r.ChildReported)
	}
	return e
}

func goalReasonOf(r agentdv1.GoalReason) GoalReason {
	return GoalReason(wordOf(r, "GOAL_REASON_"))
}

func goalStatusOf(s agentdv1.GoalStatus) GoalStatus {
	return GoalStatus(wordOf(s, "GOAL_STATUS_"))
}

func goalWaitOf(w agentdv1.GoalWait) GoalWait { return GoalWait(wordOf(w, "GOAL_WAIT_")) }
