package adkbridge

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genai"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/record"
)

// TestToolResults checks what a model sees of a result.
func TestToolResults(t *testing.T) {
	for _, tc := range []struct {
		result session.ClientResult
		want   string
	}{
		{session.ClientResult{Output: new(`{"a":1,"b":[true,null]}`)}, `{"a":1,"b":[true,null]}`},
		{session.ClientResult{Output: new(` {} `)}, `{}`},
		{session.ClientResult{Output: new(`[1,2]`)}, `{"output":[1,2]}`},
		{session.ClientResult{Output: new(`"text"`)}, `{"output":"text"}`},
		{session.ClientResult{Output: new(`plain text`)}, `{"output":"plain text"}`},
		{session.ClientResult{Output: new(``)}, `{"output":""}`},
		{session.ClientResult{Output: new(`null`)}, `{"output":null}`},
		{session.ClientResult{Output: new(`007`)}, `{"output":"007"}`},
		{session.ClientResult{Output: new(`{"a":1} {"b":2}`)}, `{"output":"{\"a\":1} {\"b\":2}"}`},
		{session.ClientResult{Output: new(`{"id":12345678901234567890,"f":1.10}`)}, `{"f":1.10,"id":12345678901234567890}`},
		{session.ClientResult{Output: new(`9007199254740993`)}, `{"output":9007199254740993}`},
		{session.ClientResult{Output: new(`{"big":1e999}`)}, `{"output":"{\"big\":1e999}"}`},
		{session.ClientResult{Output: new(nested(maxOutputDepth))}, `{"output":` + nested(maxOutputDepth) + `}`},
		{session.ClientResult{Output: new(nested(maxOutputDepth + 1))}, `{"output":"` + nested(maxOutputDepth+1) + `"}`},
		{session.ClientResult{Output: new(nested(9998))}, `{"output":"` + nested(9998) + `"}`},
		{session.ClientResult{Error: new("no such file")}, `{"error":"no such file"}`},
		{session.ClientResult{}, `{"error":"the client returned neither output nor error"}`},
	} {
		w := newWorld(t, map[string][]step{"root": {use("search"), say("done")}})
		w.result = func(*agentdv1.RunResponse_ToolCallRequest) session.ClientResult { return tc.result }
		w.run(llm("root"), "go").ok(t)
		contents := w.script.seen("root")[1].contents
		if got := compact(contents[len(contents)-1].Parts[0].FunctionResponse.Response); got != tc.want {
			t.Errorf("answer %+v became %s, want %s", tc.result, got, tc.want)
		}
	}
	for _, tc := range []struct {
		res  record.ToolResult
		want string
	}{
		{record.ToolResult{Outcome: record.Cancelled, Error: "by the client"}, "cancelled: by the client"},
		{record.ToolResult{Outcome: record.TimedOut, Error: "after 1s"}, "timed out: after 1s"},
		{record.ToolResult{Outcome: record.Abandoned}, "abandoned: the tool gave no result"},
		{record.ToolResult{Outcome: record.Returned}, "the tool gave no result"},
	} {
		if got := resultOf(tc.res)["error"]; got != tc.want {
			t.Errorf("%+v became %v, want %q", tc.res, got, tc.want)
		}
	}
}

// nested is an array in an array, n levels.
func nested(n int) string { return strings.Repeat("[", n) + "1" + strings.Repeat("]", n) }

