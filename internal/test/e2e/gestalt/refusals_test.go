package gestalt_test

import (
	"maps"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"

	gestaltv1 "github.com/apzuk3/agentd/gen/proto/go/gestalt/provider/v1"
)

// refusal is a request that is refused.
type refusal struct {
	method string
	req    proto.Message
	code   codes.Code
	text   string // part of what is said
}

// TestRefusals sends what is wrong to each method: the host gets the code for it, and a text that says what would be
// right; nothing is lost, and the next call is served.
func TestRefusals(t *testing.T) {
	t.Parallel()
	h := newHost(t, "agents: [{name: a, llm: {model: scripted/asks, builtin_tools: [ask_user], tool_names: [send]}}]\ntools: [{name: send, description: d, needs_approval: true}]\n", map[string]string{
		"asks": `answers:
  - {when: {user: approve, step: 1}, calls: [{name: send, args: {to: Ada}}]}
  - {when: {step: 1}, calls: [{name: ask_user, args: {question: "Who?", choices: [a, b]}}]}
  - {when: {}, text: "Thanks."}
`,
	})
	h.tools = deskTools()
	h.start()
	h.session("s", ann, "")
	h.session("s2", ann, "")
	h.prompt(&gestaltv1.CreateTurnRequest{TurnId: "t", SessionId: "s", Messages: says("ask")})
	h.prompt(&gestaltv1.CreateTurnRequest{TurnId: "t2", SessionId: "s2", Messages: says("approve")})
	question, approval := h.asked("t"), h.asked("t2")
	if question.GetType() != gestaltv1.AgentInteractionType_AGENT_INTERACTION_TYPE_CLARIFICATION || question.GetPrompt() != "Who?" || question.GetTitle() == "" ||
		!proto.Equal(question.GetRequest(), object(t, map[string]any{"question": "Who?", "choices": []any{"a", "b"}})) {
		t.Errorf("the question is %v", question)
	}

	session := func(change func(*gestaltv1.CreateSessionRequest)) proto.Message {
		req := &gestaltv1.CreateSessionRequest{SessionId: "new", Subject: of(ann)}
		change(req)
		return req
	}
	turn := func(change func(*gestaltv1.CreateTurnRequest)) proto.Message {
		req := &gestaltv1.CreateTurnRequest{TurnId: "new", SessionId: "s", Messages: says("hi"), Subject: of(ann)}
		change(req)
		return req
	}
	said := func(m ...*gestaltv1.AgentMessage) proto.Message {
		return turn(func(r *gestaltv1.CreateTurnRequest) { r.Messages = m })
	}
	part := func(p *gestaltv1.AgentMessagePart) proto.Message {
		return said(&gestaltv1.AgentMessage{Role: "user", Parts: []*gestaltv1.AgentMessagePart{p}})
	}
	options := func(m map[string]any) proto.Message {
		return turn(func(r *gestaltv1.CreateTurnRequest) { r.ModelOptions = object(t, m) })
	}
	resolve := func(in *gestaltv1.AgentInteraction, m map[string]any) proto.Message {
		return &gestaltv1.ResolveInteractionRequest{InteractionId: in.GetId(), Resolution: object(t, m), Subject: of(ann)}
	}
	configure := func(change func(*gestaltv1.ConfigureProviderRequest)) proto.Message {
		req := h.configuration()
		change(req)
		return req
	}
	long := strings.Repeat("x", 300)
	for _, r := range []refusal{
		{"ProviderLifecycle/ConfigureProvider", configure(func(r *gestaltv1.ConfigureProviderRequest) { r.ProtocolVersion = 2 }), codes.InvalidArgument, "want 3"},
		{"ProviderLifecycle/ConfigureProvider", configure(func(r *gestaltv1.ConfigureProviderRequest) { r.Name = "other" }), codes.FailedPrecondition, "configured otherwise"},
		{"ProviderLifecycle/ConfigureProvider", configure(func(r *gestaltv1.ConfigureProviderRequest) {
			r.Config.Fields["payloads"] = structpb.NewStringValue("private")
		}), codes.FailedPrecondition, "configured otherwise"},

		{"AgentProvider/CreateSession", session(func(r *gestaltv1.CreateSessionRequest) { r.SessionId = "" }), codes.InvalidArgument, "session_id"},
		{"AgentProvider/CreateSession", session(func(r *gestaltv1.CreateSessionRequest) { r.SessionId = "a/b" }), codes.InvalidArgument, "session_id"},
		{"AgentProvider/CreateSession", session(func(r *gestaltv1.CreateSessionRequest) { r.Subject = nil }), codes.InvalidArgument, "subject.subject_id"},
		{"AgentProvider/CreateSession", session(func(r *gestaltv1.CreateSessionRequest) { r.Subject = of(long) }), codes.InvalidArgument, "subject.subject_id"},
		{"AgentProvider/CreateSession", session(func(r *gestaltv1.CreateSessionRequest) { r.Subject = of("a\nb") }), codes.InvalidArgument, "subject.subject_id"},
		{"AgentProvider/CreateSession", session(func(r *gestaltv1.CreateSessionRequest) { r.IdempotencyKey = long }), codes.InvalidArgument, "idempotency_key"},
		{"AgentProvider/CreateSession", session(func(r *gestaltv1.CreateSessionRequest) { r.Model = "nobody/x" }), codes.InvalidArgument, `"nobody/x" is neither an agent of the file (a)`},
		{"AgentProvider/CreateSession", session(func(r *gestaltv1.CreateSessionRequest) { r.Model = "gpt-5" }), codes.InvalidArgument, "nor served here"},
		{"AgentProvider/CreateSession", session(func(r *gestaltv1.CreateSessionRequest) { r.ClientRef = long }), codes.InvalidArgument, "client_ref"},
		{"AgentProvider/CreateSession", session(func(r *gestaltv1.CreateSessionRequest) {
			r.Metadata = object(t, map[string]any{"a": strings.Repeat("x", 20_000)})
		}), codes.InvalidArgument, "metadata"},
		{"AgentProvider/CreateSession", session(func(r *gestaltv1.CreateSessionRequest) { r.SessionId, r.ClientRef = "s", "another" }), codes.AlreadyExists, "another request"},

		{"AgentProvider/GetSession", &gestaltv1.GetSessionRequest{SessionId: "nobody", Subject: of(ann)}, codes.NotFound, "nobody"},
		{"AgentProvider/GetSession", &gestaltv1.GetSessionRequest{SessionId: "s"}, codes.InvalidArgument, "subject"},
		{"AgentProvider/ListSessions", &gestaltv1.ListSessionsRequest{Limit: -1, Subject: of(ann)}, codes.InvalidArgument, "limit is -1"},
		{"AgentProvider/ListSessions", &gestaltv1.ListSessionsRequest{State: 9, Subject: of(ann)}, codes.InvalidArgument, "state is 9"},
		{"AgentProvider/ListSessions", &gestaltv1.ListSessionsRequest{}, codes.InvalidArgument, "subject"},
		{"AgentProvider/UpdateSession", &gestaltv1.UpdateSessionRequest{SessionId: "nobody", Subject: of(ann)}, codes.NotFound, "nobody"},
		{"AgentProvider/UpdateSession", &gestaltv1.UpdateSessionRequest{SessionId: "s", State: 9, Subject: of(ann)}, codes.InvalidArgument, "state is 9"},
		{"AgentProvider/UpdateSession", &gestaltv1.UpdateSessionRequest{SessionId: "s", Metadata: object(t, map[string]any{"a": strings.Repeat("x", 20_000)}), Subject: of(ann)}, codes.InvalidArgument, "metadata"},

		{"AgentProvider/CreateTurn", turn(func(r *gestaltv1.CreateTurnRequest) { r.TurnId = "" }), codes.InvalidArgument, "turn_id"},
		{"AgentProvider/CreateTurn", turn(func(r *gestaltv1.CreateTurnRequest) { r.SessionId = "nobody" }), codes.NotFound, "nobody"},
		{"AgentProvider/CreateTurn", turn(func(r *gestaltv1.CreateTurnRequest) { r.TurnId = "t" }), codes.AlreadyExists, "another request"},
		{"AgentProvider/CreateTurn", turn(func(r *gestaltv1.CreateTurnRequest) { r.Model = "nobody/x" }), codes.InvalidArgument, "neither an agent"},
		{"AgentProvider/CreateTurn", turn(func(r *gestaltv1.CreateTurnRequest) { r.ToolSource = 1 }), codes.InvalidArgument, "tool_source"},
		{"AgentProvider/CreateTurn", turn(func(r *gestaltv1.CreateTurnRequest) {
			r.Tools = []*gestaltv1.ResolvedAgentTool{{Name: "x"}}
		}), codes.InvalidArgument, "tools[0]"},
		{"AgentProvider/CreateTurn", said(), codes.InvalidArgument, "the user says nothing"},
		{"AgentProvider/CreateTurn", said(&gestaltv1.AgentMessage{Role: "system", Text: "x"}), codes.InvalidArgument, "the user says nothing"},
		{"AgentProvider/CreateTurn", said(says("x")[0], &gestaltv1.AgentMessage{Role: "assistant", Text: "x"}), codes.InvalidArgument, `messages[1].role is "assistant"`},
		{"AgentProvider/CreateTurn", said(says(strings.Repeat("x", 2<<20))...), codes.InvalidArgument, "user_prompt"},
		{"AgentProvider/CreateTurn", part(&gestaltv1.AgentMessagePart{Type: gestaltv1.AgentMessagePartType_AGENT_MESSAGE_PART_TYPE_TOOL_CALL}), codes.InvalidArgument, "TOOL_CALL"},
		{"AgentProvider/CreateTurn", part(&gestaltv1.AgentMessagePart{Type: gestaltv1.AgentMessagePartType_AGENT_MESSAGE_PART_TYPE_TOOL_RESULT}), codes.InvalidArgument, "TOOL_RESULT"},
		{"AgentProvider/CreateTurn", part(&gestaltv1.AgentMessagePart{Type: gestaltv1.AgentMessagePartType_AGENT_MESSAGE_PART_TYPE_IMAGE_REF}), codes.InvalidArgument, "want uri and mime_type"},
		{"AgentProvider/CreateTurn", part(&gestaltv1.AgentMessagePart{}), codes.InvalidArgument, "UNSPECIFIED"},
		{"AgentProvider/CreateTurn", options(map[string]any{"temprature": 1}), codes.InvalidArgument, `unknown field "temprature"`},
		{"AgentProvider/CreateTurn", options(map[string]any{"temperature": 7}), codes.InvalidArgument, "temperature"},
		{"AgentProvider/CreateTurn", turn(func(r *gestaltv1.CreateTurnRequest) {
			r.ResponseSchema = object(t, map[string]any{"type": "nonsense"})
		}), codes.InvalidArgument, "output_schema"},

		{"AgentProvider/GetTurn", &gestaltv1.GetTurnRequest{TurnId: "nobody", Subject: of(ann)}, codes.NotFound, "nobody"},
		{"AgentProvider/GetTurn", &gestaltv1.GetTurnRequest{TurnId: "t"}, codes.InvalidArgument, "subject"},
		{"AgentProvider/ListTurns", &gestaltv1.ListTurnsRequest{SessionId: "nobody", Subject: of(ann)}, codes.NotFound, "nobody"},
		{"AgentProvider/ListTurns", &gestaltv1.ListTurnsRequest{SessionId: "s", Limit: -1, Subject: of(ann)}, codes.InvalidArgument, "limit is -1"},
		{"AgentProvider/ListTurns", &gestaltv1.ListTurnsRequest{SessionId: "s", Status: 9, Subject: of(ann)}, codes.InvalidArgument, "status is 9"},
		{"AgentProvider/CancelTurn", &gestaltv1.CancelTurnRequest{TurnId: "nobody", Subject: of(ann)}, codes.NotFound, "nobody"},
		{"AgentProvider/CancelTurn", &gestaltv1.CancelTurnRequest{TurnId: "t", Reason: strings.Repeat("x", 5000), Subject: of(ann)}, codes.InvalidArgument, "reason"},
		{"AgentProvider/ListTurnEvents", &gestaltv1.ListTurnEventsRequest{TurnId: "nobody", Subject: of(ann)}, codes.NotFound, "nobody"},
		{"AgentProvider/ListTurnEvents", &gestaltv1.ListTurnEventsRequest{TurnId: "t", AfterSeq: -1, Subject: of(ann)}, codes.InvalidArgument, "after_seq is -1"},
		{"AgentProvider/ListTurnEvents", &gestaltv1.ListTurnEventsRequest{TurnId: "t", Limit: -1, Subject: of(ann)}, codes.InvalidArgument, "limit is -1"},
		{"AgentProvider/GetInteraction", &gestaltv1.GetInteractionRequest{InteractionId: "t:nobody", Subject: of(ann)}, codes.NotFound, "t:nobody"},
		{"AgentProvider/GetInteraction", &gestaltv1.GetInteractionRequest{InteractionId: "nobody", Subject: of(ann)}, codes.NotFound, "nobody"},
		{"AgentProvider/ListInteractions", &gestaltv1.ListInteractionsRequest{TurnId: "nobody", Subject: of(ann)}, codes.NotFound, "nobody"},
		{"AgentProvider/ResolveInteraction", &gestaltv1.ResolveInteractionRequest{InteractionId: "t:nobody", Subject: of(ann)}, codes.NotFound, "t:nobody"},
		{"AgentProvider/ResolveInteraction", resolve(question, nil), codes.InvalidArgument, "answer"},
		{"AgentProvider/ResolveInteraction", resolve(question, map[string]any{"answer": 7}), codes.InvalidArgument, "answer"},
		{"AgentProvider/ResolveInteraction", resolve(question, map[string]any{"approved": true}), codes.InvalidArgument, "approved is unknown"},
		{"AgentProvider/ResolveInteraction", resolve(approval, map[string]any{"answer": "yes"}), codes.InvalidArgument, "answer is unknown"},
		{"AgentProvider/ResolveInteraction", resolve(approval, map[string]any{"approved": "yes"}), codes.InvalidArgument, "approved"},
		{"AgentProvider/ResolveInteraction", resolve(approval, map[string]any{"approved": true, "arguments": "x"}), codes.InvalidArgument, "arguments has to be an object"},
		{"AgentProvider/ResolveInteraction", resolve(approval, map[string]any{"approved": true, "arguments": map[string]any{"to": 7}}), codes.InvalidArgument, "to"},
		{"AgentProvider/ResolveInteraction", resolve(approval, map[string]any{"approved": false, "arguments": map[string]any{}}), codes.InvalidArgument, "is not called"},
		{"AgentProvider/ResolveInteraction", resolve(approval, map[string]any{"approved": false, "reason": 7}), codes.InvalidArgument, "reason"},
		{"AgentProvider/Nonsense", &emptypb.Empty{}, codes.Unimplemented, ""},
	} {
		if text := h.refused(r.method, r.req, r.code); !strings.Contains(text, r.text) {
			t.Errorf("%s is refused with %q, want %q in it", r.method, text, r.text)
		}
	}

	// Both interactions are as they were, and are resolved once.
	for _, r := range []struct {
		in  *gestaltv1.AgentInteraction
		say map[string]any
	}{
		{question, map[string]any{"answer": "b"}},
		{approval, map[string]any{"approved": false, "reason": "not now"}},
	} {
		got := &gestaltv1.AgentInteraction{}
		h.must("AgentProvider/ResolveInteraction", resolve(r.in, r.say), got)
		if !proto.Equal(got.GetResolution(), object(t, r.say)) || got.GetResolvedAt() == nil || got.GetTurnId() != r.in.GetTurnId() || got.GetSessionId() != r.in.GetSessionId() {
			t.Errorf("resolved: %v", got)
		}
		h.refused("AgentProvider/ResolveInteraction", resolve(r.in, r.say), codes.FailedPrecondition)
		h.until(r.in.GetTurnId(), succeeded)
	}
	if len(h.calls()) != 0 {
		t.Errorf("a tool that was not approved was executed: %v", h.calls())
	}
	if got := h.list(&gestaltv1.ListSessionsRequest{}); len(got) != 2 {
		t.Errorf("sessions: %v", got)
	}
	h.stop()
}

