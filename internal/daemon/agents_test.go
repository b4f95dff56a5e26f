package daemon_test

import (
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/session/principal"
)

func ref(name string, version int64) *agentdv1.AgentRef {
	return &agentdv1.AgentRef{Name: name, Version: version}
}

// desk is an agent whose versions differ by their instruction.
func desk(instruction string) *agentdv1.ApplyAgentRequest {
	tree := llm("desk", "scripted/asks", "look")
	tree.GetLlm().Instruction = instruction
	return &agentdv1.ApplyAgentRequest{Name: "desk", Agent: tree, Tools: []*agentdv1.Tool{tool("look", `{"type":"object"}`)}}
}

// An agent from its making to its end, on each wire.
func TestAgentLife(t *testing.T) {
	d := start(t, daemon.Config{Scripts: map[string]string{"asks": asks}})
	for wire, c := range wires(t, d) {
		t.Run(wire, func(t *testing.T) {
			one := desk("one " + wire)
			one.Metadata = must(structpb.NewStruct(map[string]any{"team": "a"}))(t)
			made := call(t, c.ApplyAgent, one)
			a := made.GetAgent()
			if !made.GetCreated() || a.GetVersion() != 1 || a.GetName() != "desk" || len(a.GetContentHash()) != 64 || a.GetCreatedBy() != "local" ||
				!proto.Equal(a.GetAgent(), one.GetAgent()) || len(a.GetTools()) != 1 || !proto.Equal(a.GetTools()[0], one.GetTools()[0]) ||
				!proto.Equal(a.GetMetadata(), one.GetMetadata()) || a.GetCreateTime() == nil || a.GetArchiveTime() != nil {
				t.Errorf("made %v", made)
			}
			if again := call(t, c.ApplyAgent, one); again.GetCreated() || !proto.Equal(again.GetAgent(), a) {
				t.Errorf("the same again: %v", again)
			}
			two := desk("two")
			two.DryRun = true
			if would := call(t, c.ApplyAgent, two); !would.GetCreated() || would.GetAgent().GetVersion() != 2 {
				t.Errorf("would be %v", would)
			}
			if list := call(t, c.ListAgents, &agentdv1.ListAgentsRequest{Name: "desk"}).GetAgents(); len(list) != 1 {
				t.Errorf("a dry run has left %v", list)
			}
			two.DryRun, two.Version = false, new(int64(1))
			b := call(t, c.ApplyAgent, two).GetAgent()
			if b.GetVersion() != 2 || b.GetContentHash() == a.GetContentHash() || !proto.Equal(b.GetFirstCreateTime(), a.GetCreateTime()) {
				t.Errorf("the second version is %v", b)
			}
			if _, err := c.ApplyAgent(t.Context(), connect.NewRequest(two)); connect.CodeOf(err) != connect.CodeAborted || !strings.Contains(err.Error(), "version 2, not 1") {
				t.Errorf("a version that was read before: %v", err)
			}
			call(t, c.ApplyAgent, &agentdv1.ApplyAgentRequest{Name: "other", Agent: llm("root", "echo")})
			for by, want := range map[*agentdv1.AgentRef]*agentdv1.RegisteredAgent{
				ref("desk", 0): b, ref("desk", 1): a, ref("desk", 2): b,
				ref("desk@"+a.GetContentHash()[:8], 0): a, ref("desk@"+b.GetContentHash(), 0): b,
			} {
				if got := call(t, c.GetAgent, &agentdv1.GetAgentRequest{AgentRef: by}).GetAgent(); !proto.Equal(got, want) {
					t.Errorf("%v is %v", by, got)
				}
			}
			all := func(req *agentdv1.ListAgentsRequest) (names []string) {
				for req.PageSize = 1; ; {
					page := call(t, c.ListAgents, req)
					for _, a := range page.GetAgents() {
						names = append(names, a.GetName()+"@"+string(rune('0'+a.GetVersion())))
					}
					if req.PageToken = page.GetNextPageToken(); req.GetPageToken() == "" {
						return names
					}
				}
			}
			if got := all(&agentdv1.ListAgentsRequest{}); !slices.Equal(got, []string{"other@1", "desk@2"}) {
				t.Errorf("agents %v", got)
			}
			if got := all(&agentdv1.ListAgentsRequest{Name: "desk"}); !slices.Equal(got, []string{"desk@2", "desk@1"}) {
				t.Errorf("versions %v", got)
			}
			first := call(t, c.ListAgents, &agentdv1.ListAgentsRequest{PageSize: 1})
			if _, err := c.ListAgents(t.Context(), connect.NewRequest(&agentdv1.ListAgentsRequest{PageToken: first.GetNextPageToken(), Archived: true})); connect.CodeOf(err) != connect.CodeInvalidArgument {
				t.Errorf("a token of another list: %v", err)
			}
			if gone := call(t, c.ArchiveAgent, &agentdv1.ArchiveAgentRequest{Name: "desk"}).GetAgent(); gone.GetArchiveTime() == nil || gone.GetVersion() != 2 {
				t.Errorf("archived %v", gone)
			}
			if _, err := c.ApplyAgent(t.Context(), connect.NewRequest(desk("three"))); connect.CodeOf(err) != connect.CodeFailedPrecondition {
				t.Errorf("a version of an archived agent: %v", err)
			}
			if got := all(&agentdv1.ListAgentsRequest{}); !slices.Equal(got, []string{"other@1"}) {
				t.Errorf("agents %v", got)
			}
			if got := all(&agentdv1.ListAgentsRequest{Archived: true}); !slices.Equal(got, []string{"other@1", "desk@2"}) {
				t.Errorf("all agents %v", got)
			}
			for _, name := range []string{"desk", "other"} {
				call(t, c.DeleteAgent, &agentdv1.DeleteAgentRequest{Name: name})
				if _, err := c.GetAgent(t.Context(), connect.NewRequest(&agentdv1.GetAgentRequest{AgentRef: ref(name, 0)})); connect.CodeOf(err) != connect.CodeNotFound {
					t.Errorf("%s, which was deleted: %v", name, err)
				}
			}
		})
	}
}

