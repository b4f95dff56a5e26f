package daemon_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/apzuk3/agentd/client"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/session/limits"
)

// The database in testdata/stored is that of a daemon from before the contract
// (structured output as a Struct, ids of interactions that are those of calls, costs in
// dollars as floats, no agents' starts, principals or warnings), which was killed while
// many of its turns were open; facts.txt is what that daemon, once it had been
// restarted, reported of the sessions whose turns were over. These are the scripts of its models.
var storedScripts = map[string]string{
	"lookup": `answers:
- {when: {after_tool: lookup}, thoughts: It says something., text: ["Found ", '{{tool_result "lookup"}}', .]}
- {when: {step: 1, has_tool: lookup}, text: "I look. ", calls: [{name: lookup, args_text: '{"id": "A-1", "n": 9007199254740993}'}]}
- {when: {}, text: Nothing more.}`,
	"twice": `answers:
- {when: {after_tool: lookup}, text: 'Both: {{tool_result "lookup"}}'}
- {when: {step: 1}, text: "Two looks. ", calls: [{name: lookup, args: {id: a}}, {name: lookup, args: {id: b}}]}`,
	"refund": `answers:
- {when: {after_tool: refund}, text: 'Refund: {{tool_result "refund"}}'}
- {when: {step: 1}, text: "Shall I? ", calls: [{name: refund, args: {usd: 30}}]}`,
	"ask": `answers:
- {when: {after_tool: ask_user}, text: 'You say {{tool_result "ask_user"}}'}
- {when: {step: 1}, calls: [{name: ask_user, args: {question: "Which one?", choices: [red, blue]}}]}`,
	"transfer": `answers:
- {when: {system: You are the expert, after_tool: lookup}, text: 'Expert: {{tool_result "lookup"}}'}
- {when: {system: You are the expert, step: 1, has_tool: lookup}, text: "Let me see. ", calls: [{name: lookup, args: {id: e}}]}
- {when: {system: You are the expert}, text: Expert again.}
- {when: {}, text: "Over to you. ", calls: [{name: transfer_to_agent, args: {agent_name: expert}}]}`,
	"loop": `answers:
- {when: {step: 3}, text: "Enough. ", calls: [{name: exit_loop, args: {reason: done}}]}
- {when: {}, text: "Round {{call}}. "}`,
	"slow": `answers:
- {when: {after_tool: lookup}, text: Done at last.}
- {when: {step: 1, has_tool: lookup}, text: "First. ", calls: [{name: lookup, args: {id: s}}]}
- {when: {}, text: Slowly.}`,
	"json":  `answers: [{when: {}, text: '{"id": 9007199254740993, "price": 1.10}'}]`,
	"shout": `answers: [{when: {}, text: "{{last_user}}! "}]`,
	"fail":  `answers: [{when: {}, text: Better now.}]`,
	"flaky": `answers: [{when: {}, text: At once.}]`,
	"down":  `answers: [{when: {}, text: Up again.}]`,
}

