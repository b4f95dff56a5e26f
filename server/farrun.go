package server

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
)

// maxUnanswered is how many results of a client may wait for the word of the owner that they are in the log.
const maxUnanswered = 1024

// farRun is a Run stream whose session another server owns: its messages go there and come from there. When that server
// is lost, the stream is opened again at the next owner, which may be this server, behind the last event; results that
// may not have arrived are sent again.
type farRun struct {
	st    *stream
	feed  *roamer
	first *agentdv1.RunRequest // with which the stream is opened

	mu         sync.Mutex                                                              // protects the fields below
	out        *connect.BidiStreamForClient[agentdv1.RunRequest, agentdv1.RunResponse] // nil while there is no owner
	unanswered map[string]*agentdv1.RunRequest                                         // results, by call
}

// begin opens a stream at the server at an address; first is what the client has begun its own with.
func (f *farRun) begin(ctx context.Context, address string) error {
	from, leave, err := f.open(ctx, address)
	if err != nil {
		return err
	}
	f.feed = newRoamer(from, leave, f.note)
	f.feed.attach = f.again
	return nil
}

// beginFar has the stream's turn at the server that owns its session.
func (st *stream) beginFar(ctx context.Context, first *agentdv1.RunRequest, address string) *fault.Error {
	far := &farRun{st: st, first: first, unanswered: map[string]*agentdv1.RunRequest{}}
	if err := far.begin(ctx, address); err != nil {
		return errUnreached
	}
	st.far, st.observes = far, first.GetAttach().GetObserve()
	return nil
}

// open opens a stream at the server at an address.
func (f *farRun) open(ctx context.Context, address string) (feed, func(), error) {
	ctx, cancel := context.WithCancel(ctx)
	out := agentdv1connect.NewAgentdClient(f.st.srv.now().ReplicaClient, replicaURL(address)).Run(ctx)
	err := f.st.srv.carry(ctx, f.st.bidi.RequestHeader(), out.RequestHeader())
	if err == nil {
		if err = out.Send(f.first); err != nil {
			err = errAway
		}
	}
	if err != nil {
		cancel()
		return nil, nil, err
	}
	f.resume(out)
	in := &farStream{BidiStreamForClient: out, reply: f.reply, again: f.answered}
	from, leave := follow(in, func() session.Placed { return session.Placed{Message: in.msg} }, cancel)
	return from, func() {
		cancel() // also of a send that waits
		f.mu.Lock()
		f.out = nil
		f.mu.Unlock() // what is received meanwhile takes it, and leave waits for that
		leave()
	}, nil
}

// resume sends the results again that may not have arrived.
func (f *farRun) resume(out *connect.BidiStreamForClient[agentdv1.RunRequest, agentdv1.RunResponse]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.out = out
	for _, msg := range f.unanswered {
		if out.Send(msg) != nil {
			return // the stream has ended, and its feed says so
		}
	}
}

// again opens the stream behind the last event, at the owner that there is now.
func (f *farRun) again(ctx context.Context) (feed, func(), error) {
	if ex := f.first.GetExecute(); ex != nil && ex.GetIdempotencyKey() == "" {
		return nil, nil, errUnreached // it may have started
	}
	srv := f.st.srv
	known, is := srv.now().Sessions.(owners)
	id := f.sessionID()
	if !is {
		return nil, nil, errUnreached
	}
	address, err := known.OwnerOf(ctx, id)
	if err != nil {
		return nil, nil, errAway
	}
	if address == "" {
		address = srv.now().ReplicaAddress
	}
	return f.open(ctx, address)
}

// sessionID is the session that the client has named.
func (f *farRun) sessionID() string {
	if at := f.first.GetAttach(); at != nil {
		return at.GetSessionId()
	}
	return f.first.GetExecute().GetSessionId()
}

// note remembers where an event stands.
func (f *farRun) note(e session.Placed) {
	if answered := e.Message.GetToolCallAnswered(); answered != nil {
		f.mu.Lock()
		delete(f.unanswered, answered.GetToolCallId())
		f.mu.Unlock() // nothing fails between
	}
	seq := e.Message.GetSeq()
	if seq == 0 {
		return
	}
	at := f.first.GetAttach()
	if at == nil {
		ex := f.first.GetExecute()
		at = &agentdv1.AttachRequest{SessionId: ex.GetSessionId(), TurnId: e.Message.GetTurnId()}
		for _, tool := range ex.GetTools() {
			at.ToolNames = append(at.ToolNames, tool.GetName())
		}
		f.first = &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Attach{Attach: at}}
	}
	at.AfterSeq = &seq
}

// reply passes on what the owner replies to a message of the client.
func (f *farRun) reply(msg *agentdv1.RunResponse) { f.st.enqueueReply(msg) }

// answered reports whether an event asks for a call whose result the client has sent.
func (f *farRun) answered(msg *agentdv1.RunResponse) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return msg.GetToolCall() != nil && f.unanswered[msg.GetToolCall().GetToolCallId()] != nil
}

// take passes on a message of the client. The receiver calls it.
func (f *farRun) take(msg *agentdv1.RunRequest) *fault.Error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if result := msg.GetToolCallResponse(); result != nil {
		if len(f.unanswered) >= maxUnanswered {
			return fault.Errorf(codeLimit, "%d results wait to be taken, the limit", maxUnanswered)
		}
		f.unanswered[result.GetToolCallId()] = msg
		if f.out != nil {
			_ = f.out.Send(msg) // it is sent again
		}
		return nil
	}
	if f.out == nil || f.out.Send(msg) != nil {
		return errUnreached.After(time.Second)
	}
	return nil
}

// farStream receives what the owner sends.
type farStream struct {
	*connect.BidiStreamForClient[agentdv1.RunRequest, agentdv1.RunResponse]
	reply func(*agentdv1.RunResponse)
	again func(*agentdv1.RunResponse) bool // the client has it, and has answered it
	msg   *agentdv1.RunResponse
	err   error
}

// Receive implements receiver. A reply to a message of the client is no event.
func (s *farStream) Receive() bool {
	for {
		if s.msg, s.err = s.BidiStreamForClient.Receive(); s.err != nil {
			return false
		}
		if s.again(s.msg) {
			continue
		}
		said := s.msg.GetError()
		if said == nil || s.msg.GetSeq() > 0 || said.GetToolCallId() == "" {
			return true
		}
		s.reply(s.msg)
	}
}

// Err implements receiver.
func (s *farStream) Err() error {
	if errors.Is(s.err, io.EOF) {
		return nil
	}
	return s.err
}

// Close implements receiver.
func (s *farStream) Close() error {
	_ = s.CloseRequest()
	return s.CloseResponse()
}
