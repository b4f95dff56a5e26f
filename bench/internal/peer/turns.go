package peer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"

	"connectrpc.com/connect"

	"github.com/apzuk3/agentd/bench/internal/script"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
)

// Turns is a client of agentd that comes back to turns which others have started: always the last of a session.
type Turns struct {
	run      agentdv1connect.AgentdClient
	sessions agentdv1connect.SessionServiceClient
	header   http.Header
	// watch has it use WatchTurn in place of Run.
	watch bool
}

// NewTurns returns the client of a server. Each request has the header. With watch it comes back by WatchTurn, else by
// Run.
func NewTurns(url string, header http.Header, watch bool) *Turns {
	c := http2()
	return &Turns{
		run: agentdv1connect.NewAgentdClient(c, url), sessions: agentdv1connect.NewSessionServiceClient(c, url),
		header: header, watch: watch,
	}
}

// Events are what the log has of a turn.
type Events struct {
	// Count is how many there are, Last the seq of the last one.
	Count int
	Last  int64
	// Calls and Answers are the tool calls and their results; Ended says that the turn is over.
	Calls, Answers int
	Ended          bool
	// Asked is how many of the calls the client was asked to run.
	Asked int
}

func (e *Events) add(m *agentdv1.RunResponse) {
	// That a client is to run a call is said in place of the call's event, or later.
	if m.GetToolCall() != nil {
		e.Asked++
	}
	if m.GetSeq() <= e.Last {
		return
	}
	e.Count++
	e.Last = m.GetSeq()
	switch m.GetResponse().(type) {
	case *agentdv1.RunResponse_ToolCallAnnounced, *agentdv1.RunResponse_ToolCall:
		e.Calls++
	case *agentdv1.RunResponse_ToolCallAnswered:
		e.Answers++
	case *agentdv1.RunResponse_End:
		e.Ended = true
	}
}

// List reads the events of a turn by pages.
func (t *Turns) List(ctx context.Context, session string) (Events, error) {
	var e Events
	for {
		after := e.Last
		resp, err := t.sessions.ListTurnEvents(ctx, request(t, &agentdv1.ListTurnEventsRequest{
			SessionId: session, AfterSeq: &after,
		}))
		if err != nil {
			return e, err
		}
		for _, m := range resp.Msg.GetEvents() {
			e.add(m)
		}
		if e.Last == after { // what has no seq comes with each page
			return e, nil
		}
	}
}

// Reconnect follows a turn from its beginning, as the client that runs its tools, until it has heard what want has,
// and leaves it.
func (t *Turns) Reconnect(ctx context.Context, session string, want Events) (Events, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var e Events
	next, err := t.follow(ctx, session)
	for err == nil && (e.Last < want.Last || e.Asked < want.Asked) {
		var m *agentdv1.RunResponse
		if m, err = next(); err == nil {
			e.add(m)
			if m.GetError() != nil {
				err = fmt.Errorf("agentd says: %v", m.GetError())
			}
		}
	}
	return e, err
}

// follow returns what reads the next event of a turn, until ctx ends.
func (t *Turns) follow(ctx context.Context, session string) (next func() (*agentdv1.RunResponse, error), err error) {
	names := []string{script.Tool}
	if !t.watch {
		stream := t.run.Run(ctx)
		context.AfterFunc(ctx, func() { _ = stream.CloseRequest() })
		maps.Copy(stream.RequestHeader(), t.header)
		err = stream.Send(&agentdv1.RunRequest{Request: &agentdv1.RunRequest_Attach{
			Attach: &agentdv1.AttachRequest{SessionId: session, AfterSeq: new(int64), ToolNames: names},
		}})
		return stream.Receive, err
	}
	events, err := t.sessions.WatchTurn(ctx, request(t, &agentdv1.WatchTurnRequest{
		SessionId: session, AfterSeq: new(int64), ToolNames: names,
	}))
	return func() (*agentdv1.RunResponse, error) {
		if !events.Receive() {
			return nil, errors.Join(errors.New("the events ended before the turn"), events.Err())
		}
		return events.Msg().GetEvent(), nil
	}, err
}

// Open counts the turns that are not over.
func (t *Turns) Open(ctx context.Context) (int, error) {
	open := []agentdv1.TurnStatus{
		agentdv1.TurnStatus_TURN_STATUS_RUNNING, agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT,
	}
	n, page := 0, ""
	for {
		resp, err := t.sessions.ListTurns(ctx, request(t, &agentdv1.ListTurnsRequest{
			PageSize: 1000, PageToken: page, Statuses: open,
		}))
		if err != nil {
			return n, err
		}
		n += len(resp.Msg.GetTurns())
		if page = resp.Msg.GetNextPageToken(); page == "" {
			return n, nil
		}
	}
}

// request is a request with the header of the client.
func request[T any](t *Turns, msg *T) *connect.Request[T] {
	req := connect.NewRequest(msg)
	maps.Copy(req.Header(), t.header)
	return req
}
