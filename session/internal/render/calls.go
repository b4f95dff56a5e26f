package render

import (
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/record"
)

// call renders a tool call: as a request for the client that it is offered to, as an
// announcement for any other client; or as what a person is asked about it.
func (v *view) call(slot int, c record.ToolCall, offered []string) {
	v.calls = append(v.calls, c)
	if c.Asks != nil {
		i := slices.IndexFunc(v.asking.Pending, func(in *index.Interaction) bool {
			return in.Call.ID == c.ID
		})
		v.requests(slot, v.asking.Pending[i])
		return
	}
	if !slices.Contains(offered, c.ID) {
		if v.hidden() {
			return
		}
		v.lineage = lineageOf(c.Branch)
		v.kept(slot, slot, func() *agentdv1.RunResponse {
			return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_ToolCallAnnounced{
				ToolCallAnnounced: &agentdv1.ToolCallAnnounced{
					SessionId: v.sessionID, ToolCallId: c.ID, ToolName: c.Name, ToolInput: string(c.Input),
					AgentPath: c.Path,
				},
			}}
		})
		return
	}
	if pos := position.Of(v.rec.Seq, slot); pos > v.at {
		v.requested[c.ID] = true
		// Also while its prompt waits to be injected.
		v.kept(slot, requestKey+slot, func() *agentdv1.RunResponse { return v.request(c) })
	}
}

// requests renders that a person is asked.
func (v *view) requests(slot int, in *index.Interaction) {
	v.lineage = lineageOf(in.Call.Branch)
	v.emit(slot, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_InteractionRequested{
		InteractionRequested: &agentdv1.InteractionRequested{Interaction: in.Proto()},
	}})
}

// resolved renders that an interaction has ended. A client that runs the call and has asked about it receives it also
// if the turn is hidden.
func (v *view) resolved(slot int, in *index.Interaction) {
	if v.hidden() && !(in.Raised() && v.requested[in.Call.ID]) {
		return
	}
	v.lineage = lineageOf(in.Call.Branch)
	v.send(slot, v.turnID, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_InteractionResolved{
		InteractionResolved: &agentdv1.InteractionResolved{Interaction: in.Proto()},
	}})
}

func (v *view) request(c record.ToolCall) *agentdv1.RunResponse {
	below := v.trace.Below(v.turnID, c.ID)
	return &agentdv1.RunResponse{Lineage: lineageOf(c.Branch), Response: &agentdv1.RunResponse_ToolCall{
		ToolCall: &agentdv1.RunResponse_ToolCallRequest{
			SessionId: v.sessionID, ToolCallId: c.ID, ToolName: c.Name, ToolInput: string(c.Input), AgentPath: c.Path,
			Traceparent: below.Parent, Tracestate: below.State, Metadata: v.metadata,
		},
	}}
}

// offer renders the request of a call whose position is past: the client has attached, or the
// call was handed over to it.
func (v *view) offer(c record.ToolCall) {
	if v.requested[c.ID] || !v.isOpen(c.ID) {
		return
	}
	v.requested[c.ID] = true
	v.finishJoin()
	m := v.request(c)
	m.Seq, m.TurnId, m.Replayed = v.at, v.turnID, true
	v.out = append(v.out, m)
}

// isOpen reports whether the client knows a call that clients can run and that has no result.
func (v *view) isOpen(id string) bool {
	return slices.ContainsFunc(v.calls, func(c record.ToolCall) bool { return c.ID == id && c.Asks == nil })
}

// settled renders the result of a call. A client that has received the request receives it also
// if the turn is hidden, so that it does not run the tool any longer.
func (v *view) settled(f *record.ToolResult) {
	defer delete(v.requested, f.CallID)
	defer delete(v.reported, f.CallID)
	i := slices.IndexFunc(v.calls, func(c record.ToolCall) bool { return c.ID == f.CallID })
	if i >= 0 {
		v.lineage = lineageOf(v.calls[i].Branch)
	}
	if f.Outcome == record.Returned && i >= 0 && (v.requested[f.CallID] || !v.hidden()) {
		v.kept(position.Calls, position.Calls, func() *agentdv1.RunResponse { return v.result(v.calls[i], f) })
	}
	if i >= 0 {
		v.calls = slices.Delete(v.calls, i, i+1)
	}
	if f.Outcome != record.Returned {
		v.canceled(position.Calls, f.CallID, f.Error)
	}
}

func (v *view) result(c record.ToolCall, f *record.ToolResult) *agentdv1.RunResponse {
	r := &agentdv1.ToolCallAnswered{
		SessionId: v.sessionID, ToolCallId: c.ID, ToolName: c.Name, AgentPath: c.Path,
		Parts: f.Parts, CreatedBy: f.By, Warnings: warnings("", f.Warnings),
	}
	if f.Output != nil {
		r.Result = &agentdv1.ToolCallAnswered_Output{Output: *f.Output}
	} else {
		r.Result = &agentdv1.ToolCallAnswered_Error{Error: f.Error}
	}
	return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_ToolCallAnswered{ToolCallAnswered: r}}
}

// canceled renders that a call has ended without a result of a client.
func (v *view) canceled(slot int, callID, reason string) {
	m := &agentdv1.RunResponse{Response: &agentdv1.RunResponse_ToolCallCanceled{
		ToolCallCanceled: &agentdv1.ToolCallCanceled{SessionId: v.sessionID, ToolCallId: callID, Reason: reason},
	}}
	if v.requested[callID] || !v.hidden() {
		v.send(slot, v.turnID, m)
	}
}

// unserved renders, once for each call, that no client has its tool. The message has no
// position.
func (v *view) unserved(u Unserved) {
	if v.reported[u.Call.ID] || v.hidden() || !v.isOpen(u.Call.ID) {
		return
	}
	if v.reported == nil {
		v.reported = map[string]bool{}
	}
	v.reported[u.Call.ID] = true
	v.finishJoin()
	m := &agentdv1.RunResponse{Response: &agentdv1.RunResponse_ToolCallUnserved{
		ToolCallUnserved: &agentdv1.ToolCallUnserved{
			SessionId: v.sessionID, ToolCallId: u.Call.ID, ToolName: u.Call.Name, AgentPath: u.Call.Path,
			ExpireTime: timestamppb.New(u.Expires),
		},
	}}
	m.TurnId, m.Lineage = v.turnID, lineageOf(u.Call.Branch)
	v.out = append(v.out, m)
}

// warnings returns the protocol's form of warnings; in is put before their fields.
func warnings(in string, list []record.Warning) []*agentdv1.Warning {
	var out []*agentdv1.Warning
	for _, w := range list {
		out = append(out, w.Proto(in))
	}
	return out
}
