package render

import (
	"math"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/internal/position"
	"github.com/apzuk3/agentd/session/record"
)

// modelCall renders what an event states of the model call that it is the end of.
func (v *view) modelCall(ev *record.Event) {
	if p := ev.Provided; p != nil {
		v.emit(position.Provided, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_ProviderToolsUsed{
			ProviderToolsUsed: v.provided(p, ev),
		}})
	}
	if c := ev.Compacted; c != nil {
		v.emit(position.Compacted, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_HistoryCompacted{
			HistoryCompacted: v.compacted(c, ev),
		}})
	}
	if ev.Usage != nil && !v.hidden() {
		v.kept(position.CallEnded, position.CallEnded, func() *agentdv1.RunResponse {
			return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_ModelCallEnded{
				ModelCallEnded: ev.CallEnded(v.sessionID),
			}}
		})
	}
}

func (v *view) provided(p *record.Provided, ev *record.Event) *agentdv1.ProviderToolsUsed {
	m := &agentdv1.ProviderToolsUsed{SessionId: v.sessionID, AgentPath: ev.Path, MessageId: ev.MessageID}
	for _, u := range p.Uses {
		m.Uses = append(m.Uses, &agentdv1.ProviderToolUse{
			Id: u.ID, ToolName: u.Name, Input: u.Input, Output: u.Output, Error: u.Error,
		})
	}
	for _, c := range p.Citations {
		m.Citations = append(m.Citations, &agentdv1.Citation{
			Uri: c.URI, Title: c.Title, CitedText: c.Text,
			StartByte: int32(min(c.Start, math.MaxInt32)), EndByte: int32(min(c.End, math.MaxInt32)),
		})
	}
	return m
}

func (v *view) compacted(c *record.Compacted, ev *record.Event) *agentdv1.HistoryCompacted {
	m := &agentdv1.HistoryCompacted{
		SessionId: v.sessionID, AgentPath: ev.Path, Summary: c.Summary,
		ThroughSeq: position.Of(max(c.Through, 0)+1, 0) - 1, // seed messages have no position
		Reason:     agentdv1.HistoryCompacted_REASON_SHARE, PromptTokens: c.Prompt, ContextTokens: c.Window,
	}
	switch {
	case c.Overflow:
		m.Reason = agentdv1.HistoryCompacted_REASON_OVERFLOW
	case c.Asked:
		m.Reason = agentdv1.HistoryCompacted_REASON_REQUESTED
	case c.Done:
		m.Reason = agentdv1.HistoryCompacted_REASON_CHECKPOINT
	}
	return m
}

func (v *view) fellBack(f *record.ModelFallback) {
	v.emit(position.Start, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_ModelCallFellBack{
		ModelCallFellBack: &agentdv1.ModelCallFellBack{
			SessionId: v.sessionID, AgentPath: f.Path, MessageId: f.MessageID, Model: f.Model, NextModel: f.Next,
			Code: f.Code, Message: f.Message,
		},
	}})
}

func (v *view) raw(p *record.RawPayload) {
	v.emit(position.Start, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_RawPayloadReceived{
		RawPayloadReceived: &agentdv1.RawPayloadReceived{
			SessionId: v.sessionID, AgentPath: p.Path, MessageId: p.MessageID, Attempt: uint32(max(p.Attempt, 0)),
			Provider: p.Provider, Status: int32(p.Status), ContentType: p.ContentType,
			Body: p.Body, Truncated: p.Truncated,
		},
	}})
}

func (v *view) retried(f *record.ModelRetry) {
	v.emit(position.Start, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_ModelCallRetried{
		ModelCallRetried: &agentdv1.ModelCallRetried{
			SessionId: v.sessionID, AgentPath: f.Path, MessageId: f.MessageID, Attempt: uint32(max(f.Attempt, 0)),
			Wait: durationpb.New(f.Wait), Code: f.Code, Message: f.Message,
		},
	}})
}

// remote renders what a record says of the session of a backend; nil says nothing.
func (v *view) remote(slot int, f *agentdv1.RemoteSession) {
	if f == nil {
		return
	}
	m := proto.CloneOf(f)
	m.SessionId = v.sessionID
	v.emit(slot, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_RemoteSession{RemoteSession: m}})
}
