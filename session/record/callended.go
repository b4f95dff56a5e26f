package record

import (
	"math"

	"google.golang.org/protobuf/types/known/durationpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// CallEnded returns the protocol's form of the model call that the event is the end of; nil
// if it is the end of none.
func (e *Event) CallEnded(sessionID string) *agentdv1.ModelCallEnded {
	if e.Usage == nil {
		return nil
	}
	took := *e.Usage
	if e.Before != nil {
		took = e.Before.Add(took)
	}
	m := &agentdv1.ModelCallEnded{
		SessionId: sessionID, AgentPath: e.Path, MessageId: e.MessageID, ServedModel: e.Model,
		Usage: took.Proto(), StopReason: e.StopReason(), Outcome: e.callOutcome(),
		ToolCalls: int32(min(len(e.Calls), math.MaxInt32)),
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

// callOutcome returns what has come of the model call that the event is the end of.
func (e *Event) callOutcome() agentdv1.ModelCallEnded_Outcome {
	switch {
	case e.Compacted != nil:
		return agentdv1.ModelCallEnded_OUTCOME_SUMMARIZED
	case e.MessageID != "":
		return agentdv1.ModelCallEnded_OUTCOME_ANSWERED
	default:
		return agentdv1.ModelCallEnded_OUTCOME_FAILED
	}
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

// StopReason returns the protocol's name of the event's Stop, which is a genai.FinishReason.
func (e *Event) StopReason() agentdv1.StopReason {
	if r, known := stopReasons[e.Stop]; known {
		return r
	}
	return agentdv1.StopReason_STOP_REASON_OTHER
}
