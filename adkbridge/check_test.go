package adkbridge

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/record"
)

// wide returns n agents.
func wide(n int) []*agentdv1.Agent {
	var out []*agentdv1.Agent
	for i := range n {
		out = append(out, llm(fmt.Sprintf("a%d", i)))
	}
	return out
}

// deep returns a tree of n levels.
func deep(n int) *agentdv1.Agent {
	a := llm("leaf")
	for i := range n - 1 {
		a = seq(fmt.Sprintf("s%d", i), a)
	}
	return a
}

func TestCheckRefuses(t *testing.T) {
	manyTools, offers := make([]string, 129), make([]*agentdv1.Tool, 129)
	for i := range manyTools {
		manyTools[i] = fmt.Sprintf("t%d", i)
		offers[i] = offer(manyTools[i])
		offers[i].Deferred = i == 128
	}
	chosen := func(a *agentdv1.LlmAgent) {
		a.Generation = &agentdv1.GenerationSettings{ToolChoice: &agentdv1.ToolChoice{Mode: agentdv1.ToolChoice_MODE_REQUIRED, ToolNames: []string{"t128"}}}
	}
	for _, tc := range []struct {
		name  string
		tree  *agentdv1.Agent
		tools []*agentdv1.Tool
		want  []string // parts of the message
	}{
		{name: "no tree", want: []string{"the agent tree is missing"}},
		{name: "no type", tree: seq("root", &agentdv1.Agent{Name: "a"}), want: []string{"root/a: agent_type is missing"}},
		{name: "no name", tree: seq("root", llm("")), want: []string{`root/"": the agent has no name`}},
		{name: "name with a dot", tree: seq("root", llm("a.b")), want: []string{`root/"a.b": name "a.b": only letters`}},
		{name: "name with a space", tree: llm("a b"), want: []string{`"a b": name`}},
		{name: "name too long", tree: llm(strings.Repeat("x", 65)), want: []string{"at most 64"}},
		{name: "name not ASCII", tree: llm("é"), want: []string{"only letters"}},
		{name: "name user", tree: seq("root", llm("user")), want: []string{`root/user: the name "user" is reserved`}},
		{name: "duplicate name", tree: seq("root", llm("a"), par("p", llm("a"))), want: []string{"root/p/a: the name is taken by root/a"}},
		{name: "root's name again", tree: seq("root", llm("root")), want: []string{"root/root: the name is taken by root"}},
		{name: "empty sequential", tree: seq("root", seq("s")), want: []string{"root/s: the sequential agent has no agents"}},
		{name: "empty parallel", tree: par("root"), want: []string{"root: the parallel agent has no agents"}},
		{name: "empty loop", tree: rounds("root", 1), want: []string{"root: the loop agent has no agents"}},
		{name: "null agent", tree: seq("root", llm("a"), nil), want: []string{"root: agent 1 below it is null"}},
		{name: "cap too high", tree: rounds("root", 1001, llm("a")), want: []string{"root: max_iterations is 1001, at most 1000"}},
		{name: "too deep", tree: deep(17), want: []string{"s15/s14/s13…: the tree has more than 16 levels"}},
		{name: "a thousand levels", tree: deep(1000), want: []string{"more than 16 levels"}},
		{name: "too wide", tree: seq("root", wide(65)...), want: []string{"root: 65 agents below it, at most 64"}},
		{name: "too many agents", tree: seq("root", func() []*agentdv1.Agent {
			var out []*agentdv1.Agent
			for i := range 5 {
				kids := wide(60)
				for _, k := range kids {
					k.Name = fmt.Sprintf("s%d-%s", i, k.Name)
				}
				out = append(out, seq(fmt.Sprintf("s%d", i), kids...))
			}
			return out
		}()...), want: []string{"the tree has more than 256 agents"}},
		{name: "no model", tree: llm("root", func(a *agentdv1.LlmAgent) { a.Model = "" }), want: []string{"root: the model is missing"}},
		{name: "unknown tool", tree: seq("root", llm("a", tools("serch"))), want: []string{`root/a: unknown tool "serch"; the request offers "calc", "fetch", "search"`}},
		{name: "tool listed twice", tree: llm("root", tools("calc", "calc")), want: []string{`root: tool "calc" is listed twice`}},
		{name: "too many tools", tree: llm("root", tools(append(manyTools[:128:128], "calc")...)), tools: append(offers[:128:128], offer("calc")), want: []string{"root: 129 tools, at most 128 are allowed beside deferred ones"}},
		{name: "too many tools with a chosen one", tree: llm("root", tools(manyTools...), chosen), tools: offers, want: []string{"root: 129 tools, at most 128"}},
		{name: "exit_loop as tool", tree: rounds("root", 1, llm("a", tools("exit_loop"))), want: []string{`root/a: tool "exit_loop" belongs into builtin_tools`}},
		{name: "loop_continue as tool", tree: llm("root", tools("loop_continue")), tools: []*agentdv1.Tool{offer("loop_continue")}, want: []string{`root: tool "loop_continue"`}},
		{name: "transfer as tool", tree: llm("root", tools("transfer_to_agent")), want: []string{`root: tool name "transfer_to_agent" is reserved`}},
		{name: "exit_loop without a loop", tree: seq("root", llm("a", builtin("exit_loop"))), want: []string{`root/a: builtin tool "exit_loop": no loop agent is above`}},
		{name: "exit_loop beside a loop", tree: seq("root", rounds("l", 1, llm("a")), llm("b", builtin("exit_loop"))), want: []string{`root/b: builtin tool "exit_loop"`}},
		{name: "unknown builtin", tree: llm("root", builtin("bash")), want: []string{`root: builtin tool "bash": not available for model "root"`, `"exit_loop"`, `"google_search"`}},
		{name: "builtin of another provider", tree: llm("root", builtin("web_search")), want: []string{`"web_search": not available`}},
		{name: "one search twice", tree: llm("root", builtin("google_search", "web_search")), want: []string{`"web_search" and "google_search" are one tool`}},
		{name: "builtin twice", tree: llm("root", builtin("google_search", "google_search")), want: []string{`"google_search" is listed twice`}},
		{name: "long instruction", tree: llm("root", instruct(strings.Repeat("x", 64<<10+1))), want: []string{"root: the instruction has 65537 bytes, at most 65536"}},
		{name: "artifact", tree: llm("root", instruct("read {artifact.plan}")), want: []string{"root: instruction: {artifact.plan}"}},
		{name: "long description", tree: func() *agentdv1.Agent {
			a := llm("root")
			a.Description = strings.Repeat("x", 4097)
			return a
		}(), want: []string{"root: the description has 4097 bytes, at most 4096"}},
		{name: "agent tool without an agent", tree: llm("root", func(a *agentdv1.LlmAgent) { a.AgentTools = []*agentdv1.AgentTool{{}} }), want: []string{"root: agent_tools[0]: the agent is missing"}},
		{name: "agent tool called as a tool", tree: llm("root", agents(llm("calc"))), want: []string{`root: agent_tools[0]: the request offers a tool "calc", too; set another tool_name`}},
		{name: "agent tool called as a builtin", tree: llm("root", agents(llm("exit_loop"))), want: []string{`tool name "exit_loop" is reserved`}},
		{name: "agent tools of one name", tree: llm("root", agents(llm("a"), llm("b")), func(a *agentdv1.LlmAgent) { a.AgentTools[1].ToolName = "a" }), want: []string{`root: agent_tools[1]: another one is called "a", too`}},
		{name: "agent tool of a taken name", tree: llm("root", subs(llm("a")), agents(llm("b", agents(llm("a"))))), want: []string{"root/b/a: the name is taken by root/a"}},
		{name: "agent tool with a dot", tree: llm("root", agents(llm("a")), func(a *agentdv1.LlmAgent) { a.AgentTools[0].ToolName = "a.b" }), want: []string{`root: agent_tools[0]: branch "a.b": only letters`}},
		{name: "agent tool without description", tree: llm("root", agents(llm("a")), func(a *agentdv1.LlmAgent) { a.AgentTools[0].Description, a.AgentTools[0].Agent.Description = "", "" }), want: []string{`root: agent_tools[0]: "a" has no description`}},
		{name: "agent tool too deep", tree: llm("root", agents(llm("a")), func(a *agentdv1.LlmAgent) { a.AgentTools[0].MaxDepth = 17 }), want: []string{"root: agent_tools[0]: max_depth is 17, at most 16"}},
		{name: "agent tool in a loop", tree: rounds("root", 2, llm("a", agents(llm("b", builtin("exit_loop"))))), want: []string{`root/a/b: builtin tool "exit_loop": no loop agent is above`}},
		{name: "agent tool that is nothing", tree: llm("root", agents(seq("a", par("b")))), want: []string{"root/a/b: the parallel agent has no agents"}},
		{name: "output_key with a space", tree: llm("root", output("a b")), want: []string{`root: output_key "a b"`}},
		{name: "output_key with braces", tree: llm("root", output("{a}")), want: []string{`output_key "{a}"`}},
		{name: "output_key without a name", tree: llm("root", output("app:")), want: []string{`output_key "app:"`}},
		{name: "tool offered twice", tree: llm("root"), tools: []*agentdv1.Tool{offer("x"), offer("x")}, want: []string{`tool "x" is offered twice`}},
		{name: "reserved tool offered", tree: llm("root"), tools: []*agentdv1.Tool{offer("exit_loop")}, want: []string{`tools[0]: name "exit_loop" is reserved`}},
		{name: "tool name", tree: llm("root"), tools: []*agentdv1.Tool{offer("1x")}, want: []string{`tools[0]: name "1x"`}},
		{name: "tool without description", tree: llm("root"), tools: []*agentdv1.Tool{{Name: "x"}}, want: []string{`tool "x": the description is empty`}},
		{name: "schema", tree: llm("root"), tools: []*agentdv1.Tool{{Name: "x", Description: "d", InputSchema: new(`{"type":`)}}, want: []string{`tool "x": input_schema: not JSON`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			offered := tc.tools
			if offered == nil {
				offered = []*agentdv1.Tool{offer("search"), offer("fetch"), offer("calc")}
			}
			err := check(&script{}, &record.Spec{Prompt: "go", Agent: tc.tree, Tools: offered})
			e, ok := errors.AsType[*fault.Error](err)
			if !ok || e.Code != agentdv1.ErrorCode_ERROR_CODE_INVALID_AGENT_TREE {
				t.Fatalf("error %v, want INVALID_AGENT_TREE", err)
			}
			for _, want := range tc.want {
				if !strings.Contains(e.Message, want) {
					t.Errorf("message %q does not contain %q", e.Message, want)
				}
			}
			if len(e.Message) > 2000 {
				t.Errorf("message has %d bytes", len(e.Message))
			}
		})
	}
}

