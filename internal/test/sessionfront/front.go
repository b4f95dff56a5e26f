// Package sessionfront serves Agentd.Run by means of SessionService alone, so
// that whoever drives turns over the one can drive them over the other: the
// tests of the whole daemon do, and compare.
//
// An ExecuteRequest becomes CreateTurn and WatchTurn, an AttachRequest WatchTurn
// alone; an answer becomes SubmitToolResults; a cancel or end of the turn CancelTurn, the
// cancel of a call CancelToolCall. A stream that goes away takes nothing but its
// WatchTurn along. Two things of Run have no counterpart and are not imitated: the
// client's half-close changes nothing, and the limits of a stream (of its messages,
// refusals and idle time) are those of this front.
//
// The package knows the generated code of both services and no other part of
// agentd.
package sessionfront

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
)

const (
	// mostSessions bounds what a Front remembers.
	mostSessions = 4096
	// lingerTimeout is how long the end of a stream waits for the client to close
	// its side.
	lingerTimeout = 2 * time.Second
)

// Front implements agentd.v1.Agentd. Its methods may be called from any
// goroutine.
type Front struct {
	sessions agentdv1connect.SessionServiceClient
	others   http.Handler // of requests that are not of Agentd

	mu    sync.Mutex          // protects the fields below
	tools map[string][]string // what the last tree of each session was offered
}

// New returns a front of the daemon at the address base.
func New(hc *http.Client, base string, opts ...connect.ClientOption) (*Front, error) {
	to, err := url.Parse(base)
	if err != nil {
		return nil, fmt.Errorf("sessionfront: %w", err)
	}
	return &Front{
		sessions: agentdv1connect.NewSessionServiceClient(hc, base, opts...),
		others: &httputil.ReverseProxy{
			Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
			Transport:     hc.Transport,
			FlushInterval: -1,
		},
		tools: map[string][]string{},
	}, nil
}

// Handler serves the front, and hands the daemon what is not Run.
func (f *Front) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(agentdv1connect.NewAgentdHandler(f))
	mux.Handle("/", f.others)
	return mux
}

type bidi = connect.BidiStream[agentdv1.RunRequest, agentdv1.RunResponse]

// Run carries one stream.
func (f *Front) Run(ctx context.Context, b *bidi) error {
	first, err := b.Receive()
	if err != nil {
		return err
	}
	st := &stream{f: f, b: b, header: b.RequestHeader(), open: make(chan struct{})}
	switch r := first.GetRequest().(type) {
	case *agentdv1.RunRequest_Attach:
		watch, err := st.attach(ctx, r.Attach)
		if err != nil {
			return st.refuse(ctx, err)
		}
		return st.carry(ctx, watch)
	case *agentdv1.RunRequest_Execute:
		watch, err := st.begin(ctx, r.Execute)
		if err != nil {
			return st.refuse(ctx, err)
		}
		return st.carry(ctx, watch)
	default:
		return b.Send(failure(agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST,
			"the first message must be an ExecuteRequest or an AttachRequest"))
	}
}

// stream is one Run call.
type stream struct {
	f             *Front
	b             *bidi
	header        http.Header
	session, turn string
	started       string // the turn that this stream has started, until its first event
	observes      bool
	open          chan struct{} // closed when replies may be sent

	mu       sync.Mutex // has one goroutine send at a time
	ended    bool       // what was sent last was the end of a turn; protected by mu
	returned bool       // the handler is over: nobody may send any more; protected by mu
}

// call makes a request of the client's own, with its keys and its credential.
func call[T any](st *stream, msg *T) *connect.Request[T] {
	req := connect.NewRequest(msg)
	for name, values := range st.header {
		if strings.HasPrefix(name, "X-Agentd-") || name == "Authorization" {
			req.Header()[name] = values
		}
	}
	return req
}

