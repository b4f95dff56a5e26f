package server

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
)

// maxChunkBytes is the largest piece of text, or of state, in one message: many
// gRPC clients refuse messages above 4 MiB.
const maxChunkBytes = 1 << 20

// resumeHint tells a client what to do after its stream ends before its turn.
const resumeHint = "the turn is not over: attach again with after_seq"

// follow sends the turn's events and the replies to the client's messages until the
// turn is over, the stream must end, or the client is gone. Then the client no longer
// watches.
func (st *stream) follow(ctx context.Context) {
	defer st.detach()
	f := st.newFollower()
	defer st.idle.Stop()
	st.followed(f.follow(ctx))
}

// newFollower returns what follows the turn.
func (st *stream) newFollower() *follower {
	st.idle = time.NewTimer(st.srv.now().IdleTimeout)
	f := &follower{srv: st.srv, view: st.view, hint: resumeHint, peer: runPeer{st}, quiet: st.idle.C}
	if feed := st.follows(); feed != nil {
		f.feed = feed
	} else {
		f.feed = &turnFeed{Watcher: st.watch}
	}
	return f
}

// followed ends the stream after its follower has returned err.
func (st *stream) followed(err error) {
	e, ok := errors.AsType[*fault.Error](err)
	switch {
	case err == nil:
	case ok:
		st.endEarly(e)
	case st.gone, st.t.ctx.Err() != nil:
		st.gone = true
	default: // the client's own deadline
		st.endEarly(fault.Errorf(codeTimeout, "the deadline of the request has passed; %s", resumeHint))
	}
}

// runPeer is the client of a Run stream.
type runPeer struct{ *stream }

// errGone ends the following of a client that cannot be reached; see stream.gone.
var errGone = errors.New("the client is gone")

// hold implements peer.
func (p runPeer) hold(room *lease) {
	p.room.close()
	p.room = room
}

// send implements peer.
func (p runPeer) send(e session.Placed, more bool) error {
	p.t.out.more = more
	switch r := e.Message.GetResponse().(type) {
	case *agentdv1.RunResponse_Error: // of the turn's failure
		p.awaitRefusal()
		p.errorCode = r.Error.GetCode()
	case *agentdv1.RunResponse_End:
		if p.errorCode == 0 {
			p.awaitRefusal() // nothing may follow
		}
		p.end = r.End
	}
	return p.put(e)
}

// forwarded sends the headers if nothing was sent: the client is attached and has
// missed nothing.
func (p runPeer) forwarded(n int) error {
	defer func() { p.caughtUp = true }()
	if n == 0 && !p.caughtUp {
		return p.reply(nil)
	}
	return nil
}

// onQuiet ends a stream that was quiet for too long.
func (p runPeer) onQuiet() error {
	limit := p.srv.now().IdleTimeout
	if left := limit - p.stream.quiet(); left > 0 {
		p.idle.Reset(left)
		return nil
	}
	return fault.Errorf(codeTimeout,
		"no message for %v, the limit; send heartbeats to keep a quiet stream open; %s", limit, resumeHint)
}

// replies implements peer. No reply may come before what the turn has at first, nor
// between an error and the end.
func (p runPeer) replies() <-chan *agentdv1.RunResponse {
	if p.caughtUp && p.errorCode == 0 {
		return p.stream.replies
	}
	return nil
}

// reply implements peer.
func (p runPeer) reply(msg *agentdv1.RunResponse) error { return p.put(session.Placed{Message: msg}) }

func (p runPeer) put(e session.Placed) error {
	p.stream.put(e)
	if p.gone {
		return errGone
	}
	return nil
}

func (p runPeer) stops() <-chan *fault.Error { return p.stopReasons }

// leaves implements peer.
func (p runPeer) leaves() <-chan struct{} {
	switch {
	case p.follows() == nil || p.follows().isHere():
		return nil
	case p.goesItself():
		return p.srv.drain.Done()
	}
	return p.srv.ended.Done()
}

// stays reports whether the client is to stay when its session goes to another server.
func (st *stream) stays() bool {
	if st.goesItself() {
		return st.srv.drain.Err() == nil
	}
	return st.srv.ended.Err() == nil
}

// goesItself reports whether the client attaches elsewhere when this server stops: it knows how, and to what.
func (st *stream) goesItself() bool { return !st.plain && (st.far == nil || st.far.attaches()) }

// stopped implements peer. When the turn is suspended, or the log cannot be read, what
// comes later is for a later stream.
func (p runPeer) stopped(err error) *fault.Error {
	p.flushReplies()
	return p.srv.internal("read turn", err)
}

// endEarly sends why the stream ends before its turn.
func (st *stream) endEarly(e *fault.Error) {
	st.errorCode = e.Code
	if st.srv.says(st.t.ctx, e) {
		st.bidi.ResponseTrailer().Set(headerMoved, "1")
	}
	st.sendLast(st.errorOf(e))
}

// sendLast sends why the stream ends.
func (st *stream) sendLast(msg *agentdv1.RunResponse) {
	if isForwarded(st.t.ctx) {
		endForwarded(st.bidi.ResponseTrailer(), msg)
		st.sentMessage = false // the other server reads to the end
		return
	}
	st.send(msg)
}

// errorOf returns the wire form of an error of a stream that has its turn.
func (st *stream) errorOf(e *fault.Error) *agentdv1.RunResponse {
	st.srv.limited(e)
	id, turn := st.ids()
	if e.TurnID == "" && turn != "" {
		e = e.OfTurn(turn)
	}
	return errorResponse(id, e)
}