// storedData returns a folder with a copy of the database.
func storedData(t *testing.T) string {
	t.Helper()
	f, err := os.Open("testdata/stored/agentd.db.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "agentd.db"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// startStored starts today's daemon on a folder. Its turns are as old as the database.
func startStored(t *testing.T, dir string) *daemon.Daemon {
	t.Helper()
	const long = 100 * 365 * 24 * time.Hour
	return start(t, daemon.Config{
		DataDir: dir, Scripts: storedScripts, Turns: limits.Limits{Retention: long, TurnTimeout: long},
	})
}

// factsOf returns what a daemon reports of a session, in the form of facts.txt: the words
// of today, without what a daemon from before the contract did not know.
func factsOf(t *testing.T, c agentdv1connect.SessionServiceClient, s *agentdv1.Session) string {
	t.Helper()
	var out strings.Builder
	fmt.Fprintf(&out, "session %s %s labels %s ref %s by %s, %s, from %s through %d, last %s at %d\n",
		s.GetId(), s.GetState(), asText(t, s.GetLabels()), asText(t, s.GetClientRef()), s.GetCreatedBy(), used(s.GetUsage()),
		asText(t, s.GetForkedFrom()), s.GetForkedThroughSeq(), s.GetLastTurnId(), s.GetLastSeq())
	turns := call(t, c.ListTurns, &agentdv1.ListTurnsRequest{SessionId: s.GetId()}).GetTurns()
	slices.Reverse(turns)
	for _, u := range turns {
		code := "-"
		if u.GetErrorCode() != 0 {
			code = u.GetErrorCode().String()
		}
		fmt.Fprintf(&out, "turn %s %s %s %s, %s, prompt %s, answer %s of %s\n",
			u.GetId(), u.GetStatus(), code, asText(t, u.GetStatusMessage()), used(u.GetUsage()),
			asText(t, u.GetUserPrompt()), asText(t, u.GetOutputText()), asText(t, u.GetModel()))
		events := call(t, c.ListTurnEvents, &agentdv1.ListTurnEventsRequest{SessionId: s.GetId(), TurnId: u.GetId()}).GetEvents()
		for _, e := range events {
			switch e.GetResponse().(type) {
			case *agentdv1.RunResponse_MessageCompleted, *agentdv1.RunResponse_AgentStarted, *agentdv1.RunResponse_AgentEnded,
				*agentdv1.RunResponse_Transferred, *agentdv1.RunResponse_ToolCallUnserved:
			default:
				kind, body := eventOf(t, e)
				fmt.Fprintf(&out, "%d %s %s\n", e.GetSeq(), kind, asText(t, body))
			}
		}
	}
	return out.String()
}

func used(u *agentdv1.Usage) string {
	return fmt.Sprintf("%d+%d=%d tokens in %d calls", u.GetPromptTokens(), u.GetCompletionTokens(), u.GetTotalTokens(), u.GetModelCalls())
}

// asText is canonical JSON.
func asText(t *testing.T, v any) string {
	t.Helper()
	if m, ok := v.(map[string]string); ok && m == nil {
		v = map[string]string{}
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// eventOf returns the name of an event's kind, and of its fields those that are in
// facts.txt.
func eventOf(t *testing.T, e *agentdv1.RunResponse) (string, map[string]any) {
	t.Helper()
	kind := string(e.ProtoReflect().WhichOneof(e.ProtoReflect().Descriptor().Oneofs().ByName("response")).Name())
	data, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	var whole map[string]map[string]any
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(asText(t, map[string]json.RawMessage{kind: raw[kind]})), &whole); err != nil {
		t.Fatal(err)
	}
	body := whole[kind]
	delete(body, "session_id")
	switch m := e.GetResponse().(type) {
	case *agentdv1.RunResponse_StateUpdate_:
		nearest(t, m.StateUpdate.GetStateDelta(), stateText(t, m.StateUpdate))
		delete(body, "state_delta_json")
	case *agentdv1.RunResponse_ModelCallEnded:
		ended := m.ModelCallEnded
		body = map[string]any{
			"message_id": ended.GetMessageId(), "model": ended.GetModel(), "outcome": ended.GetOutcome().String(),
			"served_model": ended.GetServedModel(), "tokens": ended.GetUsage().GetTotalTokens(),
		}
	case *agentdv1.RunResponse_InteractionRequested, *agentdv1.RunResponse_InteractionResolved:
		body = body["interaction"].(map[string]any)
		if body["tool_call_id"] != body["id"] {
			t.Errorf("interaction %v is about call %v, want the same id", body["id"], body["tool_call_id"])
		}
		delete(body, "tool_call_id")
		delete(body, "expire_time")
	case *agentdv1.RunResponse_Error:
		if body["turn_id"] != e.GetTurnId() {
			t.Errorf("an error is about turn %v, want %s", body["turn_id"], e.GetTurnId())
		}
		delete(body, "turn_id")
	case *agentdv1.RunResponse_End:
		u := m.End.GetUsageSummary()
		body["usage"] = fmt.Sprintf("%d+%d=%d tokens in %d calls", u.GetTotalUsage().GetPromptTokens(),
			u.GetTotalUsage().GetCompletionTokens(), u.GetTotalUsage().GetTotalTokens(), u.GetLlmCalls())
		delete(body, "usage_summary")
		delete(body, "structured_output")
		delete(body, "receipt")
	}
	return kind, body
}

// storedOver are the sessions of facts.txt.
func storedOver(t *testing.T) (facts string, ids []string) {
	t.Helper()
	data, err := os.ReadFile("testdata/stored/facts.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "session "); ok {
			id, _, _ := strings.Cut(rest, " ")
			ids = append(ids, id)
		}
	}
	return string(data), ids
}

func jsonWire(t *testing.T, d *daemon.Daemon) agentdv1connect.SessionServiceClient {
	t.Helper()
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return agentdv1connect.NewSessionServiceClient(&http.Client{Transport: tr}, d.URL())
}

// TestStoredFacts: what was over in a database from before the contract is reported in
// the words of today as it was then, at the same positions; state and labels are there.
func TestStoredFacts(t *testing.T) {
	c := jsonWire(t, startStored(t, storedData(t)))
	want, ids := storedOver(t)
	var got strings.Builder
	for _, id := range ids {
		got.WriteString(factsOf(t, c, call(t, c.GetSession, &agentdv1.GetSessionRequest{SessionId: id}).GetSession()))
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got.String(), "\n")); diff != "" {
		t.Errorf("what is told differs (-then +now):\n%s", diff)
	}

	var entries []string
	for _, e := range call(t, c.ListSharedState, &agentdv1.ListSharedStateRequest{}).GetEntries() {
		entries = append(entries, e.GetKey()+"="+e.GetValue())
	}
	if got, want := strings.Join(entries, " "), `app:company="Acme" app:seen=true user:name="Ann" user:visits=3`; got != want {
		t.Errorf("the shared state is %s, want %s", got, want)
	}
	labeled := call(t, c.ListSessions, &agentdv1.ListSessionsRequest{Labels: map[string]string{"team": "support"}, ClientRef: "ref-1"}).GetSessions()
	if len(labeled) != 1 || labeled[0].GetLabels()["tier"] != "gold" {
		t.Errorf("by label and reference there are %v, want one", labeled)
	}
	// The log has the model's own text, of which the daemon of then has bent the digits.
	turn := call(t, c.GetTurn, &agentdv1.GetTurnRequest{SessionId: "structured"}).GetTurn()
	if got, want := turn.GetStructuredOutput(), `{"id": 9007199254740993, "price": 1.10}`; got != want {
		t.Errorf("the structured output is %s, want %s", got, want)
	}
	receipt := call(t, c.GetTurn, &agentdv1.GetTurnRequest{SessionId: "canceled"}).GetTurn().GetReceipt()
	if len(receipt.GetCanceledToolCalls()) != 1 || len(receipt.GetAnsweredToolCalls()) != 1 {
		t.Errorf("the receipt is %v, want a call that was canceled and one that was answered", receipt)
	}
	for _, id := range ids {
		turns := call(t, c.ListTurns, &agentdv1.ListTurnsRequest{SessionId: id}).GetTurns()
		calls := call(t, c.ListModelCalls, &agentdv1.ListModelCallsRequest{SessionId: id, TurnId: turns[0].GetId()}).GetCalls()
		if n := turns[0].GetUsage().GetModelCalls(); int64(len(calls)) != n {
			t.Errorf("session %s: %d model calls are listed, want %d", id, len(calls), n)
		}
		for _, m := range calls {
			if m.GetContents() == 0 {
				t.Errorf("session %s: it is not known what a model was told: %v", id, m)
			}
		}
	}
}

// replayStored replays sessions of a folder that no daemon has open.
func replayStored(t *testing.T, dir string, ids []string) {
	t.Helper()
	for _, id := range ids {
		rep, err := daemon.Replay(t.Context(), daemon.Config{DataDir: dir}, id)
		if err != nil || rep.Divergence != nil || rep.Records == 0 {
			t.Errorf("session %s is replayed with %v, %v: %+v", id, rep.Divergence, err, rep)
		}
	}
}

// sessionsOf returns all sessions by name.
func sessionsOf(t *testing.T, c agentdv1connect.SessionServiceClient) []string {
	t.Helper()
	var out []string
	for _, s := range call(t, c.ListSessions, &agentdv1.ListSessionsRequest{
		PageSize: 1000, States: []agentdv1.SessionState{agentdv1.SessionState_SESSION_STATE_ACTIVE, agentdv1.SessionState_SESSION_STATE_ARCHIVED},
	}).GetSessions() {
		out = append(out, s.GetId())
	}
	return out
}

// errorText returns the text of a call's error.
func errorText[Req, Resp any](t *testing.T, f func(context.Context, *connect.Request[Req]) (*connect.Response[Resp], error), req *Req) string {
	t.Helper()
	_, err := f(t.Context(), connect.NewRequest(req))
	if err == nil {
		t.Errorf("%T is not refused", req)
		return ""
	}
	return err.Error()
}

// submitPending submits a result for each call of a turn that has none.
func submitPending(t *testing.T, c agentdv1connect.SessionServiceClient, turn *agentdv1.Turn, output string) {
	t.Helper()
	req := &agentdv1.SubmitToolResultsRequest{SessionId: turn.GetSessionId(), TurnId: turn.GetId()}
	for _, p := range turn.GetPendingToolCalls() {
		req.Results = append(req.Results, &agentdv1.RunRequest_ToolCallResponse{
			ToolCallId: p.GetToolCallId(), ToolName: p.GetToolName(),
			Result: &agentdv1.RunRequest_ToolCallResponse_Output{Output: output},
		})
	}
	if refused := call(t, c.SubmitToolResults, req).GetRefused(); len(refused) > 0 {
		t.Errorf("session %s: answers were refused: %v", turn.GetSessionId(), refused)
	}
}

// TestStoredTurnsResume: turns that were open in a database from before the contract
// wait for what they waited for, and end by it. The logs replay without a difference,
// as they were and as they are then.
func TestStoredTurnsResume(t *testing.T) {
	dir := storedData(t)
	_, over := storedOver(t)
	replayStored(t, dir, over)
	d := startStored(t, dir)
	c := jsonWire(t, d)
	const (
		waits = agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_CLIENT
		asks  = agentdv1.TurnStatus_TURN_STATUS_WAITING_FOR_INPUT
		done  = agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED
	)
	approve := &agentdv1.Resolution{Decision: &agentdv1.Resolution_Approve{Approve: &agentdv1.Approval{ToolInput: new(`{"usd":5}`)}}}
	for id, tc := range map[string]struct {
		says   *agentdv1.Resolution
		output string
		want   string

		canceled bool
	}{
		"w-tool":       {output: "it", want: "Found it."},
		"w-half":       {output: "it", want: `Both: result of {"id":"b"}`},
		"w-sequential": {output: "it", want: "Found it."},
		"w-parallel":   {output: "it", want: "Found it."},
		"w-loop":       {output: `{"continue":false}`, want: "Go! "},
		"w-transfer":   {output: "it", want: "Expert: it"},
		"w-approved":   {output: "it", want: "Refund: it"},
		"w-approval":   {says: approve, output: "it", want: `Refund: {"note":"A person has changed the arguments of this call. The tool was called with {\"usd\":5}","output":"it"}`},
		"w-ask":        {says: &agentdv1.Resolution{Decision: &agentdv1.Resolution_Answer{Answer: "blue"}}, want: "You say blue"},
		"w-ask-deny":   {says: &agentdv1.Resolution{Decision: &agentdv1.Resolution_Deny{Deny: &agentdv1.Denial{Reason: "later"}}}, want: "You say denied: later"},
		"r-text":       {want: "Slowly."},
		"r-after-tool": {want: "Done at last."},
		"queued":       {want: "Third"},
		"od-long":      {canceled: true}, // its client had 23 hours to come back, which are over
		"od-short":     {output: "it", want: "Found it."},
		"od-continue":  {output: "it", want: "Found it."},
	} {
		t.Run(id, func(t *testing.T) {
			turn := &agentdv1.Turn{SessionId: id}
			if tc.says != nil {
				turn = until(t, c, turn, asks)
				in := turn.GetPendingInteractions()[0]
				call(t, c.ResolveInteraction, &agentdv1.ResolveInteractionRequest{
					SessionId: id, InteractionId: in.GetId(), Resolution: tc.says,
				})
			}
			if tc.output != "" {
				turn = until(t, c, turn, waits)
				submitPending(t, c, turn, tc.output)
			}
			if tc.canceled {
				turn = until(t, c, turn, agentdv1.TurnStatus_TURN_STATUS_CANCELED)
			} else {
				turn = until(t, c, turn, done)
			}
			if turn.GetOutputText() != tc.want {
				t.Errorf("the turn says %q, want %q", turn.GetOutputText(), tc.want)
			}
			// And the session takes another prompt.
			next := call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: &agentdv1.RunRequest_ExecuteRequest{
				SessionId: &id, UserPrompt: "More", Agent: llm("root", "echo"),
			}}).GetTurn()
			if next = until(t, c, next, done); next.GetOutputText() != "More" {
				t.Errorf("the next turn says %q", next.GetOutputText())
			}
		})
	}
	all := sessionsOf(t, c)
	stop(t, d)
	replayStored(t, dir, all)
}

