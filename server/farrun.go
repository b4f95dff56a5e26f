package server

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
)

const (
	// maxUnanswered is how many results of a client may wait for the word of the owner that they are in the log.
	maxUnanswered = 1024
	// maxUnsent is how many other messages of a client wait while there is no owner.
	maxUnsent = 16
)

// farRun is a Run stream of a server that is one of several. As long as this server owns the session, it serves the
// stream itself. Otherwise the stream's messages go to the owner and come from there. When that server is lost, the
// stream is opened again at the next owner, which may be this server, behind the last event; results that may not have
// arrived are sent again.
type farRun struct {
	st   *stream
	feed *roamer

	// sending orders what is sent to the owner. It is held while the owner does not read, and taken before mu.
	sending sync.Mutex

	mu sync.Mutex // protects the fields below
	// first is with what the stream is opened.
	first *agentdv1.RunRequest
	// away says that the turn is not this server's.
	away bool
	// out is nil while there is no owner.
	out *connect.BidiStreamForClient[agentdv1.RunRequest, agentdv1.RunResponse]
	// unanswered are results, by call, and unsent is what else waits for an owner.
	unanswered map[string]*agentdv1.RunRequest
	unsent     []*agentdv1.RunRequest
	closed     bool // the client sends nothing more
	begun      bool // there is a turn
}

// roam has the stream, whose turn is here, follow its session when that goes to another server. first is what the
// client has begun the stream with.
func (st *stream) roam(ctx context.Context, first *agentdv1.RunRequest) {
	far := &farRun{st: st, unanswered: map[string]*agentdv1.RunRequest{}}
	at := &agentdv1.AttachRequest{SessionId: st.turn.SessionID(), TurnId: st.turn.ID(), Observe: st.observes}
	if begun := first.GetAttach(); begun != nil {
		at.AfterSeq, at.ToolNames = begun.AfterSeq, begun.GetToolNames()
	} else {
		at.ToolNames = namesOf(first.GetExecute())
	}
	far.first, far.begun = attaching(at), true
	far.feed = newRoamer(&turnFeed{Watcher: st.watch}, st.watch.Close, far.note)
	far.feed.attach, far.feed.stays = far.again, st.stays
	far.feed.moved, far.feed.want = st.srv.movedOf(ctx, st.turn.SessionID()), st.srv.wantOf(st.turn.SessionID())
	st.far = far
}

// beginFar has the stream's turn at the server at an address.
func (st *stream) beginFar(ctx context.Context, first *agentdv1.RunRequest, address string) *fault.Error {
	far := &farRun{st: st, first: first, away: true, unanswered: map[string]*agentdv1.RunRequest{}}
	if ex := first.GetExecute(); ex != nil && ex.GetIdempotencyKey() == "" {
		// The owner may die before its first event comes: then the next one knows whether the turn has started.
		far.first = proto.CloneOf(first)
		far.first.GetExecute().IdempotencyKey = "replica-" + rand.Text()
	}
	from, leave, err := far.open(ctx, address)
	if err != nil && !errors.Is(err, errAway) {
		return errUnreached
	}
	far.feed = newRoamer(from, leave, far.note)
	far.feed.attach, far.feed.stays = far.again, st.stays
	if id := far.sessionID(); id != "" {
		far.feed.moved, far.feed.want = st.srv.movedOf(ctx, id), st.srv.wantOf(id)
	}
	st.far, st.observes = far, first.GetAttach().GetObserve()
	return nil
}

// namesOf returns the tools of a client.
func namesOf(ex *agentdv1.RunRequest_ExecuteRequest) (names []string) {
	for _, tool := range ex.GetTools() {
		names = append(names, tool.GetName())
	}
	return names
}

// attaching is the first message of a stream that attaches.
func attaching(at *agentdv1.AttachRequest) *agentdv1.RunRequest {
	return &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Attach{Attach: at}}
}

// isAway reports whether another server has the turn, or is about to: messages of the client are to be passed on.
func (f *farRun) isAway() bool {
	if f == nil {
		return false
	}
	gone := f.st.turn != nil && f.st.turn.IsLeft()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = f.away || gone
	return f.away
}

// open opens a stream at the server at an address. It ends when it is left, not with ctx: the owner is to know why the
// client has gone.
func (f *farRun) open(ctx context.Context, address string) (feed, func(), error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	out := agentdv1connect.NewAgentdClient(f.st.srv.now().ReplicaClient, replicaURL(address)).Run(ctx)
	err := f.st.srv.carry(ctx, f.st.bidi.RequestHeader(), out.RequestHeader())
	if err == nil && !f.resume(out) {
		err = errAway
	}
	if err != nil {
		cancel()
		return nil, nil, err
	}
	in := &farStream{BidiStreamForClient: out, reply: f.reply, again: f.answered, turn: f.turnID()}
	from, leave := follow(in, func() session.Placed { return session.Placed{Message: in.msg} }, cancel)
	return from, func() {
		cancel()               // also of a send that waits
		_ = out.CloseRequest() // net/http does not look at the context while it waits for more of the request
		f.set(nil)             // what is received meanwhile takes the lock, and leave waits for that
		leave()
	}, nil
}

