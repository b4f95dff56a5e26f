package server

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"connectrpc.com/connect"
	connectcors "connectrpc.com/cors"
	"github.com/rs/cors"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/principal"
)

const (
	// requestTimeout bounds how long a request of SessionService may take to
	// arrive.
	requestTimeout = 30 * time.Second
	// defaultEvents is the size of a page of events if the request sets none.
	defaultEvents = 1000
)

// sessionService implements agentd.v1.SessionService: it translates, the
// sessions do the rest.
type sessionService struct{ *Server }

type exchangeKey struct{}

// exchange bounds the bytes and the time of a request of SessionService, and
// hands its handler the means to bound the reply.
func (s *Server) exchange(next http.Handler) http.Handler {
	bounded := http.MaxBytesHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = s.newBoundedBody(r) // the request is a copy of MaxBytesHandler's
		e := &exchange{rc: http.NewResponseController(w), out: &pieceWriter{ResponseWriter: w}}
		e.out.progress = func() {
			if e.room.isLate() {
				e.bound(-time.Second)
				return
			}
			e.bound(s.now().WriteTimeout)
		}
		defer func() { e.room.close() }()
		next.ServeHTTP(e.out, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, e)))
		e.out.release()
	}), skipFactor*int64(s.now().MaxMessageBytes))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store") // the response to a GET could be kept
		// Without support for deadlines the server's own limits hold.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(requestTimeout))
		bounded.ServeHTTP(w, r)
	})
}

// crossOrigin lets web pages of the origins that are allowed call next.
func (s *Server) crossOrigin(next http.Handler) http.Handler {
	if len(s.now().CORSOrigins) == 0 {
		return next
	}
	own := []string{"Authorization", "X-Api-Key", "Traceparent", "Tracestate"}
	for _, p := range s.now().Capabilities(context.Background()).GetProviders() {
		if header := p.GetKeyHeader(); header != "" && !slices.Contains(own, header) {
			own = append(own, header)
		}
	}
	return s.fromOrigins(cors.Options{
		AllowedMethods: connectcors.AllowedMethods(),
		AllowedHeaders: append(own, connectcors.AllowedHeaders()...),
		ExposedHeaders: append(connectcors.ExposedHeaders(), "Retry-After"),
	}, next)
}

// crossOriginFace is crossOrigin for a face, whose protocol has methods and headers of its own.
func (s *Server) crossOriginFace(next http.Handler) http.Handler {
	return s.fromOrigins(cors.Options{
		AllowedMethods: []string{
			http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		},
		AllowedHeaders: []string{"*"},
		ExposedHeaders: []string{"Retry-After", "Request-Id"},
	}, next)
}

func (s *Server) fromOrigins(o cors.Options, next http.Handler) http.Handler {
	if len(s.now().CORSOrigins) == 0 {
		return next
	}
	o.AllowedOrigins, o.MaxAge = s.now().CORSOrigins, int((2 * time.Hour).Seconds())
	return cors.New(o).Handler(next)
}

// exchange gives a method access to its HTTP exchange, which connect does not expose. A
// nil exchange does nothing.
type exchange struct {
	rc   *http.ResponseController
	out  *pieceWriter
	room *lease // of what is being sent
}

// arrived notes that the request was read: what is read later only shows whether the
// client is still there.
func arrived(ctx context.Context) *exchange {
	e, ok := ctx.Value(exchangeKey{}).(*exchange)
	if !ok {
		return nil
	}
	_ = e.rc.SetReadDeadline(time.Time{})
	return e
}

// bound sets the time limit of the next write.
func (e *exchange) bound(d time.Duration) {
	if e != nil {
		_ = e.rc.SetWriteDeadline(time.Now().Add(d))
	}
}

// unbound removes the time limit until the next write.
func (e *exchange) unbound() {
	if e != nil {
		_ = e.rc.SetWriteDeadline(time.Time{})
	}
}

// hold keeps room for the exchange in place of the room that it held.
func (e *exchange) hold(room *lease) {
	if e == nil {
		room.close()
		return
	}
	e.room.close()
	e.room = room
}

// more sets whether another message follows the next one at once.
func (e *exchange) more(follows bool) {
	if e != nil {
		e.out.more = follows
	}
}

// hasMore reports what more has set.
func (e *exchange) hasMore() bool { return e != nil && e.out.more }

// checked is common to all methods: rights, rules, panics, errors, deadlines.
func (s *Server) checked() connect.Interceptor { return checks{s} }

