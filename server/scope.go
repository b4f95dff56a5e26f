package server

import (
	"context"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/principal"
)

// defaultToken is how long a token is valid whose maker does not say.
const defaultToken = 10 * time.Minute

// inScope are the methods that a token for one session is good for, as far as its role allows. That it is the token's
// session that a request names is for package session: for the token no other session exists.
var inScope = map[string]bool{
	agentdv1connect.AgentdRunProcedure:                        true,
	agentdv1connect.SessionServiceGetSessionProcedure:         true,
	agentdv1connect.SessionServiceCreateTurnProcedure:         true,
	agentdv1connect.SessionServiceGetTurnProcedure:            true,
	agentdv1connect.SessionServiceListTurnsProcedure:          true,
	agentdv1connect.SessionServiceCompactSessionProcedure:     true,
	agentdv1connect.SessionServiceCancelTurnProcedure:         true,
	agentdv1connect.SessionServiceCancelToolCallProcedure:     true,
	agentdv1connect.SessionServiceListTurnEventsProcedure:     true,
	agentdv1connect.SessionServiceWatchTurnProcedure:          true,
	agentdv1connect.SessionServiceListSessionEventsProcedure:  true,
	agentdv1connect.SessionServiceWatchSessionProcedure:       true,
	agentdv1connect.SessionServiceSubmitToolResultsProcedure:  true,
	agentdv1connect.SessionServiceGetInteractionProcedure:     true,
	agentdv1connect.SessionServiceListInteractionsProcedure:   true,
	agentdv1connect.SessionServiceResolveInteractionProcedure: true,
	agentdv1connect.SessionServiceRaiseInteractionProcedure:   true,
	agentdv1connect.SessionServiceGetCapabilitiesProcedure:    true,
	agentdv1connect.SessionServiceListModelsProcedure:         true,
	agentdv1connect.GoalServiceGetProcedure:                   true,
	agentdv1connect.GoalServiceListProcedure:                  true,
	agentdv1connect.GoalServiceControlProcedure:               true,
	agentdv1connect.GoalServiceInjectProcedure:                true,
}

// mayStart refuses a turn that is beyond the scope of a token, and narrows the request to it.
func mayStart(p principal.Principal, ex *agentdv1.RunRequest_ExecuteRequest, req *session.Request) *fault.Error {
	if p.Session == "" {
		return nil
	}
	req.Create = false
	switch {
	case ex.GetSessionId() == "":
		return beyond("execute.session_id", "the token is for session %q alone: name it", p.Session)
	case (ex.GetAgent() != nil || ex.GetAgentRef() != nil) && !p.Agents:
		field := "agent"
		if ex.GetAgent() == nil {
			field = "agent_ref"
		}
		return beyond("execute."+field, "the token allows no agent tree: leave %s out, "+
			"and the turn continues with the tree of the session; or make the token with agents", field)
	}
	if field := widens(ex, p.Agents); field != "" {
		return beyond("execute."+field, "the token is for the turns of session %q as it is: leave %s out",
			p.Session, field)
	}
	for i, tool := range ex.GetTools() {
		if !p.Runs(tool.GetName()) {
			return beyond(fmt.Sprintf("execute.tools[%d]", i), "the token does not allow the tool %s, only %q",
				quote(tool.GetName()), p.Tools)
		}
	}
	return nil
}

// widens returns the field of a request that reaches beyond the turns of one session, or, unless agents is set, beyond
// its tree; "" for none.
func widens(ex *agentdv1.RunRequest_ExecuteRequest, agents bool) string {
	switch {
	case ex.GetFork():
		return "fork"
	case len(ex.GetLabels()) > 0:
		return "labels"
	case len(ex.GetMetadata()) > 0 && !agents:
		return "metadata" // tools of others may trust it
	case ex.GetInstructionMode() > agentdv1.InstructionMode_INSTRUCTION_MODE_APPEND && !agents:
		return "instruction_mode"
	default:
		return ""
	}
}

// mayRun refuses tools that are beyond the scope of a token.
func mayRun(p principal.Principal, at string, tools []string) *fault.Error {
	i := slices.IndexFunc(tools, func(name string) bool { return !p.Runs(name) })
	if i < 0 {
		return nil
	}
	return beyond(fmt.Sprintf("%stool_names[%d]", at, i), "the token does not allow the tool %s, only %q",
		quote(tools[i]), p.Tools)
}

func beyond(field, format string, args ...any) *fault.Error {
	return fault.Errorf(codeDenied, field+": "+format, args...).Breaking(field, fault.RuleExcluded)
}

// watchStarted returns a watcher of a turn that the client has just started: it runs all tools of the turn, but for
// those that are beyond the scope of its token.
func (s *Server) watchStarted(
	ctx context.Context, turn *session.Turn, keys session.Keys,
) (*session.Turn, *session.Watcher, error) {
	p := principal.Of(ctx)
	if p.Session == "" {
		watch := turn.Watch()
		return turn, watch, nil
	}
	return s.now().Sessions.Attach(ctx, session.AttachRequest{
		SessionID: turn.SessionID(), TurnID: turn.ID(), Tools: p.Tools, Keys: keys,
	})
}

func (s *sessionService) CreateSessionToken(
	ctx context.Context, r *connect.Request[agentdv1.CreateSessionTokenRequest],
) (*connect.Response[agentdv1.CreateSessionTokenResponse], error) {
	if s.now().CreateToken == nil {
		return nil, fault.Errorf(codePrecondition, "this server makes no tokens: it keeps no API keys")
	}
	found, err := s.now().Sessions.Session(ctx, r.Msg.GetSessionId())
	if err != nil {
		return nil, err
	}
	maker := principal.Of(ctx)
	token := maker
	token.Role = principal.Caller
	if r.Msg.GetObserve() {
		token.Role = principal.Observer
	}
	token.Session, token.Tools, token.Agents = found.ID, slices.Clone(r.Msg.GetToolNames()), r.Msg.GetAgents()
	lifetime := defaultToken
	if r.Msg.GetLifetime() != nil {
		lifetime = r.Msg.GetLifetime().AsDuration()
	}
	token.Expires = time.Now().Add(lifetime)
	if !maker.Expires.IsZero() && maker.Expires.Before(token.Expires) {
		token.Expires = maker.Expires
	}
	text, err := s.now().CreateToken(ctx, maker, token)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&agentdv1.CreateSessionTokenResponse{
		Token: text, ExpireTime: timestamppb.New(token.Expires),
	}), nil
}
