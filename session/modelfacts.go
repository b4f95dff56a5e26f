package session

import (
	"context"
	"math"
	"slices"

	"google.golang.org/protobuf/types/known/durationpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/internal/logjson"
	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/record"
)

// FellBack records that another model is called, which is from then on the one
// that is under way; see BeginCall.
func (r *Run) FellBack(ctx context.Context, f record.ModelFallback) error {
	f.Message = logjson.Readable(f.Message)
	data, err := logjson.Marshal(f)
	if err != nil {
		return err
	}
	if _, err := r.s.commit(ctx, &entry{turn: r.t, attempt: r.a, kind: record.KindModelFallback, data: data, fact: &f}); err != nil {
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
func (r *Run) Raw(ctx context.Context, p record.RawPayload) error {
	data, err := logjson.Marshal(p)
	if err != nil {
		return err
	}
	_, err = r.s.commit(ctx, &entry{turn: r.t, attempt: r.a, kind: record.KindRawPayload, data: data, fact: &p})
	return err
}

// modelCall tells what an event says of the model call it is the end of.
func (v *view) modelCall(ev *record.Event) {
	if p := ev.Provided; p != nil {
		v.emit(position.Provided, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_ProviderToolsUsed{
			ProviderToolsUsed: providedProto(p, v.sessionID, ev),
		}})
	}
	if c := ev.Compacted; c != nil {
		v.emit(position.Compacted, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_HistoryCompacted{
			HistoryCompacted: compactedProto(c, v.sessionID, ev),
		}})
	}
	if ended := CallEnded(ev, v.sessionID); ended != nil {
		v.emit(position.CallEnded, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_ModelCallEnded{ModelCallEnded: ended}})
	}
}

// CallEnded is the protocol's form of the model call that the event is the end of;
// nil if it is the end of none.
func CallEnded(e *record.Event, sessionID string) *agentdv1.ModelCallEnded {
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
func outcomeOf(e *record.Event) agentdv1.ModelCallEnded_Outcome {
	switch {
	case e.Compacted != nil:
		return agentdv1.ModelCallEnded_OUTCOME_SUMMARIZED
	case e.MessageID != "":
		return agentdv1.ModelCallEnded_OUTCOME_ANSWERED
	default:
		return agentdv1.ModelCallEnded_OUTCOME_FAILED
	}
}

func providedProto(p *record.Provided, sessionID string, ev *record.Event) *agentdv1.ProviderToolsUsed {
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

func compactedProto(c *record.Compacted, sessionID string, ev *record.Event) *agentdv1.HistoryCompacted {
	m := &agentdv1.HistoryCompacted{
		SessionId: sessionID, AgentPath: ev.Path, Summary: c.Summary, ThroughSeq: position.Of(c.Through+1, 0) - 1,
		Reason: agentdv1.HistoryCompacted_REASON_SHARE, PromptTokens: c.Prompt, ContextTokens: c.Window,
	}
	if c.Overflow {
		m.Reason = agentdv1.HistoryCompacted_REASON_OVERFLOW
	}
	return m
}

func (v *view) fellBack(f *record.ModelFallback) {
	v.emit(position.Start, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_ModelCallFellBack{
		ModelCallFellBack: &agentdv1.ModelCallFellBack{
			SessionId: v.sessionID, AgentPath: f.Path, MessageId: f.MessageID, Model: f.Model, NextModel: f.Next, Code: f.Code, Message: f.Message,
		},
	}})
}

func (v *view) raw(p *record.RawPayload) {
	v.emit(position.Start, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_RawPayloadReceived{
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
