package client

import (
	"encoding/json"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// Event is one thing that happened in a turn. Exactly one of the pointers is
// set. An event belongs to the caller once it was yielded.
type Event struct {
	// Seq is the event's place in the session: what [WithAfterSeq] takes. It
	// rises, but not by one. A call that the server asks again has the place of
	// what came before it; 0 is an event of this client, a refusal, or a server
	// that does not count.
	Seq int64
	// TurnID names the turn; empty if the server does not say.
	TurnID string
	// Time is when it happened by the server's clock; zero for text that is on
	// its way, and for events of this client.
	Time time.Time
	// Replayed is true when it happened before the server saw this client, or
	// saw it again.
	Replayed bool

	// Queued says that a prompt waits for the running turn: the run's own, before
	// Started, or another client's.
	Queued *Queued
	// Started comes first, but for Queued: the turn runs. An [Client.Attach] from
	// a position after it has none.
	Started *Started
	// OutputChunk is a piece of an agent's text.
	OutputChunk *OutputChunk
	// MessageCompleted says that all of a message was in OutputChunks.
	MessageCompleted *MessageCompleted
	// Transferred says that an agent has handed the conversation over.
	Transferred *Transferred
	// StateUpdate tells about session state: first the whole of it, if there is
	// any, later what changed.
	StateUpdate *StateUpdate
	// ToolCall says that a tool of this client is about to run; informative.
	ToolCall *ToolCall
	// ToolCallAnswered says how a tool call ended, once; informative. It is what the
	// server has stored: an answer of this run that is refused, or is second, is
	// none. A tool that still runs when the turn ends has none. From a server that
	// does not count its messages (Seq is 0 throughout) an answer of this run is
	// yielded as soon as it is sent.
	ToolCallAnswered *ToolCallAnswered
	// ToolCallAnnounced tells of a call that this client is not asked for.
	ToolCallAnnounced *ToolCallAnnounced
	// ToolCallUnserved says that a call waits for a tool that no attached client has.
	ToolCallUnserved *ToolCallUnserved
	// MessageInjected says that a user has said something to the running turn.
	MessageInjected *MessageInjected
	// MessageRetracted says that text is void: the model is asked again.
	MessageRetracted *MessageRetracted
	// ModelCallRetried says that a model call has failed and is made again.
	ModelCallRetried *ModelCallRetried
	// ModelCallFellBack says that a model has failed and another one is called.
	ModelCallFellBack *ModelCallFellBack
	// ModelCallEnded says that a model call is over, and what it took.
	ModelCallEnded *ModelCallEnded
	// ProviderToolsUsed tells what a model's own provider has run, and what a message
	// cites.
	ProviderToolsUsed *ProviderToolsUsed
	// RawPayloadReceived is a provider's own answer; see [WithRawPayloads].
	RawPayloadReceived *RawPayloadReceived
	// HistoryCompacted says that an agent's model is from now on told a summary of
	// the beginning of the conversation.
	HistoryCompacted *HistoryCompacted
	// InteractionRequested says that the turn asks a person: this run's [Prompter],
	// if it has one, and anybody who calls [Client.Resolve].
	InteractionRequested *Interaction
	// InteractionResolved says that nobody is asked any more, and what a person has
	// said. The call of an approved tool follows as ToolCall or ToolCallAnnounced.
	InteractionResolved *Interaction
	// Error is a refusal that did not end the turn, such as of a late answer. It
	// is yielded once the turn has gone on; that of a tool's answer at once.
	Error *Error
	// End comes last, unless the turn failed: then the sequence's error does.
	End *End
}

// Started says that the turn runs. Of a prompt that was injected it says that the
// running turn has taken it up.
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
	// MessageID names the message of which the text is a part: one answer of
	// one model call. Empty in a chunk that only closes.
	MessageID string
}

// MessageRetracted says that unfinished messages are void. They start over, under the
// same id. [Client.Do] follows it by itself.
type MessageRetracted struct {
	// MessageID is the message; empty means all unfinished messages of the turn.
	MessageID string
	// AgentPath runs from the root of the tree to the agent that spoke.
	AgentPath []string
}

// ModelCallRetried says that a model call has failed before any of its text was there,
// and is made again; nothing is void.
type ModelCallRetried struct {
	// AgentPath runs from the root of the tree to the agent whose call it is.
	AgentPath []string
	// MessageID is the message that the call is to write.
	MessageID string
	// Attempt is how many tries have failed, from 1.
	Attempt int
	// Wait is how long after the event's Time the next try begins.
	Wait time.Duration
	// Code is why the last one failed, such as [ErrRateLimited].
	Code Code
	// Message says the same for people.
	Message string
}

// MessageCompleted says that a message is complete: nothing of it is retracted any
// more. A model's answer without text and thoughts is no message.
type MessageCompleted struct {
	// MessageID is the message, as in [OutputChunk].
	MessageID string
	// AgentPath runs from the root of the tree to the agent that spoke.
	AgentPath []string
	// TextBytes and ThoughtBytes are how long its text and its thoughts are.
	TextBytes, ThoughtBytes int64
}

// Transferred says that an agent's model has handed the conversation over to another
// agent, which goes on with it.
type Transferred struct {
	// AgentPath runs from the root of the tree to the agent that has handed it over,
	// and ToAgentPath to the one that goes on.
	AgentPath, ToAgentPath []string
}

