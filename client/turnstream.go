package client

import (
	"context"
	"io"
	"maps"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// cancelLinger is how long a run that was left waits for the reply to the request that
// cancels its turn: the server has the request long before it replies.
const cancelLinger = 800 * time.Millisecond

// messages is a stream of Agentd.Run, or a turnStream in its place. One goroutine sends,
// another one receives; any may call CloseResponse.
type messages interface {
	Send(msg *agentdv1.RunRequest) error
	Receive() (*agentdv1.RunResponse, error)
	CloseRequest() error
	CloseResponse() error
}

// turnStream carries a turn by SessionService, which needs no HTTP/2: the message that
// starts a turn becomes CreateTurn and WatchTurn, the one that attaches WatchTurn, a result
// SubmitToolResults, a cancel CancelTurn or CancelToolCall. A half-close does nothing.
type turnStream struct {
	run     *run
	ctx     context.Context // the link's; CreateTurn runs in it, which link.unsent looks at
	side    context.Context // of all other requests; ends with ctx
	cancel  context.CancelFunc
	session string // written by the first Send
	begun   bool   // the first message was sent; owned by the sender
	// turn is the one that results and cancels name; nil until it is known.
	turn atomic.Pointer[string]

	in   chan *agentdv1.RunResponse // to Receive; never closed
	over chan struct{}              // closed when nothing more comes
	err  error                      // what Receive returns then; written before over is closed
}

// newTurnStream returns a stream that ends with ctx. Nothing is sent before the first Send.
func newTurnStream(ctx context.Context, r *run) *turnStream {
	s := &turnStream{run: r, ctx: ctx, in: make(chan *agentdv1.RunResponse), over: make(chan struct{})}
	s.side, s.cancel = context.WithCancel(context.WithValue(ctx, linkKey{}, nil))
	return s
}

// Receive returns the next message of the turn, or what the server says to a request. After
// an error it returns no message, and the stream has no goroutine any more.
func (s *turnStream) Receive() (*agentdv1.RunResponse, error) {
	select {
	case msg := <-s.in:
		return msg, nil
	case <-s.over:
		return nil, s.err
	}
}

// CloseRequest does nothing: see [turnStream].
func (s *turnStream) CloseRequest() error { return nil }

// CloseResponse ends the stream.
func (s *turnStream) CloseResponse() error {
	s.cancel()
	return nil
}

// Send makes the request of a message, and returns when the reply has arrived. A
// refusal of the server comes out of Receive.
func (s *turnStream) Send(msg *agentdv1.RunRequest) error {
	if !s.begun {
		s.begun = true
		return s.begin(msg)
	}
	select {
	case <-s.over:
		return io.EOF
	default:
	}
	refusal, err := s.take(msg)
	if err != nil {
		if refusal = refusalOf(err); refusal == nil {
			return err
		}
	}
	if refusal != nil {
		if id := msg.GetToolCallResponse().GetToolCallId(); id != "" {
			refusal.ToolCallId = id
		}
		s.refuse(refusal)
	}
	return nil
}

// begin starts the turn, if the message does, and the goroutine that watches it, which ends
// with the stream.
func (s *turnStream) begin(first *agentdv1.RunRequest) error {
	watch := &agentdv1.WatchTurnRequest{ToolNames: s.run.rc.offered}
	if at := first.GetAttach(); at != nil {
		watch = &agentdv1.WatchTurnRequest{
			SessionId:  at.GetSessionId(),
			TurnId:     at.GetTurnId(),
			AfterSeq:   at.AfterSeq,
			ToolNames:  at.GetToolNames(),
			Observe:    at.GetObserve(),
			Display:    at.GetDisplay(),
			Visibility: at.GetVisibility(),
		}
	} else {
		create := &agentdv1.CreateTurnRequest{Execute: first.GetExecute()}
		created, err := s.run.client.sessions.CreateTurn(s.ctx, request(s, create))
		if err != nil {
			go s.finish(err)
			return io.EOF
		}
		watch.SessionId, watch.TurnId = created.Msg.GetTurn().GetSessionId(), created.Msg.GetTurn().GetId()
	}
	if s.session = watch.GetSessionId(); watch.GetTurnId() != "" {
		s.turn.Store(&watch.TurnId)
	}
	go s.watch(watch, first.GetAttach() != nil)
	return nil
}

// watch hands on the messages of the turn. greets has it say first that the server has
// responded, as the reply to a heartbeat does on a stream of Run.
func (s *turnStream) watch(req *agentdv1.WatchTurnRequest, greets bool) {
	events, err := s.run.client.sessions.WatchTurn(s.side, request(s, req))
	if err != nil {
		s.finish(err)
		return
	}
	if greets && len(events.ResponseHeader()) > 0 {
		s.put(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_Heartbeat{
			Heartbeat: &agentdv1.RunResponse_HeartbeatResponse{SessionId: s.session},
		}})
	}
	for events.Receive() {
		msg := events.Msg().GetEvent()
		if id := msg.GetTurnId(); id != "" {
			s.turn.CompareAndSwap(nil, &id)
		}
		s.put(msg)
	}
	err = events.Err()
	_ = events.Close() // the stream is at its end
	s.finish(err)
}

