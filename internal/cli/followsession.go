package cli

import (
	"context"
	"iter"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// SessionEvents yields what has happened in a session so far, behind a cursor, page by
// page. The last pair has an *Error if the end was not seen.
func (c *Conn) SessionEvents(ctx context.Context, session, cursor string) iter.Seq2[*agentdv1.SessionEvent, error] {
	return func(yield func(*agentdv1.SessionEvent, error) bool) {
		req := &agentdv1.ListSessionEventsRequest{SessionId: session, Cursor: cursor}
		for more := true; more; {
			page, err := Call(ctx, c, c.ListSessionEvents, req)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, e := range page.GetEvents() {
				if !yield(e, nil) {
					return
				}
			}
			more = page.GetMore() && len(page.GetEvents()) > 0
			req.Cursor = page.GetNextCursor()
		}
	}
}

// FollowSession yields the events of a session, of all of its turns, behind f.Cursor,
// until ctx ends. A connection that is lost is set up again, and goes on where it was.
// The last pair has an *Error that says why it ended. Of f it takes Session, Cursor,
// Patient and Lost.
func (c *Conn) FollowSession(ctx context.Context, f Following) iter.Seq2[*agentdv1.SessionEvent, error] {
	return func(yield func(*agentdv1.SessionEvent, error) bool) {
		req := &agentdv1.WatchSessionRequest{SessionId: f.Session, Cursor: f.Cursor}
		err := c.insist(ctx, f, func() (streamed, error) { return c.watchSession(ctx, req, yield) })
		if err != nil {
			yield(nil, err)
		}
	}
}

// watchSession follows one stream to its end; the cursor of the request moves on.
func (c *Conn) watchSession(
	ctx context.Context, req *agentdv1.WatchSessionRequest, yield func(*agentdv1.SessionEvent, error) bool,
) (is streamed, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer quiet.Stop()
	stream, err := c.WatchSession(ctx, connect.NewRequest(req))
	if err != nil {
		return is, err
	}
	defer func() { _ = stream.Close() }()
	var pieces []*agentdv1.SessionEvent // of an event whose last piece has its cursor
	for stream.Receive() {
		quiet.Reset(silence)
		is.heard = true
		e := &agentdv1.SessionEvent{Event: proto.CloneOf(stream.Msg().GetEvent()), Cursor: stream.Msg().GetCursor()}
		switch {
		case e.GetEvent().GetHeartbeat() != nil:
			continue
		case e.GetEvent().GetError() != nil && e.GetEvent().GetSeq() == 0:
			return is, refusal(e.GetEvent().GetError(), nil)
		}
		pieces = append(pieces, e)
		if e.GetCursor() == "" && e.GetEvent().GetToolCallUnserved() == nil {
			continue // it comes again if the last one does not come
		}
		for _, piece := range pieces {
			if !yield(piece, nil) {
				is.done = true
				return is, nil
			}
		}
		if pieces = nil; e.GetCursor() != "" {
			req.Cursor, is.news = e.GetCursor(), true
		}
	}
	if err = stream.Err(); err == nil {
		err = errCut
	}
	return is, err
}
