package server

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

func (s *sessionService) ListModelCalls(context.Context, *connect.Request[agentdv1.ListModelCallsRequest]) (*connect.Response[agentdv1.ListModelCallsResponse], error) {
	return nil, connect.NewError(connect.CodeUnimplemented, errors.New("not yet"))
}