// resume begins a stream, and sends what may not have arrived. It reports false if the stream cannot be begun.
func (f *farRun) resume(out *connect.BidiStreamForClient[agentdv1.RunRequest, agentdv1.RunResponse]) bool {
	f.sending.Lock()
	defer f.sending.Unlock()
	first, rest, closed := f.waiting()
	if out.Send(first) != nil {
		return false
	}
	f.set(out)
	for _, msg := range rest {
		if out.Send(msg) != nil {
			return true // the stream has ended, and its feed says so
		}
	}
	f.mu.Lock()
	f.unsent = nil
	f.mu.Unlock() // nothing fails between
	if closed {
		_ = out.CloseRequest()
	}
	return true
}

// waiting returns with what a stream is begun, what may not have arrived, and whether nothing more comes.
func (f *farRun) waiting() (first *agentdv1.RunRequest, rest []*agentdv1.RunRequest, closed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	rest = slices.AppendSeq(rest, maps.Values(f.unanswered))
	return f.first, append(rest, f.unsent...), f.closed
}

// set sets the stream to the owner, nil for none.
func (f *farRun) set(out *connect.BidiStreamForClient[agentdv1.RunRequest, agentdv1.RunResponse]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.out = out
}

// again opens the stream behind the last event, at the owner that there is now.
func (f *farRun) again(ctx context.Context) (feed, func(), error) {
	f.mu.Lock()
	f.away = true
	f.mu.Unlock() // nothing fails between
	address, err := f.st.srv.ownerOf(ctx, f.sessionID())
	if err != nil {
		return nil, nil, err
	}
	return f.open(ctx, address)
}

// ownerOf returns the address of the server that has a session, or would have it: this one, unless it stops. An error
// is errAway.
func (s *Server) ownerOf(ctx context.Context, id string) (address string, err error) {
	known, is := s.now().Sessions.(owners)
	if !is {
		return "", errAway
	}
	if address, err = known.OwnerOf(ctx, id); err != nil {
		return "", errAway
	}
	switch {
	case address != "":
	case known.Takes():
		address = s.now().ReplicaAddress
	default:
		address = known.Another()
	}
	if address == "" {
		return "", errAway
	}
	return address, nil
}

// sessionID is the session of the turn, "" for a new one of which nothing has come yet.
func (f *farRun) sessionID() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at := f.first.GetAttach(); at != nil {
		return at.GetSessionId()
	}
	if ex := f.first.GetExecute(); !ex.GetFork() {
		return ex.GetSessionId()
	}
	return ""
}

// attaches reports whether the stream is opened by attaching: the client knows its turn.
func (f *farRun) attaches() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.first.GetAttach() != nil
}

// turnID is the turn that the stream is opened for, "" for one that is not known yet.
func (f *farRun) turnID() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.first.GetAttach().GetTurnId()
}

// named is sessionID, or "" for a stream that has no turn yet.
func (f *farRun) named() string {
	f.mu.Lock()
	begun := f.begun
	f.mu.Unlock() // nothing fails between
	if !begun {
		return ""
	}
	return f.sessionID()
}

// note remembers where an event stands.
func (f *farRun) note(e session.Placed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if answered := e.Message.GetToolCallAnswered(); answered != nil {
		delete(f.unanswered, answered.GetToolCallId())
	}
	seq := e.Message.GetSeq()
	if seq == 0 {
		return
	}
	f.begun = true
	at := f.first.GetAttach()
	if at == nil {
		ex := f.first.GetExecute()
		at = &agentdv1.AttachRequest{
			SessionId: eventSession(e.Message), TurnId: e.Message.GetTurnId(), ToolNames: namesOf(ex),
		}
		f.first = attaching(at)
	}
	at.AfterSeq = &seq
}

// eventSession is the session that an event names.
func eventSession(msg *agentdv1.RunResponse) string {
	m := msg.ProtoReflect()
	member := m.WhichOneof(m.Descriptor().Oneofs().ByName("response"))
	if member == nil || member.Message() == nil {
		return ""
	}
	field := member.Message().Fields().ByName("session_id")
	if field == nil {
		return ""
	}
	return m.Get(member).Message().Get(field).String()
}

