package server

import (
	"cmp"
	"context"
	"errors"
	"io"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
)

// halfCloseGrace is how long the server waits to see whether a client that closed its
// side is gone.
const halfCloseGrace = time.Second

// receive is the one goroutine that receives. It takes the client's messages in order,
// at a bounded rate: faster ones wait in the connection's flow control. After the end
// of the stream it discards what arrives, at any rate, so that the client can close its
// side. It ends when the client's side is closed or cannot be read; the handler ensures
// that before it returns.
func (st *stream) receive() {
	defer close(st.receiverDone)
	defer st.results.Wait()
	defer func() { st.survive(recover()) }()
	cfg := st.srv.now()
	pace := rate.NewLimiter(rate.Limit(cfg.MessagesPerSecond), 2*cfg.MessagesPerSecond)
	msg, err := st.bidi.Receive()
	st.first <- received{msg, err}
	select {
	case <-st.attached:
	case <-st.over:
	}
	for refused := 0; (err == nil || inStep(err)) && !st.isOver(); {
		if pace.Wait(st.paceCtx) != nil {
			break
		}
		st.t.body.next()
		if msg, err = st.bidi.Receive(); st.isOver() {
			break
		}
		if st.handleOrRefuse(msg, err) {
			refused = 0
			continue
		}
		if refused++; refused == cfg.MaxRefused {
			select {
			case st.stopReasons <- fault.Errorf(codeLimit, "%d messages in a row were refused, the limit; %s",
				refused, resumeHint).
				Over("refused_messages", cfg.MaxRefused, refused):
			default: // it ends anyway
			}
			<-st.over
		}
	}
	if !st.isOver() {
		st.halfClosed(err)
	}
	if st.isOver() && st.t.ctx.Err() == nil {
		// The rest is read and dropped until the client closes its side or the handler
		// stops waiting for that.
		_, _ = io.Copy(io.Discard, st.t.body.ReadCloser)
	}
}

// survive cancels the turn after a panic.
func (st *stream) survive(p any) {
	if p != nil {
		st.srv.panicked("receiver", p)
		st.cancelTurn(fault.As(errors.New("panic")))
	}
}

// handleOrRefuse handles what Receive returned, or replies why not. A refused result
// may end the turn; awaitRefusal sends the reply before that end.
func (st *stream) handleOrRefuse(msg *agentdv1.RunRequest, err error) (taken bool) {
	st.handling <- struct{}{}
	if err == nil && msg.GetToolCallResponse() != nil && proto.Size(msg) <= freeRequest {
		return st.handleResult(msg)
	}
	defer func() { <-st.handling }()
	st.results.Wait()
	return st.refuse(msg, st.handleReceived(msg, err, nil))
}

// handleResult returns when a result has its place in the log, or is refused. Until it is
// durable, a goroutine of its own waits for that, so that results that come together are
// written together, in their order. All other messages wait for them.
func (st *stream) handleResult(msg *agentdv1.RunRequest) (taken bool) {
	first := make(chan bool, 1)
	outcome := func(taken bool) {
		select {
		case first <- taken:
		default: // it is known already
		}
	}
	st.results.Go(func() {
		defer func() { <-st.handling }()
		defer outcome(false) // after a panic
		defer func() { st.survive(recover()) }()
		outcome(st.refuse(msg, st.handleReceived(msg, nil, func() { outcome(true) })))
	})
	return <-first
}

// refuse replies why a message was refused, if e is not nil.
func (st *stream) refuse(msg *agentdv1.RunRequest, e *fault.Error) (taken bool) {
	if e == nil {
		return true
	}
	refusal := st.errorOf(e)
	refusal.GetError().ToolCallId = cmp.Or(
		msg.GetToolCallResponse().GetToolCallId(), msg.GetInteractionRequest().GetToolCallId())
	st.enqueueReply(refusal)
	return false
}

// handleReceived handles what Receive returned. The error says why not. queued may be
// nil; see session.ClientResult.
func (st *stream) handleReceived(msg *agentdv1.RunRequest, err error, queued func()) *fault.Error {
	switch {
	case err == nil:
		st.touch()
		passed := st.far.isAway()
		e := st.handle(msg, queued)
		if e != nil && st.far != nil && session.IsMoved(e) {
			passed, e = true, st.far.take(msg)
		}
		if !passed { // else the owner notes it
			st.auditMessage(msg, e)
		}
		return e
	case errors.Is(err, io.EOF):
		return nil
	default:
		return st.undecodable(err)
	}
}

