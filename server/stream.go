package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/principal"
)

// maxHandled is how many messages are handled at a time: results, or one other.
const maxHandled = 16

// maxReplies is how many replies may wait for the sender.
const maxReplies = 16

type bidiStream = connect.BidiStream[agentdv1.RunRequest, agentdv1.RunResponse]

// stream is one Run call. Unless a field says otherwise, the handler goroutine owns it;
// it alone sends.
type stream struct {
	srv  *Server
	t    *transport
	bidi *bidiStream

	first        chan received              // the first message, from the receiver
	attached     chan struct{}              // closed when turn and watch are set
	turn         *session.Turn              // written before attached is closed
	watch        *session.Watcher           // written before attached is closed
	far          *farRun                    // of a server that is one of several; written before attached is closed
	observed     *observed                  // of such a server in place of turn, watch and far; written with them
	plain        bool                       // the client is too old to attach; written before attached is closed
	observes     bool                       // the client only watches; written before attached is closed
	view         view                       // what the client sees of events; written before attached is closed
	replies      chan *agentdv1.RunResponse // from the receiver to the sender
	handling     chan struct{}              // holds a token for each message until it is taken or refused
	results      sync.WaitGroup             // what waits until results are durable; added to by the receiver
	stopReasons  chan *fault.Error          // from the receiver, once: why the stream must end
	over         chan struct{}              // closed by finish
	paceCtx      context.Context            //nolint:containedctx // ends with the stream and with its connection
	finish       func()                     // ends the taking of replies, once
	receiverDone chan struct{}              // closed when the receiver ends
	// active is when a message last went either way, in nanoseconds after started, which
	// no step of the clock moves.
	active atomic.Int64

	room           *lease      // of the messages that are being sent
	idle           *time.Timer // fires when the stream may have been quiet for too long
	writing        *time.Timer // resets the stream when a write takes too long
	bounded        bool        // writing is armed: for a message, and for those that follow it at once
	caughtUp       bool        // the first events of the turn are sent: replies may follow
	sentMessage    bool        // a message was sent, which the end must not overtake
	gone           bool        // the client cannot be reached
	cancelsOnReset bool        // the client started the turn and cancels it by a reset
	finished       bool        // the stream ended without a panic
	end            *agentdv1.RunResponse_EndResponse
	errorCode      agentdv1.ErrorCode // of the last error sent, replies aside
	started        time.Time
}

// received is the result of one Receive.
type received struct {
	msg *agentdv1.RunRequest
	err error
}

func newStream(s *Server, t *transport, bidi *bidiStream) *stream {
	st := &stream{
		srv:          s,
		t:            t,
		bidi:         bidi,
		first:        make(chan received, 1),
		attached:     make(chan struct{}),
		replies:      make(chan *agentdv1.RunResponse, maxReplies),
		handling:     make(chan struct{}, maxHandled),
		stopReasons:  make(chan *fault.Error, 1),
		over:         make(chan struct{}),
		receiverDone: make(chan struct{}),
		started:      time.Now(),
	}
	pacing, unpaced := context.WithCancel(t.ctx)
	st.paceCtx = pacing
	st.finish = sync.OnceFunc(func() {
		close(st.over)
		unpaced()
	})
	st.writing = time.AfterFunc(time.Hour, t.abortWrite)
	st.writing.Stop()
	t.out.progress = func() {
		if st.room.isLate() {
			t.abortWrite()
			return
		}
		st.writing.Reset(s.now().WriteTimeout)
		st.touch()
	}
	st.touch()
	return st
}

func (st *stream) touch() { st.active.Store(int64(time.Since(st.started))) }

// quiet returns how long no message has traveled either way.
func (st *stream) quiet() time.Duration {
	return time.Since(st.started) - time.Duration(st.active.Load())
}

// serve runs the stream to its end. refused is why it must not run; leave frees its
// place among the open streams.
func (st *stream) serve(ctx context.Context, refused *fault.Error, leave func()) {
	go st.receive()
	defer st.close()
	if refused == nil {
		refused = st.open(ctx)
	}
	if refused != nil {
		st.errorCode = refused.Code
		st.srv.limited(refused)
		if st.srv.says(ctx, refused) {
			st.bidi.ResponseTrailer().Set(headerMoved, "1")
		}
		st.sendLast(errorResponse("", refused))
	} else {
		close(st.attached)
		st.follow(ctx)
	}
	st.finished = true
	st.finish()
	st.note()
	leave()
	if !st.gone && st.sentMessage {
		st.linger()
	}
}

