package peer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/apzuk3/agentd/bench/internal/script"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/backoff"
)

// Sessions is a client of agentd that never opens a Run: a turn is a CreateTurn, a WatchTurn, and a SubmitToolResults
// for each tool call. It sends no heartbeats.
type Sessions struct {
	stub  agentdv1connect.SessionServiceClient
	agent *Agentd
}

// NewSessions returns the client of a server, whose agents use a model. Each request has the header.
func NewSessions(url, model string, header http.Header) *Sessions {
	return &Sessions{
		stub:  agentdv1connect.NewSessionServiceClient(http2(), url),
		agent: &Agentd{model: model, header: header},
	}
}

// Begin begins a conversation.
func (s *Sessions) Begin() Conversation {
	return &sessionsConversation{server: s, agentdConversation: agentdConversation{server: s.agent}}
}

// sessionsConversation is owned by the goroutine that runs its turn.
type sessionsConversation struct {
	server *Sessions
	agentdConversation
}

// Turn runs a turn.
func (c *sessionsConversation) Turn(ctx context.Context, t Turn) (Heard, error) {
	var h Heard
	ctx, cancel := context.WithCancel(ctx)
	var tools sync.WaitGroup
	defer tools.Wait()
	defer cancel()
	created, err := c.server.stub.CreateTurn(ctx, with(c, &agentdv1.CreateTurnRequest{Execute: c.execute(t)}))
	if err != nil {
		return h, err
	}
	turn := created.Msg.GetTurn()
	c.session = turn.GetSessionId()
	h.Session = c.session
	events, err := c.server.stub.WatchTurn(ctx, with(c, &agentdv1.WatchTurnRequest{
		SessionId: c.session, TurnId: turn.GetId(), ToolNames: []string{script.Tool},
	}))
	if err != nil {
		return h, err
	}
	defer func() { _ = events.Close() }()
	failed := make(chan error, 1)
	fail := func(err error) {
		if err == nil {
			return
		}
		select {
		case failed <- err:
		default:
		}
		cancel()
	}
	for events.Receive() {
		switch m := events.Msg().GetEvent().GetResponse().(type) {
		case *agentdv1.RunResponse_OutputChunk_:
			if text := m.OutputChunk.GetContent(); text != "" {
				h.say(text)
			}
			if t.Cancel && h.Canceled.IsZero() {
				h.Canceled = time.Now()
				tools.Go(func() { fail(c.cancel(ctx, turn.GetId())) })
			}
		case *agentdv1.RunResponse_ToolCall:
			h.ToolCalls++
			tools.Go(func() { fail(c.work(ctx, t, turn.GetId(), m.ToolCall)) })
		case *agentdv1.RunResponse_Error:
			return h, fmt.Errorf("agentd says: %v", m.Error)
		case *agentdv1.RunResponse_End:
			err := h.end(t, m.End)
			return h, err
		}
	}
	select {
	case err := <-failed:
		return h, err
	default:
		return h, errors.Join(errors.New("the events ended before the turn"), events.Err())
	}
}

// work runs the tool, and sends its result.
func (c *sessionsConversation) work(
	ctx context.Context, t Turn, turn string, call *agentdv1.RunResponse_ToolCallRequest,
) error {
	result, n, err := answerTo(call)
	if err != nil {
		return err
	}
	if t.waits(n) {
		t.Waiting()
		return nil
	}
	if err := backoff.Wait(ctx, t.Wait); err != nil {
		return err
	}
	resp, err := c.server.stub.SubmitToolResults(ctx, with(c, &agentdv1.SubmitToolResultsRequest{
		SessionId: c.session, TurnId: turn, Results: []*agentdv1.RunRequest_ToolCallResponse{result},
	}))
	if err == nil && len(resp.Msg.GetRefused()) > 0 {
		err = fmt.Errorf("agentd has refused a result: %v", resp.Msg.GetRefused())
	}
	return err
}

// cancel cancels a turn. That it is canceled is said by its end.
func (c *sessionsConversation) cancel(ctx context.Context, turn string) error {
	_, err := c.server.stub.CancelTurn(ctx, with(c, &agentdv1.CancelTurnRequest{SessionId: c.session, TurnId: turn}))
	if ctx.Err() == nil { // else the end was heard before the answer
		return err
	}
	return nil
}

// with is a request with the header of the client.
func with[T any](c *sessionsConversation, msg *T) *connect.Request[T] {
	req := connect.NewRequest(msg)
	maps.Copy(req.Header(), c.server.agent.header)
	return req
}
