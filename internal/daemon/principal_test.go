package daemon_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/structpb"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/principal"
)

// byHeader authenticates by a header: "ann", "ann@acme", with a role behind a slash.
func byHeader(r *http.Request) (principal.Principal, error) {
	who, role, _ := strings.Cut(r.Header.Get("X-Test-Who"), "/")
	id, tenant, _ := strings.Cut(who, "@")
	roles := map[string]principal.Role{"": principal.Caller, "observer": principal.Observer, "operator": principal.Operator, "strange": 99}
	if id == "" {
		return principal.Principal{}, errors.New("who is it? the secret of this test")
	}
	return principal.Principal{ID: id, Tenant: tenant, Role: roles[role]}, nil
}

// speaker sends the header.
type speaker struct {
	who  string
	next http.RoundTripper
}

func (s speaker) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if s.who != "" {
		r.Header.Set("X-Test-Who", s.who)
	}
	return s.next.RoundTrip(r)
}

func clientOf(t *testing.T, who string) *http.Client {
	return &http.Client{Transport: speaker{who, h2c(t).Transport}}
}

func speaking(t *testing.T, d *daemon.Daemon, who string) agentdv1connect.SessionServiceClient {
	return agentdv1connect.NewSessionServiceClient(clientOf(t, who), d.URL())
}

// TestUnauthenticated: who has no credentials is refused on every wire, by every kind of
// method, with the protocol's own error; the error does not say what is wrong with them.
func TestUnauthenticated(t *testing.T) {
	d := start(t, daemon.Config{Authenticate: byHeader})
	check := func(what string, err error) {
		t.Helper()
		if connect.CodeOf(err) != connect.CodeUnauthenticated {
			t.Errorf("%s: %v", what, err)
			return
		}
		e := details(t, err)
		if e.GetCode() != agentdv1.ErrorCode_ERROR_CODE_UNAUTHENTICATED || e.GetRetryable() || strings.Contains(e.GetMessage(), "secret") {
			t.Errorf("%s: %v", what, e)
		}
	}
	for wire, c := range wires(t, d) {
		_, err := c.ListModels(t.Context(), connect.NewRequest(&agentdv1.ListModelsRequest{}))
		check(wire, err)
		_, err = c.CreateTurn(t.Context(), connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: greet("x", true)}))
		check(wire, err)
		s, err := c.WatchTurn(t.Context(), connect.NewRequest(&agentdv1.WatchTurnRequest{SessionId: "x"}))
		if err == nil {
			if s.Receive() {
				t.Errorf("%s: told %v", wire, s.Msg())
			}
			err = s.Err()
			_ = s.Close()
		}
		check(wire, err)
	}
	for name, opts := range map[string][]connect.ClientOption{"Connect": nil, "JSON": {connect.WithProtoJSON()}, "gRPC": {connect.WithGRPC()}, "gRPC-Web": {connect.WithGRPCWeb()}} {
		run := agentdv1connect.NewAgentdClient(h2c(t), d.URL(), opts...).Run(t.Context())
		_ = run.Send(execute(llm("root", "echo"), "hi")) // the refusal may be there before
		_, err := run.Receive()
		check("Run, "+name, err)
		_ = run.CloseRequest()
		_ = run.CloseResponse()
	}
	if list := call(t, speaking(t, d, "root/operator").ListSessions, &agentdv1.ListSessionsRequest{}).GetSessions(); len(list) != 0 {
		t.Errorf("stored %v", list)
	}
	for path, want := range map[string]int{"/healthz": 200, agentdv1connect.SessionServiceListModelsProcedure + "?encoding=json&message=%7B%7D&connect=v1": 401} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.URL()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := clientOf(t, "").Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: status %d, want %d", path, resp.StatusCode, want)
		}
	}
}

