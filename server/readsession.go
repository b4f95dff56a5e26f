package server

import (
	"context"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
)

// errNotYet refuses what this server cannot do yet.
var errNotYet = session.Errorf(codeInvalid, "this server does not read sessions as a whole yet: read their turns (ListTurnEvents, WatchTurn)")

func (s *sessionService) ListSessionEvents(context.Context, *connect.Request[agentdv1.ListSessionEventsRequest]) (*connect.Response[agentdv1.ListSessionEventsResponse], error) {
	return nil, errNotYet
}

func (s *sessionService) WatchSession(context.Context, *connect.Request[agentdv1.WatchSessionRequest], *connect.ServerStream[agentdv1.WatchSessionResponse]) error {
	return errNotYet
}
