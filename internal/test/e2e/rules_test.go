package e2e

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/apzuk3/agentd/agentdtest"
	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
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

// rule is a test of one of the protocol's rules on one wire.
type rule struct {
	t   *testing.T
	run agentdv1connect.AgentdClient
}

// dialogue is what came of a stream.
type dialogue struct {
	*observer
	msgs []*agentdv1.RunResponse
}

// talk carries a stream: first is sent first, react answers each message, nil
// closes the client's side at once.
func (r rule) talk(first *agentdv1.RunRequest, react func(*agentdv1.RunResponse) []*agentdv1.RunRequest) *dialogue {
	r.t.Helper()
	s := r.run.Run(r.t.Context())
	defer func() { _ = s.CloseResponse() }()
	if err := s.Send(first); err != nil {
		r.t.Fatal(err)
	}
	if react == nil {
		_ = s.CloseRequest()
		react = func(*agentdv1.RunResponse) []*agentdv1.RunRequest { return nil }
	}
	d := &dialogue{observer: newObserver(1)}
	for {
		m, err := s.Receive()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			r.t.Fatalf("the stream must end cleanly: %v, after %v", err, d.msgs)
		}
		d.see(m)
		d.msgs = append(d.msgs, m)
		for _, answer := range react(m) {
			if err := s.Send(answer); err != nil {
				r.t.Fatal(err)
			}
		}
		if m.GetEnd() != nil || d.session == "" {
			_ = s.CloseRequest()
		}
	}
	for _, f := range d.faults {
		r.t.Error(f)
	}
	if d.session != "" && d.end == nil {
		r.t.Fatalf("no EndResponse: %v", d.msgs)
	}
	keepStream(r.t, d.msgs)
	return d
}

func (r rule) completed(d *dialogue, text map[string]string) {
	r.t.Helper()
	if !d.end.GetCompleted() || fmt.Sprint(d.text) != fmt.Sprint(text) {
		r.t.Errorf("text %q, want %q; end %v, errors %v", d.text, text, d.end, d.errors)
	}
}

func (r rule) refused(d *dialogue, code agentdv1.ErrorCode, text ...string) {
	r.t.Helper()
	if len(d.msgs) != 1 || len(d.errors) != 1 || d.errors[0].GetCode() != code {
		r.t.Fatalf("got %v, want one error %v", d.msgs, code)
	}
	for _, want := range text {
		if !strings.Contains(d.errors[0].GetMessage(), want) {
			r.t.Errorf("message %q does not name %q", d.errors[0].GetMessage(), want)
		}
	}
}

// attachAt is the message that attaches to a turn, "" for the session's last one,
// after a position, nil for its beginning.
func attachAt(session, turn string, after *int64, tools ...*agentdv1.Tool) *agentdv1.RunRequest {
	at := &agentdv1.AttachRequest{SessionId: session, TurnId: turn, AfterSeq: after}
	for _, tool := range tools {
		at.ToolNames = append(at.ToolNames, tool.GetName())
	}
	return &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Attach{Attach: at}}
}

func start(agent *agentdv1.Agent, tools ...string) *agentdv1.RunRequest {
	ex := &agentdv1.RunRequest_ExecuteRequest{Agent: agent, UserPrompt: "go"}
	for _, name := range tools {
		ex.Tools = append(ex.Tools, toolOf(name))
	}
	return &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Execute{Execute: ex}}
}

func scriptedAgent(name, script string, tools ...string) *agentdv1.Agent {
	return llmAgent(name, "scripted/"+script, "", tools...)
}

func reply(id, output string) *agentdv1.RunRequest {
	a := &agentdv1.RunRequest_ToolCallResponse{ToolCallId: id}
	if output != "" {
		a.Result = &agentdv1.RunRequest_ToolCallResponse_Output{Output: output}
	}
	return &agentdv1.RunRequest{Request: &agentdv1.RunRequest_ToolCallResponse_{ToolCallResponse: a}}
}

func cancel(id *string) *agentdv1.RunRequest {
	return &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Cancel{Cancel: &agentdv1.RunRequest_CancelRequest{ToolCallId: id}}}
}

// onCall reacts to tool calls alone.
func onCall(react func(*agentdv1.RunResponse_ToolCallRequest) []*agentdv1.RunRequest) func(*agentdv1.RunResponse) []*agentdv1.RunRequest {
	return func(m *agentdv1.RunResponse) []*agentdv1.RunRequest {
		if m.GetToolCall() == nil {
			return nil
		}
		return react(m.GetToolCall())
	}
}

