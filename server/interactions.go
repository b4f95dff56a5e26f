package server

import (
	"context"
	"encoding/json"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/record"
)

// resolutionOf translates a resolution that satisfies the protocol's rules.
func resolutionOf(r *agentdv1.Resolution) record.Resolution {
	out := record.Resolution{Key: r.GetIdempotencyKey()}
	switch d := r.GetDecision().(type) {
	case *agentdv1.Resolution_Approve:
		out.Decision = record.Approve
		out.Scope = d.Approve.GetScope()
		if d.Approve.ToolInput != nil {
			out.Input = json.RawMessage(d.Approve.GetToolInput())
		}
	case *agentdv1.Resolution_Deny:
		out.Decision, out.Reason = record.Deny, d.Deny.GetReason()
	case *agentdv1.Resolution_Answer:
		out.Decision, out.Answer = record.Reply, d.Answer
	}
	return out
}

func (s *sessionService) GetInteraction(
	ctx context.Context, r *connect.Request[agentdv1.GetInteractionRequest],
) (*connect.Response[agentdv1.GetInteractionResponse], error) {
	in, err := s.now().Sessions.Interaction(ctx, r.Msg.GetSessionId(), r.Msg.GetInteractionId())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.GetInteractionResponse{Interaction: in.Proto()}), nil
}

func (s *sessionService) ListInteractions(
	ctx context.Context, r *connect.Request[agentdv1.ListInteractionsRequest],
) (*connect.Response[agentdv1.ListInteractionsResponse], error) {
	q := index.InteractionQuery{SessionID: r.Msg.GetSessionId(), TurnID: r.Msg.GetTurnId(),
		Statuses: r.Msg.GetStatuses()}
	list, next, err := s.now().Sessions.ListInteractions(ctx, q, r.Msg.GetPageToken(), pageSize(r.Msg.GetPageSize()))
	if err != nil {
		return nil, err
	}
	out := &agentdv1.ListInteractionsResponse{NextPageToken: next}
	for _, in := range list {
		out.Interactions = append(out.Interactions, in.Proto())
	}
	return connect.NewResponse(out), nil
}

func (s *sessionService) ResolveInteraction(
	ctx context.Context, r *connect.Request[agentdv1.ResolveInteractionRequest],
) (*connect.Response[agentdv1.ResolveInteractionResponse], error) {
	// A resolution counts even if its client goes away right after.
	ctx = context.WithoutCancel(ctx)
	req := session.AttachRequest{SessionID: r.Msg.GetSessionId(), Keys: keysOf(r.Header())}
	in, err := s.now().Sessions.Resolve(ctx, req, r.Msg.GetInteractionId(), resolutionOf(r.Msg.GetResolution()))
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.ResolveInteractionResponse{Interaction: in.Proto()}), nil
}

// questionOf translates what a client asks about its call.
func questionOf(r *agentdv1.RaiseInteractionRequest) record.Question {
	in := r.GetInteraction()
	return record.Question{
		Kind: in.GetKind(), Text: in.GetQuestion(), Choices: in.GetChoices(), N: r.GetN(), Source: in.GetSource(),
	}
}

func (s *sessionService) RaiseInteraction(
	ctx context.Context, r *connect.Request[agentdv1.RaiseInteractionRequest],
) (*connect.Response[agentdv1.RaiseInteractionResponse], error) {
	if r.Msg.GetSessionId() == "" {
		return nil, fault.Errorf(codeInvalid,
			"session_id must have at least 1 character: only a stream knows its session").
			Breaking("session_id", fault.RuleRequired)
	}
	// A question counts even if its client goes away right after.
	ctx = context.WithoutCancel(ctx)
	in, _, err := s.now().Sessions.Raise(ctx, r.Msg.GetSessionId(), r.Msg.GetToolCallId(), questionOf(r.Msg))
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.RaiseInteractionResponse{Interaction: in.Proto()}), nil
}

// raise has a person asked about a call that the client of the stream runs. Of a question that was asked before the
// client learns how it is.
func (st *stream) raise(ctx context.Context, r *agentdv1.RaiseInteractionRequest) *fault.Error {
	in, again, err := st.srv.now().Sessions.Raise(ctx, st.turn.SessionID(), r.GetToolCallId(), questionOf(r))
	if err != nil || !again {
		return st.resultOf("raise interaction", err)
	}
	m := &agentdv1.RunResponse{TurnId: in.TurnID, Replayed: true}
	if in.Status == agentdv1.InteractionStatus_INTERACTION_STATUS_PENDING {
		m.Response = &agentdv1.RunResponse_InteractionRequested{
			InteractionRequested: &agentdv1.InteractionRequested{Interaction: in.Proto()},
		}
	} else {
		m.Response = &agentdv1.RunResponse_InteractionResolved{
			InteractionResolved: &agentdv1.InteractionResolved{Interaction: in.Proto()},
		}
	}
	st.enqueueReply(m)
	return nil
}
