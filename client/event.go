package client

import (
	"encoding/json"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// Event is one thing that happened in a turn. Exactly one field is set. An
// event belongs to the caller once it was yielded.
type Event struct {
	// Started comes first: the server has recorded the turn.
	Started *Started
	// OutputChunk is a piece of an agent's text.
	OutputChunk *OutputChunk
	// StateUpdate tells about session state: first the whole of it, if there is
	// any, later what changed.
	StateUpdate *StateUpdate
	// ToolCall says that a tool of this client is about to run; informative.
	ToolCall *ToolCall
	// ToolResult says how a tool of this client ended; informative. A tool that
	// still runs when the turn ends has none.
	ToolResult *ToolResult
	// Error is a refusal that did not end the turn, such as of a late answer. It
	// is yielded once the turn has gone on.
	Error *Error
	// End comes last, unless the turn failed: then the sequence's error does.
	End *End
}

// Started says that the turn runs.
type Started struct {
	// SessionID names the session, new or continued; see [WithSessionID].
	SessionID string
}

// OutputChunk is a piece of an agent's text. The chunks of one agent that are
// not thoughts, joined, are the model's text.
type OutputChunk struct {
	// AgentPath runs from the root of the tree to the agent that speaks.
	AgentPath []string
	// Content is the text; empty in a closing chunk.
	Content string
	// Last is true once per agent and turn in which it spoke.
	Last bool
	// IsThought is true when the text is the model's thinking.
	IsThought bool
}

// StateUpdate tells about session state.
type StateUpdate struct {
	// Delta holds the keys that changed and their new values as encoding/json
	// would decode them; numbers are float64.
	Delta map[string]any
}

// ToolCall is a call of a tool of this client.
type ToolCall struct {
	// ID is unique within the session.
	ID string
	// Name is the tool's.
	Name string
	// Input holds the arguments, a JSON object in the model's own text.
	Input json.RawMessage
	// AgentPath runs from the root of the tree to the agent that called.
	AgentPath []string
}

// ToolResult is the end of a tool call. What follows from an answer is yielded
// after its ToolResult.
type ToolResult struct {
	// ID is the call's.
	ID string
	// Name is the tool's.
	Name string
	// Output is what the model sees; empty if the tool failed.
	Output string
	// Error is why the tool failed, as the model sees it; empty if it did not.
	Error string
}

// End is the end of a turn that did not fail.
type End struct {
	// Completed is true when the agent tree finished naturally, false when the
	// turn was ended or cancelled.
	Completed bool
	// Reason is why the turn ended, when it did not end by itself.
	Reason string
	// UsageSummary is what the turn used; nil if the server sent none.
	UsageSummary *agentdv1.UsageSummary
}

func chunkEvent(m *agentdv1.RunResponse_OutputChunk) *Event {
	return &Event{OutputChunk: &OutputChunk{
		AgentPath: m.GetAgentPath(),
		Content:   m.GetContent(),
		Last:      m.GetLast(),
		IsThought: m.GetIsThought(),
	}}
}

func toolCallEvent(m *agentdv1.RunResponse_ToolCallRequest) *Event {
	return &Event{ToolCall: &ToolCall{
		ID:        m.GetToolCallId(),
		Name:      m.GetToolName(),
		Input:     json.RawMessage(m.GetToolInput()),
		AgentPath: m.GetAgentPath(),
	}}
}

func toolResultEvent(m *agentdv1.RunRequest_ToolCallResponse) *Event {
	return &Event{ToolResult: &ToolResult{
		ID:     m.GetToolCallId(),
		Name:   m.GetToolName(),
		Output: m.GetOutput(),
		Error:  m.GetError(),
	}}
}

func endEvent(m *agentdv1.RunResponse_EndResponse) *Event {
	return &Event{End: &End{
		Completed:    m.GetCompleted(),
		Reason:       m.GetReason(),
		UsageSummary: m.GetUsageSummary(),
	}}
}