// open waits for the first message, and starts the turn or attaches to it.
func (st *stream) open(ctx context.Context) *fault.Error {
	timeout := st.srv.now().FirstMessageTimeout
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	var first received
	select {
	case first = <-st.first:
	case <-timer.C:
		return fault.Errorf(codeTimeout, "no ExecuteRequest or AttachRequest within %v", timeout)
	case <-st.srv.ended.Done():
		return errDraining
	case <-st.t.ctx.Done():
		st.gone = true
		return fault.Errorf(codeInvalid, "the client is gone")
	}
	switch {
	case errors.Is(first.err, io.EOF):
		return fault.Errorf(codeInvalid, "the stream ended before an ExecuteRequest or an AttachRequest")
	case first.err != nil:
		return receiveError(first.err, st.srv.now().MaxMessageBytes)
	}
	if e := check(st.srv.rules, first.msg); e != nil {
		return e
	}
	if e := mayCall(principal.Of(ctx), agentdv1connect.AgentdRunProcedure); e != nil {
		return e
	}
	e := st.begin(ctx, first.msg)
	if st.watch != nil {
		st.watch.ForwardedBy(forwardedBy(ctx))
	}
	if st.srv.forwards(ctx) {
		e = st.beginAnywhere(ctx, first.msg, e)
	}
	st.auditOpening(ctx, first.msg, e)
	return e
}

// beginAnywhere has the stream's turn where its session is, after begin has returned e, for a server that is one of
// several. A server that stops begins none itself, and has another one do it.
func (st *stream) beginAnywhere(ctx context.Context, first *agentdv1.RunRequest, e *fault.Error) *fault.Error {
	address := ""
	switch {
	case first.GetAttach().GetObserve(): // it is anywhere already
	case e == nil:
		st.roam(ctx, first)
	default:
		address = st.srv.elsewhere(e)
	}
	if address == "" {
		return e
	}
	return st.beginFar(ctx, first, address)
}

// begin does what the first message asks for.
func (st *stream) begin(ctx context.Context, msg *agentdv1.RunRequest) *fault.Error {
	switch r := msg.GetRequest().(type) {
	case *agentdv1.RunRequest_Attach:
		return st.attach(ctx, r.Attach)
	case *agentdv1.RunRequest_Execute:
		if isEmpty(r.Execute) {
			return fault.Errorf(codeInvalid, "execute.user_prompt is empty: a turn needs something to respond to; "+
				"to follow a turn of session %s send attach (AttachRequest) in place of execute",
				quote(r.Execute.GetSessionId())).
				Breaking("execute.user_prompt", fault.RuleRequired)
		}
		st.plain = !isForwarded(ctx) && !hasNewFields(msg.ProtoReflect())
		st.cancelsOnReset = st.plain && st.srv.now().OnDisconnect == onDisconnectAuto
		return st.start(ctx, r.Execute)
	default:
		return fault.Errorf(codeInvalid,
			"the first message must be an ExecuteRequest or an AttachRequest, received %s", nameOf(msg))
	}
}

func (st *stream) start(ctx context.Context, ex *agentdv1.RunRequest_ExecuteRequest) *fault.Error {
	if e := mayBe(principal.Of(ctx), principal.Caller, "to start a turn"); e != nil {
		return e
	}
	req, e := requestOf(ex, st.bidi.RequestHeader())
	if e != nil {
		return e
	}
	if st.srv.now().OnDisconnect == onDisconnectCancel && ex.GetOnDisconnect() == 0 {
		req.OnDisconnect.Cancel = true
	}
	req.Create = req.Create || st.srv.now().CreateSessions && req.SessionID != ""
	if e := mayStart(principal.Of(ctx), ex, &req); e != nil {
		return e
	}
	leave, err := st.srv.inbox.enter(ctx, ex)
	if err != nil {
		return st.noTurn(ctx, "start turn", err)
	}
	defer leave()
	turn, err := st.srv.now().Sessions.Start(ctx, req)
	if before, ok := errors.AsType[*session.Repeated](err); ok {
		// The response to the client's first request may be lost.
		attach := session.AttachRequest{SessionID: before.SessionID, TurnID: before.TurnID, Starter: true,
			Keys: req.Keys}
		if p := principal.Of(ctx); p.Session != "" {
			attach.Starter, attach.Tools = false, p.Tools
		}
		turn, watch, err := st.srv.now().Sessions.Attach(ctx, attach)
		if err != nil {
			return st.noTurn(ctx, "attach", err)
		}
		st.turn, st.watch = turn, watch
		return nil
	}
	if err != nil {
		return st.noTurn(ctx, "start turn", inExecute(err))
	}
	if st.turn, st.watch, err = st.srv.watchStarted(ctx, turn, req.Keys); err != nil {
		return st.noTurn(ctx, "attach", err)
	}
	return nil
}

