package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/principal"
)

const (
	codeUnauthenticated = agentdv1.ErrorCode_ERROR_CODE_UNAUTHENTICATED
	codeDenied          = agentdv1.ErrorCode_ERROR_CODE_PERMISSION_DENIED
)

// authenticated finds out who makes each request of next. This is the only place that
// does; from here on the principal is in the request's context. A refused request gets
// an error in the form of its protocol before anything of it is read.
func (s *Server) authenticated(next http.Handler) http.Handler {
	if s.now().Authenticate == nil && s.now().ReplicaSecret == "" {
		return next
	}
	write := connect.NewErrorWriter()
	return s.authenticatedBy(func(w http.ResponseWriter, r *http.Request, e *fault.Error) {
		if e.Code != codeUnauthenticated && streams[r.URL.Path] {
			e.Code = codeUnavailable // upon which clients come back
		}
		refusal := connectError(e)
		accessOf(r.Context()).failed(refusal)
		_ = write.Write(w, r, refusal) // a client that is gone reads nothing
	}, next)
}

// refuser writes the refusal of a request in the form of its protocol, and notes it.
type refuser func(w http.ResponseWriter, r *http.Request, e *fault.Error)

// authenticatedBy is authenticated for a protocol with a form of its own for refusals.
func (s *Server) authenticatedBy(refuse refuser, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.now().Authenticate != nil || r.Header.Get(headerSecret) != "" && s.now().ReplicaSecret != "" {
			r = s.authenticate(refuse, w, r)
		}
		if r != nil {
			next.ServeHTTP(w, r)
		}
	})
}

// authenticate returns the request with its principal, or nil after it has refused it. It is apart from the handler,
// whose stack is there for as long as its stream is.
func (s *Server) authenticate(refuse refuser, w http.ResponseWriter, r *http.Request) *http.Request {
	p, forwarded, err := s.forwarder(r)
	if !forwarded {
		p, err = s.now().Authenticate(r)
	}
	if err == nil && !(forwarded && s.now().Authenticate == nil) {
		err = p.Check()
	}
	if err != nil {
		s.noteRefused(r, err)
		w.Header().Set("Cache-Control", "no-store")
		refuse(w, r, unauthenticated(err))
		return nil
	}
	accessOf(r.Context()).as(p)
	if forwarded { // the first server has bounded the caller, and judges its credential again
		return r.WithContext(principal.With(context.WithValue(r.Context(), forwardedKey{}, r.Header.Get(headerBy)), p))
	}
	if e := s.request(r.Context(), p.Tenant); e != nil {
		s.limited(e)
		refuse(w, r, e)
		return nil
	}
	ctx := context.WithValue(r.Context(), requestKey{}, r)
	return r.WithContext(principal.With(ctx, p))
}

// noteRefused has the line of a call say why its caller is refused. Reflection has no such line.
func (s *Server) noteRefused(r *http.Request, err error) {
	if a := accessOf(r.Context()); a != nil {
		a.why = err.Error()
		return
	}
	s.log.LogAttrs(r.Context(), slog.LevelInfo, "request refused",
		slog.String("path", logged(r.URL.Path)), slog.String("error", err.Error()))
}

// streams are the methods whose clients come back when a connection is lost.
var streams = map[string]bool{
	agentdv1connect.AgentdRunProcedure:                  true,
	agentdv1connect.SessionServiceWatchTurnProcedure:    true,
	agentdv1connect.SessionServiceWatchSessionProcedure: true,
	agentdv1connect.EventServiceWatchProcedure:          true,
}

// unauthenticated is what a caller reads of why it is refused, which is for the log.
func unauthenticated(err error) *fault.Error {
	if isPassing(err) {
		return fault.Errorf(codeUnavailable, "the server cannot tell now who calls; try again later").After(retryLater)
	}
	return fault.Errorf(codeUnauthenticated, "the caller's credentials for this server are missing or were refused")
}

// isPassing reports whether the credentials were not judged: what they are compared with cannot be read now.
func isPassing(err error) bool {
	e, ok := errors.AsType[interface {
		error
		Temporary() bool
	}](err)
	return ok && e.Temporary()
}

