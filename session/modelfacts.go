package session

import (
	"context"
	"math"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/internal/logjson"
)

// CallInfo is what is known of a model call besides its answer and its usage.
type CallInfo struct {
	// Model is the model that was called last, as the agent names it.
	Model string `json:"model"`
	// Provider served it. Empty for a call that a crash has cut off and that was not
	// made again: what else was of it is not known.
	Provider string `json:"provider"`
	// Took is from the first try to the end of the answer, FirstText to its first
	// text or thought, 0 when there was none. In nanoseconds.
	Took      time.Duration `json:"took"`
	FirstText time.Duration `json:"first_text,omitempty"`
}

// ModelFallback says that a model has failed before anything of its answer was
// shown, and that another one is called.
type ModelFallback struct {
	// MessageID is the one of the answer to come; empty for a summary.
	MessageID string `json:"message_id"`
	// Path runs from the root to the agent whose call it is.
	Path []string `json:"path"`
	// Model has failed, Next is called now; as the agent names them.
	Model string `json:"model"`
	Next  string `json:"next"`
	// Code and Message are what the first one failed with; the client sees them.
	Code    agentdv1.ErrorCode `json:"code"`
	Message string             `json:"message"`
	// Usage is what its tries took, but for those whose ModelRetry says so; nil where
	// nothing was reported.
	Usage *Usage `json:"usage,omitempty"`
}

// RawPayload is a provider's answer to one try of a model call as it came.
type RawPayload struct {
	// MessageID is the one of the answer to come.
	MessageID string `json:"message_id"`
	// Path runs from the root to the agent whose call it was.
	Path []string `json:"path"`
	// Attempt is the try, from 1.
	Attempt int `json:"attempt"`
	// Provider answered, with Status and ContentType.
	Provider    string `json:"provider"`
	Status      int    `json:"status"`
	ContentType string `json:"content_type,omitempty"`
	// Body is at most MaxRawBody bytes; Truncated tells that there was more.
	Body      []byte `json:"body,omitempty"`
	Truncated bool   `json:"truncated,omitempty"`
}

// MaxRawBody is how much of a provider's answer a RawPayload holds, in bytes.
const MaxRawBody = 1 << 20

// Provided is what a model's provider has run while the model answered, and what
// the answer cites.
type Provided struct {
	Uses      []ProviderUse `json:"uses,omitempty"`
	Citations []Citation    `json:"citations,omitempty"`
}

// ProviderUse is one run of a tool by a provider. Input and Output are JSON, or
// empty where the provider does not say.
type ProviderUse struct {
	ID     string `json:"id,omitempty"`
	Name   string `json:"name"`
	Input  string `json:"input,omitempty"`
	Output string `json:"output,omitempty"`
	Error  string `json:"error,omitempty"`
}

// Citation is a source of a part of an answer: the bytes from Start to End of its
// text, both 0 when the provider does not say which.
type Citation struct {
	URI   string `json:"uri,omitempty"`
	Title string `json:"title,omitempty"`
	Text  string `json:"text,omitempty"`
	Start int    `json:"start,omitempty"`
	End   int    `json:"end,omitempty"`
}

// Compacted says that a summary stands for the beginning of the conversation that
// the agent's model is told.
type Compacted struct {
	// Summary is what the model is told.
	Summary string `json:"summary"`
	// Through is the last record that the summary stands for.
	Through int64 `json:"through"`
	// Overflow is true when the provider had refused the prompt as too long.
	Overflow bool `json:"overflow,omitempty"`
	// Prompt is what the prompt took before, and Window the context that was counted
	// with, in tokens; 0 is not known.
	Prompt int64 `json:"prompt,omitempty"`
	Window int64 `json:"window,omitempty"`
}

// FellBack records that another model is called, which is from then on the one
// that is under way; see BeginCall.
func (r *Run) FellBack(ctx context.Context, f ModelFallback) error {
	f.Message = logjson.Readable(f.Message)
	data, err := logjson.Marshal(f)
	if err != nil {
		return err
	}
	if _, err := r.s.commit(ctx, &entry{turn: r.t, attempt: r.a, kind: KindModelFallback, data: data, fact: &f}); err != nil {
		return err
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	for call := range r.a.modelCalls { // an agent makes one call at a time
		if slices.Equal(call.Path, f.Path) {
			call.Model = f.Next
		}
	}
	return nil
}

// Raw records a provider's answer as it came; for a turn whose Spec asks for it.
func (r *Run) Raw(ctx context.Context, p RawPayload) error {
	data, err := logjson.Marshal(p)
	if err != nil {
		return err
	}
	_, err = r.s.commit(ctx, &entry{turn: r.t, attempt: r.a, kind: KindRawPayload, data: data, fact: &p})
	return err
}

// modelCall tells what an event says of the model call it is the end of.
func (v *view) modelCall(ev *Event) {
	if p := ev.Provided; p != nil {
		v.emit(slotProvided, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_ProviderToolsUsed{
			ProviderToolsUsed: providedProto(p, v.sessionID, ev),
		}})
	}
	if c := ev.Compacted; c != nil {
		v.emit(slotCompacted, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_HistoryCompacted{
			HistoryCompacted: compactedProto(c, v.sessionID, ev),
		}})
	}
	if ended := CallEnded(ev, v.sessionID); ended != nil {
		v.emit(slotCallEnded, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_ModelCallEnded{ModelCallEnded: ended}})
	}
}

