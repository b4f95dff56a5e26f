package adkbridge

import (
	"errors"
	"strings"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
)

// TestState passes values between agents, tools and turns.
func TestState(t *testing.T) {
	w := newWorld(t, map[string][]step{
		"a": {{text: "thinking aloud ", calls: use("search").calls}, say("the plan")},
		"b": {say("B"), say("B2")},
		"c": {{thought: "hm", text: "C"}},
	})
	w.state = map[string]any{"n": 1000000, "who": "Ann", "obj": map[string]any{"k": "<v>"}, "app:x": "shared", "temp:once": "now", "nil": nil}
	w.result = func(*agentdv1.RunResponse_ToolCallRequest) session.ClientResult {
		return session.ClientResult{Output: new("ok"), State: map[string]any{"found": []any{"x", 1}, "temp:hint": "secret", "user:u": true}}
	}
	ask := "{who} {n} {obj} {app:x} {user:u?} {found?} {temp:hint?} {temp:once?} {plan?} {nil?}|"
	tree := seq("root", llm("a", output("plan"), instruct(ask)), llm("b", instruct(ask), output("temp:b")), llm("c", instruct("{plan} {temp:b}"), output("app:c")))
	res := w.run(tree, "go").ok(t)
	for agent, want := range map[string]string{
		"a": `Ann 1000000 {"k":"<v>"} shared    now  |`,
		"b": `Ann 1000000 {"k":"<v>"} shared true ["x",1] secret now the plan |`,
		"c": `the plan B`,
	} {
		if got := w.script.seen(agent)[0].system; !strings.HasPrefix(got, want) {
			t.Errorf("%s was told %q, want %q", agent, got, want)
		}
	}
	if got := compact(res.state); got != `{"app:c":"C","app:x":"shared","found":["x",1],"n":1000000,"obj":{"k":"\u003cv\u003e"},"plan":"the plan","user:u":true,"who":"Ann"}` {
		t.Errorf("the client knows %s", got)
	}
	w.state = nil
	w.restart()
	w.runner.cache = newCache(0, 0)
	w.run(llm("b", instruct(ask)), "more").ok(t)
	if got, want := w.script.seen("b")[1].system, `Ann 1000000 {"k":"<v>"} shared true ["x",1]   the plan |`; !strings.HasPrefix(got, want) {
		t.Errorf("in the next turn b was told %q, want %q", got, want)
	}
}

// TestOutputKey receives the final text alone.
func TestOutputKey(t *testing.T) {
	for _, tc := range []struct {
		name  string
		tree  *agentdv1.Agent
		steps []step
		want  any
	}{
		{"final text", llm("a", output("k")), []step{{text: "first ", calls: use("search").calls}, {thought: "t", text: "last"}}, "last"},
		{"empty answer", llm("a", output("k")), []step{{}}, ""},
		{"thoughts, then an answer", llm("a", output("k")), []step{{thought: "t"}, say("x")}, "x"},
		{"what is said on leaving a loop", rounds("l", 2, llm("a", output("k"), builtin("exit_loop"))), []step{say("1"), {text: "2", calls: exit().calls}}, "2"},
		{"nothing said on leaving a loop", rounds("l", 2, llm("a", output("k"), builtin("exit_loop"))), []step{say("1"), exit()}, "1"},
	} {
		w := newWorld(t, map[string][]step{"a": tc.steps})
		if res := w.run(tc.tree, "go").ok(t); res.state["k"] != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, res.state, tc.want)
		}
	}
}

// TestOutputKeyPastBound: a response that would take the state past a bound of the
// session fails the turn with a reason and writes nothing; the same
// happens after a restart and in a replay.
func TestOutputKeyPastBound(t *testing.T) {
	for _, tc := range []struct{ key, want string }{
		{"k", "state: the session's own keys would take "},
		{"app:k", "state: the keys of scope app: would take "},
		{"user:k", "state: the keys of scope user"},
	} {
		t.Run(tc.key, func(t *testing.T) {
			long := say(strings.Repeat("x", 200))
			w := newWorld(t, map[string][]step{"a": {say("short"), long, long, say("again")}, "b": {say("fine"), say("fine")}})
			w.limits = limits.Limits{MaxOwnBytes: 100, MaxSharedBytes: 100}
			w.restart()
			tree := seq("root", llm("a", output(tc.key)), llm("b", instruct("It is {"+tc.key+"}.")))
			w.run(tree, "go").ok(t)
			for range 2 {
				res := w.run(tree, "more")
				if res.err.GetCode() != codeLimit || !strings.HasPrefix(res.err.GetMessage(), tc.want) || !strings.Contains(res.err.GetMessage(), "at most 100 are allowed") {
					t.Errorf("error %v", res.err)
				}
				if res.state[tc.key] != "short" {
					t.Errorf("the state is %v", res.state)
				}
				w.restart()
			}
			w.run(tree, "go").ok(t)
			got := w.script.seen("b")
			if len(got) != 2 || !strings.Contains(got[0].system, "It is short.") || !strings.Contains(got[1].system, "It is again.") {
				t.Errorf("the next agent was told %+v", got)
			}
			rep, err := Verify(t.Context(), w.session, w.turnLog("").Records, nil)
			if err != nil || rep.Divergence != nil || rep.Turns != 4 {
				t.Errorf("replayed: %+v, %v", rep, err)
			}
			w.checkAll()
		})
	}
}

