package client

import (
	"context"
	"errors"
	"io"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// receive is the receiver: it reads the stream to its end and passes on what
// comes. It never waits for a tool.
func (r *run) receive() {
	defer close(r.received)
	defer func() { _ = r.stream.CloseResponse() }()
	defer r.tools.stop()

	// An ErrorResponse ends the turn or does not; which one shows in what comes
	// next, so it is held until then.
	var held *agentdv1.RunResponse_ErrorResponse
	for {
		msg, err := r.stream.Receive()
		if err != nil {
			r.failure = r.broken(held, err)
			return
		}
		r.progress.Add(1)
		if msg.GetHeartbeat() != nil {
			continue // it may come between an error and the end
		}
		if end := msg.GetEnd(); end != nil {
			r.finish(held, end)
			return
		}
		if held != nil {
			r.deliver(&Event{Error: fromResponse(held)})
			held = nil
		}
		if resp := msg.GetError(); resp != nil {
			held = resp
			continue
		}
		r.handle(msg)
	}
}

// handle passes on one message that neither ends the turn nor says that
// something was wrong. Members that this client does not know are skipped.
func (r *run) handle(msg *agentdv1.RunResponse) {
	switch m := msg.GetResponse().(type) {
	case *agentdv1.RunResponse_Execute:
		r.started = true
		id := m.Execute.GetSessionId()
		r.session.Store(&id)
		r.deliver(&Event{Started: &Started{SessionID: id}})
	case *agentdv1.RunResponse_OutputChunk_:
		r.deliver(chunkEvent(m.OutputChunk))
	case *agentdv1.RunResponse_StateUpdate_:
		r.deliver(&Event{StateUpdate: &StateUpdate{Delta: r.tools.state.apply(m.StateUpdate.GetStateDelta())}})
	case *agentdv1.RunResponse_ToolCall:
		if m.ToolCall.GetSessionId() == "" {
			m.ToolCall.SessionId = *r.session.Load()
		}
		r.tools.start(m.ToolCall)
	case *agentdv1.RunResponse_ToolCancelled_:
		r.tools.cancelCall(m.ToolCancelled.GetToolCallId(), m.ToolCancelled.GetReason())
	}
}

// finish takes the EndResponse, half-closes the stream, for which the server
// waits, and reads on until it has closed its side.
func (r *run) finish(held *agentdv1.RunResponse_ErrorResponse, end *agentdv1.RunResponse_EndResponse) {
	// Not completed, and not by our own wish: then the error was the reason.
	failed := held != nil && !end.GetCompleted() && !r.asked.Load()
	if failed {
		r.failure = fromResponse(held)
	}
	r.usage = end.GetUsageSummary()
	r.ended.Store(true)
	r.tools.stop()
	r.halt(false)
	if held != nil && !failed {
		r.deliver(&Event{Error: fromResponse(held)})
	}
	r.tools.silence()
	if !failed {
		r.deliver(endEvent(end))
	}
	timer := time.AfterFunc(drainTimeout, func() { r.abort(ErrRunEnded) })
	defer timer.Stop()
	for {
		if _, err := r.stream.Receive(); err != nil {
			return
		}
	}
}

// broken returns why a stream that ended without EndResponse did so. When a turn
// runs and the stream breaks, an error before may be a mere refusal; what broke
// the stream counts.
func (r *run) broken(held *agentdv1.RunResponse_ErrorResponse, err error) *Error {
	if held != nil && r.started && !errors.Is(err, io.EOF) {
		r.deliver(&Event{Error: fromResponse(held)})
	} else if held != nil {
		failure := fromResponse(held)
		if !errors.Is(err, io.EOF) {
			failure.Err = err
		}
		return failure
	}
	if cause := context.Cause(r.streamCtx); cause != nil {
		if failure, ok := errors.AsType[*Error](cause); ok {
			return failure
		}
		return fromTransport(cause)
	}
	if errors.Is(err, io.EOF) {
		return errorf(ErrUnavailable, "the server closed the stream before the end of the turn: %w", io.ErrUnexpectedEOF)
	}
	return fromTransport(err)
}
