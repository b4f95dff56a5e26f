package server

import (
	"context"
	"fmt"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
)

func (s *sessionService) ListSharedState(
	ctx context.Context, req *connect.Request[agentdv1.ListSharedStateRequest],
) (*connect.Response[agentdv1.ListSharedStateResponse], error) {
	keys, next, err := s.now().Sessions.SharedKeys(ctx, req.Msg.GetPrefix(), req.Msg.GetPageToken(),
		pageSize(req.Msg.GetPageSize()))
	if err != nil {
		return nil, err
	}
	out := &agentdv1.ListSharedStateResponse{NextPageToken: next}
	for _, k := range keys {
		out.Entries = append(out.Entries, &agentdv1.SharedStateEntry{Key: k.Key, Value: string(k.Value),
			Bytes: int64(k.Bytes)})
	}
	return connect.NewResponse(out), nil
}

func (s *sessionService) SetSharedState(
	ctx context.Context, req *connect.Request[agentdv1.SetSharedStateRequest],
) (*connect.Response[agentdv1.SetSharedStateResponse], error) {
	state, left := map[string]any{}, maxValues
	for i, v := range req.Msg.GetValues() {
		at := fmt.Sprintf("values[%d]", i)
		if _, twice := state[v.GetKey()]; twice {
			return nil, fault.Errorf(codeInvalid, "%s.key: %s is set twice", at, quote(v.GetKey())).
				Breaking(at+".key", fault.RuleConflict)
		}
		value, err := jsonText(at+".value", v.GetValue(), &left)
		if err != nil {
			return nil, err
		}
		state[v.GetKey()] = value
	}
	if err := s.now().Sessions.SetShared(ctx, state); err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.SetSharedStateResponse{}), nil
}

func (s *sessionService) RemoveSharedState(
	ctx context.Context, req *connect.Request[agentdv1.RemoveSharedStateRequest],
) (*connect.Response[agentdv1.RemoveSharedStateResponse], error) {
	removed, err := s.now().Sessions.RemoveShared(ctx, req.Msg.GetKeys())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.RemoveSharedStateResponse{Removed: removed}), nil
}