// TestNullKey: null removes a key, so that only a placeholder of one that may be absent
// can be filled.
func TestNullKey(t *testing.T) {
	w := newWorld(t, map[string][]step{"a": {say("fine")}})
	w.state = map[string]any{"plan": nil}
	if res := w.run(llm("a", instruct("use {plan}")), "go"); !strings.Contains(res.err.GetMessage(), `the state has no key "plan"; set it before this agent runs, or write {plan?}`) {
		t.Errorf("error %v", res.err)
	}
	w.run(llm("a", instruct("use {plan?}.")), "go").ok(t)
	if got := w.script.seen("a"); len(got) != 1 || !strings.HasPrefix(got[0].system, "use .") {
		t.Errorf("told %+v", got)
	}
}

// TestMissingKey names the agent and the key.
func TestMissingKey(t *testing.T) {
	for _, tree := range []*agentdv1.Agent{
		seq("root", llm("a", instruct("use {plan}"))),
		par("root", llm("a", instruct("use {plan}"))),
	} {
		w := newWorld(t, nil)
		res := w.run(tree, "go")
		if res.err.GetCode() != agentdv1.ErrorCode_ERROR_CODE_INVALID_AGENT_TREE || !strings.HasPrefix(res.err.GetMessage(), `root/a: instruction: the state has no key "plan"`) {
			t.Errorf("error %v", res.err)
		}
	}
}

// TestLoopState keeps the state that comes with a result of loop_continue.
func TestLoopState(t *testing.T) {
	w := newWorld(t, nil)
	w.script.always = func(string) step { return say("x") }
	w.tools = []*agentdv1.Tool{offer("loop_continue")}
	n := 0
	w.result = func(*agentdv1.RunResponse_ToolCallRequest) session.ClientResult {
		n++
		return session.ClientResult{Output: new(`{"continue":true}`), State: map[string]any{"round": n, "temp:x": n}}
	}
	res := w.run(rounds("l", 2, llm("a", tools(), instruct("round {round?} {temp:x?}"))), "go").ok(t)
	if got := w.script.seen("a")[1].system; !strings.HasPrefix(got, "round 1 1") {
		t.Errorf("second iteration: %q", got)
	}
	if res.state["round"] != 2.0 || len(res.state) != 1 {
		t.Errorf("state %v", res.state)
	}
}

// TestLimits end a turn that would not end by itself.
func TestLimits(t *testing.T) {
	ping := llm("root", subs(llm("a")))
	for _, tc := range []struct {
		name   string
		tree   *agentdv1.Agent
		limits Limits
		always func(string) step
		want   string
		calls  int
	}{
		{"model calls", llm("root"), Limits{ModelCalls: 5}, func(string) step { return use("search") }, "root: the turn has made 5 model calls", 5},
		{"transfers", ping, Limits{Transfers: 6}, func(agent string) step {
			if agent == "a" {
				return transfer("root")
			}
			return transfer("a")
		}, "root: the turn has made 6 transfers", 7},
		{"thoughts", llm("root"), Limits{}, func(string) step { return step{thought: "hm"} }, `root: model "root" responded 4 times in a row with thoughts alone`, 4},
		{"calls of no tool", llm("root"), Limits{}, func(string) step { return use("ghost") }, `root: model "root" responded 4 times in a row with nothing but calls that cannot be run, the last time because there is no tool "ghost"; available: "calc", "fetch", "search"`, 4},
		{"a long value", llm("root", output("k")), Limits{ValueBytes: 9}, func(string) step { return say("0123456789") }, `root: the response has 10 bytes, output_key "k" takes at most 9`, 1},
		{"long arguments", llm("root"), Limits{ValueBytes: 3}, func(string) step { return use("search") }, `root: model "root" responded 4 times in a row with nothing but calls that cannot be run, the last time because not run: the arguments take 7 bytes, at most 3 are allowed`, 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, nil, tc.limits)
			w.script.always = tc.always
			res := w.run(tc.tree, "go")
			if res.err.GetCode() != agentdv1.ErrorCode_ERROR_CODE_LIMIT_EXCEEDED || !strings.HasPrefix(res.err.GetMessage(), tc.want) {
				t.Errorf("error %v", res.err)
			}
			if n := int(res.end.GetUsageSummary().GetLlmCalls()); n != tc.calls {
				t.Errorf("%d calls counted, want %d", n, tc.calls)
			}
			w.script.always = func(string) step { return say("fine") }
			w.run(tc.tree, "go on").ok(t)
			w.checkAll()
		})
	}
}

// TestUsage is what the provider reported, once per call, with its price.
func TestUsage(t *testing.T) {
	w := newWorld(t, map[string][]step{"a": {use("search"), say("A")}, "b": {{thought: "x"}, say("B")}})
	res := w.run(par("root", llm("a"), llm("b")), "go").ok(t)
	u := res.end.GetUsageSummary()
	if u.GetLlmCalls() != 4 || u.GetTotalUsage().GetTotalTokens() != 40 || u.GetTotalUsage().GetPromptTokens() != 28 || u.GetEstimatedCost() != 0.04 {
		t.Errorf("usage %v", u)
	}
}

// TestKeys reach the models, and nothing else.
func TestKeys(t *testing.T) {
	var got map[string]string
	r := New(Config{Resolve: func(_ string, keys map[string]string) (Model, error) {
		got = keys
		return Model{}, &model.Error{Kind: model.KindAuth, Message: "refused"}
	}})
	err := r.Check(t.Context(), &record.Spec{Agent: llm("root", tools())}, session.Keys{"openai": "sk-canary"})
	if got["openai"] != "sk-canary" {
		t.Errorf("keys %v", got)
	}
	e, ok := errors.AsType[*fault.Error](err)
	if !ok || strings.Contains(e.Message, "canary") {
		t.Errorf("error %v", err)
	}
}