// TestToolInput is the model's own text, and what the model is sent back is
// what it said.
func TestToolInput(t *testing.T) {
	const args = `{ "z": 12345678901234567890, "a": {"y":1.0,"x":"<&>"} }`
	w := newWorld(t, map[string][]step{"root": {{calls: []call{{name: "search", args: args}, {name: "calc", args: ""}}}, say("done"), say("again")}})
	res := w.run(llm("root"), "go").ok(t)
	if got := res.tools[0].GetToolInput(); got != args {
		t.Errorf("input %s, want %s", got, args)
	}
	if got := res.tools[1].GetToolInput(); got != "{}" {
		t.Errorf("input without arguments: %s", got)
	}
	w.runner.cache = newCache(0, 0)
	w.run(llm("root"), "more").ok(t)
	for _, r := range w.script.seen("root")[1:] {
		p := r.contents[1].Parts[0]
		if got := compact(p.FunctionCall.Args); got != `{"a":{"x":"\u003c\u0026\u003e","y":1.0},"z":12345678901234567890}` {
			t.Errorf("arguments became %s", got)
		}
		if adapter.ArgsText(p) != args {
			t.Errorf("text became %v", p.PartMetadata)
		}
	}
}

// TestCallIDs are ours, whatever the provider does.
func TestCallIDs(t *testing.T) {
	same := []call{{id: "call_0", name: "search", args: `{"q":1}`}, {id: "call_0", name: "fetch", args: `{"q":2}`}, {name: "calc", args: `{}`}}
	w := newWorld(t, map[string][]step{"root": {{calls: same}, {calls: same}, say("done")}})
	res := w.run(llm("root"), "go").ok(t)
	w.checkAll()
	ids := map[string]bool{}
	for _, tc := range res.tools {
		ids[tc.GetToolCallId()] = true
		if len(tc.GetToolCallId()) > 40 || strings.Trim(tc.GetToolCallId(), "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
			t.Errorf("id %q", tc.GetToolCallId())
		}
	}
	if len(ids) != 6 {
		t.Errorf("%d ids for 6 calls", len(ids))
	}
	var theirs []string
	for _, p := range w.script.seen("root")[2].contents[1].Parts {
		id, _ := p.PartMetadata[seam.MetaCallID].(string)
		theirs = append(theirs, id)
	}
	if !slices.Equal(theirs, []string{"call_0", "call_0", ""}) {
		t.Errorf("the provider's ids are %q", theirs)
	}
}

// TestCallsTogether opens all calls of a response before the first result.
func TestCallsTogether(t *testing.T) {
	w := newWorld(t, map[string][]step{"root": {use("search", "fetch", "calc", "search"), say("done")}})
	var open []*agentdv1.RunResponse_ToolCallRequest
	w.result = func(tc *agentdv1.RunResponse_ToolCallRequest) session.ClientResult {
		open = append(open, tc)
		return session.ClientResult{CallID: "-"}
	}
	w.watch = func(turn *session.Turn, m *agentdv1.RunResponse) {
		if len(open) < 3 || m.GetToolCall() == nil {
			return
		}
		// The last call is here: return the results backwards.
		for _, tc := range slices.Backward(append(slices.Clone(open), m.GetToolCall())) {
			if err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: tc.GetToolCallId(), Output: new(tc.GetToolName())}); err != nil {
				t.Error(err)
			}
		}
	}
	w.run(llm("root"), "go").ok(t)
	if got := transcript(w.script.seen("root")[1].contents[2:]); got != `user: result search{"output":"search"} result fetch{"output":"fetch"} result calc{"output":"calc"} result search{"output":"search"}`+"\n" {
		t.Errorf("results: %s", got)
	}
}