type checks struct{ s *Server }

func (c checks) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (resp connect.AnyResponse, err error) {
		e := arrived(ctx)
		defer e.bound(c.s.now().WriteTimeout)
		defer func() { c.s.auditCall(ctx, req.Spec(), req, resp, err) }()
		defer func() { err = c.clientError(ctx, req.Spec().Procedure, recover(), err) }()
		accessOf(ctx).about(req.Any())
		if e := mayCall(principal.Of(ctx), req.Spec().Procedure); e != nil {
			return nil, e
		}
		if msg, ok := req.Any().(proto.Message); ok {
			if e := c.s.acceptable(msg); e != nil {
				return nil, e
			}
			leave, err := c.s.inbox.enter(ctx, msg)
			if err != nil {
				return nil, err
			}
			defer leave()
		}
		serve := func() (connect.AnyResponse, error) {
			return c.s.outbox.serve(ctx, e, req, next, c.s.now().WriteTimeout)
		}
		if resp, err = c.s.atOwner(ctx, req, serve); err != nil {
			resp, err = c.s.forwarded(ctx, req, err, serve)
		}
		if err == nil {
			accessOf(ctx).about(resp.Any())
		}
		return resp, err
	}
}

func (c checks) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) (err error) {
		defer func() { err = c.clientError(ctx, conn.Spec().Procedure, recover(), err) }()
		if e := mayCall(principal.Of(ctx), conn.Spec().Procedure); e != nil {
			return e
		}
		return next(ctx, conn)
	}
}

func (c checks) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// clientError turns an error or a panic into an error that a client may see, and notes it.
func (c checks) clientError(ctx context.Context, where string, p any, err error) error {
	if p != nil {
		c.s.panicked(where, p)
		err = errors.New("panic")
	}
	c.s.limited(err)
	moved := c.s.says(ctx, err)
	err = c.wireError(ctx, where, err)
	if e, is := errors.AsType[*connect.Error](err); is && moved {
		e.Meta().Set(headerMoved, "1")
	}
	accessOf(ctx).failed(err)
	return err
}

// wireError is the error that a client sees.
func (c checks) wireError(ctx context.Context, where string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*connect.Error](err); ok {
		return err
	}
	if ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return connectError(fault.Errorf(codeTimeout, "the deadline of the request has passed"))
		}
		return connect.NewError(connect.CodeCanceled, errors.New("the client is gone"))
	}
	return connectError(c.s.internal(where, err))
}

// statuses are the codes of Connect and gRPC for the protocol's own.
var statuses = map[agentdv1.ErrorCode]connect.Code{
	agentdv1.ErrorCode_ERROR_CODE_INTERNAL:           connect.CodeInternal,
	agentdv1.ErrorCode_ERROR_CODE_INVALID_AGENT_TREE: connect.CodeInvalidArgument,
	agentdv1.ErrorCode_ERROR_CODE_RATE_LIMITED:       connect.CodeResourceExhausted,
	agentdv1.ErrorCode_ERROR_CODE_AUTH_FAILED:        connect.CodeFailedPrecondition, // the caller itself is known
	agentdv1.ErrorCode_ERROR_CODE_UNAUTHENTICATED:    connect.CodeUnauthenticated,
	agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND:  connect.CodeNotFound,
	agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE:  connect.CodeUnavailable,
	agentdv1.ErrorCode_ERROR_CODE_TIMEOUT:            connect.CodeDeadlineExceeded,
	agentdv1.ErrorCode_ERROR_CODE_SESSION_BUSY:       connect.CodeFailedPrecondition,
	agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST:    connect.CodeInvalidArgument,
	agentdv1.ErrorCode_ERROR_CODE_BUDGET_EXHAUSTED:   connect.CodeResourceExhausted,
	agentdv1.ErrorCode_ERROR_CODE_LIMIT_EXCEEDED:     connect.CodeResourceExhausted,
	agentdv1.ErrorCode_ERROR_CODE_PERMISSION_DENIED:  connect.CodePermissionDenied,
	agentdv1.ErrorCode_ERROR_CODE_HISTORY_PURGED:     connect.CodeOutOfRange,
	agentdv1.ErrorCode_ERROR_CODE_CONTENT_BLOCKED:    connect.CodeFailedPrecondition,
	agentdv1.ErrorCode_ERROR_CODE_CONTEXT_TOO_LONG:   connect.CodeFailedPrecondition,
	agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE:        connect.CodeUnavailable,

	agentdv1.ErrorCode_ERROR_CODE_CONFLICT:            connect.CodeAborted,
	agentdv1.ErrorCode_ERROR_CODE_FAILED_PRECONDITION: connect.CodeFailedPrecondition,
	agentdv1.ErrorCode_ERROR_CODE_OUTPUT_INVALID:      connect.CodeFailedPrecondition,
	agentdv1.ErrorCode_ERROR_CODE_NOT_FOUND:           connect.CodeNotFound,
}

