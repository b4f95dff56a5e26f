package adkbridge

import (
	"strings"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/record"
)

// approvedTool is a tool that needs approval.
func approvedTool(name string) *agentdv1.Tool {
	tool := offer(name)
	tool.NeedsApproval = true
	return tool
}

// last returns what an agent's model received in its first call.
func last(t *testing.T, w *world, agent string) string {
	t.Helper()
	seen := w.script.seen(agent)
	contents := seen[len(seen)-1].contents
	w.checkAll()
	return compact(contents[len(contents)-1].Parts[0].FunctionResponse.Response)
}

// TestAskUser shows what comes of questions.
func TestAskUser(t *testing.T) {
	approved := func(input string) record.Resolution {
		r := record.Resolution{Decision: record.Approve}
		if input != "" {
			r.Input = []byte(input)
		}
		return r
	}
	for name, tc := range map[string]struct {
		step      step
		says      record.Resolution
		kind      agentdv1.InteractionKind // 0: no person is asked
		asks      string                   // question, choices, tool and arguments
		modelSees string                   // the model
		input     string                   // that the client is asked with
	}{
		"question": {
			inquire("why?"), record.Resolution{Decision: record.Reply, Answer: `{"because":1}`},
			agentdv1.InteractionKind_INTERACTION_KIND_INPUT, "why?[]", `{"output":"{\"because\":1}"}`, "",
		},
		"choices": {
			inquire("which?", "a", "b"), record.Resolution{Decision: record.Reply, Answer: "c"},
			agentdv1.InteractionKind_INTERACTION_KIND_CLARIFICATION, "which?[a b]", `{"output":"c"}`, "",
		},
		"no answer": {
			inquire("why?"), record.Resolution{Decision: record.Deny, Reason: "none of your business"},
			agentdv1.InteractionKind_INTERACTION_KIND_INPUT, "why?[]", `{"error":"denied: none of your business"}`, "",
		},
		"no question":    {inquire(" "), record.Resolution{}, 0, "", `{"error":"not asked: \"question\" must be a text that is not empty"}`, ""},
		"strange choice": {step{calls: []call{{name: "ask_user", args: `{"question":"?","choices":[1]}`}}}, record.Resolution{}, 0, "", `{"error":"not asked: \"choices\" must be a list of texts"}`, ""},
		"no object":      {step{calls: []call{{name: "ask_user", args: `[]`}}}, record.Resolution{}, 0, "", `{"error":"the arguments are no JSON object: `, ""},
		"approved": {
			use("pay"), approved(""),
			agentdv1.InteractionKind_INTERACTION_KIND_APPROVAL, `[]pay{"q":1}`, `{"ok":"pay"}`, `{"q":1}`,
		},
		"approved with other arguments": {
			use("pay"), approved(`{"q": 2}`),
			agentdv1.InteractionKind_INTERACTION_KIND_APPROVAL, `[]pay{"q":1}`,
			`{"note":"A person has changed the arguments of this call. The tool was called with {\"q\":2}","output":{"ok":"pay"}}`, `{"q":2}`,
		},
		"denied": {
			use("pay"), record.Resolution{Decision: record.Deny, Reason: "too dear"},
			agentdv1.InteractionKind_INTERACTION_KIND_APPROVAL, `[]pay{"q":1}`, `{"error":"denied: too dear"}`, "",
		},
		"denied without a reason": {
			use("pay"), record.Resolution{Decision: record.Deny},
			agentdv1.InteractionKind_INTERACTION_KIND_APPROVAL, `[]pay{"q":1}`, `{"error":"denied: no reason was given"}`, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, map[string][]step{"root": {tc.step, say("done")}})
			w.tools = append(w.tools, approvedTool("pay"))
			var in *agentdv1.Interaction
			w.watch = func(turn *session.Turn, m *agentdv1.RunResponse) {
				if got := m.GetInteractionRequested().GetInteraction(); got != nil {
					in = got
					if err := turn.Resolve(t.Context(), got.GetId(), tc.says); err != nil {
						t.Error(err)
					}
				}
			}
			res := w.run(llm("root", builtin("ask_user"), tools("pay")), "go").ok(t)
			if in.GetKind() != tc.kind {
				t.Fatalf("asked %v", in)
			}
			if got := in.GetQuestion() + "[" + strings.Join(in.GetChoices(), " ") + "]" + in.GetToolName() + in.GetToolInput(); in != nil && got != tc.asks {
				t.Errorf("asked %s, want %s", got, tc.asks)
			}
			if got := last(t, w, "root"); !strings.HasPrefix(got, tc.modelSees) {
				t.Errorf("the model was told %s, want %s", got, tc.modelSees)
			}
			switch {
			case tc.input == "" && len(res.tools) > 0:
				t.Errorf("the client was asked for %v", res.tools)
			case tc.input != "" && (len(res.tools) != 1 || res.tools[0].GetToolInput() != tc.input):
				t.Errorf("the client was asked for %v, want one call with %s", res.tools, tc.input)
			}
		})
	}
}

