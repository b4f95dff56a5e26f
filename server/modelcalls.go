package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/principal"
)

// replayTimeout bounds the replay of a turn.
const replayTimeout = 30 * time.Second

func (s *sessionService) ListModelCalls(
	ctx context.Context, r *connect.Request[agentdv1.ListModelCallsRequest],
) (*connect.Response[agentdv1.ListModelCallsResponse], error) {
	log, err := s.now().Sessions.TurnLog(ctx, r.Msg.GetSessionId(), r.Msg.GetTurnId(), r.Msg.GetPageToken())
	if err != nil {
		return nil, err
	}
	calls, more, err := s.modelCalls(ctx, log, pageSize(r.Msg.GetPageSize()))
	if err != nil {
		return nil, err
	}
	out := &agentdv1.ListModelCallsResponse{}
	last, size := log.After, 0
	for _, c := range calls {
		c.Details.Instruction = cleanText(c.Details.GetInstruction())
		c.Details.Summary = cleanText(c.Details.GetSummary())
		if principal.Of(ctx).Role != principal.Operator {
			c.Details.Instruction = withoutServerText(c.Details.GetInstruction(), cleanText(c.Operator))
		}
		// A large page ends early, like a page of turns.
		if size += proto.Size(c.Details); size > s.now().MaxMessageBytes/2 && len(out.GetCalls()) > 0 {
			more = true
			break
		}
		out.Calls, last = append(out.Calls, c.Details), c.Seq
	}
	if size := proto.Size(out); size > s.now().MaxMessageBytes {
		return nil, fault.Errorf(codeLimit,
			"one model call of turn %s takes %d bytes, a reply at most %d", log.TurnID, size,
			s.now().MaxMessageBytes).
			OfTurn(log.TurnID).Over("message_bytes", s.now().MaxMessageBytes, size)
	}
	if more {
		out.NextPageToken = log.Page(last)
	}
	return connect.NewResponse(out), nil
}

// withoutServerText returns an instruction for callers that are no operators: a note
// replaces the server's own text.
func withoutServerText(instruction, text string) string {
	if strings.TrimSpace(text) == "" {
		return instruction
	}
	return strings.ReplaceAll(instruction, text, fmt.Sprintf("[the operator's instruction, %d bytes]", len(text)))
}

// modelCalls replays a turn, one at a time: a replay takes as much work as the turn
// itself, and as much memory as the session's history.
func (s *sessionService) modelCalls(
	ctx context.Context, log session.TurnLog, limit int,
) (calls []session.ReportedCall, more bool, err error) {
	if s.now().ModelCalls == nil {
		return nil, false, connect.NewError(connect.CodeUnimplemented,
			errors.New("this server does not list model calls"))
	}
	slow := fault.Errorf(codeTimeout, "the prompts of turn %s could not be rebuilt within %v",
		log.TurnID, replayTimeout)
	ctx, cancel := context.WithTimeoutCause(ctx, replayTimeout, slow)
	defer cancel()
	select {
	case s.replays <- struct{}{}:
		defer func() { <-s.replays }()
	case <-ctx.Done():
		return nil, false, context.Cause(ctx)
	}
	calls, more, err = s.now().ModelCalls(ctx, log, limit)
	if ctx.Err() != nil {
		return nil, false, context.Cause(ctx)
	}
	return calls, more, err
}
