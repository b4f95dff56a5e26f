package daemon_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/durationpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/daemon"
)

// filled returns a valid request of a method of the services that names a session and a turn; ok is false
// for a method that names no session.
func filled(m protoreflect.MethodDescriptor, session, turn string) (req proto.Message, ok bool) {
	if m.Name() == "CreateTurn" {
		ex := execute(llm("root", "echo"), "hi").GetExecute()
		ex.SessionId = &session
		return &agentdv1.CreateTurnRequest{Execute: ex}, true
	}
	if m.Name() == "CreateSession" { // its session_id is one to make
		return &agentdv1.CreateSessionRequest{}, false
	}
	msg := dynamicpb.NewMessage(m.Input())
	for name, value := range map[protoreflect.Name]string{
		"session_id": session, "turn_id": turn, "interaction_id": "i-none", "tool_call_id": "c-none",
	} {
		if field := m.Input().Fields().ByName(name); field != nil {
			msg.Set(field, protoreflect.ValueOfString(value))
			ok = ok || name == "session_id"
		}
	}
	switch called(m) {
	case "SubmitToolResults":
		req := &agentdv1.SubmitToolResultsRequest{SessionId: session, TurnId: turn}
		req.Results = []*agentdv1.RunRequest_ToolCallResponse{{
			ToolCallId: "c-none", Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: "x"},
		}}
		return req, true
	case "ResolveInteraction":
		deny := &agentdv1.Resolution{Decision: &agentdv1.Resolution_Deny{Deny: &agentdv1.Denial{}}}
		return &agentdv1.ResolveInteractionRequest{SessionId: session, InteractionId: "i-none", Resolution: deny}, true
	case "RaiseInteraction":
		asks := &agentdv1.Interaction{Kind: agentdv1.InteractionKind_INTERACTION_KIND_APPROVAL}
		return &agentdv1.RaiseInteractionRequest{SessionId: session, ToolCallId: "c-none", N: 1, Interaction: asks}, true
	case "ApplyAgent":
		return &agentdv1.ApplyAgentRequest{Name: "mine", Agent: llm("root", "echo")}, false
	case "GetAgent":
		return &agentdv1.GetAgentRequest{AgentRef: &agentdv1.AgentRef{Name: "none"}}, false
	case "ArchiveAgent":
		return &agentdv1.ArchiveAgentRequest{Name: "none"}, false
	case "DeleteAgent":
		return &agentdv1.DeleteAgentRequest{Name: "none"}, false
	case "CompactSession":
		return &agentdv1.CompactSessionRequest{SessionId: session, Focus: "mine"}, true
	case "ScheduleService.Create":
		ex := execute(llm("root", "echo"), "hi").GetExecute()
		when := &agentdv1.CreateScheduleRequest_Every{Every: durationpb.New(time.Hour)}
		return &agentdv1.CreateScheduleRequest{Timing: when, Execute: ex}, false
	case "ScheduleService.Get":
		return &agentdv1.GetScheduleRequest{Id: "none"}, false
	case "ScheduleService.Delete":
		return &agentdv1.DeleteScheduleRequest{Id: "none"}, false
	case "GoalService.Start":
		return &agentdv1.StartGoalRequest{Execute: &agentdv1.RunRequest_ExecuteRequest{Agent: llm("root", "echo")}, Goal: "x", MaxTurns: new(int32(1))}, false
	case "GoalService.Resume":
		ex := &agentdv1.RunRequest_ExecuteRequest{SessionId: &session, Agent: llm("root", "echo")}
		return &agentdv1.ResumeGoalRequest{Goal: &agentdv1.StartGoalRequest{Execute: ex, Goal: "x", MaxTurns: new(int32(1))}}, true
	case "GoalService.Control":
		return &agentdv1.ControlGoalRequest{SessionId: session, Action: agentdv1.GoalAction_GOAL_ACTION_PAUSE}, true
	case "GoalService.Inject":
		return &agentdv1.InjectRequest{SessionId: session, Text: "x"}, true
	case "UpdateSession":
		return &agentdv1.UpdateSessionRequest{SessionId: session, ClientRef: new("mine")}, true
	}
	return msg, ok
}

// refusedBy returns the error of a method of SessionService as the client reads it.
func refusedBy(t *testing.T, c *http.Client, url string, m protoreflect.MethodDescriptor, req proto.Message) error {
	t.Helper()
	err := attempt(t, c, url, m, req)
	if err == nil && m.IsStreamingServer() {
		t.Errorf("%s: the stream begins", m.Name())
	}
	return err
}