// TestMadeUpCalls turns what a model makes up into errors that it can read.
func TestMadeUpCalls(t *testing.T) {
	many := step{}
	for range 130 {
		many.calls = append(many.calls, call{name: "search", args: "{}"})
	}
	for _, tc := range []struct {
		name     string
		response step
		want     []string // results, in order; "" for one of the client
		asked    int
	}{
		{"unknown tool", use("serch", "search"), []string{`there is no tool "serch"; available: "calc", "fetch", "search", "transfer_to_agent"`, ""}, 1},
		{"tool of another agent", use("other"), []string{`there is no tool "other"`}, 0},
		{"exit_loop without a loop", exit(), []string{`there is no tool "exit_loop"`}, 0},
		{"loop_continue", use("loop_continue"), []string{`there is no tool "loop_continue"`}, 0},
		{"unknown agent", transfer("ghost"), []string{`there is no agent "ghost" to transfer to; available: "a"`}, 0},
		{"transfer to itself", transfer("root"), []string{`there is no agent "root"`}, 0},
		{"transfer without a name", use("transfer_to_agent"), []string{`there is no agent ""`}, 0},
		{"names that mean something to ADK", use("set_model_response", "stop_streaming", "adk_request_confirmation", "adk_request_credential"),
			[]string{"there is no tool", "there is no tool", "there is no tool", "there is no tool"}, 0},
		{"arguments that are no JSON", step{calls: []call{{name: "search", args: `{"q":`}, {name: "calc", args: `{}`}}}, []string{"the arguments are no JSON object", ""}, 1},
		{"arguments that are no object", step{calls: []call{{name: "search", args: `[1]`}}}, []string{"the arguments are no JSON object"}, 0},
		{"transfer with bad arguments", step{calls: []call{{name: "transfer_to_agent", args: `"a"`}}}, []string{"the arguments are no JSON object"}, 0},
		{"too many calls", many, append(slices.Repeat([]string{""}, 128), "not run: an answer may have at most 128 tool calls", "not run"), 128},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, map[string][]step{"root": {tc.response, say("sorry"), say("again")}})
			tree := llm("root", subs(llm("a")))
			w.tools = append(w.tools, offer("other"))
			res := w.run(tree, "go").ok(t)
			if len(res.tools) != tc.asked || res.text["root"] != "sorry" {
				t.Errorf("asked %d times, said %v", len(res.tools), res.text)
			}
			w.runner.cache = newCache(0, 0)
			w.run(tree, "go on").ok(t)
			w.checkAll()
			for _, r := range w.script.seen("root")[1:] {
				var got []string
				for _, p := range r.contents[2].Parts {
					text, _ := p.FunctionResponse.Response["error"].(string)
					got = append(got, text)
				}
				if !slices.EqualFunc(got, tc.want, func(g, w string) bool { return strings.HasPrefix(g, w) && (w != "" || g == "") }) {
					t.Errorf("results %q, want %q", got, tc.want)
				}
			}
		})
	}
}

// TestTransferTwice takes the first of two transfers.
func TestTransferTwice(t *testing.T) {
	both := step{calls: append(transfer("a").calls, transfer("b").calls...)}
	w := newWorld(t, map[string][]step{"root": {both}, "a": {say("A"), say("AA")}})
	tree := llm("root", subs(llm("a"), llm("b")))
	if res := w.run(tree, "go").ok(t); res.text["root/a"] != "A" {
		t.Errorf("said %v", res.text)
	}
	w.run(tree, "go").ok(t)
	w.checkAll()
}

// TestRequest checks what a model receives about its agent and its tools.
func TestRequest(t *testing.T) {
	root := llm("root", builtin("google_search"), subs(llm("a"), seq("s", llm("b"))))
	root.GetLlm().GetSubAgents()[0].Description = `R&D <x> "it's" &amp;`
	w := newWorld(t, map[string][]step{"root": {transfer("s")}, "b": {say("B")}})
	w.run(root, "go").ok(t)
	r := w.script.seen("root")[0]
	if !slices.Equal(r.tools, []string{"transfer_to_agent", "search", "fetch", "calc"}) {
		t.Errorf("tools %v", r.tools)
	}
	for _, want := range []string{"you are root", `Your internal name is "root"`, `Agent description: R&D <x> "it's" &amp;` + "\n"} {
		if !strings.Contains(r.system, want) {
			t.Errorf("the instruction lacks %q:\n%s", want, r.system)
		}
	}
	if strings.Contains(r.system, "parent agent") || strings.Contains(r.system, entryName) {
		t.Errorf("the instruction of the root names a parent:\n%s", r.system)
	}
	last := r.raw.Config.Tools[len(r.raw.Config.Tools)-1]
	if last.GoogleSearch == nil {
		t.Errorf("google_search is not asked for: %+v", last)
	}
	b := w.script.seen("b")[0]
	if slices.Contains(b.tools, "transfer_to_agent") || strings.Contains(b.system, "transfer") {
		t.Errorf("b is told about transfers: %v\n%s", b.tools, b.system)
	}
	if got := transcript(b.contents); !strings.Contains(got, "[root] called tool `transfer_to_agent` with parameters: {\"agent_name\":\"s\"} [root] `transfer_to_agent` tool returned result: {}") &&
		!strings.Contains(got, "`transfer_to_agent` tool returned result: {}") {
		t.Errorf("b is told:\n%s", got)
	}
}