func completedOf(m *agentdv1.MessageCompleted) *MessageCompleted {
	return &MessageCompleted{
		MessageID: m.GetMessageId(), AgentPath: m.GetAgentPath(), TextBytes: m.GetTextBytes(), ThoughtBytes: m.GetThoughtBytes(),
	}
}

func transferredOf(m *agentdv1.Transferred) *Transferred {
	return &Transferred{AgentPath: m.GetAgentPath(), ToAgentPath: m.GetToAgentPath()}
}

// StateUpdate tells about session state.
type StateUpdate struct {
	// Delta holds the keys that changed and their new values as encoding/json
	// would decode them; numbers are float64. A key with nil has been removed.
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

// ToolCallAnnounced is a tool call that another client is asked to answer, or that has
// been answered: its [ToolCallAnswered] follows. If nobody has and the other one
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
	// Expires is when the turn ends if no client with the tool attaches; zero if the
	// server does not say.
	Expires time.Time
}

// ToolCallAnswered is the end of a tool call. What follows from an answer is yielded
// after its ToolCallAnswered.
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
}

// End is the end of a turn that did not fail.
type End struct {
	// Completed is true when the agent tree finished naturally, false when the
	// turn was ended or cancelled.
	Completed bool
	// Reason is why the turn ended, when it did not end by itself.
	Reason string
	// Usage is what the turn used; nil if the server sent none. A count of more than
	// 2,147,483,647 comes as that; the Turn of the session service has all of it.
	Usage *Usage
	// Receipt is what the end has stopped; nil when nobody ended or cancelled the
	// turn.
	Receipt *Receipt
	// Structured is the last answer, JSON in the model's own text, which [Structured]
	// decodes, when the turn completed and the agent that gave it has an output
	// schema; else nil.
	Structured json.RawMessage
}

// eventOf returns an event with what a message says about itself.
func eventOf(m *agentdv1.RunResponse) *Event {
	event := &Event{Seq: m.GetSeq(), TurnID: m.GetTurnId(), Replayed: m.GetReplayed()}
	if m.GetTime() != nil {
		event.Time = m.GetTime().AsTime()
	}
	return event
}

func errorEvent(m *agentdv1.RunResponse) *Event {
	event := eventOf(m)
	event.Error = fromResponse(m.GetError())
	return event
}

func chunkOf(m *agentdv1.RunResponse_OutputChunk) *OutputChunk {
	return &OutputChunk{
		AgentPath: m.GetAgentPath(),
		Content:   m.GetContent(),
		Last:      m.GetLast(),
		IsThought: m.GetIsThought(),
		MessageID: m.GetMessageId(),
	}
}

func toolCallOf(m *agentdv1.RunResponse_ToolCallRequest) *ToolCall {
	return &ToolCall{
		ID:        m.GetToolCallId(),
		Name:      m.GetToolName(),
		Input:     json.RawMessage(m.GetToolInput()),
		AgentPath: m.GetAgentPath(),
	}
}

func noticeOf(m *agentdv1.ToolCallAnnounced) *ToolCallAnnounced {
	return &ToolCallAnnounced{
		ID:        m.GetToolCallId(),
		Name:      m.GetToolName(),
		Input:     json.RawMessage(m.GetToolInput()),
		AgentPath: m.GetAgentPath(),
	}
}

func unservedOf(m *agentdv1.ToolCallUnserved) *ToolCallUnserved {
	out := &ToolCallUnserved{ID: m.GetToolCallId(), Name: m.GetToolName(), AgentPath: m.GetAgentPath()}
	if m.GetExpireTime() != nil {
		out.Expires = m.GetExpireTime().AsTime()
	}
	return out
}

func retryOf(m *agentdv1.ModelCallRetried) *ModelCallRetried {
	return &ModelCallRetried{
		AgentPath: m.GetAgentPath(),
		MessageID: m.GetMessageId(),
		Attempt:   int(m.GetAttempt()),
		Wait:      m.GetWait().AsDuration(),
		Code:      Code(m.GetCode()),
		Message:   m.GetMessage(),
	}
}

// answerOf is the result of a call that this client has answered.
func answerOf(req *agentdv1.RunResponse_ToolCallRequest, m *agentdv1.RunRequest_ToolCallResponse) *ToolCallAnswered {
	return &ToolCallAnswered{
		ID:        m.GetToolCallId(),
		Name:      m.GetToolName(),
		Output:    m.GetOutput(),
		Error:     m.GetError(),
		Parts:     partsOf(m.GetParts()),
		AgentPath: req.GetAgentPath(),
	}
}

func toolResultOf(m *agentdv1.ToolCallAnswered) *ToolCallAnswered {
	return &ToolCallAnswered{
		ID:        m.GetToolCallId(),
		Name:      m.GetToolName(),
		Output:    m.GetOutput(),
		Error:     m.GetError(),
		Parts:     partsOf(m.GetParts()),
		AgentPath: m.GetAgentPath(),
	}
}

func endOf(m *agentdv1.RunResponse_EndResponse) *End {
	return &End{
		Completed:  m.GetCompleted(),
		Reason:     m.GetReason(),
		Usage:      usageOfEnd(m.GetUsageSummary()),
		Receipt:    receiptOf(m.GetReceipt()),
		Structured: rawOf(m.GetStructuredOutput()),
	}
}
