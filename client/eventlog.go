package client

import (
	"context"
	"encoding/json"
	"iter"
	"maps"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/backoff"
)

// LoggedEvent is an event of the log that a server keeps of all sessions: who has said something, and not what.
type LoggedEvent struct {
	// Seq is the number of the event. No event appears below one that was there before; numbers may be left out.
	Seq int64
	// App is the application, and User the id of the principal who made the session.
	App, User string
	// SessionID is the session; that of a background child is PARENT:sub:BRANCH. ID is unique in the log.
	SessionID, ID string
	// Branch is where in a tree of agents the event is, "" at the root. Author is "user", the name of an agent, or
	// PROVIDER/TOOL of what a provider has run.
	Branch, Author string
	// Time is when it was recorded.
	Time time.Time
	// TurnID is the turn.
	TurnID string
	// Metadata is what more there is to say, a JSON object.
	Metadata json.RawMessage

	msg *agentdv1.LoggedEvent
}

// Proto is the protocol's form. It must not be changed.
func (e *LoggedEvent) Proto() *agentdv1.LoggedEvent { return e.msg }

// LogFilter selects events of the log; a zero field selects all.
type LogFilter struct {
	// SessionID is the session, and with Tree also those below it.
	SessionID string
	Tree      bool
	// BranchPrefix is what the branch begins with.
	BranchPrefix string
	// Author is who speaks.
	Author string
}

func (f *LogFilter) proto() *agentdv1.EventFilter {
	return &agentdv1.EventFilter{
		SessionId: f.SessionID, Tree: f.Tree, BranchPrefix: f.BranchPrefix, Author: f.Author,
	}
}

func loggedOf(m *agentdv1.LoggedEvent) (*LoggedEvent, error) {
	metadata, err := m.GetMetadata().MarshalJSON()
	if err != nil {
		return nil, errorf(ErrInternal, "the metadata of event %d: %w", m.GetSeq(), err)
	}
	return &LoggedEvent{
		Seq: m.GetSeq(), App: m.GetAppName(), User: m.GetUserId(), SessionID: m.GetSessionId(), ID: m.GetEventId(),
		Branch: m.GetBranch(), Author: m.GetAuthor(), Time: m.GetTimestamp().AsTime(), TurnID: m.GetInvocationId(),
		Metadata: metadata, msg: m,
	}, nil
}

// logPage is how many events EventLog asks for at a time.
const logPage = 500

// EventLog lists the events behind a number, the lowest number first, and ends with the last one that there is. A
// server without an event log refuses it.
func (c *Client) EventLog(
	ctx context.Context, after int64, filter LogFilter, opts ...RequestOption,
) iter.Seq2[*LoggedEvent, error] {
	return func(yield func(*LoggedEvent, error) bool) {
		for {
			resp, err := unary(ctx, c, opts, c.events.List,
				&agentdv1.ListEventsRequest{AfterSeq: after, Filter: filter.proto(), Limit: logPage})
			if err != nil {
				yield(nil, err)
				return
			}
			for _, m := range resp.GetEvents() {
				e, err := loggedOf(m)
				if !yield(e, err) || err != nil {
					return
				}
				after = e.Seq
			}
			if len(resp.GetEvents()) < logPage {
				return
			}
		}
	}
}

// WatchEventLog yields the events behind a number and those to come, each once, until the loop is left or ctx ends;
// with a number below 0 only those to come. A stream that is lost is continued behind the last event, as
// [WithReconnect] says; an error is yielded last.
func (c *Client) WatchEventLog(
	ctx context.Context, after int64, filter LogFilter, opts ...RequestOption,
) iter.Seq2[*LoggedEvent, error] {
	return func(yield func(*LoggedEvent, error) bool) {
		rc, err := c.request(opts)
		if err != nil {
			yield(nil, err)
			return
		}
		w := &logWatch{c: c, rc: rc, after: after, filter: filter.proto(), yield: yield}
		w.out.policy = c.cfg.reconnect.withDefaults()
		for !w.left {
			failure, lost := w.stream(ctx)
			if w.left {
				return
			}
			wait, again := w.out.next(time.Now(), failure.RetryAfter)
			if !lost || !again || w.out.policy.Off {
				yield(nil, failure)
				return
			}
			if backoff.Wait(ctx, wait) != nil {
				yield(nil, fromContext(ctx))
				return
			}
		}
	}
}

// logWatch is one call of WatchEventLog.
type logWatch struct {
	c      *Client
	rc     *runConfig
	after  int64 // below 0: only what is to come
	filter *agentdv1.EventFilter
	yield  func(*LoggedEvent, error) bool
	left   bool
	out    outage
}

// stream watches until a stream ends, and says why it has, and whether another one may go on.
func (w *logWatch) stream(ctx context.Context) (failure *Error, lost bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	msg := &agentdv1.WatchEventsRequest{Filter: w.filter}
	if w.after >= 0 {
		msg.AfterSeq = &w.after
	}
	req := connect.NewRequest(msg)
	maps.Copy(req.Header(), w.rc.header)
	stream, err := w.c.events.Watch(ctx, req)
	if err == nil {
		defer func() {
			cancel()
			_ = stream.Close()
		}()
		for stream.Receive() {
			w.out.over()
			m := stream.Msg().GetEvent()
			if m == nil {
				continue
			}
			e, bad := loggedOf(m)
			if bad != nil {
				return errorf(ErrInternal, "%w", bad), false
			}
			w.after = e.Seq
			if w.left = !w.yield(e, nil); w.left {
				return nil, false
			}
		}
		err = stream.Err()
	}
	if err == nil {
		return errorf(ErrUnavailable, "the server closed the stream without a word"), true
	}
	failure = fromUnary(ctx, err)
	if failure.Err == nil { // the server has refused the stream, or ended it
		return failure, lostCode(failure.Code)
	}
	return failure, ctx.Err() == nil && lostStream(err)
}