// TestRoles: an observer reads and changes nothing, the state that all share is for
// operators, and a role that is none may do nothing.
func TestRoles(t *testing.T) {
	t.Parallel() // it waits
	d := start(t, daemon.Config{Authenticate: byHeader, Scripts: map[string]string{"asks": asks}})
	ann, eve := speaking(t, d, "ann"), speaking(t, d, "eve/observer")
	turn := call(t, ann.CreateTurn, &agentdv1.CreateTurnRequest{Execute: lookRequest("look")}).GetTurn()
	id := turn.GetSessionId()
	refused := func(what string, err error) {
		t.Helper()
		if connect.CodeOf(err) != connect.CodePermissionDenied || details(t, err).GetCode() != agentdv1.ErrorCode_ERROR_CODE_PERMISSION_DENIED {
			t.Errorf("%s: %v", what, err)
		}
	}
	ctx := t.Context()
	_, err := eve.CreateTurn(ctx, connect.NewRequest(&agentdv1.CreateTurnRequest{Execute: lookRequest("look")}))
	refused("CreateTurn", err)
	_, err = eve.CreateSession(ctx, connect.NewRequest(&agentdv1.CreateSessionRequest{}))
	refused("CreateSession", err)
	_, err = eve.ForkSession(ctx, connect.NewRequest(&agentdv1.ForkSessionRequest{SessionId: id}))
	refused("ForkSession", err)
	_, err = eve.DeleteSession(ctx, connect.NewRequest(&agentdv1.DeleteSessionRequest{SessionId: id}))
	refused("DeleteSession", err)
	_, err = eve.UpdateSession(ctx, connect.NewRequest(&agentdv1.UpdateSessionRequest{SessionId: id}))
	refused("UpdateSession", err)
	_, err = eve.CancelTurn(ctx, connect.NewRequest(&agentdv1.CancelTurnRequest{SessionId: id, TurnId: turn.GetId()}))
	refused("CancelTurn", err)
	_, err = eve.CancelToolCall(ctx, connect.NewRequest(&agentdv1.CancelToolCallRequest{SessionId: id, TurnId: turn.GetId(), ToolCallId: "c"}))
	refused("CancelToolCall", err)
	_, err = eve.SubmitToolResults(ctx, connect.NewRequest(&agentdv1.SubmitToolResultsRequest{SessionId: id, TurnId: turn.GetId()}))
	refused("SubmitToolResults", err)
	_, err = eve.ResolveInteraction(ctx, connect.NewRequest(&agentdv1.ResolveInteractionRequest{SessionId: id, InteractionId: "i"}))
	refused("ResolveInteraction", err)
	for who, c := range map[string]agentdv1connect.SessionServiceClient{"eve": eve, "ann": ann} {
		_, err = c.ListSharedState(ctx, connect.NewRequest(&agentdv1.ListSharedStateRequest{}))
		refused(who+", ListSharedState", err)
		_, err = c.SetSharedState(ctx, connect.NewRequest(&agentdv1.SetSharedStateRequest{}))
		refused(who+", SetSharedState", err)
		_, err = c.RemoveSharedState(ctx, connect.NewRequest(&agentdv1.RemoveSharedStateRequest{}))
		refused(who+", RemoveSharedState", err)
	}
	_, err = speaking(t, d, "x/strange").GetTurn(ctx, connect.NewRequest(&agentdv1.GetTurnRequest{SessionId: id}))
	refused("a strange role", err)

	for range 1000 { // on a slow machine the turn has not asked yet
		if len(call(t, eve.GetTurn, &agentdv1.GetTurnRequest{SessionId: id}).GetTurn().GetPendingToolCalls()) > 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if got := call(t, eve.GetTurn, &agentdv1.GetTurnRequest{SessionId: id}).GetTurn(); got.GetStatus() == agentdv1.TurnStatus_TURN_STATUS_CANCELED || len(got.GetPendingToolCalls()) != 1 {
		t.Errorf("the observer reads %v", got)
	}
	watch := func(c agentdv1connect.SessionServiceClient, observe bool) error {
		s, err := c.WatchTurn(ctx, connect.NewRequest(&agentdv1.WatchTurnRequest{SessionId: id, Observe: observe}))
		if err != nil {
			return err
		}
		defer func() { _ = s.Close() }()
		s.Receive()
		return s.Err()
	}
	if err := watch(eve, true); err != nil {
		t.Errorf("observe: %v", err)
	}
	refused("WatchTurn without observe", watch(eve, false))
	refused("WatchTurn of a strange role", watch(speaking(t, d, "x/strange"), true))

	dial := connectDialer(clientOf(t, "eve/observer"), d.URL())
	for name, first := range map[string]*agentdv1.RunRequest{
		"execute": {Request: &agentdv1.RunRequest_Execute{Execute: lookRequest("look")}},
		"attach":  {Request: &agentdv1.RunRequest_Attach{Attach: &agentdv1.AttachRequest{SessionId: id}}},
	} {
		c := dial.open(t, first)
		if e := c.next().GetError(); e.GetCode() != agentdv1.ErrorCode_ERROR_CODE_PERMISSION_DENIED {
			t.Errorf("Run, %s: %v", name, e)
		}
	}
	observes := &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Attach{Attach: &agentdv1.AttachRequest{SessionId: id, Observe: true}}}
	c := connectDialer(clientOf(t, "x/strange"), d.URL()).open(t, observes)
	if e := c.next().GetError(); e.GetCode() != agentdv1.ErrorCode_ERROR_CODE_PERMISSION_DENIED {
		t.Errorf("Run of a strange role: %v", e)
	}
}

