package client

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
)

// receive reads the stream to its end and passes on what comes. It never waits
// for a tool. It returns why the turn or the stream failed, if one did, and
// whether the turn may continue without this stream.
func (l *link) receive() (failure *Error, lost bool) {
	defer func() {
		_ = l.stream.CloseResponse()
		if l.parting != nil {
			l.parting.Stop()
		}
	}()
	r := l.run
	for {
		msg, err := l.stream.Receive()
		if err != nil {
			return l.broken(err)
		}
		r.progress.Add(1)
		first := !l.received
		if l.received = true; first {
			close(l.heard)
		}
		r.start.Store(startConfirmed)
		if msg.GetError() == nil || msg.GetSeq() > 0 {
			r.restored() // otherwise it may be a refusal of the stream
		}
		if msg.GetHeartbeat() != nil {
			continue // it may come between an error and the end
		}
		if r.has(msg) {
			r.repeated(l, msg)
			continue
		}
		if seq := msg.GetSeq(); seq > 0 {
			r.cursor = seq
			l.news = true
			r.follow(msg)
		}
		if msg.GetEnd() != nil {
			return l.finish(msg), false
		}
		// An ErrorResponse ends the turn or does not; which one shows in what
		// comes next, so it is held until then.
		switch {
		case r.held.GetSeq() > 0:
			r.why, r.held = r.held, nil
		case r.held != nil:
			r.deliver(errorEvent(r.held))
			r.held = nil
		}
		if e := msg.GetError(); e.GetToolCallId() != "" && msg.GetSeq() == 0 && !Code(e.GetCode()).retryable() {
			r.tools.refused(l, msg)
			continue
		}
		if msg.GetError() != nil {
			r.held = msg
			if l.parts(msg, first) {
				l.part()
			}
			continue
		}
		r.handle(l, msg)
	}
}

// parts reports whether the server says with an error that the stream ends here:
// it refuses the stream, or it stops. Any other error that has no position
// is the reply to a message of this client, and the stream continues; it is never the first
// message of a stream that starts a turn, nor of one on which a heartbeat was
// sent first.
func (l *link) parts(msg *agentdv1.RunResponse, first bool) bool {
	if msg.GetSeq() > 0 || l.parting != nil {
		return false
	}
	if first {
		return true
	}
	code := Code(msg.GetError().GetCode())
	return code == ErrUnavailable || code == ErrTimeout || code == ErrUnauthenticated
}

// part has the sender close its side, for which the server waits before it ends
// the stream. If the server stays, the link counts as lost: nothing can be sent
// on it.
func (l *link) part() {
	l.parting = time.AfterFunc(drainTimeout, func() {
		l.abort(errorf(ErrUnavailable, "the server did not end the stream after it had said so"))
	})
	close(l.parted)
}

// has reports whether the run has had a message before, on another stream. A
// prompt that has waited has its ExecuteResponse yet to come.
func (r *run) has(msg *agentdv1.RunResponse) bool {
	seq := msg.GetSeq()
	if msg.GetExecute() != nil && (r.begun || (seq == 0 && r.cursor > 0 && !r.queued)) {
		return true
	}
	return seq > 0 && seq <= r.cursor
}

// repeated handles a message that the run has had: a call is asked again when
// the server has no result of it, and may be new to this client.
func (r *run) repeated(l *link, msg *agentdv1.RunResponse) {
	switch m := msg.GetResponse().(type) {
	case *agentdv1.RunResponse_Execute:
		r.started(m.Execute)
	case *agentdv1.RunResponse_ToolCall:
		r.tools.start(l, msg)
	}
}

func (r *run) started(m *agentdv1.RunResponse_ExecuteResponse) {
	id := m.GetSessionId()
	r.session.Store(&id)
	r.begun = true
}

// recorded reports whether the server has the turn, or its prompt.
func (r *run) recorded() bool { return r.begun || r.queued }

// follow notes the turn that the run is in. A prompt that waits has a turn of
// its own until it begins, maybe as a message of another; who attaches without a
// name learns it from the first message. TurnQueued may also be about the prompt
// of somebody else.
func (r *run) follow(msg *agentdv1.RunResponse) {
	waits := msg.GetTurnQueued() != nil
	if waits && !r.rc.attach && !r.begun {
		r.queued = true
	} else if waits || (r.turn != "" && (msg.GetExecute() == nil || r.begun)) {
		return
	}
	r.turn = msg.GetTurnId()
}

