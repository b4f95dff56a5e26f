package managed

import (
	"slices"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// askTool is the name under which a model's question to a person is a custom tool.
const askTool = "ask_user"

// called tells a call of a tool of the client.
func (f *fold) called(c *call, input string) {
	if known := f.calls[c.id]; known != nil { // it was approved
		known.asks = ""
		return
	}
	kind := "agent.custom_tool_use"
	fields := []field{{"name", c.name}, {"input", jsonObject(input)}}
	if c.gated {
		kind = "agent.tool_use"
		fields = append(fields, field{"evaluated_permission", "ask"})
	}
	f.put(slotSelf, kind, c.path, append(fields, field{"session_thread_id", threadID(f.sessionID, c.path)})...)
	if f.turn == "" {
		return
	}
	c.event = f.last().id
	f.calls[c.id] = c
	f.order = append(f.order, c)
	if f.expected > 0 {
		f.expected--
	}
	if f.expected == 0 && f.held != nil {
		f.emit(f.held)
		f.held = nil
	}
}

// asked tells a question to a person, but for those that a client asks about a call that it runs.
func (f *fold) asked(in *agentdv1.Interaction) {
	if in.GetN() > 0 {
		return
	}
	c := &call{id: in.GetToolCallId(), asks: in.GetId(), path: in.GetAgentPath()}
	if in.GetKind() == agentdv1.InteractionKind_INTERACTION_KIND_APPROVAL {
		c.name, c.gated = in.GetToolName(), true
		f.called(c, in.GetToolInput())
		return
	}
	c.name = askTool
	question := map[string]any{"question": in.GetQuestion()}
	if len(in.GetChoices()) > 0 {
		question["choices"] = in.GetChoices()
	}
	f.called(c, string(marshal(question)))
}

// resolved tells what a person has said.
func (f *fold) resolved(in *agentdv1.Interaction) {
	c := f.calls[in.GetToolCallId()]
	if in.GetN() > 0 || c == nil || c.done {
		return
	}
	if in.GetStatus() == agentdv1.InteractionStatus_INTERACTION_STATUS_CANCELED {
		f.lose(c, "nobody waits for it any more")
		return
	}
	f.emit(f.resolution(c, in))
	if in.GetResolution().GetApprove() == nil {
		f.settle(c)
	}
}

// resolution makes the event of a resolution.
func (f *fold) resolution(c *call, in *agentdv1.Interaction) *event {
	r := in.GetResolution()
	thread := field{"session_thread_id", threadID(f.sessionID, c.path)}
	if !c.gated {
		text := r.GetAnswer() + r.GetDeny().GetReason()
		return f.event(slotSelf, "user.custom_tool_result", c.path, field{"custom_tool_use_id", c.event},
			field{"content", contentOf(text, nil)}, field{"is_error", r.GetDeny() != nil}, thread)
	}
	result, message := "allow", (*string)(nil)
	if d := r.GetDeny(); d != nil {
		result, message = "deny", &d.Reason
	}
	return f.event(slotSelf, "user.tool_confirmation", c.path, field{"tool_use_id", c.event},
		field{"result", result}, field{"deny_message", message}, thread)
}

// answered tells the result of a call.
func (f *fold) answered(a *agentdv1.ToolCallAnswered) {
	c := f.calls[a.GetToolCallId()]
	if c == nil || c.done {
		return
	}
	text, failed := a.GetOutput(), false
	if e, ok := a.GetResult().(*agentdv1.ToolCallAnswered_Error); ok {
		text, failed = e.Error, true
	}
	f.emit(f.result(slotSelf, c, contentOf(text, a.GetParts()), failed))
	f.settle(c)
}

// result makes the event of a result.
func (f *fold) result(slot int, c *call, content []block, failed bool) *event {
	kind, of := "user.custom_tool_result", "custom_tool_use_id"
	if c.gated {
		kind, of = "user.tool_result", "tool_use_id"
	}
	return f.event(slot, kind, c.path, field{of, c.event}, field{"content", content}, field{"is_error", failed},
		field{"session_thread_id", threadID(f.sessionID, c.path)})
}

// settle notes that a call has its result. An agent that has all of them calls its model.
func (f *fold) settle(c *call) {
	c.done = true
	a := f.agent(c.path)
	if a == nil || slices.ContainsFunc(f.order, func(o *call) bool { return !o.done && slices.Equal(o.path, c.path) }) {
		return
	}
	a.works = true
	f.wake()
	f.spanStart(a)
}

// lose notes that nobody waits for a call any more. Whether its turn ends or the model is told so shows in what comes
// next: only then it is said.
func (f *fold) lose(c *call, reason string) {
	if c == nil || c.done || slices.Contains(f.lost, c) {
		return
	}
	c.reason = reason
	f.lost = append(f.lost, c)
}

// tellLost tells that calls have ended without a result of a client. Each gets one that says so: a runner takes no
// other word for it.
func (f *fold) tellLost() {
	lost := f.lost
	f.lost = nil
	for i, c := range lost {
		c.done = true
		if slot := slotLost + i; slot < 2*slotLost {
			f.emit(f.result(slot, c, contentOf(c.reason, nil), true))
		}
	}
	for _, c := range lost {
		f.settle(c)
	}
}

// blocked reports whether the turn only waits for its client.
func (f *fold) blocked() bool {
	return f.turn != "" && f.expected == 0 && len(f.lost) == 0 &&
		slices.ContainsFunc(f.order, func(c *call) bool { return !c.done }) &&
		!slices.ContainsFunc(f.agents, func(a *agent) bool { return a.works })
}

// openIDs returns the ids of the calls without a result, in the order asked.
func (f *fold) openIDs() (ids []string) {
	for _, c := range f.order {
		if !c.done {
			ids = append(ids, c.event)
		}
	}
	return ids
}

// failedWith tells why a turn fails. Of one that has spent its budget only its end does.
func (f *fold) failedWith(turnID string, e *agentdv1.RunResponse_ErrorResponse) {
	if turnID == f.turn {
		f.failed = e
	}
	if e.GetCode() == agentdv1.ErrorCode_ERROR_CODE_BUDGET_EXHAUSTED {
		return
	}
	status := "terminal"
	if e.GetRetryable() {
		status = "exhausted"
	}
	f.put(slotError, "session.error", nil, field{"error", turnErrorOf(e.GetCode(), e.GetMessage(), status)})
}

// end tells the end of a turn. One that never began has no other events.
func (f *fold) end(turnID string, e *agentdv1.RunResponse_EndResponse) {
	if turnID != f.turn {
		return
	}
	switch {
	case e.GetReceipt() != nil: // it ends all open calls
		f.put(slotInterrupt, "user.interrupt", nil, field{"session_thread_id", nil})
	default:
		for _, c := range f.order {
			if !c.done {
				f.lose(c, "the turn has ended")
			}
		}
		f.agents = nil // none calls its model
		f.tellLost()
	}
	why := "end_turn"
	switch {
	case f.failed.GetCode() == agentdv1.ErrorCode_ERROR_CODE_BUDGET_EXHAUSTED:
		why = "budget_reached"
	case f.failed != nil:
		why = "retries_exhausted"
	}
	f.put(slotIdle, "session.status_idle", nil, field{"stop_reason", stopReason{Type: why}}, field{"stop_details", nil})
	f.running = running{}
}