// TestCreatedBy: sessions, prompts, results and resolutions say whose they are, also
// after a restart; an interaction keeps its id, which is not that of its call.
func TestCreatedBy(t *testing.T) {
	cfg := daemon.Config{
		DataDir: t.TempDir(), Authenticate: byHeader, Turns: limits.Limits{IdleTurn: time.Hour},
		Scripts: map[string]string{"asks": asks},
	}
	d := start(t, cfg)
	ann := speaking(t, d, "ann@acme")
	ex := lookRequest("look")
	ex.Tools[0].NeedsApproval = true
	created := call(t, ann.CreateTurn, &agentdv1.CreateTurnRequest{Execute: ex})
	turn := until(t, ann, created.GetTurn(), agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_INPUT)
	id := turn.GetSessionId()
	asked := turn.GetPendingInteractions()[0]
	if asked.GetId() == asked.GetToolCallId() || asked.GetToolCallId() == "" || asked.GetResolvedBy() != "" ||
		asked.GetExpireTime().AsTime().Sub(asked.GetCreateTime().AsTime()) != 24*time.Hour {
		t.Errorf("asked %v", asked)
	}
	next := lookRequest("again")
	next.SessionId, next.OnBusy = &id, agentdv1.OnBusy_ON_BUSY_ENQUEUE
	queued := call(t, speaking(t, d, "bob@acme").CreateTurn, &agentdv1.CreateTurnRequest{Execute: next}).GetTurn()
	stop(t, d)

	d = start(t, cfg)
	cleo := speaking(t, d, "cleo@acme")
	if second := call(t, cleo.ListInteractions, &agentdv1.ListInteractionsRequest{SessionId: id}).GetInteractions(); len(second) != 1 || second[0].GetId() != asked.GetId() {
		t.Fatalf("after a restart: %v", second)
	}
	resolved := call(t, cleo.ResolveInteraction, &agentdv1.ResolveInteractionRequest{
		SessionId: id, InteractionId: asked.GetId(),
		Resolution: &agentdv1.Resolution{IdempotencyKey: "k", Decision: &agentdv1.Resolution_Approve{Approve: &agentdv1.Approval{}}},
	}).GetInteraction()
	if resolved.GetResolvedBy() != "cleo" || resolved.GetExpireTime() != nil {
		t.Errorf("resolved %v", resolved)
	}
	dan := speaking(t, d, "dan@acme")
	submitted := call(t, dan.SubmitToolResults, &agentdv1.SubmitToolResultsRequest{
		SessionId: id, TurnId: turn.GetId(),
		Results: []*agentdv1.RunRequest_ToolCallResponse{{
			ToolCallId: asked.GetToolCallId(), Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: "a hill"},
		}},
	})
	if len(submitted.GetRefused()) != 0 {
		t.Fatalf("refused %v", submitted.GetRefused())
	}
	until(t, dan, turn, agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
	call(t, dan.CancelTurn, &agentdv1.CancelTurnRequest{SessionId: id, TurnId: queued.GetId()})
	stop(t, d)

	d = start(t, cfg)
	c := speaking(t, d, "eve@acme/observer")
	if s := call(t, c.GetSession, &agentdv1.GetSessionRequest{SessionId: id}).GetSession(); s.GetCreatedBy() != "ann" {
		t.Errorf("the session is of %q", s.GetCreatedBy())
	}
	if by := call(t, c.GetTurn, &agentdv1.GetTurnRequest{SessionId: id, TurnId: turn.GetId()}).GetTurn().GetCreatedBy(); by != "ann" {
		t.Errorf("the turn is of %q", by)
	}
	if by := call(t, c.GetTurn, &agentdv1.GetTurnRequest{SessionId: id, TurnId: queued.GetId()}).GetTurn().GetCreatedBy(); by != "bob" {
		t.Errorf("the queued turn is of %q", by)
	}
	got := map[string]string{}
	for _, e := range call(t, c.ListTurnEvents, &agentdv1.ListTurnEventsRequest{SessionId: id, TurnId: turn.GetId()}).GetEvents() {
		switch r := e.GetResponse().(type) {
		case *agentdv1.RunResponse_ToolCallAnswered:
			got["answered"] = r.ToolCallAnswered.GetCreatedBy()
		case *agentdv1.RunResponse_TurnQueued:
			got["queued"] = r.TurnQueued.GetCreatedBy()
		case *agentdv1.RunResponse_InteractionRequested:
			got["asked"] = r.InteractionRequested.GetInteraction().GetId()
		case *agentdv1.RunResponse_InteractionResolved:
			got["resolved"] = r.InteractionResolved.GetInteraction().GetResolvedBy()
		}
	}
	if got["answered"] != "dan" || got["queued"] != "bob" || got["resolved"] != "cleo" || got["asked"] != asked.GetId() {
		t.Errorf("the log says %v", got)
	}
}