// asked waits for a question of a turn.
func (h *host) asked(turn string) *gestaltv1.AgentInteraction {
	h.t.Helper()
	h.until(turn, waiting)
	out := &gestaltv1.ListInteractionsResponse{}
	h.must("AgentProvider/ListInteractions", &gestaltv1.ListInteractionsRequest{TurnId: turn, Subject: of(ann)}, out)
	if len(out.GetInteractions()) != 1 {
		h.t.Fatalf("asked: %v", out)
	}
	return out.GetInteractions()[0]
}

// A provider that is not configured serves nothing, says so, and takes a configuration that is right after wrong ones.
func TestConfigure(t *testing.T) {
	t.Parallel()
	h := newHost(t, echo, nil)
	h.launch()
	h.reach()
	for method, req := range map[string]proto.Message{
		"CreateSession": &gestaltv1.CreateSessionRequest{}, "GetSession": &gestaltv1.GetSessionRequest{}, "ListSessions": &gestaltv1.ListSessionsRequest{},
		"UpdateSession": &gestaltv1.UpdateSessionRequest{}, "CreateTurn": &gestaltv1.CreateTurnRequest{}, "GetTurn": &gestaltv1.GetTurnRequest{},
		"ListTurns": &gestaltv1.ListTurnsRequest{}, "CancelTurn": &gestaltv1.CancelTurnRequest{}, "ListTurnEvents": &gestaltv1.ListTurnEventsRequest{},
		"GetInteraction": &gestaltv1.GetInteractionRequest{}, "ListInteractions": &gestaltv1.ListInteractionsRequest{},
		"ResolveInteraction": &gestaltv1.ResolveInteractionRequest{}, "GetCapabilities": &gestaltv1.GetCapabilitiesRequest{},
	} {
		h.refused("AgentProvider/"+method, req, codes.FailedPrecondition)
	}
	h.refused("ProviderLifecycle/StartProvider", &emptypb.Empty{}, codes.FailedPrecondition)
	health := &gestaltv1.HealthCheckResponse{}
	h.must("ProviderLifecycle/HealthCheck", &emptypb.Empty{}, health)
	if health.GetReady() || health.GetMessage() == "" {
		t.Errorf("health: %v", health)
	}
	h.write("bad.yaml", "name: a\nllm: {model: echo, builtin_tools: [fly]}\n")
	if err := os.Mkdir(h.path("scripts/folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	right := maps.Clone(h.config)
	for _, tc := range []struct {
		key   string
		value any
		code  codes.Code
		text  string
	}{
		{"agents", nil, codes.InvalidArgument, "config.agents is missing"},
		{"agents", 7, codes.InvalidArgument, "config.agents has to be a text"},
		{"agents", h.path("nobody.yaml"), codes.InvalidArgument, "no such file"},
		{"agents", h.path("bad.yaml"), codes.InvalidArgument, `builtin tool "fly"`},
		{"default_agent", "c", codes.InvalidArgument, `config.default_agent is "c"`},
		{"payloads", "all", codes.InvalidArgument, "want none or private"},
		{"key", "x", codes.InvalidArgument, "config.key is unknown: there are agents, data, default_agent, payloads"},
		{"data", h.path("agents.yaml"), codes.FailedPrecondition, "cannot be used"},
	} {
		h.config = maps.Clone(right)
		if h.config[tc.key] = tc.value; tc.value == nil {
			delete(h.config, tc.key)
		}
		if text := h.refused("ProviderLifecycle/ConfigureProvider", h.configuration(), tc.code); !strings.Contains(text, tc.text) {
			t.Errorf("%s: %q, want %q in it", tc.key, text, tc.text)
		}
	}
	h.config = right
	h.config["default_agent"] = "b"
	h.handshake()
	h.handshake() // the same again changes nothing
	if got := h.session("s", ann, ""); got.GetModel() != "b" {
		t.Errorf("the default agent is %q", got.GetModel())
	}
	h.stop()
}