// answerAll answers each call with the same.
func answerAll(output string) func(*agentdv1.RunResponse) []*agentdv1.RunRequest {
	return onCall(func(c *agentdv1.RunResponse_ToolCallRequest) []*agentdv1.RunRequest {
		return []*agentdv1.RunRequest{reply(c.GetToolCallId(), output)}
	})
}

// inTurn reacts to the last of the two calls that the script "tools" makes
// together with what it gets of both.
func inTurn(react func(one, two string) []*agentdv1.RunRequest) func(*agentdv1.RunResponse) []*agentdv1.RunRequest {
	one := ""
	return onCall(func(c *agentdv1.RunResponse_ToolCallRequest) []*agentdv1.RunRequest {
		if c.GetToolName() == "one" {
			one = c.GetToolCallId()
			return nil
		}
		return react(one, c.GetToolCallId())
	})
}

// TestRules holds the daemon as a whole to the protocol's rules on every wire;
// what is true of every stream the observer checks as well. The tests of the
// rooms go into the cases of each rule.
func TestRules(t *testing.T) {
	opts := []agentdtest.Option{agentdtest.WithLeakCheck(), agentdtest.WithLogger(slog.New(alarm{t}))}
	for name, text := range ruleScripts {
		opts = append(opts, agentdtest.WithScript(name, text))
	}
	d := startDaemon(t, opts...)
	for wire, opts := range map[string][]connect.ClientOption{
		"connect":       nil,
		"connect-json":  {connect.WithProtoJSON()},
		"grpc":          {connect.WithGRPC()},
		"grpc-json":     {connect.WithGRPC(), connect.WithProtoJSON()},
		"grpc-web":      {connect.WithGRPCWeb()},
		"grpc-web-json": {connect.WithGRPCWeb(), connect.WithProtoJSON()},
	} {
		t.Run(wire, func(t *testing.T) {
			for name, check := range rules() {
				if part := "TestRules/" + name; parts[part] != "" && !overBoth(t, part) {
					continue
				}
				t.Run(name, func(t *testing.T) {
					check(rule{t, agentdv1connect.NewAgentdClient(d.HTTPClient(), d.URL, opts...)})
				})
			}
		})
	}
}