// pieces cuts text and state into messages of bounded size, at least one. It makes the
// texts of msg valid UTF-8.
func pieces(msg *agentdv1.RunResponse) []*agentdv1.RunResponse {
	clean(msg)
	var out []*agentdv1.RunResponse
	switch r := msg.GetResponse().(type) {
	case *agentdv1.RunResponse_OutputChunk_:
		c := r.OutputChunk
		for len(c.GetContent()) > maxChunkBytes {
			n := maxChunkBytes
			for !utf8.RuneStart(c.GetContent()[n]) {
				n--
			}
			head := proto.CloneOf(c)
			head.Content, head.Last = c.GetContent()[:n], false
			out = append(out,
				pieceOf(msg, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_OutputChunk_{OutputChunk: head}}))
			c.Content = c.GetContent()[n:]
		}
	case *agentdv1.RunResponse_StateUpdate_:
		updates := splitState(r.StateUpdate)
		for _, p := range updates[:len(updates)-1] {
			out = append(out,
				pieceOf(msg, &agentdv1.RunResponse{Response: &agentdv1.RunResponse_StateUpdate_{StateUpdate: p}}))
		}
		r.StateUpdate = updates[len(updates)-1]
	}
	return append(out, msg)
}

// clean makes the texts of a message what protobuf accepts.
func clean(msg *agentdv1.RunResponse) {
	switch r := msg.GetResponse().(type) {
	case *agentdv1.RunResponse_OutputChunk_:
		r.OutputChunk.Content = cleanText(r.OutputChunk.GetContent())
	case *agentdv1.RunResponse_ToolCallAnswered:
		switch result := r.ToolCallAnswered.GetResult().(type) {
		case *agentdv1.ToolCallAnswered_Output:
			result.Output = cleanText(result.Output)
		case *agentdv1.ToolCallAnswered_Error:
			result.Error = cleanText(result.Error)
		}
	case *agentdv1.RunResponse_ToolCallUnserved:
		r.ToolCallUnserved.ToolName = cleanText(r.ToolCallUnserved.GetToolName())
	case *agentdv1.RunResponse_ModelCallRetried:
		r.ModelCallRetried.Message = wireText(r.ModelCallRetried.GetMessage())
	case *agentdv1.RunResponse_ModelCallFellBack:
		r.ModelCallFellBack.Message = wireText(r.ModelCallFellBack.GetMessage())
	case *agentdv1.RunResponse_ModelCallEnded:
		r.ModelCallEnded.ServedModel = wireText(r.ModelCallEnded.GetServedModel())
	case *agentdv1.RunResponse_HistoryCompacted:
		r.HistoryCompacted.Summary = cleanText(r.HistoryCompacted.GetSummary())
	case *agentdv1.RunResponse_RemoteSession:
		s := r.RemoteSession
		s.RemoteAgentId, s.RemoteSessionId = wireText(s.GetRemoteAgentId()), wireText(s.GetRemoteSessionId())
		s.Cursor, s.Reason = wireText(s.GetCursor()), wireText(s.GetReason())
	case *agentdv1.RunResponse_RawPayloadReceived:
		r.RawPayloadReceived.ContentType = wireText(r.RawPayloadReceived.GetContentType())
	case *agentdv1.RunResponse_Error:
		r.Error.Message = wireText(r.Error.GetMessage())
	case *agentdv1.RunResponse_End:
		if r.End.Reason != nil {
			r.End.Reason = new(wireText(r.End.GetReason()))
		}
	}
}

func cleanText(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// pieceOf gives a piece the fields of its message, except seq: only the last piece has
// seq, so a client that has it has all pieces.
func pieceOf(msg, piece *agentdv1.RunResponse) *agentdv1.RunResponse {
	piece.TurnId, piece.Time, piece.Replayed = msg.GetTurnId(), msg.GetTime(), msg.GetReplayed()
	return piece
}

// flushReplies sends the replies that wait.
func (st *stream) flushReplies() {
	for {
		select {
		case msg := <-st.replies:
			st.send(msg)
		default:
			return
		}
	}
}

// awaitRefusal sends the replies, including the reply to the message that the receiver
// is handling, and to results that wait. It waits for that as long as for a client to
// close its side.
func (st *stream) awaitRefusal() {
	st.unbound()
	timer := time.NewTimer(st.srv.now().LingerTimeout)
	defer timer.Stop()
	held := 0
	defer func() {
		for range held {
			<-st.handling
		}
	}()
	for waiting := true; waiting; {
		select {
		case msg := <-st.replies:
			st.send(msg)
		case st.handling <- struct{}{}:
			held++
			waiting = held < maxHandled
		case <-timer.C:
			waiting = false
		case <-st.t.ctx.Done():
			waiting = false
		}
	}
	st.flushReplies()
}

// send sends one message, or with nil the headers alone. A client that does not
// read it in time is gone.
func (st *stream) send(msg *agentdv1.RunResponse) { st.put(session.Placed{Message: msg}) }

// put is send for a message that may be shared.
func (st *stream) put(e session.Placed) {
	if st.gone {
		return
	}
	if e.Message != nil {
		st.view.apply(e.Message)
	}
	if !st.bounded {
		st.writing.Reset(st.srv.now().WriteTimeout)
		st.bounded = true
	}
	var err error
	if e.Shared == nil {
		err = st.bidi.Send(e.Message)
	} else {
		err = st.bidi.Conn().Send(shared(e, e.Message))
	}
	st.sentMessage = st.sentMessage || e.Message != nil
	st.gone = err != nil
	if st.gone || !st.t.out.more {
		st.unbound()
	}
}

// unbound notes that what was sent is written.
func (st *stream) unbound() {
	st.writing.Stop()
	st.bounded = false
	st.touch()
}