// connectError is the wire form of an error outside of Run.
func connectError(e *fault.Error) *connect.Error {
	code, ok := statuses[e.Code]
	if !ok {
		code = connect.CodeUnknown
	}
	return detailed(code, errors.New(wireText(e.Message)), e)
}

// detailed is an error of Connect that has e in its details.
func detailed(code connect.Code, err error, e *fault.Error) *connect.Error {
	out := connect.NewError(code, err)
	if e.RetryAfter > 0 {
		out.Meta().Set("Retry-After", strconv.FormatInt(int64((e.RetryAfter+time.Second-1)/time.Second), 10))
	}
	if detail, err := connect.NewErrorDetail(errorResponse("", e).GetError()); err == nil {
		out.AddDetail(detail)
	}
	return out
}

func (s *sessionService) CreateTurn(
	ctx context.Context, r *connect.Request[agentdv1.CreateTurnRequest],
) (*connect.Response[agentdv1.CreateTurnResponse], error) {
	ex := r.Msg.GetExecute()
	if isEmpty(ex) {
		return nil, fault.Errorf(codeInvalid,
			"execute.user_prompt is empty: a turn needs something to respond to; WatchTurn follows one that there is").
			Breaking("execute.user_prompt", fault.RuleRequired)
	}
	req, e := requestOf(ex, r.Header())
	if e != nil {
		return nil, e
	}
	if e := mayStart(principal.Of(ctx), ex, &req); e != nil {
		return nil, e
	}
	var sessionID, turnID string
	started, err := s.now().Sessions.Start(ctx, req)
	before, repeated := errors.AsType[*session.Repeated](err)
	switch {
	case repeated:
		sessionID, turnID = before.SessionID, before.TurnID
	case err != nil:
		return nil, inExecute(err)
	default:
		sessionID, turnID = started.SessionID(), started.ID()
	}
	info, err := s.now().Sessions.Turn(ctx, sessionID, turnID)
	if err != nil {
		return nil, err
	}
	out := &agentdv1.CreateTurnResponse{Turn: turnOf(&info)}
	for _, w := range info.Warnings {
		out.Warnings = append(out.Warnings, w.Proto("execute."))
	}
	return connect.NewResponse(out), nil
}

func (s *sessionService) GetTurn(
	ctx context.Context, r *connect.Request[agentdv1.GetTurnRequest],
) (*connect.Response[agentdv1.GetTurnResponse], error) {
	t, err := s.now().Sessions.Turn(ctx, r.Msg.GetSessionId(), r.Msg.GetTurnId())
	if err != nil {
		return nil, err
	}
	turn := turnOf(&t)
	if r.Msg.GetUserParts() {
		if turn.UserParts, err = s.now().Sessions.Said(ctx, &t); err != nil {
			return nil, err
		}
	}
	return connect.NewResponse(&agentdv1.GetTurnResponse{Turn: turn}), nil
}

// turn finds a turn; "" is the last one that started.
func (s *sessionService) turn(ctx context.Context, sessionID, turnID string) (*agentdv1.Turn, error) {
	t, err := s.now().Sessions.Turn(ctx, sessionID, turnID)
	if err != nil {
		return nil, err
	}
	return turnOf(&t), nil
}

func (s *sessionService) ListTurns(
	ctx context.Context, r *connect.Request[agentdv1.ListTurnsRequest],
) (*connect.Response[agentdv1.ListTurnsResponse], error) {
	q := index.TurnQuery{
		SessionID:     r.Msg.GetSessionId(),
		Statuses:      statusesOf(r.Msg.GetStatuses()),
		CreatedFrom:   timeOf(r.Msg.GetCreatedSince()),
		CreatedBefore: timeOf(r.Msg.GetCreatedBefore()),
	}
	turns, next, err := s.now().Sessions.ListTurns(ctx, q, r.Msg.GetPageToken(), pageSize(r.Msg.GetPageSize()))
	if err != nil {
		return nil, err
	}
	out := &agentdv1.ListTurnsResponse{NextPageToken: next}
	for _, t := range turns {
		out.Turns = append(out.Turns, turnOf(&t))
	}
	return connect.NewResponse(out), nil
}

