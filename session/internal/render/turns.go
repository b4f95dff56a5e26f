package render

import (
	"slices"
	"strings"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/record"
)

// begun renders the start of a turn; left are the warnings about what its request has left out.
func (v *view) begun(left []record.Warning, of *record.GoalTurn) {
	m := &agentdv1.RunResponse_ExecuteResponse{SessionId: v.sessionID, Warnings: warnings("execute.", left)}
	if of != nil {
		m.GoalId, m.GoalTurn = of.ID, of.N
	}
	v.emit(position.Start, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_Execute{Execute: m}})
}

// queued renders that a prompt waits. Its client receives that, whatever else is hidden.
func (v *view) queued(f *record.TurnQueued) {
	m := &agentdv1.RunResponse{Response: &agentdv1.RunResponse_TurnQueued{
		TurnQueued: &agentdv1.TurnQueued{
			SessionId: v.sessionID, UserPrompt: f.Prompt, UserParts: f.Parts, Inject: f.Inject, CreatedBy: f.By,
			Ahead: uint32(min(f.Ahead, 1<<20)),
		},
	}}
	if v.only == v.rec.TurnID || !v.hidden() {
		v.send(position.Start, v.rec.TurnID, m)
	}
}

// injected renders that a prompt has become a message of the turn. For the client that has sent
// it the turn begins here.
func (v *view) injected(ev *record.Event) {
	if v.only == ev.Injected {
		v.injectedInto = v.turnID
		v.begun(nil, nil) // what was left out of its request would not count for this turn
	}
	v.emit(position.User, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_MessageInjected{
		MessageInjected: &agentdv1.MessageInjected{
			SessionId: v.sessionID, UserPrompt: ev.Text, UserParts: ev.Parts, QueuedTurnId: ev.Injected,
			CreatedBy: ev.InjectedBy,
		},
	}})
}

// end renders the end of a turn, and before it the ends of all that is open in the turn. asking
// are the interactions that end with it.
func (v *view) end(f *record.TurnEnded, asking []*index.Interaction) {
	for i, c := range v.calls {
		slot := position.Calls + min(i, position.Close-position.Calls-1)
		own := func(in *index.Interaction) bool { return in.Call.ID == c.ID && !in.Raised() }
		if at := slices.IndexFunc(asking, own); at >= 0 {
			v.resolved(slot, asking[at])
		} else {
			v.canceled(slot, c.ID, "the turn ended")
		}
	}
	raised := slices.DeleteFunc(slices.Clone(asking), func(in *index.Interaction) bool { return !in.Raised() })
	for i, in := range raised {
		v.resolved(position.Calls+min(len(v.calls)+i, position.Close-position.Calls-1), in)
	}
	for _, path := range f.Spoke {
		v.speaker(path)
	}
	slices.SortStableFunc(v.speakers, func(a, b *speaker) int { return strings.Compare(a.key, b.key) })
	for i, s := range v.speakers {
		v.close(position.Close+min(i, position.Agents-position.Close-1), s)
	}
	v.endAgents(f)
	if f.Code != 0 {
		v.emit(position.Error, f.Failure(v.turnID).Response(v.sessionID))
	}
	end := &agentdv1.RunResponse_EndResponse{
		SessionId:    v.sessionID,
		UsageSummary: v.usage.Summary(),
		Completed:    f.Completed,
	}
	if f.Reason != "" {
		end.Reason = &f.Reason
	}
	if f.Receipt != nil {
		end.Receipt = f.Receipt.Proto()
	}
	if f.Completed && v.output != "" {
		end.StructuredOutput = logjson.Structured(v.output)
	}
	v.emit(position.End, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_End{End: end}})
}