// TestOutcomes settles calls in the other ways.
func TestOutcomes(t *testing.T) {
	w := newWorld(t, map[string][]step{"root": {use("search", "calc"), say("done")}})
	w.result = func(tc *agentdv1.RunResponse_ToolCallRequest) session.ClientResult {
		if tc.GetToolName() == "search" {
			return session.ClientResult{CallID: "-"}
		}
		return session.ClientResult{Output: new("ok")}
	}
	w.watch = func(turn *session.Turn, m *agentdv1.RunResponse) {
		if m.GetToolCall().GetToolName() == "search" {
			if err := turn.CancelCall(t.Context(), m.GetToolCall().GetToolCallId()); err != nil {
				t.Error(err)
			}
		}
	}
	w.run(llm("root"), "go").ok(t)
	w.checkAll()
	if got := transcript(w.script.seen("root")[1].contents[2:]); got != `user: result search{"error":"cancelled: cancelled by the client"} result calc{"output":"ok"}`+"\n" {
		t.Errorf("results: %s", got)
	}
}

// TestModelErrors gives each kind of failure its code, with the agent and the
// model named.
func TestModelErrors(t *testing.T) {
	for kind, code := range maps.All(codes) {
		w := newWorld(t, map[string][]step{"a": {{text: "half", err: fmt.Errorf("call: %w", &model.Error{Kind: kind, Provider: "fake", Status: 418, Message: "teapot"})}}})
		res := w.run(seq("root", llm("a")), "go")
		if res.err.GetCode() != code || !strings.HasPrefix(res.err.GetMessage(), `root/a: model "a": call: fake: teapot (status 418)`) {
			t.Errorf("%s: %v", kind, res.err)
		}
		if res.end.GetCompleted() {
			t.Errorf("%s: completed", kind)
		}
	}
	for _, err := range []error{errors.New("boom"), &model.Error{Kind: "new", Message: "boom"}} {
		w := newWorld(t, map[string][]step{"root": {{err: err}}})
		if res := w.run(llm("root"), "go"); res.err.GetCode() != agentdv1.ErrorCode_ERROR_CODE_INTERNAL || strings.Contains(res.err.GetMessage(), "boom") {
			t.Errorf("%v: %v", err, res.err)
		}
	}
}

// TestResponseIsNotChanged: an adapter's response stays as it is.
func TestResponseIsNotChanged(t *testing.T) {
	content := &genai.Content{Role: "model", Parts: []*genai.Part{
		{}, {Text: "x", ThoughtSignature: []byte{1}}, adapter.NewCall("id", "set_model_response", `{"a":1}`),
	}}
	before := compact(content)
	m := &agentModel{t: &turn{limits: Limits{}.WithDefaults()}, n: &node{name: "n"}}
	a := m.newResponse(&model.Response{Content: content}, "k", "")
	if compact(content) != before {
		t.Errorf("changed to %s", compact(content))
	}
	if len(a.content.Parts) != 2 || a.content.Parts[1].FunctionCall.Name != "unknown_set_model_response" {
		t.Errorf("answer %s", compact(a.content))
	}
}