func rules() map[string]func(rule) {
	const both = "one: first, two: second"
	tools := scriptedAgent("root", "tools", "one", "two")
	return map[string]func(rule){
		"1 execute is first": func(r rule) {
			beat := &agentdv1.RunRequest{Request: &agentdv1.RunRequest_Heartbeat{Heartbeat: &agentdv1.RunRequest_HeartbeatRequest{}}}
			r.refused(r.talk(beat, nil), agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST, "ExecuteRequest")
		},
		"2 state is second": func(r rule) {
			m := start(scriptedAgent("root", "words"))
			m.GetExecute().InitialState = &structpb.Struct{Fields: map[string]*structpb.Value{"k": structpb.NewStringValue("v")}}
			got := r.talk(m, nil)
			if state := got.msgs[1].GetStateUpdate().GetStateDelta().AsMap(); len(state) != 1 || state["k"] != "v" {
				r.t.Errorf("the second message is %v", got.msgs[1])
			}
		},
		"3 text comes once": func(r rule) {
			got := r.talk(start(scriptedAgent("root", "words")), nil)
			r.completed(got, map[string]string{"root": "To be, or not to be."})
			thoughts := ""
			for _, m := range got.msgs {
				if m.GetOutputChunk().GetIsThought() {
					thoughts += m.GetOutputChunk().GetContent()
				}
			}
			if thoughts != "Let me think." {
				r.t.Errorf("thoughts %q", thoughts)
			}
		},
		"4 paths begin at the root": func(r rule) {
			router := scriptedAgent("router", "router")
			router.GetLlm().SubAgents = []*agentdv1.Agent{scriptedAgent("expert", "expert", "look")}
			got := r.talk(start(sequentialAgent("root", parallelAgent("all", router)), "look"), answerAll("ok"))
			r.completed(got, map[string]string{"root/all/router": "Over to you.", "root/all/router/expert": "Seen."})
			var transfers []string
			for _, m := range got.msgs {
				if tr := m.GetTransferred(); tr != nil {
					transfers = append(transfers, strings.Join(tr.GetAgentPath(), "/")+" to "+strings.Join(tr.GetToAgentPath(), "/"))
				}
			}
			if want := []string{"root/all/router to root/all/router/expert"}; !slices.Equal(transfers, want) {
				r.t.Errorf("transfers %q, want %q", transfers, want)
			}
			if path := strings.Join(got.calls[0].GetAgentPath(), "/"); path != "root/all/router/expert" {
				r.t.Errorf("%q calls", path)
			}
		},
		"5 calls run together": func(r rule) {
			got := r.talk(start(tools, "one", "two"), inTurn(func(one, two string) []*agentdv1.RunRequest {
				return []*agentdv1.RunRequest{reply(two, "second"), reply(one, "first")}
			}))
			r.completed(got, map[string]string{"root": "Both." + both})
			if in := got.calls[0].GetToolInput(); in != `{"z":1, "a":2}` {
				r.t.Errorf("input %s", in)
			}
		},
		"6 answers that do not count": func(r rule) {
			got := r.talk(start(tools, "one", "two"), inTurn(func(one, two string) []*agentdv1.RunRequest {
				foreign := reply(two, "foreign")
				foreign.GetToolCallResponse().SessionId = "another"
				return []*agentdv1.RunRequest{
					reply(one, "first"), reply(one, "first"), reply(one, "again"),
					reply("nobody", "x"), foreign, reply(two, "second"),
				}
			}))
			r.completed(got, map[string]string{"root": "Both." + both})
			if len(got.errors) != 3 {
				r.t.Errorf("%d refusals, want those of the other answer, the unknown call and the foreign session: %v", len(got.errors), got.errors)
			}
		},
		"6 no result": func(r rule) {
			got := r.talk(start(tools, "one", "two"), answerAll(""))
			if text := got.text["root"]; !got.end.GetCompleted() || !strings.Contains(text, "one: the client answered without output") {
				r.t.Errorf("%q, %v", text, got.end)
			}
		},
		"7 cancel a call": func(r rule) {
			got := r.talk(start(tools, "one", "two"), inTurn(func(one, two string) []*agentdv1.RunRequest {
				return []*agentdv1.RunRequest{cancel(&one), reply(two, "second")}
			}))
			text := got.text["root"]
			if !got.end.GetCompleted() || !strings.Contains(text, "one: cancelled") || !strings.HasSuffix(text, "two: second") ||
				len(got.cancelled) != 1 || !got.cancelled[got.calls[0].GetToolCallId()] {
				r.t.Errorf("%q, %v, cancelled %v", text, got.end, got.cancelled)
			}
		},
		"7 cancel the turn": func(r rule) {
			got := r.talk(start(scriptedAgent("root", "hang")), func(m *agentdv1.RunResponse) []*agentdv1.RunRequest {
				if m.GetOutputChunk() == nil || m.GetOutputChunk().GetLast() {
					return nil
				}
				return []*agentdv1.RunRequest{cancel(nil)}
			})
			if got.end.GetCompleted() || got.end.GetReason() == "" || got.text["root"] != "a" || len(got.errors) != 0 {
				r.t.Errorf("%q, %v, %v", got.text, got.end, got.errors)
			}
		},
		"7 end": func(r rule) {
			reason := "that is enough, ☺"
			got := r.talk(start(tools, "one", "two"), inTurn(func(string, string) []*agentdv1.RunRequest {
				return []*agentdv1.RunRequest{{Request: &agentdv1.RunRequest_End{End: &agentdv1.RunRequest_EndRequest{Reason: &reason}}}}
			}))
			if got.end.GetCompleted() || got.end.GetReason() != reason || got.end.GetUsageSummary().GetLlmCalls() != 1 || len(got.cancelled) != 2 {
				r.t.Errorf("%v, cancelled %v", got.end, got.cancelled)
			}
		},
		"8 a half-closed client gets it all": func(r rule) {
			got := r.talk(start(tools, "one", "two"), nil)
			if text := got.text["root"]; !got.end.GetCompleted() || !strings.Contains(text, "one: abandoned") || len(got.cancelled) != 2 {
				r.t.Errorf("%q, %v, cancelled %v", text, got.end, got.cancelled)
			}
		},
		"9 usage of the turn": func(r rule) {
			m := start(scriptedAgent("root", "usage", "one"), "one")
			for range 2 { // each turn counts its own
				got := r.talk(m, answerAll("x"))
				u := got.end.GetUsageSummary()
				if n := u.GetTotalUsage(); u.GetLlmCalls() != 2 || n.GetPromptTokens() != 30 || n.GetCompletionTokens() != 6 ||
					n.GetCachedTokens() != 4 || n.GetThoughtsTokens() != 2 || n.GetTotalTokens() != 36 {
					r.t.Errorf("usage %v", u)
				}
				m = start(nil)
				m.GetExecute().SessionId = &got.session
			}
		},
		"10 errors": func(r rule) {
			got := r.talk(start(scriptedAgent("root", "limited")), nil)
			last := got.msgs[max(0, len(got.msgs)-2)].GetError()
			if last.GetCode() != agentdv1.ErrorCode_ERROR_CODE_RATE_LIMITED || !last.GetRetryable() || len(got.errors) != 1 || got.end.GetCompleted() {
				r.t.Errorf("%v", got.msgs)
			}
			bad := start(sequentialAgent("root", scriptedAgent("a", "words"), loopAgent("empty", 1)))
			r.refused(r.talk(bad, nil), agentdv1.ErrorCode_ERROR_CODE_INVALID_AGENT_TREE, "root/empty")
			r.refused(r.talk(start(scriptedAgent("root", "nothing")), nil), agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE, "nothing")
			r.refused(r.talk(start(llmAgent("root", "claude-sonnet-4-5", "")), nil), agentdv1.ErrorCode_ERROR_CODE_AUTH_FAILED, "ANTHROPIC_API_KEY")
		},
		"11 loops end": func(r rule) {
			const words = "To be, or not to be."
			capped := loopAgent("root", 3, scriptedAgent("a", "words"))
			r.completed(r.talk(start(capped), nil), map[string]string{"root/a": strings.Repeat(words, 3)})
			exits := scriptedAgent("a", "exits")
			exits.GetLlm().BuiltinTools = []string{"exit_loop"}
			r.completed(r.talk(start(loopAgent("root", 5, exits)), nil), map[string]string{"root/a": "in out "})
			asked := 0
			got := r.talk(start(loopAgent("root", 9, scriptedAgent("a", "words")), "loop_continue"), onCall(func(c *agentdv1.RunResponse_ToolCallRequest) []*agentdv1.RunRequest {
				asked++
				if want := fmt.Sprintf(`{"agent":"root","iteration":%d,"max_iterations":9}`, asked); c.GetToolName() != "loop_continue" || c.GetToolInput() != want {
					r.t.Errorf("asked %s %s, want %s", c.GetToolName(), c.GetToolInput(), want)
				}
				return []*agentdv1.RunRequest{reply(c.GetToolCallId(), fmt.Sprintf(`{"continue": %t}`, asked < 3))}
			}))
			r.completed(got, map[string]string{"root/a": strings.Repeat(words, 3)})
		},
		"12 the server runs no tools": func(r rule) {
			a := scriptedAgent("root", "words")
			a.GetLlm().BuiltinTools = []string{"shell"}
			r.refused(r.talk(start(a), nil), agentdv1.ErrorCode_ERROR_CODE_INVALID_AGENT_TREE, "shell", "exit_loop")
		},
		"13 sessions go on": func(r rule) {
			got := r.talk(start(tools, "one", "two"), inTurn(func(one, two string) []*agentdv1.RunRequest {
				return []*agentdv1.RunRequest{reply(one, "first"), reply(two, "second")}
			}))
			m := start(nil) // the same tree with the same tools
			m.GetExecute().SessionId = &got.session
			again := r.talk(m, answerAll("third"))
			r.completed(again, map[string]string{"root": "Both.one: third, two: third"})
			if again.session != got.session || slices.ContainsFunc(again.calls, func(c *agentdv1.RunResponse_ToolCallRequest) bool { return got.asked[c.GetToolCallId()] }) {
				r.t.Errorf("session %s after %s, calls %v after %v", again.session, got.session, again.calls, got.calls)
			}
			unknown := "nobody"
			m.GetExecute().SessionId = &unknown
			r.refused(r.talk(m, nil), agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND, unknown)
		},
	}
}
