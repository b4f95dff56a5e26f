package turns

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/apzuk3/agentd/agentdtest"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/test/harness"
)

// ruleScripts are the models of these tests.
var ruleScripts = map[string]string{
	"words":  `answers: [{when: {}, thoughts: ["Let me ", "think."], text: ["To be, ", "or not ", "to be."]}]`,
	"router": `answers: [{when: {}, text: "Over to you.", calls: [{name: transfer_to_agent, args: {agent_name: expert}}]}]`,
	"expert": `answers: [{when: {after_tool: look}, text: "Seen."}, {when: {}, calls: [{name: look}]}]`,
	// The provider's ids are not unique, and the arguments are in an order of the model's own.
	"tools": `
answers:
  - {when: {step: 1}, text: "Both.", calls: [{name: one, id: x, args_text: '{"z":1, "a":2}'}, {name: two, id: x}]}
  - {when: {}, text: 'one: {{tool_result "one"}}, two: {{tool_result "two"}}'}`,
	"hang": `answers: [{when: {}, text: [a, b], error: {kind: hang, after: 1}}]`,
	"usage": `
answers:
  - {when: {step: 1}, calls: [{name: one}], usage: {prompt: 10, completion: 5, cached: 4, thoughts: 2, total: 17}}
  - {when: {}, text: "ok", usage: {prompt: 20, completion: 1, total: 21}}`,
	"limited": `answers: [{when: {}, error: {kind: rate_limited, message: "slow down", status: 429}}]`,
	"exits":   `answers: [{when: {call: 2}, text: "out ", calls: [{name: exit_loop}]}, {when: {}, text: "in "}]`,
}

// inTurn reacts to the last of the two calls that the script "tools" makes
// together with what it gets of both.
func inTurn(react func(one, two string) []*agentdv1.RunRequest) func(*agentdv1.RunResponse) []*agentdv1.RunRequest {
	one := ""
	return harness.OnCall(func(c *agentdv1.RunResponse_ToolCallRequest) []*agentdv1.RunRequest {
		if c.GetToolName() == "one" {
			one = c.GetToolCallId()
			return nil
		}
		return react(one, c.GetToolCallId())
	})
}

// parts are what these tests do over Run alone.
var parts = harness.Alone{
	"TestRules/1 execute is first":                 "SessionService has no first message",
	"TestRules/8 a half-closed client gets it all": "a request of SessionService is always closed: clients come and go",
	"TestStress/executes":                          "CreateTurn while a turn runs is another turn, not a mistake on its stream",
	"TestStress/half-closes":                       "a request of SessionService is always closed: clients come and go",
}

// TestRules holds the daemon as a whole to the protocol's rules on every wire;
// what is true of every stream the observer checks as well. The tests of the
// rooms go into the cases of each rule.
func TestRules(t *testing.T) {
	d := harness.StartDaemon(t, agentdtest.Config{
		Scripts: ruleScripts, Logger: slog.New(harness.Alarm{T: t}), LeakCheck: true,
	})
	for wire, opts := range map[string][]connect.ClientOption{
		"connect":       nil,
		"connect-json":  {connect.WithProtoJSON()},
		"grpc":          {connect.WithGRPC()},
		"grpc-json":     {connect.WithGRPC(), connect.WithProtoJSON()},
		"grpc-web":      {connect.WithGRPCWeb()},
		"grpc-web-json": {connect.WithGRPCWeb(), connect.WithProtoJSON()},
	} {
		t.Run(wire, func(t *testing.T) {
			if !harness.InScenario() { // whose streams are compared in their order
				t.Parallel()
			}
			for name, check := range rules() {
				if part := "TestRules/" + name; parts[part] != "" && !parts.OverBoth(t, part) {
					continue
				}
				t.Run(name, func(t *testing.T) {
					check(harness.RawClient{T: t, Run: agentdv1connect.NewAgentdClient(d.HTTPClient(), d.URL, opts...)})
				})
			}
		})
	}
}