// rights lists the lowest role that may call each method. A method that is not here is
// for operators. An observer may call Run and WatchTurn only with observe: see
// mayAttach.
var rights = map[string]principal.Role{
	agentdv1connect.AgentdRunProcedure:                        principal.Observer,
	agentdv1connect.SessionServiceCreateSessionProcedure:      principal.Caller,
	agentdv1connect.SessionServiceGetSessionProcedure:         principal.Observer,
	agentdv1connect.SessionServiceListSessionsProcedure:       principal.Observer,
	agentdv1connect.SessionServiceUpdateSessionProcedure:      principal.Caller,
	agentdv1connect.SessionServiceDeleteSessionProcedure:      principal.Caller,
	agentdv1connect.SessionServiceForkSessionProcedure:        principal.Caller,
	agentdv1connect.SessionServiceCompactSessionProcedure:     principal.Caller,
	agentdv1connect.SessionServiceCreateTurnProcedure:         principal.Caller,
	agentdv1connect.SessionServiceGetTurnProcedure:            principal.Observer,
	agentdv1connect.SessionServiceListTurnsProcedure:          principal.Observer,
	agentdv1connect.SessionServiceCancelTurnProcedure:         principal.Caller,
	agentdv1connect.SessionServiceCancelToolCallProcedure:     principal.Caller,
	agentdv1connect.SessionServiceListTurnEventsProcedure:     principal.Observer,
	agentdv1connect.SessionServiceWatchTurnProcedure:          principal.Observer,
	agentdv1connect.SessionServiceListSessionEventsProcedure:  principal.Observer,
	agentdv1connect.SessionServiceWatchSessionProcedure:       principal.Observer,
	agentdv1connect.SessionServiceSubmitToolResultsProcedure:  principal.Caller,
	agentdv1connect.SessionServiceGetInteractionProcedure:     principal.Observer,
	agentdv1connect.SessionServiceListInteractionsProcedure:   principal.Observer,
	agentdv1connect.SessionServiceResolveInteractionProcedure: principal.Caller,
	agentdv1connect.SessionServiceRaiseInteractionProcedure:   principal.Caller,
	agentdv1connect.SessionServiceListModelCallsProcedure:     principal.Observer,
	agentdv1connect.SessionServiceGetCapabilitiesProcedure:    principal.Observer,
	agentdv1connect.SessionServiceListSharedStateProcedure:    principal.Operator,
	agentdv1connect.SessionServiceSetSharedStateProcedure:     principal.Operator,
	agentdv1connect.SessionServiceRemoveSharedStateProcedure:  principal.Operator,
	agentdv1connect.SessionServiceListModelsProcedure:         principal.Observer,
	agentdv1connect.SessionServiceApplyAgentProcedure:         principal.Caller,
	agentdv1connect.SessionServiceGetAgentProcedure:           principal.Observer,
	agentdv1connect.SessionServiceListAgentsProcedure:         principal.Observer,
	agentdv1connect.SessionServiceArchiveAgentProcedure:       principal.Caller,
	agentdv1connect.SessionServiceDeleteAgentProcedure:        principal.Caller,
	agentdv1connect.SessionServiceCreateSessionTokenProcedure: principal.Caller,
	agentdv1connect.ScheduleServiceCreateProcedure:            principal.Caller,
	agentdv1connect.ScheduleServiceGetProcedure:               principal.Observer,
	agentdv1connect.ScheduleServiceListProcedure:              principal.Observer,
	agentdv1connect.ScheduleServiceDeleteProcedure:            principal.Caller,
	agentdv1connect.EventServiceListProcedure:                 principal.Observer,
	agentdv1connect.EventServiceWatchProcedure:                principal.Observer,
	agentdv1connect.GoalServiceStartProcedure:                 principal.Caller,
	agentdv1connect.GoalServiceResumeProcedure:                principal.Caller,
	agentdv1connect.GoalServiceGetProcedure:                   principal.Observer,
	agentdv1connect.GoalServiceListProcedure:                  principal.Observer,
	agentdv1connect.GoalServiceControlProcedure:               principal.Caller,
	agentdv1connect.GoalServiceInjectProcedure:                principal.Caller,
}

// mayCall refuses a method that is not for the principal.
func mayCall(p principal.Principal, procedure string) *fault.Error {
	need, listed := rights[procedure]
	if !listed {
		need = principal.Operator
	}
	if p.Session != "" && !inScope[procedure] {
		return fault.Errorf(codeDenied, "%s is not for a token of one session: use the credential that made the token",
			strings.TrimPrefix(procedure, "/"))
	}
	return mayBe(p, need, strings.TrimPrefix(procedure, "/"))
}

// mayBe refuses what the principal's role may not do. An operator may do what a caller
// may, and both may do what an observer may.
func mayBe(p principal.Principal, need principal.Role, what string) *fault.Error {
	switch {
	case p.Role == principal.Operator,
		p.Role == principal.Caller && need != principal.Operator,
		p.Role == principal.Observer && need == principal.Observer:
		return nil
	}
	return fault.Errorf(codeDenied,
		"%s is not for the role of this principal (%v): ask whoever operates the server", what, p.Role)
}

// mayAttach refuses an observer that would be a client of the turn.
func mayAttach(p principal.Principal, observes bool) *fault.Error {
	if p.Role != principal.Observer {
		return mayBe(p, principal.Caller, "to be a client of a turn")
	}
	if observes {
		return nil
	}
	return fault.Errorf(codeDenied, "an observer only watches: set observe").Breaking("observe", fault.RuleRequired)
}
