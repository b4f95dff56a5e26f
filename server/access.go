package server

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/tracecontext"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/principal"
)

const (
	// codeOK is the code of a call without an error, and the outcome of what was done.
	codeOK = "ok"
	// otherMethod stands for methods that there are not.
	otherMethod = "other"
	// maxLogged bounds what the log has of a text of the caller.
	maxLogged = 256
)

// access is what the log has of one call. Only the goroutine of its handler uses it. A nil access notes nothing.
type access struct {
	who           principal.Principal
	session, turn string
	code          string // "" unless somebody knows better than the HTTP status
	why           string // why the caller was refused
	more          []slog.Attr
}

type accessKey struct{}

// accessOf returns the access of a request; nil if it has none.
func accessOf(ctx context.Context) *access {
	a, _ := ctx.Value(accessKey{}).(*access)
	return a
}

// observed has each call of next reported to Config.Observe, and writes one line for it.
func (s *Server) observed(next http.Handler) http.Handler {
	return s.observedAs(func(r *http.Request) string { return methodOf(r.URL.Path) }, next)
}

// observedAs is observed for calls that have other names.
func (s *Server) observedAs(name func(*http.Request) string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := s.begin(w, r, name(r))
		defer c.end()
		next.ServeHTTP(c.out, c.r)
		c.whole = true
	})
}

// call is one call of a method that is observed. The stack of its handler is there for as long as its stream is, and so
// holds little.
type call struct {
	s      *Server
	r      *http.Request
	began  time.Time
	method string
	ended  func(code string)
	access access
	in     countedBody
	out    *statusWriter
	whole  bool // the handler has not panicked
}

// begin begins to observe a call.
func (s *Server) begin(w http.ResponseWriter, r *http.Request, method string) *call {
	c := &call{s: s, began: time.Now(), method: method, out: &statusWriter{ResponseWriter: w}}
	part := tracecontext.Parse(r.Header.Get(tracecontext.Header), r.Header.Values(tracecontext.StateHeader)...)
	ctx, ended := s.now().Observe(tracecontext.With(r.Context(), part), c.method)
	if c.ended = ended; s.now().Authenticate == nil {
		c.access.who = principal.Of(ctx)
	}
	c.in.ReadCloser = r.Body
	c.r = r.WithContext(context.WithValue(ctx, accessKey{}, &c.access))
	c.r.Body = &c.in
	return c
}

// end reports a call that is over.
func (c *call) end() {
	code := c.access.codeOf(c.out, c.whole)
	c.ended(code)
	c.s.logCall(c.r, &c.access,
		slog.String("method", c.method), slog.String("code", code), slog.Duration("took", time.Since(c.began)),
		slog.Int64("bytes_in", c.in.total.Load()), slog.Int64("bytes_out", c.out.total))
}

// methodOf is the method that a path calls, without the package of the protocol.
func methodOf(path string) string {
	if _, ok := rights[path]; !ok {
		return otherMethod
	}
	return strings.TrimPrefix(path, "/agentd.v1.")
}

// logCall writes the line of a call that is over.
func (s *Server) logCall(r *http.Request, a *access, attrs ...slog.Attr) {
	if attrs[0].Value.String() == otherMethod {
		attrs = append(attrs, slog.String("path", logged(r.URL.Path)))
	}
	for _, known := range []struct{ key, value string }{
		{"principal", a.who.ID}, {"tenant", a.who.Tenant}, {"session", a.session}, {"turn", a.turn},
		{"trace_id", tracecontext.In(r.Context()).TraceID()}, {"from", s.now().From(r)}, {"error", a.why},
	} {
		if known.value != "" {
			attrs = append(attrs, slog.String(known.key, logged(known.value)))
		}
	}
	s.log.LogAttrs(r.Context(), slog.LevelInfo, "call ended", append(attrs, a.more...)...)
}

// logged bounds a text of the caller.
func logged(text string) string {
	if len(text) > maxLogged {
		return strings.ToValidUTF8(text[:maxLogged], "") + "…"
	}
	return text
}

// codeOf is how the call ended, by the names of Connect and gRPC; whole is false after a panic.
func (a *access) codeOf(w *statusWriter, whole bool) string {
	if !whole && a.code == "" {
		return connect.CodeInternal.String()
	}
	return cmp.Or(a.code, httpCodes[w.status], codeOK)
}

// httpCodes are the codes of refusals of which only the HTTP status is known.
var httpCodes = map[int]string{
	http.StatusBadRequest:              connect.CodeInvalidArgument.String(),
	http.StatusUnauthorized:            connect.CodeUnauthenticated.String(),
	http.StatusForbidden:               connect.CodePermissionDenied.String(),
	http.StatusNotFound:                connect.CodeUnimplemented.String(),
	http.StatusMethodNotAllowed:        connect.CodeUnimplemented.String(),
	http.StatusRequestTimeout:          connect.CodeDeadlineExceeded.String(),
	http.StatusUnsupportedMediaType:    connect.CodeUnimplemented.String(),
	http.StatusTooManyRequests:         connect.CodeResourceExhausted.String(),
	http.StatusInternalServerError:     connect.CodeInternal.String(),
	http.StatusServiceUnavailable:      connect.CodeUnavailable.String(),
	http.StatusHTTPVersionNotSupported: connect.CodeUnimplemented.String(),
}

// as notes who calls.
func (a *access) as(p principal.Principal) {
	if a != nil {
		a.who = p
	}
}

// about notes the session and the turn that a message names, in a request or in a reply.
func (a *access) about(msg any) {
	if a == nil {
		return
	}
	on := targetOf(msg)
	a.session, a.turn = cmp.Or(on.session, a.session), cmp.Or(on.turn, a.turn)
}

// failed notes the error that the call ends with.
func (a *access) failed(err error) {
	if a != nil && err != nil {
		a.code = connect.CodeOf(err).String()
	}
}

// failedWith notes the error that the stream ends with.
func (a *access) failedWith(code agentdv1.ErrorCode) {
	if status, ok := statuses[code]; ok && a != nil {
		a.code = status.String()
	}
}

// limited reports the limit of a refusal, if it has one.
func (s *Server) limited(err error) {
	if e, ok := errors.AsType[*fault.Error](err); ok && e != nil && e.Limit != nil {
		s.now().OnLimit(e.Limit.Name)
	}
}

// countedBody counts the bytes of a request.
type countedBody struct {
	io.ReadCloser
	total atomic.Int64 // the receiver of a stream reads on a goroutine of its own
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.total.Add(int64(n))
	return n, err
}

// statusWriter counts the bytes of a reply, and keeps its status. The handler goroutine owns it.
type statusWriter struct {
	http.ResponseWriter
	status int // 0 before it is written
	total  int64
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = cmp.Or(w.status, status)
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.total += int64(n)
	return n, err
}

// Flush is what connect looks for.
func (w *statusWriter) Flush() {
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// Unwrap is what http.ResponseController looks for.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