// attempt calls a method of SessionService. Of a stream it reads the beginning.
func attempt(t *testing.T, c *http.Client, url string, m protoreflect.MethodDescriptor, req proto.Message) error {
	t.Helper()
	procedure := "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
	client := connect.NewClient[dynamicpb.Message, dynamicpb.Message](c, url+procedure,
		connect.WithSchema(m), connect.WithResponseInitializer(func(_ connect.Spec, msg any) error {
			*msg.(*dynamicpb.Message) = *dynamicpb.NewMessage(m.Output())
			return nil
		}))
	data, err := proto.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	msg := dynamicpb.NewMessage(m.Input())
	if err := proto.Unmarshal(data, msg); err != nil {
		t.Fatal(err)
	}
	if !m.IsStreamingServer() {
		_, err := client.CallUnary(t.Context(), connect.NewRequest(msg))
		return err
	}
	stream, err := client.CallServerStream(t.Context(), connect.NewRequest(msg))
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	if stream.Receive() {
		return nil
	}
	return stream.Err()
}

// TestForeignTenants: whatever method of the protocol a caller uses, a session of another tenant is one that
// does not exist, for every role; the same id may be one of its own.
func TestForeignTenants(t *testing.T) {
	t.Parallel()
	d := start(t, daemon.Config{Authenticate: byHeader, CreateSessions: true, Scripts: map[string]string{"asks": asks}})
	ann := speaking(t, d, "ann@acme")
	created := call(t, ann.CreateTurn, &agentdv1.CreateTurnRequest{Execute: lookRequest("look")})
	turn := until(t, ann, created.GetTurn(), agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT)
	id, none := turn.GetSessionId(), "nothing-has-this-id"
	for _, role := range []string{"operator", "", "observer"} {
		for _, tenant := range []string{"@umbrella", ""} {
			who := "eve" + tenant + "/" + role
			c := clientOf(t, who)
			named := 0
			for _, m := range methods() {
				req, ok := filled(m, id, turn.GetId())
				if !ok {
					continue
				}
				named++
				unknown, _ := filled(m, none, turn.GetId())
				foreign, missing := refusedBy(t, c, d.URL(), m, req), refusedBy(t, c, d.URL(), m, unknown)
				if foreign == nil || missing == nil {
					t.Errorf("%s, %s: %v, of an id that nobody has: %v", who, called(m), foreign, missing)
					continue
				}
				got, want := details(t, foreign), details(t, missing)
				if strings.ReplaceAll(got.GetMessage(), id, none) != want.GetMessage() || got.GetCode() != want.GetCode() ||
					connect.CodeOf(foreign) != connect.CodeOf(missing) {
					t.Errorf("%s, %s: %v, of an id that nobody has: %v", who, called(m), got, want)
				}
				if role != "observer" && want.GetCode() != agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND {
					t.Errorf("%s, %s: %v", who, called(m), want)
				}
			}
			if named < 21 {
				t.Errorf("only %d methods name a session", named)
			}
			attach := &agentdv1.AttachRequest{SessionId: id, Observe: role == "observer"}
			run := connectDialer(c, d.URL()).open(t, &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Attach{Attach: attach}})
			if e := run.next().GetError(); e.GetCode() != agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND {
				t.Errorf("%s, Run: %v", who, e)
			}
		}
	}
	eve := speaking(t, d, "eve@umbrella")
	ex := execute(llm("root", "echo"), "hi").GetExecute()
	ex.SessionId, ex.Create = &id, true
	own := call(t, eve.CreateTurn, &agentdv1.CreateTurnRequest{Execute: ex}).GetTurn()
	own = until(t, eve, own, agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
	if own.GetSessionId() != id || own.GetCreatedBy() != "eve" {
		t.Errorf("under the same id eve has %v", own)
	}
	if got := call(t, ann.GetTurn, &agentdv1.GetTurnRequest{SessionId: id}).GetTurn(); got.GetId() != turn.GetId() ||
		got.GetStatus() != agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT {
		t.Errorf("ann's turn is %v", got)
	}
	for who, want := range map[string]int{"ann@acme": 1, "eve@umbrella": 1, "eve": 0} {
		c := speaking(t, d, who)
		if n := len(call(t, c.ListSessions, &agentdv1.ListSessionsRequest{}).GetSessions()); n != want {
			t.Errorf("%s lists %d sessions, want %d", who, n, want)
		}
		if n := len(call(t, c.ListTurns, &agentdv1.ListTurnsRequest{}).GetTurns()); n != want {
			t.Errorf("%s lists %d turns, want %d", who, n, want)
		}
	}
}
