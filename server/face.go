package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/principal"
)

// Face serves another protocol beside those of agentd. It can do what a client of SessionService can, no more.
//
// The server holds each route to what holds for its own: callers are authenticated before the face sees a request,
// web pages are let in as CORSOrigins says, a body has at most MaxMessageBytes, streams count towards MaxStreams,
// writes that nobody reads end, and a call is traced, counted under the name "face/" and that of the face, and has
// its line in the log. What it does by FaceEnv.Sessions is in the audit trail.
//
// A face may have a method
//
//	Refuse(w http.ResponseWriter, r *http.Request, status int, e *agentdv1.RunResponse_ErrorResponse)
//
// that writes what the server refuses before the face sees it (401, 413, 429, 503), in the face's own form. Without
// it that is a JSON object with code and message.
type Face interface {
	// Name is what the face is called: 1 to 64 of a-z, 0-9 and -.
	Name() string
	// Mount adds the routes to a mux of the face's own; it is called once, when the server is made. Of faces that
	// serve the same path the first one gets the request, and no face gets one of the server's own. An error is
	// why the server cannot be made.
	Mount(mux *http.ServeMux, env FaceEnv) error
}

// FaceEnv is what a face has of the server. Its methods may be called from any goroutine that serves a request.
type FaceEnv struct {
	// Sessions is SessionService as the caller of a request may use it. Its methods need the context of the
	// request that is served, or one below it; without it they act for nobody, and are refused where callers are
	// authenticated. A request waits for the end of the streams that it has begun. For a caller that is not an operator
	// only the sessions exist that it has created.
	Sessions agentdv1connect.SessionServiceClient
	// Objects keeps what the protocol of the face has and agentd has not: objects by kind and id, texts of 1 to 128
	// bytes, of at most 65,536 bytes each. Each face has its own, for each tenant, at most 10,000. They are not
	// encrypted. Its methods need the context of a request, as those of Sessions do; their errors are for Error.
	Objects faceObjects

	server *Server
	face   Face
}

// faceName matches the names of faces.
var faceName = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)

// checkFaces returns what is wrong with the names of faces.
func checkFaces(faces []Face) error {
	var errs []error
	seen := map[string]bool{}
	for _, f := range faces {
		switch name := f.Name(); {
		case !faceName.MatchString(name):
			errs = append(errs, fmt.Errorf("server: a face is called %q, want 1 to 64 of a-z, 0-9 and -", name))
		case seen[name]:
			errs = append(errs, fmt.Errorf("server: two faces are called %q, leave out one", name))
		default:
			seen[name] = true
		}
	}
	return errors.Join(errs...)
}

// mountedFace is a face with its routes.
type mountedFace struct {
	mux     *http.ServeMux
	handler http.Handler // of the mux, behind what holds for each route
}

// faces serves what the server itself does not, by the routes of its faces. sessions is the handler of
// SessionService for callers that are authenticated.
func (s *Server) faces(sessions http.Handler) (http.Handler, error) {
	var all []mountedFace
	for _, f := range s.now().Faces {
		env := FaceEnv{
			Sessions: newInner(s, sessions), Objects: faceObjects{s, f.Name()}, server: s, face: f,
		}
		mux := http.NewServeMux()
		if err := f.Mount(mux, env); err != nil {
			return nil, fmt.Errorf("server: face %s: %w", f.Name(), err)
		}
		handler := s.authenticatedBy(env.refuse, ownSessions(s.faceBody(env, mux)))
		handler = s.observedAs(func(*http.Request) string { return "face/" + f.Name() }, handler)
		all = append(all, mountedFace{mux, s.crossOriginFace(handler)})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, f := range all {
			if f.serves(r) {
				f.handler.ServeHTTP(w, r)
				return
			}
		}
		http.NotFound(w, r)
	}), nil
}

// serves reports whether the face has a route for the request. That of a page that asks whether it may send another
// one is the other one's.
func (f *mountedFace) serves(r *http.Request) bool {
	if asked := r.Header.Get("Access-Control-Request-Method"); r.Method == http.MethodOptions && asked != "" {
		other := *r
		other.Method = asked
		r = &other
	}
	_, pattern := f.mux.Handler(r)
	return pattern != ""
}

// ownSessions leaves callers that are not operators the sessions that they have created: for them, on the routes of a
// face, no other session exists. A token for one session has that one, whoever has created it. That the session that a
// request names is one of these is for package session, as it is for tokens.
func ownSessions(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := principal.Of(r.Context()); p.Role != principal.Operator && p.Session == "" {
			p.Own = true
			r = r.WithContext(principal.With(r.Context(), p))
		}
		next.ServeHTTP(w, r)
	})
}

// faceBody reads the body of each request, within bounds, and bounds each write.
func (s *Server) faceBody(env FaceEnv, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.SetReadDeadline(time.Now().Add(requestTimeout)) // without support the server's own limits hold
		limit := int64(s.now().MaxMessageBytes)
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			e := fault.Errorf(codeLimit, "the body has more than %d bytes, the most that are allowed", limit).
				Over("message_bytes", int(limit), int(max(r.ContentLength, 0)))
			s.limited(e)
			env.refuse(w, r, e)
			return
		}
		if err != nil {
			env.refuse(w, r, fault.Errorf(codeInvalid, "the body cannot be read to its end: send it again"))
			return
		}
		_ = rc.SetReadDeadline(time.Time{}) // what is read later only shows whether the client is there
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(body))
		out := &faceWriter{ResponseWriter: w, rc: rc, server: s}
		defer out.bound()
		next.ServeHTTP(out, r)
		a := accessOf(r.Context())
		if status, ok := w.(*statusWriter); ok && a != nil {
			a.code = cmp.Or(a.code, faceCodes[status.status])
		}
	})
}