func (s *sessionService) CancelTurn(
	ctx context.Context, r *connect.Request[agentdv1.CancelTurnRequest],
) (*connect.Response[agentdv1.CancelTurnResponse], error) {
	before, err := s.turn(ctx, r.Msg.GetSessionId(), r.Msg.GetTurnId())
	if err != nil {
		return nil, err
	}
	reason := r.Msg.GetReason()
	if reason == "" {
		reason = "cancelled by the client"
	}
	if err := s.now().Sessions.CancelTurn(ctx, before.GetSessionId(), before.GetId(), reason); err != nil {
		return nil, err
	}
	turn, err := s.turn(ctx, before.GetSessionId(), before.GetId())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.CancelTurnResponse{Turn: turn}), nil
}

func (s *sessionService) CancelToolCall(
	ctx context.Context, r *connect.Request[agentdv1.CancelToolCallRequest],
) (*connect.Response[agentdv1.CancelToolCallResponse], error) {
	before, err := s.turn(ctx, r.Msg.GetSessionId(), r.Msg.GetTurnId())
	if err != nil {
		return nil, err
	}
	req := session.AttachRequest{SessionID: before.GetSessionId(), TurnID: before.GetId(), Keys: keysOf(r.Header())}
	if err := s.now().Sessions.CancelCall(ctx, req, r.Msg.GetToolCallId()); err != nil {
		return nil, err
	}
	turn, err := s.turn(ctx, before.GetSessionId(), before.GetId())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.CancelToolCallResponse{Turn: turn}), nil
}

func (s *sessionService) ListTurnEvents(
	ctx context.Context, r *connect.Request[agentdv1.ListTurnEventsRequest],
) (*connect.Response[agentdv1.ListTurnEventsResponse], error) {
	limit := int(r.Msg.GetPageSize())
	if limit == 0 {
		limit = defaultEvents
	}
	req := session.AttachRequest{SessionID: r.Msg.GetSessionId(), TurnID: r.Msg.GetTurnId(), After: r.Msg.AfterSeq}
	see := view{display: r.Msg.GetDisplay(), only: r.Msg.GetVisibility()}
	events, more, err := s.now().Sessions.Events(ctx, req, limit, see.keep)
	if err != nil {
		return nil, err
	}
	out := &agentdv1.ListTurnEventsResponse{More: more, NextAfterSeq: r.Msg.GetAfterSeq()}
	size := 0
	for _, event := range events {
		see.apply(event)
		// A reply is one message too. What is left out comes with the next request.
		if size += proto.Size(event); size > s.now().MaxMessageBytes/2 && len(out.GetEvents()) > 0 {
			out.More = true
			break
		}
		clean(event)
		out.Events = append(out.Events, event)
		out.NextAfterSeq = max(out.NextAfterSeq, event.GetSeq())
	}
	return connect.NewResponse(out), nil
}

func (s *sessionService) WatchTurn(
	ctx context.Context, r *connect.Request[agentdv1.WatchTurnRequest],
	stream *connect.ServerStream[agentdv1.WatchTurnResponse],
) error {
	exchange := arrived(ctx)
	accessOf(ctx).about(r.Msg)
	if e := s.acceptable(r.Msg); e != nil {
		return e
	}
	leave, refused := s.enter(ctx)
	defer leave()
	if refused != nil {
		return refused
	}
	feed, turn, err := s.roamTurn(ctx, r)
	if !r.Msg.GetObserve() {
		s.auditAttach(ctx, r.Msg, turn, err)
	}
	if err != nil {
		return err
	}
	defer feed.close()
	out := &watchStream{
		s: s.Server, exchange: exchange, sessionID: r.Msg.GetSessionId(), hint: resumeHint,
		view: view{display: r.Msg.GetDisplay(), only: r.Msg.GetVisibility()},
		feed: feed, trailer: stream.ResponseTrailer,
		put: func(e session.Placed) error {
			if e.Message == nil {
				return stream.Send(nil)
			}
			if e.Shared != nil {
				return stream.Conn().Send(shared(e, &agentdv1.WatchTurnResponse{}))
			}
			return stream.Send(&agentdv1.WatchTurnResponse{Event: e.Message})
		},
	}
	return out.serve(ctx)
}