// CallEnded is the protocol's form of the model call that the event is the end of;
// nil if it is the end of none.
func CallEnded(e *Event, sessionID string) *agentdv1.ModelCallEnded {
	if e.Usage == nil {
		return nil
	}
	took := *e.Usage
	if e.Before != nil {
		took = e.Before.Add(took)
	}
	m := &agentdv1.ModelCallEnded{
		SessionId: sessionID, AgentPath: e.Path, MessageId: e.MessageID, ServedModel: e.Model,
		Usage: took.Proto(), StopReason: StopReason(e.Stop), Outcome: outcomeOf(e),
	}
	if c := e.Call; c != nil {
		m.Model, m.Provider = c.Model, c.Provider
		if c.Provider != "" {
			m.Duration = durationpb.New(c.Took)
		}
		if c.FirstText > 0 {
			m.TimeToFirstText = durationpb.New(c.FirstText)
		}
	}
	return m
}

// outcomeOf is what has come of the model call that the event is the end of.
func outcomeOf(e *Event) agentdv1.ModelCallEnded_Outcome {
	switch {
	case e.Compacted != nil:
		return agentdv1.ModelCallEnded_OUTCOME_SUMMARIZED
	case e.MessageID != "":
		return agentdv1.ModelCallEnded_OUTCOME_ANSWERED
	default:
		return agentdv1.ModelCallEnded_OUTCOME_FAILED
	}
}

// taken is what a fact says that a model took; nil for nothing. What model calls
// took is the sum over all facts.
func taken(fact any) *Usage {
	switch f := fact.(type) {
	case *Event:
		return f.Usage
	case *ModelRetry:
		return f.Usage.ofTries()
	case *ModelFallback:
		return f.Usage.ofTries()
	default:
		return nil
	}
}

func providedProto(p *Provided, sessionID string, ev *Event) *agentdv1.ProviderToolsUsed {
	m := &agentdv1.ProviderToolsUsed{SessionId: sessionID, AgentPath: ev.Path, MessageId: ev.MessageID}
	for _, u := range p.Uses {
		m.Uses = append(m.Uses, &agentdv1.ProviderToolUse{
			Id: u.ID, ToolName: u.Name, Input: u.Input, Output: u.Output, Error: u.Error,
		})
	}
	for _, c := range p.Citations {
		m.Citations = append(m.Citations, &agentdv1.Citation{
			Uri: c.URI, Title: c.Title, CitedText: c.Text, StartByte: int32(min(c.Start, math.MaxInt32)), EndByte: int32(min(c.End, math.MaxInt32)),
		})
	}
	return m
}

func compactedProto(c *Compacted, sessionID string, ev *Event) *agentdv1.HistoryCompacted {
	m := &agentdv1.HistoryCompacted{
		SessionId: sessionID, AgentPath: ev.Path, Summary: c.Summary, ThroughSeq: position(c.Through+1, 0) - 1,
		Reason: agentdv1.HistoryCompacted_REASON_SHARE, PromptTokens: c.Prompt, ContextTokens: c.Window,
	}
	if c.Overflow {
		m.Reason = agentdv1.HistoryCompacted_REASON_OVERFLOW
	}
	return m
}

func (v *view) fellBack(f *ModelFallback) {
	v.emit(slotStart, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_ModelCallFellBack{
		ModelCallFellBack: &agentdv1.ModelCallFellBack{
			SessionId: v.sessionID, AgentPath: f.Path, MessageId: f.MessageID, Model: f.Model, NextModel: f.Next, Code: f.Code, Message: f.Message,
		},
	}})
}

func (v *view) raw(p *RawPayload) {
	v.emit(slotStart, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_RawPayloadReceived{
		RawPayloadReceived: &agentdv1.RawPayloadReceived{
			SessionId: v.sessionID, AgentPath: p.Path, MessageId: p.MessageID, Attempt: uint32(max(p.Attempt, 0)), Provider: p.Provider,
			Status: int32(p.Status), ContentType: p.ContentType, Body: p.Body, Truncated: p.Truncated,
		},
	}})
}

// stopReasons are the protocol's names of genai's finish reasons. What is not
// among them is another reason.
var stopReasons = map[string]agentdv1.StopReason{
	"":                         agentdv1.StopReason_STOP_REASON_UNSPECIFIED,
	"STOP":                     agentdv1.StopReason_STOP_REASON_STOP,
	"MAX_TOKENS":               agentdv1.StopReason_STOP_REASON_MAX_TOKENS,
	"SAFETY":                   agentdv1.StopReason_STOP_REASON_CONTENT_BLOCKED,
	"RECITATION":               agentdv1.StopReason_STOP_REASON_CONTENT_BLOCKED,
	"LANGUAGE":                 agentdv1.StopReason_STOP_REASON_CONTENT_BLOCKED,
	"BLOCKLIST":                agentdv1.StopReason_STOP_REASON_CONTENT_BLOCKED,
	"PROHIBITED_CONTENT":       agentdv1.StopReason_STOP_REASON_CONTENT_BLOCKED,
	"SPII":                     agentdv1.StopReason_STOP_REASON_CONTENT_BLOCKED,
	"IMAGE_SAFETY":             agentdv1.StopReason_STOP_REASON_CONTENT_BLOCKED,
	"IMAGE_PROHIBITED_CONTENT": agentdv1.StopReason_STOP_REASON_CONTENT_BLOCKED,
	"IMAGE_RECITATION":         agentdv1.StopReason_STOP_REASON_CONTENT_BLOCKED,
}

// StopReason returns the protocol's name of a genai.FinishReason.
func StopReason(finish string) agentdv1.StopReason {
	if r, known := stopReasons[finish]; known {
		return r
	}
	return agentdv1.StopReason_STOP_REASON_OTHER
}
