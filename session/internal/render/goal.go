package render

import (
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/internal/team"
	"github.com/apzuk3/agentd/session/record"
)

// goal renders what has happened to the session's goal.
func (v *view) goal(fact any) {
	ev := &agentdv1.GoalEvent{SessionId: v.sessionID}
	switch f := fact.(type) {
	case *record.GoalStarted:
		ev.GoalId = f.ID
		ev.Event = &agentdv1.GoalEvent_Started{Started: &agentdv1.GoalStarted{
			Goal: f.Goal, Resumed: f.Resumed, Turns: f.Totals.Turns, StartedBy: f.By,
		}}
	case *record.GoalCheckpointed:
		ev.GoalId = f.ID
		c := &agentdv1.GoalCheckpointed{
			Turns: f.Totals.Turns, TurnId: f.Turn, InputTokens: f.Totals.Input, OutputTokens: f.Totals.Output,
			CostUsd: f.Totals.Cost.Dollars(), StopReason: f.Stop, DoneDetail: f.Detail, FinalText: f.Final,
			Wait: f.Wait, Failure: f.Failure, Goal: f.Goal, ContinuationPrompt: f.Continuation,
		}
		if !f.Until.IsZero() {
			c.WaitUntil = timestamppb.New(f.Until)
		}
		ev.Event = &agentdv1.GoalEvent_Checkpointed{Checkpointed: c}
	case *record.GoalPaused:
		ev.GoalId = f.ID
		ev.Event = &agentdv1.GoalEvent_Paused{Paused: &agentdv1.GoalPaused{PausedBy: f.By}}
	case *record.GoalResumed:
		ev.GoalId = f.ID
		ev.Event = &agentdv1.GoalEvent_Resumed{Resumed: &agentdv1.GoalResumed{Action: f.Action, ResumedBy: f.By}}
	case *record.GoalEnded:
		ev.GoalId = f.ID
		ev.Event = &agentdv1.GoalEvent_Ended{Ended: &agentdv1.GoalEnded{
			Reason: f.Reason, Status: f.Status(), Turns: f.Totals.Turns, InputTokens: f.Totals.Input,
			OutputTokens: f.Totals.Output, CostUsd: f.Totals.Cost.Dollars(), FinalText: f.Final, DoneDetail: f.Detail,
			Message: f.Message, Duration: durationpb.New(f.Took),
		}}
	case *record.ChildSpawned:
		ev.Event = &agentdv1.GoalEvent_ChildSpawned{ChildSpawned: &agentdv1.ChildSpawned{
			Name: f.Name, SessionId: team.SessionOf(v.sessionID, f.Name), Branch: f.Branch, Depth: int32(f.Depth),
			Goal:    f.Goal,
			MaxCost: f.Limits.Cost.Dollars(), MaxTurns: f.Limits.Turns, MaxWallclock: durationpb.New(f.Limits.Wall),
			TurnId: f.Turn,
		}}
	case *record.ChildReported:
		said := &agentdv1.ChildReported{
			Name: f.Name, SessionId: team.SessionOf(v.sessionID, f.Name), Kind: f.Kind, Text: f.Text,
			Ended: f.End != nil,
		}
		if f.End != nil {
			said.Reason, said.Turns, said.CostUsd = f.End.Reason, f.End.Totals.Turns, f.End.Totals.Cost.Dollars()
			said.Tokens = f.End.Totals.Input + f.End.Totals.Output
		}
		ev.Event = &agentdv1.GoalEvent_ChildReported{ChildReported: said}
	case *record.MessageInjected:
		ev.Event = &agentdv1.GoalEvent_Message{Message: &agentdv1.GoalMessage{Text: f.Text, SentBy: f.By}}
	}
	if v.hidden() {
		return
	}
	turn := v.turnID
	if v.over { // who attaches to a turn by it would find nothing behind its end
		turn = ""
	}
	v.send(position.Start, turn, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_Goal{Goal: ev}})
}
