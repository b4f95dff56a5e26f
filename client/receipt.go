package client

import (
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// CancelReceipt says what was under way when a turn was ended, canceled or
// interrupted, and so what became of it.
type CancelReceipt struct {
	// AbortedModelCalls are model calls whose providers' requests were closed.
	// Text of them that was yielded stays part of the session.
	AbortedModelCalls []AbortedModelCall
	// CanceledToolCalls are calls without a result; the contexts of their
	// handlers have ended. What such a handler has done until then, or does
	// after, the models never learn.
	CanceledToolCalls []ToolCallRef
	// AnsweredToolCalls are calls asked together with those, whose results the
	// session keeps.
	AnsweredToolCalls []ToolCallRef
	// Took is from the request until nothing of the turn ran on the server.
	Took time.Duration
}

// AbortedModelCall is a model call that did not come to its end.
type AbortedModelCall struct {
	// AgentPath runs from the root of the tree to the agent whose call it was.
	AgentPath []string
	// Model is the model's name.
	Model string
	// MessageID is the message that it was writing.
	MessageID string
	// Ran is how long the call had been under way.
	Ran time.Duration
}

// ToolCallRef names a tool call.
type ToolCallRef struct {
	// ID is unique within the session.
	ID string
	// Name is the tool's.
	Name string
}

// receiptOf returns nil for none.
func receiptOf(m *agentdv1.CancelReceipt) *CancelReceipt {
	if m == nil {
		return nil
	}
	out := &CancelReceipt{
		CanceledToolCalls: refsOf(m.GetCanceledToolCalls()),
		AnsweredToolCalls: refsOf(m.GetAnsweredToolCalls()),
		Took:              m.GetTook().AsDuration(),
	}
	for _, c := range m.GetAbortedModelCalls() {
		out.AbortedModelCalls = append(out.AbortedModelCalls, AbortedModelCall{
			AgentPath: c.GetAgentPath(),
			Model:     c.GetModel(),
			MessageID: c.GetMessageId(),
			Ran:       c.GetRan().AsDuration(),
		})
	}
	return out
}

func refsOf(calls []*agentdv1.ToolCallRef) []ToolCallRef {
	var out []ToolCallRef
	for _, c := range calls {
		out = append(out, ToolCallRef{ID: c.GetToolCallId(), Name: c.GetToolName()})
	}
	return out
}