// reply passes on what the owner replies to a message of the client. A result that it refuses waits no more.
func (f *farRun) reply(msg *agentdv1.RunResponse) {
	if id := msg.GetError().GetToolCallId(); id != "" {
		f.mu.Lock()
		delete(f.unanswered, id)
		f.mu.Unlock() // nothing fails between
	}
	f.st.enqueueReply(msg)
}

// answered reports whether an event asks for a call whose result the client has sent.
func (f *farRun) answered(msg *agentdv1.RunResponse) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return msg.GetToolCall() != nil && f.unanswered[msg.GetToolCall().GetToolCallId()] != nil
}

// take passes on a message of the client, at once or when there is an owner. The receiver calls it.
func (f *farRun) take(msg *agentdv1.RunRequest) *fault.Error {
	f.sending.Lock()
	defer f.sending.Unlock()
	out, e := f.keep(msg)
	if e != nil || out != nil && out.Send(msg) == nil || msg.GetToolCallResponse() != nil {
		return e // a result is sent again if need be
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case len(f.unsent) < maxUnsent:
		f.unsent = append(f.unsent, msg)
	case msg.GetHeartbeat() == nil: // of those one will do
		return errUnreached.After(time.Second)
	}
	return nil
}

// keep returns the stream to the owner, nil for none, and keeps a result until the owner has said that it is taken.
func (f *farRun) keep(
	msg *agentdv1.RunRequest,
) (out *connect.BidiStreamForClient[agentdv1.RunRequest, agentdv1.RunResponse], e *fault.Error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = true
	if result := msg.GetToolCallResponse(); result != nil {
		if len(f.unanswered) >= maxUnanswered {
			return nil, fault.Errorf(codeLimit, "%d results wait to be taken, the limit", maxUnanswered)
		}
		f.unanswered[result.GetToolCallId()] = msg
	}
	return f.out, nil
}

// halfClose says to the owner that the client sends nothing more, now or when there is an owner. It reports false if
// this server has the turn.
func (f *farRun) halfClose() bool {
	away := f.isAway()
	f.sending.Lock()
	defer f.sending.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	if f.out != nil {
		_ = f.out.CloseRequest()
	}
	return away
}

// resetFor bounds how long an owner is looked for that is to know of a reset. It exceeds the time in which a session
// changes hands whose owner was killed.
const resetFor = 5 * time.Second

// reset says to the owner that the client has reset its stream, and waits, within bounds, until it knows.
func (f *farRun) reset() {
	leaves := &agentdv1.RunRequest{Request: &agentdv1.RunRequest_End{
		End: &agentdv1.RunRequest_EndRequest{SessionId: f.sessionID(), Reason: new(resetReason)},
	}}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(f.st.t.ctx), resetFor)
	defer cancel()
	for ctx.Err() == nil {
		owner, is := f.feed.now.(*remote)
		if is && f.take(leaves) == nil && owner.await(ctx, resetWait) == nil {
			return
		}
		f.feed.close()
		f.feed.now, f.feed.leave, _ = f.again(ctx)
		if f.feed.now == nil {
			pause(ctx, roamEvery)
		}
	}
}

// pause waits.
func pause(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// farStream receives what the owner sends.
type farStream struct {
	*connect.BidiStreamForClient[agentdv1.RunRequest, agentdv1.RunResponse]
	reply func(*agentdv1.RunResponse)
	again func(*agentdv1.RunResponse) bool // the client has it, and has answered it
	turn  string                           // "" if it is not known
	ended bool                             // why the stream has ended was received
	msg   *agentdv1.RunResponse
	err   error
}

// Receive implements receiver. A reply to a message of the client is no event; that to a heartbeat says that the owner
// has taken what came before it.
func (s *farStream) Receive() bool {
	for {
		if s.msg, s.err = s.BidiStreamForClient.Receive(); s.err != nil {
			s.msg = endedBy(s.ResponseTrailer())
			ended := s.msg != nil && !s.ended
			s.ended = true
			return ended
		}
		if s.again(s.msg) {
			continue
		}
		if s.msg.GetExecute() != nil {
			s.turn = s.msg.GetTurnId()
		}
		if s.msg.GetEnd() != nil && s.turn != "" && s.turn == s.msg.GetTurnId() { // and not of a turn before it
			_ = s.CloseRequest() // the owner waits for it
		}
		refuses := s.msg.GetError() != nil && s.msg.GetSeq() == 0
		if !refuses && s.msg.GetHeartbeat() == nil {
			return true
		}
		s.reply(s.msg)
	}
}

// HasMoved implements receiver.
func (s *farStream) HasMoved() bool {
	_ = s.CloseRequest() // the owner waits for it
	for s.err == nil {
		_, s.err = s.BidiStreamForClient.Receive()
	}
	return !errors.Is(s.err, io.EOF) || hasMoved(s.ResponseTrailer())
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
