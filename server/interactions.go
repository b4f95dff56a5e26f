package server

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
)

// People says what turns ask people, and takes what they say.
type People interface {
	Interaction(ctx context.Context, sessionID, id string) (*session.Interaction, error)
	Interactions(ctx context.Context, sessionID string) ([]*session.Interaction, error)
	Resolve(ctx context.Context, req session.AttachRequest, id string, r session.Resolution) (*session.Interaction, error)
}

// resolutionOf translates what a person says; the protocol's rules hold.
func resolutionOf(r *agentdv1.Resolution) session.Resolution {
	out := session.Resolution{Key: r.GetIdempotencyKey()}
	switch d := r.GetDecision().(type) {
	case *agentdv1.Resolution_Approve_:
		out.Decision = session.Approve
		if d.Approve.ToolInput != nil {
			out.Input = json.RawMessage(d.Approve.GetToolInput())
		}
	case *agentdv1.Resolution_Deny_:
		out.Decision, out.Reason = session.Deny, d.Deny.GetReason()
	case *agentdv1.Resolution_Answer:
		out.Decision, out.Answer = session.Reply, d.Answer
	}
	return out
}

func (s *sessionService) GetInteraction(ctx context.Context, r *connect.Request[agentdv1.GetInteractionRequest]) (*connect.Response[agentdv1.GetInteractionResponse], error) {
	in, err := s.cfg.Sessions.Interaction(ctx, r.Msg.GetSessionId(), r.Msg.GetInteractionId())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.GetInteractionResponse{Interaction: in.Proto()}), nil
}

func (s *sessionService) ListInteractions(ctx context.Context, r *connect.Request[agentdv1.ListInteractionsRequest]) (*connect.Response[agentdv1.ListInteractionsResponse], error) {
	if r.Msg.GetSessionId() == "" {
		return nil, session.Errorf(codeInvalid, "session_id is empty: name the session whose interactions are wanted")
	}
	all, err := s.cfg.Sessions.Interactions(ctx, r.Msg.GetSessionId())
	if err != nil {
		return nil, err
	}
	// A token is how many interactions there were before the last one of the page:
	// new ones come behind them.
	end := len(all)
	if token := r.Msg.GetPageToken(); token != "" {
		if end, err = strconv.Atoi(token); err != nil || end < 0 || end > len(all) {
			return nil, session.Errorf(codeInvalid, "page_token %s is none that this list has given", quote(token))
		}
	}
	size := int(r.Msg.GetPageSize())
	if size == 0 {
		size = defaultPage
	}
	out := &agentdv1.ListInteractionsResponse{}
	for i, in := range slices.Backward(all[:end]) {
		if len(out.GetInteractions()) == size {
			out.NextPageToken = strconv.Itoa(i + 1)
			break
		}
		turn, want := r.Msg.GetTurnId(), r.Msg.GetStatuses()
		if (turn == "" || in.TurnID == turn) && (len(want) == 0 || slices.Contains(want, in.Status)) {
			out.Interactions = append(out.Interactions, in.Proto())
		}
	}
	return connect.NewResponse(out), nil
}

func (s *sessionService) ResolveInteraction(ctx context.Context, r *connect.Request[agentdv1.ResolveInteractionRequest]) (*connect.Response[agentdv1.ResolveInteractionResponse], error) {
	// What a person has said counts, also when its client goes away right after.
	ctx = context.WithoutCancel(ctx)
	req := session.AttachRequest{SessionID: r.Msg.GetSessionId(), Keys: keysOf(r.Header())}
	in, err := s.cfg.Sessions.Resolve(ctx, req, r.Msg.GetInteractionId(), resolutionOf(r.Msg.GetResolution()))
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.ResolveInteractionResponse{Interaction: in.Proto()}), nil
}
