package server

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
)

// ModelCalls says what the models of a turn were told, from the session's log.
type ModelCalls func(ctx context.Context, log session.TurnLog) ([]*agentdv1.ModelCallDetails, error)

// replayTimeout bounds how long a turn is run again.
const replayTimeout = 30 * time.Second

func (s *sessionService) ListModelCalls(ctx context.Context, r *connect.Request[agentdv1.ListModelCallsRequest]) (*connect.Response[agentdv1.ListModelCallsResponse], error) {
	log, err := s.cfg.Sessions.TurnLog(ctx, r.Msg.GetSessionId(), r.Msg.GetTurnId())
	if err != nil {
		return nil, err
	}
	calls, err := s.modelCalls(ctx, log)
	if err != nil {
		return nil, err
	}
	out := &agentdv1.ListModelCallsResponse{Calls: calls}
	for _, c := range calls {
		c.Instruction, c.Summary = cleanText(c.GetInstruction()), cleanText(c.GetSummary())
	}
	if size := proto.Size(out); size > s.cfg.MaxMessageBytes {
		return nil, session.Errorf(codeLimit, "what the models of turn %s were told in %d calls takes %d bytes, a reply at most %d", log.TurnID, len(calls), size, s.cfg.MaxMessageBytes)
	}
	return connect.NewResponse(out), nil
}

// modelCalls runs a turn again, one at a time: it takes as much work as the turn
// itself, and as much memory as the session's history.
func (s *sessionService) modelCalls(ctx context.Context, log session.TurnLog) ([]*agentdv1.ModelCallDetails, error) {
	if s.cfg.ModelCalls == nil {
		return nil, connect.NewError(connect.CodeUnimplemented, errors.New("this server does not say what models were told"))
	}
	slow := session.Errorf(codeTimeout, "what the models of turn %s were told could not be found out within %v", log.TurnID, replayTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, replayTimeout, slow)
	defer cancel()
	select {
	case s.replays <- struct{}{}:
		defer func() { <-s.replays }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	calls, err := s.cfg.ModelCalls(ctx, log)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return calls, err
}