// attach returns what to watch. What the client asks for later names its turn, so
// that one without a name is looked up; why there is none WatchTurn says. An error is one
// that may pass: the turn may be there.
func (st *stream) attach(ctx context.Context, at *agentdv1.AttachRequest) (*agentdv1.WatchTurnRequest, error) {
	st.session, st.turn, st.observes = at.GetSessionId(), at.GetTurnId(), at.GetObserve()
	if st.turn == "" {
		last, err := st.f.sessions.GetTurn(ctx, call(st, &agentdv1.GetTurnRequest{SessionId: st.session}))
		if said := st.said(err); err != nil && (said == nil || said.GetError().GetRetryable()) {
			return nil, err
		}
		if err == nil {
			st.turn = last.Msg.GetTurn().GetId()
		}
	}
	return &agentdv1.WatchTurnRequest{
		SessionId: st.session, TurnId: at.GetTurnId(), AfterSeq: at.AfterSeq, ToolNames: at.GetToolNames(),
		Observe: at.GetObserve(), Display: at.GetDisplay(), Visibility: at.GetVisibility(),
	}, nil
}

// begin starts a turn, and returns what to watch.
func (st *stream) begin(
	ctx context.Context, ex *agentdv1.RunRequest_ExecuteRequest,
) (*agentdv1.WatchTurnRequest, error) {
	var names []string
	for _, tool := range ex.GetTools() {
		names = append(names, tool.GetName())
	}
	created, err := st.f.sessions.CreateTurn(ctx, call(st, &agentdv1.CreateTurnRequest{Execute: ex}))
	if err != nil {
		return nil, err
	}
	turn := created.Msg.GetTurn()
	st.session, st.turn, st.started = turn.GetSessionId(), turn.GetId(), turn.GetId()
	return &agentdv1.WatchTurnRequest{
		SessionId: st.session,
		TurnId:    st.turn,
		ToolNames: st.f.offered(ex, st.session, names),
	}, nil
}

// offered are the tools that a new turn of a session has.
func (f *Front) offered(ex *agentdv1.RunRequest_ExecuteRequest, session string, names []string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ex.GetAgent() == nil {
		return f.tools[session]
	}
	if len(f.tools) >= mostSessions {
		maps.DeleteFunc(f.tools, func(id string, _ []string) bool { return id != session })
	}
	f.tools[session] = slices.Clone(names)
	return names
}

// carry sends the events of the turn and does what the client asks for, until
// either is at its end. The receiving goroutine ends with the call of Run.
func (st *stream) carry(ctx context.Context, req *agentdv1.WatchTurnRequest) error {
	events, err := st.f.sessions.WatchTurn(ctx, call(st, req))
	if err != nil {
		return st.refuse(ctx, err)
	}
	defer func() { _ = events.Close() }()
	defer st.leave()
	received := make(chan struct{})
	go func() {
		defer close(received)
		st.receive(ctx)
	}()
	opened := false
	for events.Receive() {
		m := events.Msg().GetEvent()
		if m.GetHeartbeat() != nil {
			continue // Run answers those of its client, and sends none by itself
		}
		if err := st.send(m); err != nil {
			return err
		}
		if !opened {
			close(st.open)
			opened, st.started = true, ""
		}
	}
	if err := events.Err(); err != nil {
		return st.refuse(ctx, err)
	}
	// A server that returns before its client has closed its side resets the
	// stream, and with it what was sent last.
	linger := time.NewTimer(lingerTimeout)
	defer linger.Stop()
	select {
	case <-received:
	case <-linger.C:
	case <-ctx.Done():
	}
	return nil
}

// send sends an event.
func (st *stream) send(m *agentdv1.RunResponse) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.ended = m.GetEnd() != nil
	return st.b.Send(m)
}

// reply sends what is no event, unless the turn is over: nothing follows its end.
func (st *stream) reply(m *agentdv1.RunResponse) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.ended || st.returned {
		return nil
	}
	return st.b.Send(m)
}

// leave has the receiving goroutine send nothing any more. Its Receive fails when
// the handler has returned.
func (st *stream) leave() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.returned = true
}

// refuse ends the stream with the error of a method: as Run says it when the
// daemon has said it, otherwise as it is, for the daemon was not reached. A turn that has
// started and cannot be watched yet is named: the client comes back to it.
func (st *stream) refuse(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	said := st.said(err)
	if said == nil {
		return err
	}
	said.TurnId = st.started
	return st.send(said)
}