// finish ends the stream: with what the server has said, with an error of the connection,
// or as one that is at its end. It is called once.
func (s *turnStream) finish(err error) {
	defer close(s.over)
	s.err = io.EOF
	if err == nil {
		return
	}
	if refusal := refusalOf(err); refusal != nil {
		s.refuse(refusal)
		return
	}
	s.err = err
}

// refuse hands on what the server has said against a request.
func (s *turnStream) refuse(refusal *agentdv1.RunResponse_ErrorResponse) {
	refusal.SessionId = s.session
	s.put(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_Error{Error: refusal}})
}

// put hands a message to Receive, as long as the stream lasts.
func (s *turnStream) put(msg *agentdv1.RunResponse) {
	select {
	case s.in <- msg:
	case <-s.side.Done():
	case <-s.over:
	}
}

// take makes the request of a message that is not the first one. It returns the refusal of
// a result.
func (s *turnStream) take(msg *agentdv1.RunRequest) (*agentdv1.RunResponse_ErrorResponse, error) {
	stub := s.run.client.sessions
	if msg.GetHeartbeat() != nil {
		return nil, nil // WatchTurn has its own
	}
	turn, err := s.turnID()
	if err != nil {
		return nil, err
	}
	switch m := msg.GetRequest().(type) {
	case *agentdv1.RunRequest_ToolCallResponse_:
		resp, err := stub.SubmitToolResults(s.side, request(s, &agentdv1.SubmitToolResultsRequest{
			SessionId: s.session, TurnId: turn, Results: []*agentdv1.RunRequest_ToolCallResponse{m.ToolCallResponse},
		}))
		if err != nil {
			return nil, err
		}
		for _, refused := range resp.Msg.GetRefused() {
			return refused.GetError(), nil
		}
		return nil, nil
	case *agentdv1.RunRequest_End:
		reason := m.End.GetReason()
		if reason == "" {
			reason = "ended by the client"
		}
		return nil, s.cancelTurn(turn, reason)
	case *agentdv1.RunRequest_Cancel:
		if m.Cancel.ToolCallId == nil {
			return nil, s.cancelTurn(turn, "")
		}
		_, err := stub.CancelToolCall(s.side, request(s, &agentdv1.CancelToolCallRequest{
			SessionId: s.session, TurnId: turn, ToolCallId: m.Cancel.GetToolCallId(),
		}))
		return nil, err
	default:
		return nil, nil // a run sends nothing else
	}
}

// turnID is the turn that is watched: who attaches without a name, and cancels before
// anything has come, means the session's last one.
func (s *turnStream) turnID() (string, error) {
	if id := s.turn.Load(); id != nil {
		return *id, nil
	}
	last, err := s.run.client.sessions.GetTurn(s.side, request(s, &agentdv1.GetTurnRequest{SessionId: s.session}))
	if err != nil {
		return "", err
	}
	return last.Msg.GetTurn().GetId(), nil
}

// cancelTurn returns when nothing of the turn runs any more. It outlives the stream by
// cancelLinger: a request that is on its way when the run is left would otherwise not arrive.
func (s *turnStream) cancelTurn(turn, reason string) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.side))
	defer cancel()
	unwatch := context.AfterFunc(s.side, func() { time.AfterFunc(cancelLinger, cancel) })
	defer unwatch()
	_, err := s.run.client.sessions.CancelTurn(ctx, request(s, &agentdv1.CancelTurnRequest{
		SessionId: s.session, TurnId: turn, Reason: reason,
	}))
	return err
}

// request is a request with the headers of the run.
func request[T any](s *turnStream, msg *T) *connect.Request[T] {
	req := connect.NewRequest(msg)
	maps.Copy(req.Header(), s.run.rc.header)
	return req
}
