package server

import (
	"context"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
)

func (s *sessionService) ListSessionEvents(
	ctx context.Context, r *connect.Request[agentdv1.ListSessionEventsRequest],
) (*connect.Response[agentdv1.ListSessionEventsResponse], error) {
	limit := int(r.Msg.GetPageSize())
	if limit == 0 {
		limit = defaultEvents
	}
	see := view{display: r.Msg.GetDisplay(), only: r.Msg.GetVisibility()}
	events, more, err := s.now().Sessions.SessionEvents(ctx, r.Msg.GetSessionId(), r.Msg.GetCursor(), limit, see.keep)
	if err != nil {
		return nil, err
	}
	out := &agentdv1.ListSessionEventsResponse{More: more, NextCursor: r.Msg.GetCursor()}
	size := 0
	for _, e := range events {
		see.apply(e.Message)
		// A reply is one message too. What is left out comes with the next request.
		if size += proto.Size(e.Message) + len(e.Cursor); size > s.now().MaxMessageBytes/2 && len(out.GetEvents()) > 0 {
			out.More = true
			break
		}
		clean(e.Message)
		out.Events = append(out.Events, &agentdv1.SessionEvent{Event: e.Message, Cursor: e.Cursor})
		out.NextCursor = e.Cursor
	}
	return connect.NewResponse(out), nil
}

func (s *sessionService) WatchSession(
	ctx context.Context, r *connect.Request[agentdv1.WatchSessionRequest],
	stream *connect.ServerStream[agentdv1.WatchSessionResponse],
) error {
	exchange := arrived(ctx)
	accessOf(ctx).about(r.Msg)
	if e := s.acceptable(r.Msg); e != nil {
		return e
	}
	leave, refused := s.enter(ctx)
	defer leave()
	if refused != nil {
		return refused
	}
	feed, err := s.roamSession(ctx, r)
	if err != nil {
		return err
	}
	defer feed.close()
	out := &watchStream{
		s: s.Server, exchange: exchange, sessionID: r.Msg.GetSessionId(),
		hint: "watch again behind the last cursor", greets: true,
		feed: feed, trailer: stream.ResponseTrailer,
		view: view{display: r.Msg.GetDisplay(), only: r.Msg.GetVisibility()},
		put: func(e session.Placed) error {
			if e.Message == nil {
				return stream.Send(nil)
			}
			if e.Shared != nil {
				return stream.Conn().Send(shared(e, &agentdv1.WatchSessionResponse{Cursor: e.Cursor}))
			}
			return stream.Send(&agentdv1.WatchSessionResponse{Event: e.Message, Cursor: e.Cursor})
		},
	}
	return out.serve(ctx)
}