func check(s *script, spec *record.Spec) error {
	return New(Config{Resolve: s.Resolve}).Check(context.Background(), spec, nil)
}

func TestCheckAccepts(t *testing.T) {
	for name, tree := range map[string]*agentdv1.Agent{
		"sixteen levels":        deep(16),
		"sixty-four agents":     seq("root", wide(64)...),
		"exit_loop far below":   rounds("root", 1000, seq("s", llm("a", subs(llm("b", builtin("exit_loop")))))),
		"builtin of a provider": llm("root", builtin("google_search")),
		"keys with scopes":      seq("r", llm("a", output("app:x")), llm("b", output("user:x.y-z")), llm("c", output("temp:x")), llm("d", instruct("{app:x} {temp:y?} {not a key} {\"json\": 1} {{z?}} {other:x}"))),
		"dashes and digits":     seq("1-_", llm("-")),
	} {
		spec := &record.Spec{Agent: tree, Tools: []*agentdv1.Tool{offer("search"), offer("fetch"), offer("calc"), offer("loop_continue"), {Name: "a.b:c-d", Description: "no schema"}}}
		if err := check(&script{}, spec); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCheckModels checks the code of what is wrong with a model.
func TestCheckModels(t *testing.T) {
	for _, tc := range []struct {
		err  error
		code agentdv1.ErrorCode
		want string
	}{
		{&model.Error{Kind: model.KindAuth, Provider: "fake", Message: "set FAKE_API_KEY"}, agentdv1.ErrorCode_ERROR_CODE_AUTH_FAILED, `root/a: model "a": fake: set FAKE_API_KEY`},
		{&model.Error{Kind: model.KindUnavailable, Provider: "fake", Message: "no such model"}, agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE, `root/a: model "a"`},
		{errors.New("boom"), agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE, `root/a: model "a"`},
	} {
		err := check(&script{bad: map[string]error{"a": tc.err}}, &record.Spec{Agent: seq("root", llm("a", tools()))})
		e, ok := errors.AsType[*fault.Error](err)
		if !ok || e.Code != tc.code || !strings.Contains(e.Message, tc.want) {
			t.Errorf("%v: got %v", tc.err, err)
		}
	}
}

// TestTreeIsPlannedOnce runs the tree that Check planned, with the same keys and once:
// after that nothing in the spec holds them.
func TestTreeIsPlannedOnce(t *testing.T) {
	r := New(Config{Resolve: (&script{}).Resolve})
	spec := &record.Spec{Agent: llm("root"), Prompt: "go", Tools: []*agentdv1.Tool{offer("search"), offer("fetch"), offer("calc")}}
	own := session.Keys{"gemini": "one"}
	for _, keys := range []session.Keys{own, {"gemini": "another"}} {
		if err := r.Check(t.Context(), spec, own); err != nil {
			t.Fatal(err)
		}
		made := spec.Checked.(*checkedTree).tree
		got, err := r.planFor(spec, keys)
		if err != nil {
			t.Fatal(err)
		}
		if same := keys["gemini"] == own["gemini"]; (got == made) != same {
			t.Errorf("with the keys of the check: %t, the tree of the check is run: %t", same, got == made)
		}
		if spec.Checked != nil {
			t.Error("the spec still holds the tree and the keys")
		}
	}
}
