package client

import (
	"context"
	"encoding/json"
	"iter"
	"math"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// TurnStatus is how a turn is.
type TurnStatus string

// The states of a turn.
const (
	// TurnPending waits for the turns before it.
	TurnPending TurnStatus = "pending"
	// TurnRunning runs.
	TurnRunning TurnStatus = "running"
	// TurnWaitingForClient waits for a client that has a tool, or a key.
	TurnWaitingForClient TurnStatus = "waiting_for_client"
	// TurnWaitingForInput waits for a person.
	TurnWaitingForInput TurnStatus = "waiting_for_input"
	// TurnSucceeded has finished naturally.
	TurnSucceeded TurnStatus = "succeeded"
	// TurnFailed was ended by an error.
	TurnFailed TurnStatus = "failed"
	// TurnCanceled was stopped by somebody.
	TurnCanceled TurnStatus = "canceled"
)

// Proto returns the protocol's number; 0 for the empty status.
func (s TurnStatus) Proto() agentdv1.TurnStatus {
	return agentdv1.TurnStatus(numberOf(string(s), "TURN_STATUS_", agentdv1.TurnStatus_value))
}

// Turn is what one prompt has set off.
type Turn struct {
	// ID names it, and SessionID its session.
	ID, SessionID string
	// CreatedBy is the id of the principal whose prompt it is, as the server knows it.
	CreatedBy string
	// Author is who it is for, as the caller says; see [WithAuthor].
	Author string
	// Status is how it is.
	Status TurnStatus
	// StatusMessage is why it ended, when it did not end by itself, and ErrorCode the
	// kind of error that ended it; 0 when none did.
	StatusMessage string
	ErrorCode     Code
	// Prompt is what the user said, and Parts the files behind it, which only
	// [Session.Turn] has.
	Prompt string
	Parts  []Part
	// Text is the last complete response without tool calls.
	Text string
	// Structured is that response as JSON, which [Structured] decodes, when its agent has
	// an output schema; nil unless the turn succeeded.
	Structured json.RawMessage
	// Usage is what it has used so far.
	Usage *Usage
	// CreateTime is when its prompt was recorded; StartTime and EndTime are zero before.
	CreateTime, StartTime, EndTime time.Time
	// Duration is from its start to its end, or to now.
	Duration time.Duration
	// AfterSeq is where it begins: what [WithAfterSeq] takes for all of it.
	AfterSeq int64
	// PendingToolCalls have no result, and PendingInteractions no resolution.
	PendingToolCalls    []*ToolCall
	PendingInteractions []*Interaction
	// InjectedInto is the turn of which the prompt has become a message.
	InjectedInto string
	// Receipt is what a cancel has stopped.
	Receipt *CancelReceipt
	// Model is the model of the last response, as its provider names it, and StopReason why
	// it stopped.
	Model      string
	StopReason StopReason
	// Warnings are about what of the request the server has left out; only [Session.Start]
	// says them, others have those of [TurnStarted].
	Warnings []Warning

	message *agentdv1.Turn
}

// Proto returns the message that it was made from.
func (t *Turn) Proto() *agentdv1.Turn { return proto.CloneOf(t.message) }

func turnOf(m *agentdv1.Turn) *Turn {
	if m == nil {
		return nil
	}
	return &Turn{
		ID:                  m.GetId(),
		SessionID:           m.GetSessionId(),
		CreatedBy:           m.GetCreatedBy(),
		Author:              m.GetAuthor(),
		Status:              TurnStatus(wordOf(m.GetStatus(), "TURN_STATUS_")),
		StatusMessage:       m.GetStatusMessage(),
		ErrorCode:           Code(m.GetErrorCode()),
		Prompt:              m.GetUserPrompt(),
		Parts:               partsOf(m.GetUserParts()),
		Text:                m.GetOutputText(),
		Structured:          rawOf(m.GetStructuredOutput()),
		Usage:               UsageOf(m.GetUsage()),
		CreateTime:          timeOf(m.GetCreateTime()),
		StartTime:           timeOf(m.GetStartTime()),
		EndTime:             timeOf(m.GetEndTime()),
		Duration:            m.GetDuration().AsDuration(),
		AfterSeq:            m.GetAfterSeq(),
		InjectedInto:        m.GetInjectedInto(),
		PendingToolCalls:    mapped(m.GetPendingToolCalls(), toolCallOf),
		PendingInteractions: mapped(m.GetPendingInteractions(), InteractionOf),
		Receipt:             receiptOf(m.GetReceipt()),
		Model:               m.GetModel(),
		StopReason:          stopReasonOf(m.GetStopReason()),
		message:             m,
	}
}

// TurnFilter says which turns to list; a zero field does not matter.
type TurnFilter struct {
	// Statuses are how they are.
	Statuses []TurnStatus
	// CreatedSince is inclusive, CreatedBefore is not.
	CreatedSince, CreatedBefore time.Time
	// PageSize is how many are asked for at a time, at most 1,000; 0 is 50.
	PageSize int
}

// Turns lists the turns of all sessions, newest first.
func (c *Client) Turns(ctx context.Context, filter TurnFilter, opts ...RequestOption) iter.Seq2[*Turn, error] {
	return c.turns(ctx, "", filter, opts)
}

// Turns lists the turns of the session, newest first.
func (s *Session) Turns(ctx context.Context, filter TurnFilter, opts ...RequestOption) iter.Seq2[*Turn, error] {
	return s.client.turns(ctx, s.id, filter, s.request(opts))
}

func (c *Client) turns(
	ctx context.Context, session string, filter TurnFilter, opts []RequestOption,
) iter.Seq2[*Turn, error] {
	return sizedPages(filter.PageSize, func(size int32, token string) ([]*Turn, string, error) {
		resp, err := unary(ctx, c, opts, c.sessions.ListTurns, &agentdv1.ListTurnsRequest{
			SessionId: session, PageSize: size, PageToken: token,
			Statuses:     mapped(filter.Statuses, TurnStatus.Proto),
			CreatedSince: stampOf(filter.CreatedSince), CreatedBefore: stampOf(filter.CreatedBefore),
		})
		return mapped(resp.GetTurns(), turnOf), resp.GetNextPageToken(), err
	})
}

// Turn says how a turn of the session is; with an empty id the last one.
func (s *Session) Turn(ctx context.Context, id string, opts ...RequestOption) (*Turn, error) {
	resp, err := unary(ctx, s.client, s.request(opts), s.client.sessions.GetTurn,
		&agentdv1.GetTurnRequest{SessionId: s.id, TurnId: id, UserParts: true})
	return turnOf(resp.GetTurn()), err
}

// ModelCall is the prompt of one model call of a turn, and the usage of the call.
type ModelCall struct {
	// Ended is the call itself.
	Ended *ModelCallEnded
	// Instruction is the system instruction, with all values filled in.
	Instruction string
	// ToolNames are the tools that the request declared.
	ToolNames []string
	// Generation is how it was to write, as its agent says.
	Generation Generation
	// Contents is how many messages of the conversation the request held. 0 means that only
	// Ended is known.
	Contents int
	// Summary stood for the beginning of the conversation; empty if none did.
	Summary string

	message *agentdv1.ModelCallDetails
}

// Proto returns the message that it was made from.
func (m *ModelCall) Proto() *agentdv1.ModelCallDetails { return proto.CloneOf(m.message) }

// ModelCalls lists the model calls of a turn that have ended, in that order; with an
// empty id those of the session's last turn.
func (s *Session) ModelCalls(ctx context.Context, turnID string, opts ...RequestOption) iter.Seq2[*ModelCall, error] {
	return pages(func(token string) ([]*ModelCall, string, error) {
		resp, err := unary(ctx, s.client, s.request(opts), s.client.sessions.ListModelCalls,
			&agentdv1.ListModelCallsRequest{SessionId: s.id, TurnId: turnID, PageToken: token})
		return mapped(resp.GetCalls(), modelCallOf), resp.GetNextPageToken(), err
	})
}

func modelCallOf(m *agentdv1.ModelCallDetails) *ModelCall {
	out := &ModelCall{
		Ended: callEndedOf(m.GetCall()), Instruction: m.GetInstruction(), ToolNames: m.GetToolNames(),
		Contents: int(m.GetContents()), Summary: m.GetSummary(), message: m,
	}
	if m.GetGeneration() != nil {
		out.Generation = generationOf(m.GetGeneration())
	}
	return out
}

// numberOf is the number of an enum's word, see wordOf; of a word that this client does
// not know the number that the word is, which a server refuses or knows.
func numberOf(word, prefix string, values map[string]int32) int32 {
	if word == "" {
		return 0
	}
	if n, ok := values[prefix+strings.ToUpper(word)]; ok {
		return n
	}
	if n, err := strconv.ParseInt(word, 10, 32); err == nil {
		return int32(n)
	}
	return math.MaxInt32
}