// must returns what a call has returned.
func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// instructionOf is the instruction of the first model call of a turn.
func instructionOf(t *testing.T, c agentdv1connect.SessionServiceClient, turn *agentdv1.Turn) string {
	t.Helper()
	calls := call(t, c.ListModelCalls, &agentdv1.ListModelCallsRequest{SessionId: turn.GetSessionId(), TurnId: turn.GetId()}).GetCalls()
	if len(calls) == 0 {
		t.Fatalf("turn %v has called no model", turn)
	}
	return calls[0].GetInstruction()
}

// Turns and sessions name agents, in the version that there was, also after a restart.
func TestAgentRefs(t *testing.T) {
	cfg := daemon.Config{DataDir: t.TempDir(), Scripts: map[string]string{"asks": asks}}
	d := start(t, cfg)
	c := agentdv1connect.NewSessionServiceClient(h2c(t), d.URL())
	call(t, c.ApplyAgent, desk("Version one."))
	run := func(prompt string, change func(*agentdv1.RunRequest_ExecuteRequest)) *agentdv1.Turn {
		t.Helper()
		ex := execute(nil, prompt).GetExecute()
		change(ex)
		turn := call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: ex}).GetTurn()
		turn = until(t, c, turn, agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT)
		call(t, c.SubmitToolResults, &agentdv1.SubmitToolResultsRequest{SessionId: turn.GetSessionId(), TurnId: turn.GetId(), Results: []*agentdv1.RunRequest_ToolCallResponse{
			{ToolCallId: turn.GetPendingToolCalls()[0].GetToolCallId(), Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: "white"}},
		}})
		return until(t, c, turn, agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
	}
	byRef := func(ex *agentdv1.RunRequest_ExecuteRequest) { ex.AgentRef = ref("desk", 0); ex.IdempotencyKey = "k" }
	first := run("look", byRef)
	create := &agentdv1.CreateSessionRequest{AgentRef: ref("desk", 0), SessionId: "mine"}
	pinned := call(t, c.CreateSession, create).GetSession()
	if !proto.Equal(pinned.GetAgentRef(), ref("desk", 1)) {
		t.Errorf("made with %v", pinned.GetAgentRef())
	}
	idle := call(t, c.CreateSession, &agentdv1.CreateSessionRequest{AgentRef: ref("desk", 1)}).GetSession()
	fork := call(t, c.ForkSession, &agentdv1.ForkSessionRequest{SessionId: idle.GetId()}).GetSession()
	call(t, c.ApplyAgent, desk("Version two."))

	stop(t, d)
	d = start(t, cfg)
	c = agentdv1connect.NewSessionServiceClient(h2c(t), d.URL())

	inSession := func(id string) func(*agentdv1.RunRequest_ExecuteRequest) {
		return func(ex *agentdv1.RunRequest_ExecuteRequest) { ex.SessionId = &id }
	}
	for what, c2 := range map[string]struct {
		turn *agentdv1.Turn
		want string
	}{
		"the first":    {first, "Version one."},
		"the newest":   {run("look", func(ex *agentdv1.RunRequest_ExecuteRequest) { ex.AgentRef = ref("desk", 0) }), "Version two."},
		"a version":    {run("look", func(ex *agentdv1.RunRequest_ExecuteRequest) { ex.AgentRef = ref("desk", 1) }), "Version one."},
		"of a session": {run("look", inSession("mine")), "Version one."},
		"of a fork":    {run("look", inSession(fork.GetId())), "Version one."},
		"in a session that has run": {run("look", func(ex *agentdv1.RunRequest_ExecuteRequest) {
			ex.SessionId, ex.AgentRef = &first.SessionId, ref("desk", 2)
		}), "Version two."},
	} {
		if got := instructionOf(t, c, c2.turn); !strings.Contains(got, c2.want) {
			t.Errorf("%s: the model read %q, want %q", what, got, c2.want)
		}
	}
	// Tools of the request come to those of the agent, and take their place.
	own := tool("look", `{"type":"object"}`)
	own.Description = "my own"
	mine := run("look", func(ex *agentdv1.RunRequest_ExecuteRequest) {
		ex.AgentRef, ex.Tools = ref("desk", 0), []*agentdv1.Tool{own, tool("more", `{"type":"object"}`)}
	})
	if mine.GetStatus() != agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED {
		t.Errorf("a turn with tools of its own: %v", mine)
	}
	// An archived agent is for sessions that were made with it alone; repeats are what they were.
	call(t, c.ArchiveAgent, &agentdv1.ArchiveAgentRequest{Name: "desk"})
	refuse := func(what string, err error, code connect.Code) {
		t.Helper()
		if connect.CodeOf(err) != code {
			t.Errorf("%s: %v, want %v", what, err, code)
		}
	}
	ex := execute(nil, "look").GetExecute()
	ex.AgentRef = ref("desk", 0)
	_, err := c.CreateTurn(t.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: ex}))
	refuse("a turn of an archived agent", err, connect.CodeFailedPrecondition)
	_, err = c.CreateSession(t.Context(), connect.NewRequest(&agentdv1.CreateSessionRequest{AgentRef: ref("desk", 1)}))
	refuse("a session of an archived agent", err, connect.CodeFailedPrecondition)
	if again := call(t, c.CreateSession, create).GetSession(); !proto.Equal(again.GetAgentRef(), ref("desk", 1)) {
		t.Errorf("created again: %v", again)
	}
	run("look", inSession(idle.GetId()))
	lone := call(t, c.ForkSession, &agentdv1.ForkSessionRequest{SessionId: idle.GetId(), ThroughSeq: new(int64(0))}).GetSession()
	// One that is deleted is not there for sessions that have not run it.
	call(t, c.DeleteAgent, &agentdv1.DeleteAgentRequest{Name: "desk"})
	run("look", inSession(idle.GetId()))
	later := execute(nil, "look").GetExecute()
	later.SessionId = &lone.Id
	_, err = c.CreateTurn(t.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: later}))
	refuse("a session of a deleted agent", err, connect.CodeNotFound)
	again := execute(nil, "look").GetExecute()
	byRef(again)
	if turn := call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: again}).GetTurn(); turn.GetId() != first.GetId() {
		t.Errorf("a repeat has started turn %s, want %s", turn.GetId(), first.GetId())
	}
	// Without an agent and without a turn there is none to run.
	plain := call(t, c.CreateSession, &agentdv1.CreateSessionRequest{}).GetSession()
	later.SessionId = &plain.Id
	_, err = c.CreateTurn(t.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: later}))
	refuse("a session without an agent", err, connect.CodeInvalidArgument)
}