// halfClosed notes, after the last error of Receive, that the client still reads but
// sends nothing more. It waits a little first: a client that dies may begin by closing
// its side, and the calls of a client that is gone stay its own.
func (st *stream) halfClosed(err error) {
	reason := "the client has closed its side of the stream"
	if !errors.Is(err, io.EOF) {
		reason = "the client's messages cannot be read any more"
	}
	timer := time.NewTimer(halfCloseGrace)
	defer timer.Stop()
	select {
	case <-timer.C:
		if st.observed == nil && (st.far == nil || !st.far.halfClose()) {
			st.watch.Unattended(reason)
		}
	case <-st.t.ctx.Done():
	case <-st.over:
	}
}

// handle does what a message asks for. The error says why not.
func (st *stream) handle(msg *agentdv1.RunRequest, queued func()) *fault.Error {
	if e := check(st.srv.rules, msg); e != nil {
		return st.invalid(msg, e)
	}
	if st.observed == nil && st.far.isAway() {
		return st.far.take(msg)
	}
	mine, _ := st.ids()
	if id := sessionIDOf(msg); id != "" && id != mine {
		return fault.Errorf(codeInvalid, "%s names session %s, this stream belongs to session %q", nameOf(msg),
			quote(id), mine).
			Breaking(fieldOf(msg)+".session_id", fault.RuleConflict)
	}
	if st.observes && changes(msg) {
		return fault.Errorf(codePrecondition,
			"%s on a stream that observes: it only watches; attach without observe, or call SessionService",
			nameOf(msg))
	}
	// A message counts even if its client goes away right after.
	ctx := context.WithoutCancel(st.t.ctx)
	switch r := msg.GetRequest().(type) {
	case *agentdv1.RunRequest_Execute:
		return fault.Errorf(codeInvalid,
			"a second ExecuteRequest: a stream carries one turn, which goes on; open another stream for this one")
	case *agentdv1.RunRequest_Attach:
		return fault.Errorf(codeInvalid,
			"an AttachRequest on a stream that has its turn, which goes on; open another stream for this one")
	case *agentdv1.RunRequest_Heartbeat:
		st.enqueueReply(&agentdv1.RunResponse{Response: &agentdv1.RunResponse_Heartbeat{
			Heartbeat: &agentdv1.RunResponse_HeartbeatResponse{SessionId: mine},
		}})
	case *agentdv1.RunRequest_ToolCallResponse_:
		result, e := toolResultOf(r.ToolCallResponse, new(maxValues))
		result.Refused, result.Queued = e, queued
		return st.submitResult(ctx, result)
	case *agentdv1.RunRequest_InteractionResponse:
		said := r.InteractionResponse
		return st.resultOf("resolve interaction",
			st.turn.Resolve(ctx, said.GetInteractionId(), resolutionOf(said.GetResolution())))
	case *agentdv1.RunRequest_InteractionRequest:
		return st.raise(ctx, r.InteractionRequest)
	case *agentdv1.RunRequest_End:
		reason := r.End.GetReason()
		if reason == resetReason && isForwarded(ctx) {
			st.watch.CloseAndCancel(reason)
			select {
			case st.stopReasons <- fault.Errorf(codeInvalid, "the client is gone"):
			default: // it ends anyway
			}
			return nil
		}
		if reason == "" {
			reason = "ended by the client"
		}
		st.turn.End(reason)
	case *agentdv1.RunRequest_Cancel:
		if r.Cancel.ToolCallId != nil {
			return st.resultOf("cancel call", st.turn.CancelCall(ctx, r.Cancel.GetToolCallId()))
		}
		st.turn.Cancel("cancelled by the client")
	}
	return nil
}

// changes reports whether a message asks to change the turn.
func changes(msg *agentdv1.RunRequest) bool {
	switch msg.GetRequest().(type) {
	case *agentdv1.RunRequest_ToolCallResponse_, *agentdv1.RunRequest_InteractionResponse,
		*agentdv1.RunRequest_InteractionRequest, *agentdv1.RunRequest_End, *agentdv1.RunRequest_Cancel:
		return true
	default:
		return false
	}
}

func (st *stream) resultOf(where string, err error) *fault.Error {
	if err == nil {
		return nil
	}
	return st.srv.internal(where, err)
}

// cancelTurn sends an error and cancels the turn, whose end comes through the watcher.
func (st *stream) cancelTurn(e *fault.Error) {
	if st.turn == nil || st.isOver() {
		return
	}
	st.replyError(e)
	st.turn.Cancel(e.Message)
}

func (st *stream) replyError(e *fault.Error) {
	st.enqueueReply(st.errorOf(e))
}

// enqueueReply passes a message to the sender.
func (st *stream) enqueueReply(msg *agentdv1.RunResponse) {
	select {
	case st.replies <- msg:
	case <-st.over:
	}
}

func (st *stream) isOver() bool {
	select {
	case <-st.over:
		return true
	default:
		return false
	}
}