// TestEditedArguments have to fit the tool.
func TestEditedArguments(t *testing.T) {
	w := newWorld(t, map[string][]step{"root": {use("pay"), say("done")}})
	w.tools = append(w.tools, approvedTool("pay"))
	w.watch = func(turn *session.Turn, m *agentdv1.RunResponse) {
		in := m.GetInteractionRequested().GetInteraction()
		if in == nil {
			return
		}
		err := turn.Resolve(t.Context(), in.GetId(), record.Resolution{Decision: record.Approve, Input: []byte(`{"q":"much"}`)})
		if e := fault.As(err); e.Code != agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST || !strings.Contains(e.Message, "/properties/q") {
			t.Errorf("got %v", err)
		}
		if err := turn.Resolve(t.Context(), in.GetId(), record.Resolution{Decision: record.Approve, Input: []byte(`{"q":3}`)}); err != nil {
			t.Error(err)
		}
	}
	res := w.run(llm("root", tools("pay")), "go").ok(t)
	if len(res.tools) != 1 || res.tools[0].GetToolInput() != `{"q":3}` {
		t.Errorf("the client was asked for %v", res.tools)
	}
}

// TestStopWhileAsking leaves a history that every provider takes.
func TestStopWhileAsking(t *testing.T) {
	w := newWorld(t, map[string][]step{"root": {{calls: append(inquire("?").calls, use("pay", "search").calls...)}, say("again")}})
	w.tools = append(w.tools, approvedTool("pay"))
	w.result = func(*agentdv1.RunResponse_ToolCallRequest) session.ClientResult {
		return session.ClientResult{CallID: "-"}
	}
	w.watch = func(turn *session.Turn, m *agentdv1.RunResponse) {
		if in := m.GetInteractionRequested().GetInteraction(); in.GetToolName() == "pay" {
			if err := turn.Resolve(t.Context(), in.GetId(), record.Resolution{Decision: record.Deny, Reason: "no"}); err != nil {
				t.Error(err)
			}
			turn.Cancel("")
		}
	}
	tree := llm("root", builtin("ask_user"), tools("pay", "search"))
	if res := w.run(tree, "go"); res.end.GetCompleted() {
		t.Error("the turn was completed")
	}
	w.run(tree, "again").ok(t)
	w.checkAll()
	contents := w.script.seen("root")[1].contents
	if got := transcript(contents[2:3]); got != `user: result ask_user{"error":"cancelled: the turn was stopped before this call was over"} result pay{"error":"denied: no"} result search{"error":"cancelled: the turn was stopped before this call was over"}`+"\n" {
		t.Errorf("the model reads %s", got)
	}
}

// TestAskUserIsReserved keeps clients from taking its place.
func TestAskUserIsReserved(t *testing.T) {
	for name, spec := range map[string]*record.Spec{
		"a tool":    {Prompt: "p", Agent: llm("root"), Tools: []*agentdv1.Tool{offer("search"), offer("fetch"), offer("calc"), offer("ask_user")}},
		"as a tool": {Prompt: "p", Agent: llm("root", tools("ask_user"))},
		"twice":     {Prompt: "p", Agent: llm("root", tools(), builtin("ask_user", "ask_user"))},
	} {
		w := newWorld(t, nil)
		if err := w.runner.Check(t.Context(), spec, nil); fault.As(err).Code != agentdv1.ErrorCode_ERROR_CODE_INVALID_AGENT_TREE {
			t.Errorf("%s: %v", name, err)
		}
	}
}