// Agents are a tenant's own; observers read them, and a token runs none but its session's.
func TestAgentsOfTenants(t *testing.T) {
	t.Parallel()
	g := newGated(t)
	key := func(id, tenant string, role principal.Role) agentdv1connect.SessionServiceClient {
		text, _ := g.key(principal.Principal{ID: id, Tenant: tenant, Role: role})
		return agentdv1connect.NewSessionServiceClient(g.bearer(text), g.url())
	}
	ann, eve, watcher := key("ann", "acme", principal.Caller), key("eve", "umbrella", principal.Operator), key("bob", "acme", principal.Observer)
	apply := &agentdv1.ApplyAgentRequest{Name: "desk", Agent: llm("root", "echo")}
	if a := call(t, ann.ApplyAgent, apply).GetAgent(); a.GetCreatedBy() != "ann" {
		t.Errorf("made by %q", a.GetCreatedBy())
	}
	if got := call(t, watcher.GetAgent, &agentdv1.GetAgentRequest{AgentRef: ref("desk", 0)}); got.GetAgent().GetName() != "desk" {
		t.Errorf("an observer reads %v", got)
	}
	for what, err := range map[string]error{
		"get": func() error {
			_, err := eve.GetAgent(t.Context(), connect.NewRequest(&agentdv1.GetAgentRequest{AgentRef: ref("desk", 0)}))
			return err
		}(),
		"archive": func() error {
			_, err := eve.ArchiveAgent(t.Context(), connect.NewRequest(&agentdv1.ArchiveAgentRequest{Name: "desk"}))
			return err
		}(),
		"delete": func() error {
			_, err := eve.DeleteAgent(t.Context(), connect.NewRequest(&agentdv1.DeleteAgentRequest{Name: "desk"}))
			return err
		}(),
		"session": func() error {
			_, err := eve.CreateSession(t.Context(), connect.NewRequest(&agentdv1.CreateSessionRequest{AgentRef: ref("desk", 0)}))
			return err
		}(),
	} {
		if connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("%s of another tenant's agent: %v", what, err)
		}
	}
	if list := call(t, eve.ListAgents, &agentdv1.ListAgentsRequest{}).GetAgents(); len(list) != 0 {
		t.Errorf("another tenant lists %v", list)
	}
	if other := call(t, eve.ApplyAgent, apply); !other.GetCreated() || other.GetAgent().GetVersion() != 1 {
		t.Errorf("the name of another tenant is taken: %v", other)
	}
	s := call(t, ann.CreateSession, &agentdv1.CreateSessionRequest{AgentRef: ref("desk", 0)}).GetSession()
	token := call(t, ann.CreateSessionToken, &agentdv1.CreateSessionTokenRequest{SessionId: s.GetId()}).GetToken()
	page := agentdv1connect.NewSessionServiceClient(g.bearer(token), g.url())
	ex := execute(nil, "hi").GetExecute()
	ex.SessionId, ex.AgentRef = &s.Id, ref("desk", 0)
	if _, err := page.CreateTurn(t.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: ex})); connect.CodeOf(err) != connect.CodePermissionDenied || !strings.Contains(err.Error(), "agent_ref") {
		t.Errorf("a token names an agent: %v", err)
	}
	ex.AgentRef = nil
	turn := call(t, page.CreateTurn, &agentdv1.CreateTurnRequest{Execute: ex}).GetTurn()
	until(t, page, turn, agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
}