func (s *sessionService) attach(
	ctx context.Context, r *connect.Request[agentdv1.WatchTurnRequest],
) (*session.Turn, *session.Watcher, error) {
	req, e := attachOf("", r.Msg, r.Msg.AfterSeq, r.Header())
	if e == nil {
		e = mayAttach(principal.Of(ctx), req.Observe)
	}
	if e == nil {
		e = mayRun(principal.Of(ctx), "", req.Tools)
	}
	if e != nil {
		return nil, nil, e
	}
	req.Follow = req.Observe
	return s.now().Sessions.Attach(ctx, req)
}

func (s *sessionService) SubmitToolResults(
	ctx context.Context, r *connect.Request[agentdv1.SubmitToolResultsRequest],
) (*connect.Response[agentdv1.SubmitToolResultsResponse], error) {
	id := r.Msg.GetSessionId()
	results, e := s.resultsOf(r.Msg)
	if e != nil {
		return nil, e
	}
	// What a client has sent counts, also when it goes away right after.
	ctx = context.WithoutCancel(ctx)
	errs, err := s.now().Sessions.SubmitResults(ctx,
		session.AttachRequest{SessionID: id, TurnID: r.Msg.GetTurnId(), Keys: keysOf(r.Header())}, results)
	if err != nil {
		return nil, err
	}
	out := &agentdv1.SubmitToolResultsResponse{}
	for i, err := range errs {
		if err != nil {
			s.limited(err)
			refusal := errorResponse(id, s.internal("record result", err)).GetError()
			refusal.TurnId, refusal.ToolCallId = r.Msg.GetTurnId(), results[i].CallID
			out.Refused = append(out.Refused, &agentdv1.RefusedToolResult{ToolCallId: refusal.ToolCallId,
				Error: refusal})
		}
	}
	if out.Turn, err = s.turn(ctx, id, r.Msg.GetTurnId()); err != nil {
		return nil, err
	}
	return connect.NewResponse(out), nil
}

// turnStatuses are the protocol's names.
var turnStatuses = map[index.Status]agentdv1.TurnStatus{
	index.Pending:          agentdv1.TurnStatus_TURN_STATUS_PENDING,
	index.Running:          agentdv1.TurnStatus_TURN_STATUS_RUNNING,
	index.WaitingForClient: agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT,
	index.WaitingForInput:  agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_INPUT,
	index.Succeeded:        agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED,
	index.Failed:           agentdv1.TurnStatus_TURN_STATUS_FAILED,
	index.Stopped:          agentdv1.TurnStatus_TURN_STATUS_CANCELED,
}

// turnOf translates a turn.
func turnOf(t *index.Turn) *agentdv1.Turn {
	out := &agentdv1.Turn{
		Id: t.ID, SessionId: t.SessionID, Status: turnStatuses[t.Status],
		UserPrompt: t.Prompt, OutputText: cleanText(t.Output), Usage: t.Usage.Proto(), InjectedInto: t.Into,
		CreateTime: stamp(t.Created), StartTime: stamp(t.Started), EndTime: stamp(t.Ended), AfterSeq: t.After,
		Model: cleanText(t.Model), CreatedBy: t.By, Author: t.Author,
	}
	out.StopReason = t.StopReason()
	if t.End != nil && t.End.Code == agentdv1.ErrorCode_ERROR_CODE_CONTENT_BLOCKED {
		out.StopReason = agentdv1.StopReason_STOP_REASON_CONTENT_BLOCKED // the response was blocked
	}
	if t.Structured && t.Status == index.Succeeded {
		out.StructuredOutput = t.StructuredOutput()
	}
	for _, c := range t.Open {
		out.PendingToolCalls = append(out.PendingToolCalls, &agentdv1.RunResponse_ToolCallRequest{
			SessionId: t.SessionID, ToolCallId: c.ID, ToolName: c.Name, ToolInput: string(c.Input), AgentPath: c.Path,
			Metadata: t.Metadata,
		})
	}
	for _, in := range t.Asking {
		out.PendingInteractions = append(out.PendingInteractions, in.Proto())
	}
	if !t.Started.IsZero() {
		end := t.Ended
		if end.IsZero() {
			end = time.Now()
		}
		out.Duration = durationpb.New(max(end.Sub(t.Started), 0)) // the clock may have been set back
	}
	if t.End != nil {
		out.StatusMessage, out.ErrorCode = wireText(t.End.Reason), t.End.Code
		if t.End.Receipt != nil {
			out.Receipt = t.End.Receipt.Proto()
		}
	}
	return out
}
