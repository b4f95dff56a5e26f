package client

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// ToolCall says that a tool of this client is about to run; informative.
type ToolCall struct {
	// ID is unique within the session.
	ID string
	// Name is the tool's.
	Name string
	// Input holds the arguments, a JSON object in the model's own text.
	Input json.RawMessage
	// AgentPath runs from the root of the tree to the agent that called.
	AgentPath []string
	// Traceparent and Tracestate are the trace that the call is part of, as W3C's Trace Context has them; "" for
	// none. The context of the tool's handler has it already, for OpenTelemetry.
	Traceparent, Tracestate string
	// Metadata are those of the turn; see [WithMetadata].
	Metadata map[string]string
}

// ToolCallAnnounced is a tool call that another client is asked to run, or that has
// a result: its [ToolCallAnswered] follows. If nobody has and the other one
// leaves, this client may be asked: then a [ToolCall] follows.
type ToolCallAnnounced struct {
	// ID is unique within the session.
	ID string
	// Name is the tool's.
	Name string
	// Input holds the arguments, a JSON object in the model's own text.
	Input json.RawMessage
	// AgentPath runs from the root of the tree to the agent that called.
	AgentPath []string
}

// ToolCallUnserved says that a tool call waits and that no client is attached that has
// its tool, once it has been so for a few seconds. The call waits on: a client that
// attaches with the tool is asked.
type ToolCallUnserved struct {
	// ID is unique within the session.
	ID string
	// Name is the tool's.
	Name string
	// AgentPath runs from the root of the tree to the agent that called.
	AgentPath []string
	// ExpireTime is when the turn ends if no client with the tool attaches; zero if the
	// server does not say.
	ExpireTime time.Time
}

// ToolCallAnswered says how a tool call ended, once; informative. It is what the
// server has stored: a result of this run that is refused, or is second, yields
// none. A tool that still runs when the turn ends has none. From a server that
// does not count its messages (Seq is 0 throughout) a result of this run is
// yielded as soon as it is sent. What follows from a result is yielded after it.
type ToolCallAnswered struct {
	// ID is the call's.
	ID string
	// Name is the tool's.
	Name string
	// Output is what the model sees; empty if the tool failed.
	Output string
	// Error is why the tool failed, as the model sees it; empty if it did not.
	Error string
	// Parts are what the model sees behind Output, such as images.
	Parts []Part
	// AgentPath runs from the root of the tree to the agent that called.
	AgentPath []string
	// CreatedBy is the id of the principal whose client has returned the result, as the server knows
	// it; "" when none has.
	CreatedBy string
	// Warnings are about what of the result the server has left out, such as state that
	// its tool may not set.
	Warnings []Warning
}

// ToolCallCanceled says that a call which this client was asked for is no longer wanted;
// the context of its handler has ended.
type ToolCallCanceled struct {
	// ID is the call's.
	ID string
	// Reason is why; it may be empty.
	Reason string
}

func (*ToolCall) eventData()          {}
func (*ToolCallAnnounced) eventData() {}
func (*ToolCallUnserved) eventData()  {}
func (*ToolCallAnswered) eventData()  {}
func (*ToolCallCanceled) eventData()  {}

func toolCallOf(m *agentdv1.RunResponse_ToolCallRequest) *ToolCall {
	return &ToolCall{
		ID:          m.GetToolCallId(),
		Name:        m.GetToolName(),
		Input:       json.RawMessage(m.GetToolInput()),
		AgentPath:   m.GetAgentPath(),
		Traceparent: m.GetTraceparent(),
		Tracestate:  m.GetTracestate(),
		Metadata:    maps.Clone(m.GetMetadata()),
	}
}

func announcedOf(m *agentdv1.ToolCallAnnounced) *ToolCallAnnounced {
	return &ToolCallAnnounced{
		ID:        m.GetToolCallId(),
		Name:      m.GetToolName(),
		Input:     json.RawMessage(m.GetToolInput()),
		AgentPath: m.GetAgentPath(),
	}
}

func unservedOf(m *agentdv1.ToolCallUnserved) *ToolCallUnserved {
	return &ToolCallUnserved{
		ID:         m.GetToolCallId(),
		Name:       m.GetToolName(),
		AgentPath:  m.GetAgentPath(),
		ExpireTime: timeOf(m.GetExpireTime()),
	}
}

// ownResultOf returns the event of a result of this client.
func ownResultOf(req *agentdv1.RunResponse_ToolCallRequest, m *agentdv1.RunRequest_ToolCallResponse) *ToolCallAnswered {
	return &ToolCallAnswered{
		ID:        m.GetToolCallId(),
		Name:      m.GetToolName(),
		Output:    m.GetOutput(),
		Error:     m.GetError(),
		Parts:     partsOf(proto.CloneOf(m).GetParts()), // the cache keeps the result
		AgentPath: slices.Clone(req.GetAgentPath()),
	}
}

func answeredOf(m *agentdv1.ToolCallAnswered) *ToolCallAnswered {
	return &ToolCallAnswered{
		ID:        m.GetToolCallId(),
		Name:      m.GetToolName(),
		Output:    m.GetOutput(),
		Error:     m.GetError(),
		Parts:     partsOf(m.GetParts()),
		AgentPath: m.GetAgentPath(),
		CreatedBy: m.GetCreatedBy(),
		Warnings:  warningsOf(m.GetWarnings()),
	}
}