// faceCodes are the codes of what a face answers, where they differ from those of routes that there are not.
var faceCodes = map[int]string{
	http.StatusNotFound:              connect.CodeNotFound.String(),
	http.StatusConflict:              connect.CodeAborted.String(),
	http.StatusGone:                  connect.CodeOutOfRange.String(),
	http.StatusRequestEntityTooLarge: connect.CodeResourceExhausted.String(),
	http.StatusGatewayTimeout:        connect.CodeDeadlineExceeded.String(),
}

// faceWriter bounds the time of each write: HTTP/2 resets a stream when its deadline passes, also when nothing is
// written, so there is none in between. The handler goroutine owns it.
type faceWriter struct {
	http.ResponseWriter
	rc     *http.ResponseController
	server *Server
}

func (w *faceWriter) bound()   { _ = w.rc.SetWriteDeadline(time.Now().Add(w.server.now().WriteTimeout)) }
func (w *faceWriter) unbound() { _ = w.rc.SetWriteDeadline(time.Time{}) }

func (w *faceWriter) Write(p []byte) (written int, err error) {
	defer w.unbound()
	for err == nil && written < len(p) {
		w.bound()
		var n int
		n, err = w.ResponseWriter.Write(p[written:min(len(p), written+pieceBytes)])
		written += n
	}
	return written, err
}

// FlushError is what http.ResponseController looks for.
func (w *faceWriter) FlushError() error {
	w.bound()
	defer w.unbound()
	return w.rc.Flush()
}

// Flush is FlushError for those who look for an http.Flusher.
func (w *faceWriter) Flush() { _ = w.FlushError() }

// Unwrap is what http.ResponseController looks for.
func (w *faceWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// refuse writes what the server refuses, in the form of the face.
func (env FaceEnv) refuse(w http.ResponseWriter, r *http.Request, e *fault.Error) {
	accessOf(r.Context()).failed(connectError(e))
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64((e.RetryAfter+time.Second-1)/time.Second), 10))
	}
	msg := errorResponse("", e).GetError()
	status := statusOf(msg)
	if face, ok := env.face.(interface {
		Refuse(w http.ResponseWriter, r *http.Request, status int, e *agentdv1.RunResponse_ErrorResponse)
	}); ok {
		face.Refuse(w, r, status, msg)
		return
	}
	writePlain(w, status, msg)
}

// writePlain writes an error as a JSON object.
func writePlain(w http.ResponseWriter, status int, e *agentdv1.RunResponse_ErrorResponse) {
	data, err := json.Marshal(map[string]string{
		"code": outcomeOf(&fault.Error{Code: e.GetCode()}), "message": e.GetMessage(),
	})
	if err != nil { // not reached: texts can be written
		data = []byte("{}")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n')) // a client that is gone reads nothing
}

// Error returns the HTTP status for an error of Sessions, and what a client may read of it: 400, 401, 403, 404,
// 409, 410 (the log was purged), 413 (a message that is too large), 429 (a limit, also that of streams), 500, 503
// or 504.
func (FaceEnv) Error(err error) (status int, e *agentdv1.RunResponse_ErrorResponse) {
	if ce, ok := errors.AsType[*connect.Error](err); ok {
		for _, d := range ce.Details() {
			if v, err := d.Value(); err == nil {
				if e, ok := v.(*agentdv1.RunResponse_ErrorResponse); ok {
					return statusOf(e), e
				}
			}
		}
	}
	e = &agentdv1.RunResponse_ErrorResponse{Code: codeInternal, Message: "internal error"}
	if errors.Is(err, context.DeadlineExceeded) || connect.CodeOf(err) == connect.CodeDeadlineExceeded {
		e.Code, e.Message = codeTimeout, "the deadline of the request has passed"
	}
	return statusOf(e), e
}

// statusOf is the HTTP status of an error.
func statusOf(e *agentdv1.RunResponse_ErrorResponse) int {
	switch e.GetLimit().GetName() {
	case "message_bytes":
		return http.StatusRequestEntityTooLarge
	case "streams", "tenant_streams", "tenant_requests_per_second":
		return http.StatusTooManyRequests
	}
	if status, ok := faceStatuses[e.GetCode()]; ok {
		return status
	}
	return http.StatusBadRequest
}

// faceStatuses are the statuses of the codes that are not the fault of what a request says.
var faceStatuses = map[agentdv1.ErrorCode]int{
	agentdv1.ErrorCode_ERROR_CODE_INTERNAL:          http.StatusInternalServerError,
	agentdv1.ErrorCode_ERROR_CODE_UNAUTHENTICATED:   http.StatusUnauthorized,
	agentdv1.ErrorCode_ERROR_CODE_PERMISSION_DENIED: http.StatusForbidden,
	agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND: http.StatusNotFound,
	agentdv1.ErrorCode_ERROR_CODE_NOT_FOUND:         http.StatusNotFound,
	agentdv1.ErrorCode_ERROR_CODE_HISTORY_PURGED:    http.StatusGone,
	agentdv1.ErrorCode_ERROR_CODE_CONFLICT:          http.StatusConflict,
	agentdv1.ErrorCode_ERROR_CODE_SESSION_BUSY:      http.StatusConflict,
	agentdv1.ErrorCode_ERROR_CODE_RATE_LIMITED:      http.StatusTooManyRequests,
	agentdv1.ErrorCode_ERROR_CODE_LIMIT_EXCEEDED:    http.StatusTooManyRequests,
	agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE:       http.StatusServiceUnavailable,
	agentdv1.ErrorCode_ERROR_CODE_TIMEOUT:           http.StatusGatewayTimeout,
}
