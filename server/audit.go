package server

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"connectrpc.com/connect"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/ledger"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/principal"
)

// target is what was acted on.
type target struct{ session, turn, subject string }

// audit notes what a caller has done, or was refused. Reads are not noted, and neither are tool results, which the log
// of the session has.
func (s *Server) audit(ctx context.Context, action string, on target, outcome string) {
	write := s.now().Audit
	if write == nil {
		return
	}
	p := principal.Of(ctx)
	e := ledger.Entry{
		Time: time.Now(), Tenant: p.Tenant, Principal: p.ID, Role: p.Role, Via: p.Via,
		Action: action, Session: on.session, Turn: on.turn, Subject: on.subject, Outcome: outcome,
	}
	if r, ok := ctx.Value(requestKey{}).(*http.Request); ok {
		e.From = s.now().From(r)
	}
	write(e)
}

// outcomeOf is the outcome of what may have been refused.
func outcomeOf(e *fault.Error) string {
	if e == nil {
		return codeOK
	}
	return strings.TrimPrefix(e.Code.String(), "ERROR_CODE_")
}

// outcomeOfCall is the outcome of a call with this error for its client.
func outcomeOfCall(err error) string {
	if err == nil {
		return codeOK
	}
	if e, ok := errors.AsType[*connect.Error](err); ok {
		for _, d := range e.Details() {
			if v, err := d.Value(); err == nil {
				if m, ok := v.(*agentdv1.RunResponse_ErrorResponse); ok {
					return strings.TrimPrefix(m.GetCode().String(), "ERROR_CODE_")
				}
			}
		}
	}
	return strings.ToUpper(connect.CodeOf(err).String())
}

// auditCall notes a call of SessionService, with the error that its client gets.
func (s *Server) auditCall(ctx context.Context, spec connect.Spec, req, resp any, err error) {
	if spec.IdempotencyLevel == connect.IdempotencyNoSideEffects ||
		spec.Procedure == agentdv1connect.SessionServiceSubmitToolResultsProcedure {
		return
	}
	on := targetOf(req)
	if err == nil {
		on = on.or(targetOf(resp))
	}
	s.audit(ctx, actionOf(spec.Procedure), on, outcomeOfCall(err))
}

// auditAttach notes that a caller has begun to run the tools of a turn, or why not.
func (s *Server) auditAttach(ctx context.Context, req *agentdv1.WatchTurnRequest, turn *session.Turn, err error) {
	on, outcome := targetOf(req), codeOK
	switch e, ok := errors.AsType[*fault.Error](err); {
	case ok:
		outcome = outcomeOf(e)
	case err != nil:
		outcome = outcomeOfCall(err)
	case turn != nil:
		on.turn = turn.ID()
	}
	s.audit(ctx, actionOf(agentdv1connect.SessionServiceWatchTurnProcedure), on, outcome)
}

// actionOf is the action of a procedure, such as SessionService.CancelTurn.
func actionOf(procedure string) string { return strings.ReplaceAll(methodOf(procedure), "/", ".") }

// or fills in what is missing. What a call has made beside what it names is the subject.
func (t target) or(other target) target {
	if t.session == "" {
		t.session = other.session
	} else if t.subject == "" && other.session != t.session {
		t.subject = other.session
	}
	if t.turn == "" {
		t.turn = other.turn
	}
	if t.subject == "" {
		t.subject = other.subject
	}
	return t
}

// targetOf finds what a message is about.
func targetOf(msg any) (on target) {
	if r, ok := msg.(interface{ Any() any }); ok { // a request or a response of connect
		msg = r.Any()
	}
	if m, ok := msg.(interface {
		GetExecute() *agentdv1.RunRequest_ExecuteRequest
	}); ok {
		on.session = m.GetExecute().GetSessionId()
	}
	if m, ok := msg.(interface{ GetSession() *agentdv1.Session }); ok {
		on.session = m.GetSession().GetId()
	}
	if m, ok := msg.(interface{ GetTurn() *agentdv1.Turn }); ok {
		on.session, on.turn = m.GetTurn().GetSessionId(), m.GetTurn().GetId()
	}
	switch m := msg.(type) {
	case *agentdv1.ResumeGoalRequest:
		on.session = m.GetGoal().GetExecute().GetSessionId()
	case interface{ GetGoal() *agentdv1.Goal }:
		on.session = m.GetGoal().GetSessionId()
	case *agentdv1.ApplyAgentRequest:
		on.subject = m.GetName()
	case *agentdv1.ArchiveAgentRequest:
		on.subject = m.GetName()
	case *agentdv1.DeleteAgentRequest:
		on.subject = m.GetName()
	case *agentdv1.CreateScheduleResponse:
		on.session, on.subject = m.GetSchedule().GetSessionId(), m.GetSchedule().GetId()
	case *agentdv1.DeleteScheduleRequest:
		on.subject = m.GetId()
	}
	if m, ok := msg.(interface{ GetSessionId() string }); ok {
		on.session = m.GetSessionId()
	}
	if m, ok := msg.(interface{ GetTurnId() string }); ok {
		on.turn = m.GetTurnId()
	}
	if m, ok := msg.(interface{ GetInteractionId() string }); ok {
		on.subject = m.GetInteractionId()
	}
	if m, ok := msg.(interface{ GetToolCallId() string }); ok {
		on.subject = m.GetToolCallId()
	}
	return on
}

// auditMessage notes a message of a stream that asks to change its turn, and the answer. Tool results are in the log of
// the session.
func (st *stream) auditMessage(msg *agentdv1.RunRequest, e *fault.Error) {
	var on target
	on.session, on.turn = st.ids()
	var action string
	switch r := msg.GetRequest().(type) {
	case *agentdv1.RunRequest_InteractionResponse:
		action, on.subject = "Run.interaction_response", r.InteractionResponse.GetInteractionId()
	case *agentdv1.RunRequest_InteractionRequest:
		action, on.subject = "Run.interaction_request", r.InteractionRequest.GetToolCallId()
	case *agentdv1.RunRequest_End:
		action = "Run.end"
	case *agentdv1.RunRequest_Cancel:
		action, on.subject = "Run.cancel", r.Cancel.GetToolCallId()
	default:
		return
	}
	st.srv.audit(st.t.ctx, action, on, outcomeOf(e))
}

// auditOpening notes what a stream has begun with, unless that was to watch.
func (st *stream) auditOpening(ctx context.Context, msg *agentdv1.RunRequest, e *fault.Error) {
	var action string
	var on target
	switch r := msg.GetRequest().(type) {
	case *agentdv1.RunRequest_Execute:
		action, on.session = "Run.execute", r.Execute.GetSessionId()
	case *agentdv1.RunRequest_Attach:
		if r.Attach.GetObserve() {
			return
		}
		action, on.session, on.turn = "Run.attach", r.Attach.GetSessionId(), r.Attach.GetTurnId()
	default:
		return
	}
	if st.turn != nil {
		on.session, on.turn = st.turn.SessionID(), st.turn.ID()
	}
	st.srv.audit(ctx, action, on, outcomeOf(e))
}
