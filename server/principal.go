package server

import (
	"errors"
	"log/slog"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
)

const (
	codeUnauthenticated = agentdv1.ErrorCode_ERROR_CODE_UNAUTHENTICATED
	codeDenied          = agentdv1.ErrorCode_ERROR_CODE_PERMISSION_DENIED
)

// authenticated finds out who makes each request of next. This is the only place that
// does; from here on the principal is in the request's context. A refused request gets
// an error in the form of its protocol before anything of it is read.
func (s *Server) authenticated(next http.Handler) http.Handler {
	if s.cfg.Authenticate == nil {
		return next
	}
	write := connect.NewErrorWriter()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := s.cfg.Authenticate(r)
		if err == nil && p.ID == "" {
			err = errors.New("the principal has no id")
		}
		if err != nil {
			s.log.LogAttrs(r.Context(), slog.LevelInfo, "request refused",
				slog.String("path", r.URL.Path), slog.String("error", err.Error()))
			w.Header().Set("Cache-Control", "no-store")
			refused := fault.Errorf(codeUnauthenticated,
				"the caller's credentials for this server are missing or were refused")
			_ = write.Write(w, r, connectError(refused)) // a client that is gone reads nothing
			return
		}
		next.ServeHTTP(w, r.WithContext(session.WithPrincipal(r.Context(), p)))
	})
}

// rights lists the lowest role that may call each method. A method that is not here is
// for operators. An observer may call Run and WatchTurn only with observe: see
// mayAttach.
var rights = map[string]session.Role{
	agentdv1connect.AgentdRunProcedure:                        session.Observer,
	agentdv1connect.SessionServiceCreateSessionProcedure:      session.Caller,
	agentdv1connect.SessionServiceGetSessionProcedure:         session.Observer,
	agentdv1connect.SessionServiceListSessionsProcedure:       session.Observer,
	agentdv1connect.SessionServiceUpdateSessionProcedure:      session.Caller,
	agentdv1connect.SessionServiceDeleteSessionProcedure:      session.Caller,
	agentdv1connect.SessionServiceForkSessionProcedure:        session.Caller,
	agentdv1connect.SessionServiceCreateTurnProcedure:         session.Caller,
	agentdv1connect.SessionServiceGetTurnProcedure:            session.Observer,
	agentdv1connect.SessionServiceListTurnsProcedure:          session.Observer,
	agentdv1connect.SessionServiceCancelTurnProcedure:         session.Caller,
	agentdv1connect.SessionServiceCancelToolCallProcedure:     session.Caller,
	agentdv1connect.SessionServiceListTurnEventsProcedure:     session.Observer,
	agentdv1connect.SessionServiceWatchTurnProcedure:          session.Observer,
	agentdv1connect.SessionServiceListSessionEventsProcedure:  session.Observer,
	agentdv1connect.SessionServiceWatchSessionProcedure:       session.Observer,
	agentdv1connect.SessionServiceSubmitToolResultsProcedure:  session.Caller,
	agentdv1connect.SessionServiceGetInteractionProcedure:     session.Observer,
	agentdv1connect.SessionServiceListInteractionsProcedure:   session.Observer,
	agentdv1connect.SessionServiceResolveInteractionProcedure: session.Caller,
	agentdv1connect.SessionServiceListModelCallsProcedure:     session.Observer,
	agentdv1connect.SessionServiceGetCapabilitiesProcedure:    session.Observer,
	agentdv1connect.SessionServiceListSharedStateProcedure:    session.Operator,
	agentdv1connect.SessionServiceSetSharedStateProcedure:     session.Operator,
	agentdv1connect.SessionServiceRemoveSharedStateProcedure:  session.Operator,
	agentdv1connect.SessionServiceListModelsProcedure:         session.Observer,
}

// mayCall refuses a method that is not for the principal.
func mayCall(p session.Principal, procedure string) *fault.Error {
	need, listed := rights[procedure]
	if !listed {
		need = session.Operator
	}
	return mayBe(p, need, strings.TrimPrefix(procedure, "/"))
}

// mayBe refuses what the principal's role may not do. An operator may do what a caller
// may, and both may do what an observer may.
func mayBe(p session.Principal, need session.Role, what string) *fault.Error {
	switch {
	case p.Role == session.Operator,
		p.Role == session.Caller && need != session.Operator,
		p.Role == session.Observer && need == session.Observer:
		return nil
	}
	return fault.Errorf(codeDenied,
		"%s is not for the role of this principal (%v): ask whoever operates the server", what, p.Role)
}

// mayAttach refuses an observer that would be a client of the turn.
func mayAttach(p session.Principal, observes bool) *fault.Error {
	if p.Role != session.Observer {
		return mayBe(p, session.Caller, "to be a client of a turn")
	}
	if observes {
		return nil
	}
	return fault.Errorf(codeDenied, "an observer only watches: set observe").Breaking("observe", fault.RuleRequired)
}