// said is the ErrorResponse that came with an error, nil if none did.
func (st *stream) said(err error) *agentdv1.RunResponse {
	ce, ok := errors.AsType[*connect.Error](err)
	if !ok {
		return nil
	}
	for _, detail := range ce.Details() {
		value, err := detail.Value()
		if e, ok := value.(*agentdv1.RunResponse_ErrorResponse); ok && err == nil {
			e.SessionId = st.session
			return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_Error{Error: e}}
		}
	}
	return nil
}

// receive does what the client asks for, in order, until its side is closed.
func (st *stream) receive(ctx context.Context) {
	select {
	case <-st.open:
	case <-ctx.Done():
		return
	}
	for {
		m, err := st.b.Receive()
		if err != nil {
			// EOF: only its side is closed. Otherwise the stream is gone, and ctx ends.
			return
		}
		answer, err := st.take(context.WithoutCancel(ctx), m)
		if err != nil {
			if answer = st.said(err); answer == nil {
				answer = failure(agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE, err.Error())
			}
			if id := m.GetToolCallResponse().GetToolCallId(); id != "" && answer.GetError() != nil {
				answer.GetError().ToolCallId = id
			}
			if e := answer.GetError(); e != nil && e.GetTurnId() == "" {
				e.TurnId = st.turn
			}
		}
		if answer != nil && st.reply(answer) != nil {
			return
		}
	}
}

// take does what a message asks for and returns the answer, nil for none.
func (st *stream) take(ctx context.Context, m *agentdv1.RunRequest) (*agentdv1.RunResponse, error) {
	if st.observes && m.GetHeartbeat() == nil {
		return failure(agentdv1.ErrorCode_ERROR_CODE_FAILED_PRECONDITION, "this stream observes: it only watches"), nil
	}
	switch r := m.GetRequest().(type) {
	case *agentdv1.RunRequest_Heartbeat:
		return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_Heartbeat{
			Heartbeat: &agentdv1.RunResponse_HeartbeatResponse{SessionId: st.session},
		}}, nil
	case *agentdv1.RunRequest_ToolCallResponse_:
		resp, err := st.f.sessions.SubmitToolResults(ctx, call(st, &agentdv1.SubmitToolResultsRequest{
			SessionId: st.session,
			TurnId:    st.turn,
			Results:   []*agentdv1.RunRequest_ToolCallResponse{r.ToolCallResponse},
		}))
		if err != nil {
			return nil, err
		}
		for _, refused := range resp.Msg.GetRefused() {
			return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_Error{Error: refused.GetError()}}, nil
		}
		return nil, nil
	case *agentdv1.RunRequest_End:
		reason := r.End.GetReason()
		if reason == "" {
			reason = "ended by the client"
		}
		return nil, st.cancel(ctx, reason)
	case *agentdv1.RunRequest_Cancel:
		if r.Cancel.ToolCallId == nil {
			return nil, st.cancel(ctx, "")
		}
		_, err := st.f.sessions.CancelToolCall(ctx, call(st, &agentdv1.CancelToolCallRequest{
			SessionId:  st.session,
			TurnId:     st.turn,
			ToolCallId: r.Cancel.GetToolCallId(),
		}))
		return nil, err
	default:
		return failure(agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, "a message that is of no use here"), nil
	}
}

func (st *stream) cancel(ctx context.Context, reason string) error {
	_, err := st.f.sessions.CancelTurn(ctx, call(st, &agentdv1.CancelTurnRequest{
		SessionId: st.session,
		TurnId:    st.turn,
		Reason:    reason,
	}))
	return err
}

func failure(code agentdv1.ErrorCode, text string) *agentdv1.RunResponse {
	said := &agentdv1.RunResponse_ErrorResponse{Code: code, Message: text}
	return &agentdv1.RunResponse{Response: &agentdv1.RunResponse_Error{Error: said}}
}

var _ agentdv1connect.AgentdHandler = (*Front)(nil)