// withState makes a request that sets state.
func withState(t *testing.T, ex *agentdv1.RunRequest_ExecuteRequest, state map[string]any) *agentdv1.CreateTurnRequest {
	t.Helper()
	s, err := structpb.NewStruct(state)
	if err != nil {
		t.Fatal(err)
	}
	ex.InitialState = s
	return &agentdv1.CreateTurnRequest{Execute: ex}
}

// instructed runs a turn and returns the instruction of its model.
func instructed(t *testing.T, c agentdv1connect.SessionServiceClient, instruction string) string {
	t.Helper()
	ex := execute(llm("root", "echo"), "hi").GetExecute()
	ex.Agent.GetLlm().Instruction = instruction
	turn := until(t, c, call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: ex}).GetTurn(), agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
	calls := call(t, c.ListModelCalls, &agentdv1.ListModelCallsRequest{SessionId: turn.GetSessionId()}).GetCalls()
	if len(calls) != 1 {
		t.Fatalf("calls %v", calls)
	}
	return calls[0].GetInstruction()
}

// TestAppState: what a caller writes to `app:` is left out with a warning, whichever way
// it writes, and what an operator writes is for all.
func TestAppState(t *testing.T) {
	d := start(t, daemon.Config{Authenticate: byHeader, Scripts: map[string]string{"asks": asks}})
	ann, root := speaking(t, d, "ann"), speaking(t, d, "root/operator")
	call(t, root.SetSharedState, &agentdv1.SetSharedStateRequest{Values: []*agentdv1.SharedStateValue{{Key: "app:plan", Value: `"sale"`}, {Key: "app:big", Value: "9007199254740993"}}})

	ex := lookRequest("look")
	ex.Agent.GetLlm().OutputKey = "app:out"
	created := call(t, ann.CreateTurn, withState(t, ex, map[string]any{"app:plan": "mine", "own": 1}))
	var fields []string
	for _, w := range created.GetWarnings() {
		fields = append(fields, w.GetCode()+" "+w.GetField())
	}
	if got := strings.Join(fields, ", "); got != `app_state_ignored execute.initial_state["app:plan"], app_state_ignored execute.agent.llm.output_key` {
		t.Errorf("warned of %s", got)
	}
	turn := until(t, ann, created.GetTurn(), agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT)
	delta, err := structpb.NewStruct(map[string]any{"app:answer": 1, "user:seen": true})
	if err != nil {
		t.Fatal(err)
	}
	call(t, ann.SubmitToolResults, &agentdv1.SubmitToolResultsRequest{SessionId: turn.GetSessionId(), TurnId: turn.GetId(), Results: []*agentdv1.RunRequest_ToolCallResponse{{
		ToolCallId: turn.GetPendingToolCalls()[0].GetToolCallId(), StateDelta: delta,
		Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: "a hill"},
	}}})
	until(t, ann, turn, agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
	warned := 0
	for _, e := range call(t, ann.ListTurnEvents, &agentdv1.ListTurnEventsRequest{SessionId: turn.GetSessionId(), TurnId: turn.GetId()}).GetEvents() {
		warned += len(e.GetExecute().GetWarnings()) + len(e.GetToolCallAnswered().GetWarnings())
	}
	if warned != 3 {
		t.Errorf("%d warnings in the events, want 3", warned)
	}
	shared := func() string {
		got := ""
		for _, e := range call(t, root.ListSharedState, &agentdv1.ListSharedStateRequest{}).GetEntries() {
			got += e.GetKey() + "=" + e.GetValue() + " "
		}
		return got
	}
	if got := shared(); got != `app:big=9007199254740993 app:plan="sale" ` {
		t.Errorf("shared: %s", got)
	}
	if got := instructed(t, ann, "Plan {app:plan}"); !strings.HasPrefix(got, "Plan sale") {
		t.Errorf("the caller's model was told %q", got)
	}
	resp := call(t, root.CreateTurn, withState(t, greet("ops", true), map[string]any{"app:plan": "autumn"}))
	until(t, root, resp.GetTurn(), agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
	if got := shared(); len(resp.GetWarnings()) != 0 || got != `app:big=9007199254740993 app:plan="autumn" ` {
		t.Errorf("after the operator: %s, %v", got, resp.GetWarnings())
	}
}

// TestUserState: `user:` keys are those of the principal whose session it is, in its
// tenant; where nobody is authenticated they are what they were before.
func TestUserState(t *testing.T) {
	cfg := daemon.Config{DataDir: t.TempDir()}
	d := start(t, cfg)
	local := wires(t, d)["gRPC"]
	until(t, local, call(t, local.CreateTurn, withState(t, greet("l", true), map[string]any{"user:name": "nobody"})).GetTurn(), agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
	stop(t, d)

	cfg.Authenticate = byHeader
	d = start(t, cfg)
	for _, who := range []string{"ann", "ann@acme", "bob@acme"} {
		c := speaking(t, d, who)
		until(t, c, call(t, c.CreateTurn, withState(t, greet(who, true), map[string]any{"user:name": who})).GetTurn(), agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED)
	}
	for _, who := range []string{"ann", "ann@acme", "bob@acme"} {
		if got := instructed(t, speaking(t, d, who), "For {user:name}."); !strings.HasPrefix(got, "For "+who+".") {
			t.Errorf("%s: the model was told %q", who, got)
		}
	}
	if got := instructed(t, speaking(t, d, "cleo"), "For {user:name?}."); !strings.HasPrefix(got, "For .") {
		t.Errorf("cleo: the model was told %q", got)
	}
	stop(t, d)

	cfg.Authenticate = nil
	d = start(t, cfg)
	if got := instructed(t, wires(t, d)["gRPC"], "For {user:name}."); !strings.HasPrefix(got, "For nobody.") {
		t.Errorf("without authentication: the model was told %q", got)
	}
}

// TestOperatorsInstruction: others than operators see that it is there.
func TestOperatorsInstruction(t *testing.T) {
	d := start(t, daemon.Config{Authenticate: byHeader, Turns: limits.Limits{Instruction: "Never say canary."}})
	for who, want := range map[string]string{
		"root/operator": "Never say canary.\n\nBe kind.",
		"ann":           "[the operator's instruction, 17 bytes]\n\nBe kind.",
	} {
		if got := instructed(t, speaking(t, d, who), "Be kind."); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q", who, got)
		}
	}
	ex := greet("raw", true)
	ex.RawPayloads = true
	if w := call(t, speaking(t, d, "ann").CreateTurn, &agentdv1.CreateTurnRequest{Execute: ex}).GetWarnings(); len(w) != 1 || w[0].GetField() != "execute.raw_payloads" {
		t.Errorf("warned of %v", w)
	}
}
