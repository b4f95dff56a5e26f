package server

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/session/fault"
)

// inner calls a handler of the same server, in the context of a request that is being served and so for its caller.
// Rights, rules, limits and the audit trail are those of any other client.
type inner struct {
	server  *Server
	handler http.Handler
	own     bool // the server itself calls, for the principal of the context

	mu sync.Mutex // while the line of a request learns what it is about
}

// newInner returns SessionService by its own handler.
func newInner(s *Server, sessions http.Handler) agentdv1connect.SessionServiceClient {
	return agentdv1connect.NewSessionServiceClient(&inner{server: s, handler: sessions}, "http://agentd.internal",
		connect.WithAcceptCompression("gzip", nil, nil)) // nothing is sent over a network
}

// newOwn returns SessionService by its own handler, for what the server does without a request.
func newOwn(s *Server, sessions http.Handler) agentdv1connect.SessionServiceClient {
	return agentdv1connect.NewSessionServiceClient(&inner{server: s, handler: sessions, own: true},
		"http://agentd.internal", connect.WithAcceptCompression("gzip", nil, nil))
}

// newOwnGoals is newOwn for goals.
func newOwnGoals(s *Server, goals http.Handler) agentdv1connect.GoalServiceClient {
	return agentdv1connect.NewGoalServiceClient(&inner{server: s, handler: goals, own: true},
		"http://agentd.internal", connect.WithAcceptCompression("gzip", nil, nil))
}

// errNobody refuses a call that is made for no caller.
var errNobody = fault.Errorf(codeUnauthenticated, "the call has not the context of a request that is being served")

// innerBody is the body of a reply. Its Close ends the call and waits for the end of its handler.
type innerBody struct {
	net.Conn
	cancel context.CancelFunc
	done   <-chan struct{}
}

func (b *innerBody) Close() error {
	b.cancel()
	err := b.Conn.Close()
	<-b.done
	return err
}

// Do is what connect looks for. It returns when the reply begins; the handler runs on a goroutine that ends with the
// call, or when the body of the reply is closed.
func (i *inner) Do(r *http.Request) (*http.Response, error) {
	if !i.own && i.server.now().Authenticate != nil && r.Context().Value(requestKey{}) == nil {
		return nil, connectError(errNobody)
	}
	ctx, cancel := context.WithCancel(r.Context())
	outer := accessOf(ctx)
	own := &access{} // what this call meets need not be how the request ends
	in := r.WithContext(context.WithValue(ctx, accessKey{}, own))
	in.Proto, in.ProtoMajor, in.ProtoMinor, in.RequestURI = "HTTP/2.0", 2, 0, r.URL.RequestURI()
	if in.Body == nil {
		in.Body = http.NoBody
	}
	read, write := net.Pipe()
	done, begun := make(chan struct{}), make(chan struct{})
	w := &innerWriter{conn: write, header: http.Header{}, begun: begun}
	go func() {
		defer close(done)
		defer func() { _ = write.Close() }()
		defer w.WriteHeader(http.StatusOK)
		defer func() { _ = in.Body.Close() }() // what is left of the request is of no use
		defer func() {
			if w.panicked = recover(); w.panicked != nil {
				i.server.panicked("face", w.panicked)
			}
		}()
		i.handler.ServeHTTP(w, in)
	}()
	body := &innerBody{Conn: read, cancel: cancel, done: done}
	select {
	case <-begun:
	case <-ctx.Done():
		_ = body.Close() // of a pipe
		return nil, context.Cause(ctx)
	}
	if outer != nil {
		i.mu.Lock()
		defer i.mu.Unlock()
		outer.session, outer.turn = cmp.Or(own.session, outer.session), cmp.Or(own.turn, outer.turn)
	}
	return &http.Response{
		Status: http.StatusText(w.status), StatusCode: w.status, Proto: in.Proto, ProtoMajor: 2,
		Header: w.sent, Body: body, ContentLength: -1, Request: r, Trailer: http.Header{},
	}, nil
}

// innerWriter is a reply that a caller in the same process reads. The goroutine of the handler owns it; once begun is
// closed, status and sent do not change.
type innerWriter struct {
	conn     net.Conn
	header   http.Header
	begun    chan struct{}
	status   int // 0 before the reply begins
	sent     http.Header
	panicked any // why a reply ends too early
}

func (w *innerWriter) Header() http.Header { return w.header }

func (w *innerWriter) WriteHeader(status int) {
	if w.status != 0 {
		return
	}
	if w.panicked != nil {
		status = http.StatusInternalServerError
	}
	w.status, w.sent = status, w.header.Clone()
	close(w.begun)
}

func (w *innerWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.conn.Write(p)
}

// Flush is what connect looks for.
func (w *innerWriter) Flush() { w.WriteHeader(http.StatusOK) }

// SetWriteDeadline is what http.ResponseController looks for.
func (w *innerWriter) SetWriteDeadline(t time.Time) error { return w.conn.SetWriteDeadline(t) }

// SetReadDeadline is what http.ResponseController looks for. The request is in memory.
func (*innerWriter) SetReadDeadline(time.Time) error { return nil }