// handle passes on one message that neither ends the turn nor says that
// something was wrong.
func (r *run) handle(l *link, msg *agentdv1.RunResponse) {
	if msg.GetSeq() > 0 && msg.GetOutputChunk() == nil {
		r.ahead, l.skip = ahead{}, 0
	}
	switch m := msg.GetResponse().(type) {
	case *agentdv1.RunResponse_Execute:
		r.started(m.Execute)
	case *agentdv1.RunResponse_OutputChunk_:
		if !r.chunk(l, msg) {
			return
		}
	case *agentdv1.RunResponse_StateUpdate_:
		r.tools.state.apply(m.StateUpdate)
	case *agentdv1.RunResponse_ToolCall:
		r.tools.start(l, msg)
		return
	case *agentdv1.RunResponse_ToolCallCanceled:
		r.tools.cancelCall(m.ToolCallCanceled.GetToolCallId(), m.ToolCallCanceled.GetReason())
	case *agentdv1.RunResponse_ToolCallUnserved:
		if !l.saysUnserved(m.ToolCallUnserved.GetToolCallId()) {
			return
		}
	case *agentdv1.RunResponse_ToolCallAnswered:
		if !r.tools.recorded(m.ToolCallAnswered) {
			return
		}
	case *agentdv1.RunResponse_InteractionRequested:
		r.deliver(eventOf(msg, dataOf(msg)))
		r.asks.ask(InteractionOf(m.InteractionRequested.GetInteraction()), msg.GetReplayed())
		return
	case *agentdv1.RunResponse_InteractionResolved:
		r.asks.over(m.InteractionResolved.GetInteraction().GetId())
		if m.InteractionResolved.GetInteraction().GetN() > 0 {
			r.tools.answered(InteractionOf(m.InteractionResolved.GetInteraction()))
		}
	}
	r.deliver(eventOf(msg, dataOf(msg)))
}

// maxUnserved bounds the unserved calls that a run remembers.
const maxUnserved = 4096

// saysUnserved reports whether a ToolCallUnserved is new to the caller. The event has no
// position, and the server repeats it on each stream.
func (l *link) saysUnserved(call string) bool {
	r := l.run
	before, known := r.unserved[call]
	if len(r.unserved) >= maxUnserved {
		clear(r.unserved)
	}
	r.unserved[call] = l
	return !known || before == l
}

// ahead is text that has been delivered under no position of its own: of a text
// that a server sends in pieces only the last may have one. After a lost
// connection all of them come again.
type ahead struct {
	messageID string
	path      []string
	thought   bool
	bytes     int
}

func (a *ahead) sameAs(c *agentdv1.RunResponse_OutputChunk) bool {
	return a.messageID == c.GetMessageId() && a.thought == c.GetIsThought() && slices.Equal(a.path, c.GetAgentPath())
}

// chunk cuts off what has been delivered of a chunk, and reports whether
// something is left to deliver.
func (r *run) chunk(l *link, msg *agentdv1.RunResponse) bool {
	c := msg.GetOutputChunk()
	if !r.ahead.sameAs(c) {
		r.ahead, l.skip = ahead{messageID: c.GetMessageId(), path: c.GetAgentPath(), thought: c.GetIsThought()}, 0
	}
	skip := min(l.skip, len(c.GetContent()))
	l.skip -= skip
	c.Content = c.GetContent()[skip:]
	r.ahead.bytes += len(c.GetContent())
	if msg.GetSeq() > 0 {
		r.ahead, l.skip = ahead{}, 0
	}
	return skip == 0 || c.GetContent() != "" || c.GetLast()
}

// finish takes the EndResponse, half-closes the stream, for which the server
// waits, and reads on until it has closed its side. It returns why the turn
// failed, nil if it did not.
func (l *link) finish(msg *agentdv1.RunResponse) (failure *Error) {
	r := l.run
	end := msg.GetEnd()
	// Not completed, and not by our own wish: then the error was the reason. So
	// is one that stands in the log.
	// A server that counts its messages counts that error too; one that it does
	// not count refused a message of this client.
	why := r.held
	if r.why != nil {
		why = r.why
	}
	if why != nil && !end.GetCompleted() && (why.GetSeq() > 0 || r.cursor == 0 && !r.asked.Load()) {
		failure = fromResponse(why.GetError())
	}
	r.usage = usageOfEnd(end.GetUsageSummary())
	r.ended.Store(true)
	r.tools.stop()
	r.asks.stop()
	r.halt(false)
	r.tools.silence()
	if failure == nil || r.rc.failureEvents {
		if r.why != nil && r.rc.failureEvents {
			r.deliver(errorEvent(r.why))
		}
		if r.held != nil {
			r.deliver(errorEvent(r.held))
		}
		r.deliver(eventOf(msg, endOf(end)))
	}
	timer := time.AfterFunc(drainTimeout, func() { l.abort(ErrRunEnded) })
	defer timer.Stop()
	for {
		if _, err := l.stream.Receive(); err != nil {
			return failure
		}
	}
}

// broken returns why a stream that ended without EndResponse did so, and
// whether another one may be had.
func (l *link) broken(err error) (failure *Error, lost bool) {
	r := l.run
	clean := errors.Is(err, io.EOF)
	if r.held != nil && r.held.GetSeq() == 0 {
		held := r.held
		r.held = nil
		failure = fromResponse(held.GetError())
		lost, l.refused = lostCode(failure.Code), true
		if clean || lost || !r.recorded() || r.cursor == 0 {
			if !clean {
				failure.Err = err
			}
			return failure, lost
		}
		r.deliver(errorEvent(held)) // a refusal; the stream broke by itself
	}
	if cause := context.Cause(l.ctx); cause != nil {
		if failure, ok := errors.AsType[*Error](cause); ok {
			return failure, true
		}
		return fromTransport(cause), lostStream(cause)
	}
	if clean && r.rc.after != nil && !l.news && !r.begun {
		r.ended.Store(true)
		r.halt(false)
		return nil, false // there is nothing after that position
	}
	if clean {
		return errorf(ErrUnavailable, "the server closed the stream before the end of the turn: %w",
			io.ErrUnexpectedEOF), true
	}
	return fromTransport(err), lostStream(err)
}
