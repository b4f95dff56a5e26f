package client

import (
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// WithRawPayloads has a [Client.Run] yield [RawPayloadReceived]: the providers' own responses
// to each try of the turn's model calls. They are stored with the session.
func WithRawPayloads() TurnOption {
	return option{useRun, func(c *runConfig) { c.rawPayloads = true }}
}

// WithPlanMode has the turn only plan: a call of a tool that changes something, or may, is not run, and the model is
// told so. Tools with [EffectRead] and [EffectInternal] run; see [ToolEffect].
func WithPlanMode() TurnOption {
	return option{useRun, func(c *runConfig) { c.planMode = true }}
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

// ModelCallFellBack says that a model has failed before any of its text was there, all
// its retries included, and that the call is made to the next one of
// [FallbackModels]; nothing is void.
type ModelCallFellBack struct {
	// AgentPath runs from the root of the tree to the agent whose call it is.
	AgentPath []string
	// MessageID is the message that the call is to write; empty when it is to write a
	// summary, see [HistoryCompacted].
	MessageID string
	// Model has failed, NextModel is called now; as the agent names them.
	Model, NextModel string
	// Code is why the first one failed, such as [ErrRateLimited].
	Code Code
	// Message says the same for people.
	Message string
}

// ModelCallEnded says that a model call is over, and what it took. It comes after
// the text of its message. The sum over the turn is [End].Usage.
type ModelCallEnded struct {
	// AgentPath runs from the root of the tree to the agent whose call it was.
	AgentPath []string
	// MessageID is the message that the call has written; empty for one that has
	// written none.
	MessageID string
	// Outcome is what the call gave: a response, a summary, see
	// [HistoryCompacted], or nothing: then the event only reports the cost.
	// It is empty where an older server does not say.
	Outcome CallOutcome
	// Model is the one that was called last, as the agent names it; ServedModel is
	// the name that its provider gave it.
	Model, ServedModel string
	// Provider is who served it.
	Provider string
	// Usage is what the call took, all its tries included; nil if the server did not
	// say.
	Usage *Usage
	// StopReason is why the model stopped.
	StopReason StopReason
	// Duration is from the first try to the end of the response, waits included.
	Duration time.Duration
	// TimeToFirstText is from the first try to the first text, or thought; 0 when there
	// was none.
	TimeToFirstText time.Duration
	// ToolCalls is how many tool calls and questions the response has. They follow.
	ToolCalls int
}

// ProviderToolsUsed tells what a model's own provider has run while it wrote a message
// (searches, code), and what the message cites. Nobody is asked for it.
type ProviderToolsUsed struct {
	// AgentPath runs from the root of the tree to the agent whose model it was.
	AgentPath []string
	// MessageID is the message.
	MessageID string
	// Uses are in order.
	Uses []ProviderToolUse
	// Citations are in the order of the provider.
	Citations []Citation
}

// ProviderToolUse is one run of a tool by a provider. What a provider does not say
// is empty.
type ProviderToolUse struct {
	// ID is the provider's.
	ID string
	// Name is that of the builtin tool, such as google_search, web_search and
	// code_execution; a tool that has no such name has the provider's own.
	Name string
	// Input is what it was asked, and Output what it found, as JSON.
	Input, Output string
	// Error is why it failed; empty when it did not.
	Error string
}

// Citation is a source of a part of a message. What a provider does not say is
// empty.
type Citation struct {
	// URI is where it is.
	URI string
	// Title is what it is called.
	Title string
	// CitedText is the words of the source.
	CitedText string
	// StartByte and EndByte are the part of the message's text, without thoughts: the
	// bytes text[StartByte:EndByte]. Both are 0 when the provider does not say.
	StartByte, EndByte int
}

// RawPayloadReceived is a provider's response to one try of a model call as it came over the
// network, but for keys, which are replaced; see [WithRawPayloads]. It comes before
// the ModelCallEnded of its call.
type RawPayloadReceived struct {
	// AgentPath runs from the root of the tree to the agent whose call it was.
	AgentPath []string
	// MessageID is the message that the call was to write; for a summary, the one
	// that the agent's call is to write after it.
	MessageID string
	// Attempt is the try of a model, from 1.
	Attempt int
	// Provider is who responded.
	Provider string
	// Status is the HTTP status.
	Status int
	// ContentType is that of Body.
	ContentType string
	// Body is at most 1 MiB; Truncated tells that there was more.
	Body      []byte
	Truncated bool
}

// HistoryCompacted says that an agent's model from now on receives a summary in
// place of the beginning of the conversation; see [Compact]. The session
// keeps all of it.
type HistoryCompacted struct {
	// AgentPath runs from the root of the tree to the agent whose model it is.
	AgentPath []string
	// Summary is the text that the model receives.
	Summary string
	// ThroughSeq is the position up to which the summary stands for what has
	// happened; see [Event].Seq.
	ThroughSeq int64
	// Reason is why.
	Reason CompactionReason
	// PromptTokens is what the prompt took before, ContextTokens the window that was
	// counted with; 0 is not known.
	PromptTokens, ContextTokens int64
}

// CallOutcome is what has come of a model call: one of the constants, or of a newer server
// the number of one that this client does not know.
type CallOutcome string

// What can come of a model call.
const (
	// OutcomeAnswered has written the message.
	OutcomeAnswered CallOutcome = "answered"
	// OutcomeSummarized has written a summary; see [HistoryCompacted].
	OutcomeSummarized CallOutcome = "summarized"
	// OutcomeFailed has failed or was aborted, and was paid for.
	OutcomeFailed CallOutcome = "failed"
)

// StopReason is why a model stopped: one of the constants, or of a newer server the
// number of one that this client does not know; empty where there is no response.
type StopReason string

// Reasons why a model stops.
const (
	// StopReasonStop had said all, or called tools.
	StopReasonStop StopReason = "stop"
	// StopReasonMaxTokens came to the limit of its output.
	StopReasonMaxTokens StopReason = "max_tokens"
	// StopReasonContentBlocked was not let say more by its provider.
	StopReasonContentBlocked StopReason = "content_blocked"
	// StopReasonOther is any other reason.
	StopReasonOther StopReason = "other"
)

// CompactionReason is why a history was compacted: one of the constants, or of a newer
// server the number of one that this client does not know.
type CompactionReason string

// Reasons to compact a history.
const (
	// CompactionShare: the prompt had come to the share of the context that was set.
	CompactionShare CompactionReason = "share"
	// CompactionOverflow: the provider had refused the prompt as too long.
	CompactionOverflow CompactionReason = "overflow"
	// CompactionCheckpoint: the model has marked a task as done, with the builtin tool mark_task_done.
	CompactionCheckpoint CompactionReason = "checkpoint"
	// CompactionRequested: somebody has asked for it, see [Session.Compact].
	CompactionRequested CompactionReason = "requested"
)

func (*ModelCallRetried) eventData()   {}
func (*ModelCallFellBack) eventData()  {}
func (*ModelCallEnded) eventData()     {}
func (*ProviderToolsUsed) eventData()  {}
func (*RawPayloadReceived) eventData() {}
func (*HistoryCompacted) eventData()   {}

func stopReasonOf(r agentdv1.StopReason) StopReason { return StopReason(wordOf(r, "STOP_REASON_")) }

func retriedOf(m *agentdv1.ModelCallRetried) *ModelCallRetried {
	return &ModelCallRetried{
		AgentPath: m.GetAgentPath(),
		MessageID: m.GetMessageId(),
		Attempt:   int(m.GetAttempt()),
		Wait:      m.GetWait().AsDuration(),
		Code:      Code(m.GetCode()),
		Message:   m.GetMessage(),
	}
}

func fellBackOf(m *agentdv1.ModelCallFellBack) *ModelCallFellBack {
	return &ModelCallFellBack{
		AgentPath: m.GetAgentPath(),
		MessageID: m.GetMessageId(),
		Model:     m.GetModel(),
		NextModel: m.GetNextModel(),
		Code:      Code(m.GetCode()),
		Message:   m.GetMessage(),
	}
}

func callEndedOf(m *agentdv1.ModelCallEnded) *ModelCallEnded {
	return &ModelCallEnded{
		AgentPath:       m.GetAgentPath(),
		MessageID:       m.GetMessageId(),
		Outcome:         CallOutcome(wordOf(m.GetOutcome(), "OUTCOME_")),
		Model:           m.GetModel(),
		ServedModel:     m.GetServedModel(),
		Provider:        m.GetProvider(),
		Usage:           UsageOf(m.GetUsage()),
		StopReason:      stopReasonOf(m.GetStopReason()),
		Duration:        m.GetDuration().AsDuration(),
		TimeToFirstText: m.GetTimeToFirstText().AsDuration(),
		ToolCalls:       int(m.GetToolCalls()),
	}
}

func providerToolsOf(m *agentdv1.ProviderToolsUsed) *ProviderToolsUsed {
	out := &ProviderToolsUsed{AgentPath: m.GetAgentPath(), MessageID: m.GetMessageId()}
	for _, u := range m.GetUses() {
		out.Uses = append(out.Uses, ProviderToolUse{
			ID: u.GetId(), Name: u.GetToolName(), Input: u.GetInput(), Output: u.GetOutput(), Error: u.GetError(),
		})
	}
	for _, c := range m.GetCitations() {
		out.Citations = append(out.Citations, Citation{
			URI: c.GetUri(), Title: c.GetTitle(), CitedText: c.GetCitedText(),
			StartByte: int(c.GetStartByte()), EndByte: int(c.GetEndByte()),
		})
	}
	return out
}

func rawPayloadOf(m *agentdv1.RawPayloadReceived) *RawPayloadReceived {
	return &RawPayloadReceived{
		AgentPath:   m.GetAgentPath(),
		MessageID:   m.GetMessageId(),
		Attempt:     int(m.GetAttempt()),
		Provider:    m.GetProvider(),
		Status:      int(m.GetStatus()),
		ContentType: m.GetContentType(),
		Body:        m.GetBody(),
		Truncated:   m.GetTruncated(),
	}
}

func compactedOf(m *agentdv1.HistoryCompacted) *HistoryCompacted {
	return &HistoryCompacted{
		AgentPath:     m.GetAgentPath(),
		Summary:       m.GetSummary(),
		ThroughSeq:    m.GetThroughSeq(),
		Reason:        CompactionReason(wordOf(m.GetReason(), "REASON_")),
		PromptTokens:  m.GetPromptTokens(),
		ContextTokens: m.GetContextTokens(),
	}
}