// TestStoredSessionsChange: sessions from before the contract can be forked, canceled,
// deleted and continued; keys that were used then are known, and budgets hold.
func TestStoredSessionsChange(t *testing.T) {
	dir := storedData(t)
	d := startStored(t, dir)
	c := jsonWire(t, d)
	const done = agentdv1.TurnStatus_TURN_STATUS_SUCCEEDED
	_, over := storedOver(t)
	for _, id := range over {
		if id == "archived" {
			call(t, c.UpdateSession, &agentdv1.UpdateSessionRequest{SessionId: id, State: new(agentdv1.SessionState_SESSION_STATE_ACTIVE)})
		}
		before := call(t, c.GetSession, &agentdv1.GetSessionRequest{SessionId: id}).GetSession()
		fork := call(t, c.ForkSession, &agentdv1.ForkSessionRequest{SessionId: id}).GetSession()
		if fork.GetForkedThroughSeq() != before.GetLastSeq() || fork.GetUsage().GetModelCalls() != 0 {
			t.Errorf("the fork of %s is %v", id, fork)
		}
		for _, in := range []string{id, fork.GetId()} {
			turn := call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: &agentdv1.RunRequest_ExecuteRequest{
				SessionId: &in, UserPrompt: "More", Agent: llm("root", "echo"),
			}}).GetTurn()
			if turn = until(t, c, turn, done); turn.GetOutputText() != "More" {
				t.Errorf("session %s, the next turn says %q", in, turn.GetOutputText())
			}
		}
	}
	// The one call that its session's budget of before has left is used up.
	broke := call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: &agentdv1.RunRequest_ExecuteRequest{
		SessionId: new("budgeted"), UserPrompt: "Too much", Agent: llm("root", "echo"),
	}}).GetTurn()
	if broke = until(t, c, broke, agentdv1.TurnStatus_TURN_STATUS_FAILED); broke.GetErrorCode() != agentdv1.ErrorCode_ERROR_CODE_BUDGET_EXHAUSTED {
		t.Errorf("beyond the session's budget: %v", broke)
	}

	// A fork of a session whose turn is open, and of the middle of one.
	fork := call(t, c.ForkSession, &agentdv1.ForkSessionRequest{SessionId: "w-fork"}).GetSession()
	if got := fork.GetLastTurnStatus(); got != agentdv1.TurnStatus_TURN_STATUS_CANCELED {
		t.Errorf("the fork's turn is %v, want it to be closed", got)
	}
	first := call(t, c.ListTurns, &agentdv1.ListTurnsRequest{SessionId: "plain"}).GetTurns()
	seq := first[1].GetAfterSeq()
	middle := call(t, c.ForkSession, &agentdv1.ForkSessionRequest{SessionId: "plain", ThroughSeq: &seq}).GetSession()
	if turns := call(t, c.ListTurns, &agentdv1.ListTurnsRequest{SessionId: middle.GetId()}).GetTurns(); len(turns) != 1 || turns[0].GetOutputText() != "one" {
		t.Errorf("a fork of the middle has the turns %v", turns)
	}

	open := call(t, c.GetTurn, &agentdv1.GetTurnRequest{SessionId: "w-cancel"}).GetTurn()
	canceled := call(t, c.CancelTurn, &agentdv1.CancelTurnRequest{SessionId: "w-cancel", TurnId: open.GetId(), Reason: "enough"}).GetTurn()
	if canceled.GetStatus() != agentdv1.TurnStatus_TURN_STATUS_CANCELED || len(canceled.GetReceipt().GetCanceledToolCalls()) != 1 {
		t.Errorf("the canceled turn is %v", canceled)
	}
	call(t, c.DeleteSession, &agentdv1.DeleteSessionRequest{SessionId: "w-delete"})
	if err := errorText(t, c.GetSession, &agentdv1.GetSessionRequest{SessionId: "w-delete"}); !strings.Contains(err, "not_found") {
		t.Errorf("of a deleted session: %s", err)
	}

	// What is repeated with its key of before makes nothing twice.
	made := call(t, c.CreateSession, &agentdv1.CreateSessionRequest{
		Labels: map[string]string{"team": "support", "tier": "gold"}, ClientRef: "ref-1", IdempotencyKey: "key-session",
	}).GetSession()
	if !slices.Contains(over, made.GetId()) {
		t.Errorf("a repeated CreateSession has made %s", made.GetId())
	}
	parsed := &agentdv1.RunRequest_ExecuteRequest{}
	if err := protojson.Unmarshal([]byte(storedRequest), parsed); err != nil {
		t.Fatal(err)
	}
	turns := call(t, c.ListTurns, &agentdv1.ListTurnsRequest{SessionId: "tools"}).GetTurns()
	if got, want := call(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: parsed}).GetTurn().GetId(), turns[len(turns)-1].GetId(); got != want {
		t.Errorf("a repeated CreateTurn has made %s, want %s", got, want)
	}
	parsed.UserPrompt += "!"
	if err := errorText(t, c.CreateTurn, &agentdv1.CreateTurnRequest{Execute: parsed}); !strings.Contains(err, "key-tools") {
		t.Errorf("another request with a key of before: %s", err)
	}
	in := call(t, c.ListInteractions, &agentdv1.ListInteractionsRequest{SessionId: "w-approved"}).GetInteractions()[0]
	resolved := call(t, c.ResolveInteraction, &agentdv1.ResolveInteractionRequest{
		SessionId: "w-approved", InteractionId: in.GetId(),
		Resolution: &agentdv1.Resolution{Decision: &agentdv1.Resolution_Approve{Approve: &agentdv1.Approval{}}, IdempotencyKey: "res-1"},
	}).GetInteraction()
	if resolved.GetStatus() != agentdv1.InteractionStatus_INTERACTION_STATUS_RESOLVED {
		t.Errorf("a repeated resolution: %v", resolved)
	}

	// A client of today with the tool continues where one of then has left, with what was
	// injected.
	clnt := client.New(d.URL())
	if err := client.AddTool(clnt, "lookup", "Looks", func(context.Context, map[string]any) (string, error) { return "it", nil }); err != nil {
		t.Fatal(err)
	}
	var injected []string
	for event, err := range clnt.Attach(t.Context(), "inject", client.WithAfterSeq(2097151)) {
		if err != nil {
			t.Fatal(err)
		}
		if m, ok := event.Data.(*client.MessageInjected); ok {
			injected = append(injected, m.Prompt)
		}
	}
	if !slices.Equal(injected, []string{"Also this"}) {
		t.Errorf("injected were %q", injected)
	}
	all := sessionsOf(t, c)
	stop(t, d)
	replayStored(t, dir, all)
}

// storedRequest is what has started the first turn of the session tools.
const storedRequest = `{"sessionId":"tools","create":true,"idempotencyKey":"key-tools","userPrompt":"Look",
"tools":[{"name":"lookup","description":"Does lookup","inputSchema":"{\"type\":\"object\"}"}],
"initialState":{"user:name":"Ann","app:company":"Acme","mood":"glad","n":12345,"list":[1,2.5,"x",null],"temp:t":1},
"agent":{"name":"root","llm":{"model":"scripted/lookup","toolNames":["lookup"],
"instruction":"For {user:name} of {app:company}, {mood?}","outputKey":"found"}}}`