func rules() map[string]func(harness.RawClient) {
	const both = "one: first, two: second"
	tools := harness.ScriptedAgent("root", "tools", "one", "two")
	return map[string]func(harness.RawClient){
		"1 execute is first": func(r harness.RawClient) {
			beat := &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Heartbeat{Heartbeat: &agentdv1.RunRequest_HeartbeatRequest{}}}
			r.Refused(r.Talk(beat, nil), agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, "ExecuteRequest")
		},
		"2 state is second": func(r harness.RawClient) {
			m := harness.StartTurn(harness.ScriptedAgent("root", "words"))
			m.GetExecute().InitialState = &structpb.Struct{Fields: map[string]*structpb.Value{"k": structpb.NewStringValue("v")}}
			got := r.Talk(m, nil)
			if state := got.Msgs[1].GetStateUpdate().GetStateDelta().AsMap(); len(state) != 1 || state["k"] != "v" {
				r.T.Errorf("the second message is %v", got.Msgs[1])
			}
		},
		"3 text comes once": func(r harness.RawClient) {
			got := r.Talk(harness.StartTurn(harness.ScriptedAgent("root", "words")), nil)
			r.Completed(got, map[string]string{"root": "To be, or not to be."})
			thoughts := ""
			for _, m := range got.Msgs {
				if m.GetOutputChunk().GetIsThought() {
					thoughts += m.GetOutputChunk().GetContent()
				}
			}
			if thoughts != "Let me think." {
				r.T.Errorf("thoughts %q", thoughts)
			}
		},
		"4 paths begin at the root": func(r harness.RawClient) {
			router := harness.ScriptedAgent("router", "router")
			router.GetLlm().SubAgents = []*agentdv1.Agent{harness.ScriptedAgent("expert", "expert", "look")}
			got := r.Talk(harness.StartTurn(harness.SequentialAgent("root", harness.ParallelAgent("all", router)), "look"), harness.AnswerAll("ok"))
			r.Completed(got, map[string]string{"root/all/router": "Over to you.", "root/all/router/expert": "Seen."})
			var transfers []string
			for _, m := range got.Msgs {
				if tr := m.GetTransferred(); tr != nil {
					transfers = append(transfers, strings.Join(tr.GetAgentPath(), "/")+" to "+strings.Join(tr.GetToAgentPath(), "/"))
				}
			}
			if want := []string{"root/all/router to root/all/router/expert"}; !slices.Equal(transfers, want) {
				r.T.Errorf("transfers %q, want %q", transfers, want)
			}
			if path := strings.Join(got.Calls[0].GetAgentPath(), "/"); path != "root/all/router/expert" {
				r.T.Errorf("%q calls", path)
			}
		},
		"5 calls run together": func(r harness.RawClient) {
			got := r.Talk(harness.StartTurn(tools, "one", "two"), inTurn(func(one, two string) []*agentdv1.RunRequest {
				return []*agentdv1.RunRequest{harness.ToolResult(two, "second"), harness.ToolResult(one, "first")}
			}))
			r.Completed(got, map[string]string{"root": "Both." + both})
			if in := got.Calls[0].GetToolInput(); in != `{"z":1, "a":2}` {
				r.T.Errorf("input %s", in)
			}
		},
		"6 answers that do not count": func(r harness.RawClient) {
			got := r.Talk(harness.StartTurn(tools, "one", "two"), inTurn(func(one, two string) []*agentdv1.RunRequest {
				foreign := harness.ToolResult(two, "foreign")
				foreign.GetToolCallResponse().SessionId = "another"
				return []*agentdv1.RunRequest{
					harness.ToolResult(one, "first"), harness.ToolResult(one, "first"), harness.ToolResult(one, "again"),
					harness.ToolResult("nobody", "x"), foreign, harness.ToolResult(two, "second"),
				}
			}))
			r.Completed(got, map[string]string{"root": "Both." + both})
			if len(got.Errors) != 3 {
				r.T.Errorf("%d refusals, want those of the other answer, the unknown call and the foreign session: %v", len(got.Errors), got.Errors)
			}
		},
		"6 no result": func(r harness.RawClient) {
			got := r.Talk(harness.StartTurn(tools, "one", "two"), harness.AnswerAll(""))
			if text := got.Text["root"]; !got.End.GetCompleted() || !strings.Contains(text, "one: the client returned neither output nor error") {
				r.T.Errorf("%q, %v", text, got.End)
			}
		},
		"7 cancel a call": func(r harness.RawClient) {
			got := r.Talk(harness.StartTurn(tools, "one", "two"), inTurn(func(one, two string) []*agentdv1.RunRequest {
				return []*agentdv1.RunRequest{harness.Cancel(&one), harness.ToolResult(two, "second")}
			}))
			text := got.Text["root"]
			if !got.End.GetCompleted() || !strings.Contains(text, "one: cancelled") || !strings.HasSuffix(text, "two: second") ||
				len(got.Cancelled) != 1 || !got.Cancelled[got.Calls[0].GetToolCallId()] {
				r.T.Errorf("%q, %v, cancelled %v", text, got.End, got.Cancelled)
			}
		},
		"7 cancel the turn": func(r harness.RawClient) {
			got := r.Talk(harness.StartTurn(harness.ScriptedAgent("root", "hang")), func(m *agentdv1.RunResponse) []*agentdv1.RunRequest {
				if m.GetOutputChunk() == nil || m.GetOutputChunk().GetLast() {
					return nil
				}
				return []*agentdv1.RunRequest{harness.Cancel(nil)}
			})
			if got.End.GetCompleted() || got.End.GetReason() == "" || got.Text["root"] != "a" || len(got.Errors) != 0 {
				r.T.Errorf("%q, %v, %v", got.Text, got.End, got.Errors)
			}
		},
		"7 end": func(r harness.RawClient) {
			reason := "that is enough, ☺"
			got := r.Talk(harness.StartTurn(tools, "one", "two"), inTurn(func(string, string) []*agentdv1.RunRequest {
				return []*agentdv1.RunRequest{{Request: &agentdv1.RunRequest_End{End: &agentdv1.RunRequest_EndRequest{Reason: &reason}}}}
			}))
			if got.End.GetCompleted() || got.End.GetReason() != reason || got.End.GetUsageSummary().GetLlmCalls() != 1 || len(got.Cancelled) != 2 {
				r.T.Errorf("%v, cancelled %v", got.End, got.Cancelled)
			}
		},
		"8 a half-closed client gets it all": func(r harness.RawClient) {
			got := r.Talk(harness.StartTurn(tools, "one", "two"), nil)
			if text := got.Text["root"]; !got.End.GetCompleted() || !strings.Contains(text, "one: abandoned") || len(got.Cancelled) != 2 {
				r.T.Errorf("%q, %v, cancelled %v", text, got.End, got.Cancelled)
			}
		},
		"9 usage of the turn": func(r harness.RawClient) {
			m := harness.StartTurn(harness.ScriptedAgent("root", "usage", "one"), "one")
			for range 2 { // each turn counts its own
				got := r.Talk(m, harness.AnswerAll("x"))
				u := got.End.GetUsageSummary()
				if n := u.GetTotalUsage(); u.GetLlmCalls() != 2 || n.GetPromptTokens() != 30 || n.GetCompletionTokens() != 6 ||
					n.GetCachedTokens() != 4 || n.GetThoughtsTokens() != 2 || n.GetTotalTokens() != 36 {
					r.T.Errorf("usage %v", u)
				}
				m = harness.StartTurn(nil)
				m.GetExecute().SessionId = &got.Session
			}
		},
		"10 errors": func(r harness.RawClient) {
			got := r.Talk(harness.StartTurn(harness.ScriptedAgent("root", "limited")), nil)
			last := got.Msgs[max(0, len(got.Msgs)-2)].GetError()
			if last.GetCode() != agentdv1.ErrorCode_ERROR_CODE_RATE_LIMITED || !last.GetRetryable() || len(got.Errors) != 1 || got.End.GetCompleted() {
				r.T.Errorf("%v", got.Msgs)
			}
			bad := harness.StartTurn(harness.SequentialAgent("root", harness.ScriptedAgent("a", "words"), harness.LoopAgent("empty", 1)))
			r.Refused(r.Talk(bad, nil), agentdv1.ErrorCode_ERROR_CODE_INVALID_AGENT_TREE, "root/empty")
			r.Refused(r.Talk(harness.StartTurn(harness.ScriptedAgent("root", "nothing")), nil), agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE, "nothing")
			r.Refused(r.Talk(harness.StartTurn(harness.LLMAgent("root", "claude-sonnet-4-5", "")), nil), agentdv1.ErrorCode_ERROR_CODE_AUTH_FAILED, "ANTHROPIC_API_KEY")
		},
		"11 loops end": func(r harness.RawClient) {
			const words = "To be, or not to be."
			capped := harness.LoopAgent("root", 3, harness.ScriptedAgent("a", "words"))
			r.Completed(r.Talk(harness.StartTurn(capped), nil), map[string]string{"root/a": strings.Repeat(words, 3)})
			exits := harness.ScriptedAgent("a", "exits")
			exits.GetLlm().BuiltinTools = []string{"exit_loop"}
			r.Completed(r.Talk(harness.StartTurn(harness.LoopAgent("root", 5, exits)), nil), map[string]string{"root/a": "in out "})
			asked := 0
			got := r.Talk(harness.StartTurn(harness.LoopAgent("root", 9, harness.ScriptedAgent("a", "words")), "loop_continue"), harness.OnCall(func(c *agentdv1.RunResponse_ToolCallRequest) []*agentdv1.RunRequest {
				asked++
				if want := fmt.Sprintf(`{"agent":"root","iteration":%d,"max_iterations":9}`, asked); c.GetToolName() != "loop_continue" || c.GetToolInput() != want {
					r.T.Errorf("asked %s %s, want %s", c.GetToolName(), c.GetToolInput(), want)
				}
				return []*agentdv1.RunRequest{harness.ToolResult(c.GetToolCallId(), fmt.Sprintf(`{"continue": %t}`, asked < 3))}
			}))
			r.Completed(got, map[string]string{"root/a": strings.Repeat(words, 3)})
		},
		"12 the server runs no tools": func(r harness.RawClient) {
			a := harness.ScriptedAgent("root", "words")
			a.GetLlm().BuiltinTools = []string{"shell"}
			r.Refused(r.Talk(harness.StartTurn(a), nil), agentdv1.ErrorCode_ERROR_CODE_INVALID_AGENT_TREE, "shell", "exit_loop")
		},
		"13 sessions go on": func(r harness.RawClient) {
			got := r.Talk(harness.StartTurn(tools, "one", "two"), inTurn(func(one, two string) []*agentdv1.RunRequest {
				return []*agentdv1.RunRequest{harness.ToolResult(one, "first"), harness.ToolResult(two, "second")}
			}))
			m := harness.StartTurn(nil) // the same tree with the same tools
			m.GetExecute().SessionId = &got.Session
			again := r.Talk(m, harness.AnswerAll("third"))
			r.Completed(again, map[string]string{"root": "Both.one: third, two: third"})
			if again.Session != got.Session || slices.ContainsFunc(again.Calls, func(c *agentdv1.RunResponse_ToolCallRequest) bool { return got.Asked[c.GetToolCallId()] }) {
				r.T.Errorf("session %s after %s, calls %v after %v", again.Session, got.Session, again.Calls, got.Calls)
			}
			unknown := "nobody"
			m.GetExecute().SessionId = &unknown
			r.Refused(r.Talk(m, nil), agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND, unknown)
		},
	}
}