func (st *stream) attach(ctx context.Context, at *agentdv1.AttachRequest) *fault.Error {
	req, e := attachOf("attach.", at, at.AfterSeq, st.bidi.RequestHeader())
	if e == nil {
		e = mayAttach(principal.Of(ctx), req.Observe)
	}
	if e == nil {
		e = mayRun(principal.Of(ctx), "attach.", req.Tools)
	}
	if e != nil {
		return e
	}
	if req.Observe && st.srv.forwards(ctx) {
		return st.observe(ctx, at, req)
	}
	turn, watch, err := st.srv.now().Sessions.Attach(ctx, req)
	if err != nil {
		return st.noTurn(ctx, "attach", within("attach.", err))
	}
	st.turn, st.watch, st.observes = turn, watch, req.Observe
	st.view = view{display: at.GetDisplay(), only: at.GetVisibility()}
	return nil
}

// noTurn returns why a stream has no turn.
func (st *stream) noTurn(ctx context.Context, where string, err error) *fault.Error {
	switch {
	case st.t.ctx.Err() != nil:
		st.gone = true
		return fault.Errorf(codeInvalid, "the client is gone")
	case ctx.Err() != nil:
		return fault.Errorf(codeTimeout, "the deadline of the request has passed")
	}
	return st.srv.internal(where, err)
}

// linger waits for the client to close its side. A server that returns earlier
// resets the stream, and some clients then lose what was sent last.
func (st *stream) linger() {
	timer := time.NewTimer(st.srv.now().LingerTimeout)
	defer timer.Stop()
	select {
	case <-st.receiverDone:
	case <-st.t.ctx.Done():
	case <-timer.C:
	}
}

// close ends what belongs to the stream: the watcher, the receiver, the timers. It also
// runs when the handler panics, and then cancels the turn.
func (st *stream) close() {
	if feed := st.follows(); feed != nil {
		feed.close()
	}
	if st.turn != nil {
		if !st.finished {
			st.turn.Cancel("internal error")
		}
		st.watch.Close()
	}
	st.finish()
	st.writing.Stop()
	st.t.out.progress = nil // what is still written has its own bound
	st.t.abortRead()
	<-st.receiverDone
	st.t.lastWrite(st.srv.now().WriteTimeout)
	st.t.out.more = true // net/http sends the end of the stream together with connect's
}

// note has the line of the call say what came of the stream.
func (st *stream) note() {
	a := accessOf(st.t.ctx)
	if a == nil {
		return
	}
	switch {
	case st.gone:
		a.code = connect.CodeCanceled.String()
	case st.end == nil:
		a.failedWith(st.errorCode)
	}
	if st.turn != nil || st.observed != nil {
		a.session, a.turn = st.ids()
	}
	a.more = append(a.more, slog.String("outcome", st.outcome()))
	if st.errorCode != 0 {
		a.more = append(a.more, slog.String("error_code", st.errorCode.String()))
	}
	if st.end != nil {
		a.more = append(a.more,
			slog.Int64("model_calls", int64(st.end.GetUsageSummary().GetLlmCalls())),
			slog.Int64("tokens", int64(st.end.GetUsageSummary().GetTotalUsage().GetTotalTokens())))
	}
}

func (st *stream) outcome() string {
	switch {
	case st.gone:
		return "disconnected"
	case st.turn == nil && st.follows() == nil:
		return "refused"
	case st.end.GetCompleted():
		return "completed"
	case st.end == nil:
		return "ended before its turn"
	case st.errorCode != 0:
		return "failed"
	default:
		return "stopped"
	}
}
