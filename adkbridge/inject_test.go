package adkbridge

import (
	"strings"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/record"
)

// TestInjectedIsSeenByEveryAgent injects a prompt while two agents wait for their
// tools: each sees it in its next prompt, once, after the results, and so does a fresh
// process.
func TestInjectedIsSeenByEveryAgent(t *testing.T) {
	w := newWorld(t, map[string][]step{
		"a": {use("search"), say("A"), say("A2")},
		"b": {use("fetch", "calc"), say("B"), say("B2")},
	})
	var asked []string
	w.watch = func(turn *session.Turn, m *agentdv1.RunResponse) {
		if m.GetToolCall() == nil {
			return
		}
		if asked = append(asked, m.GetToolCall().GetToolCallId()); len(asked) < 3 {
			return
		}
		_, err := w.manager.Start(t.Context(), session.Request{SessionID: turn.SessionID(), Prompt: "mind the gap", OnBusy: agentdv1.OnBusy_ON_BUSY_INJECT})
		if err != nil {
			t.Error(err)
		}
		for _, id := range asked {
			if err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: id, Output: new("ok")}); err != nil {
				t.Error(err)
			}
		}
	}
	w.result = func(*agentdv1.RunResponse_ToolCallRequest) session.ClientResult {
		return session.ClientResult{CallID: "-"}
	}
	tree := par("root", llm("a"), llm("b"))
	w.run(tree, "go").ok(t)
	w.checkAll()
	count := func(agent string, n int) int {
		return strings.Count(transcript(w.script.seen(agent)[n].contents), "mind the gap")
	}
	for _, agent := range []string{"a", "b"} {
		if before, after := count(agent, 0), count(agent, 1); before != 0 || after != 1 {
			t.Errorf("%s was told %d times before and %d times after\n%s", agent, before, after, transcript(w.script.seen(agent)[1].contents))
		}
	}
	// The next turn, of a process that knows only the log.
	w.runner = New(Config{Resolve: w.script.Resolve})
	w.restart()
	w.run(tree, "again").ok(t)
	w.checkAll()
	for _, agent := range []string{"a", "b"} {
		if n := count(agent, 2); n != 1 {
			t.Errorf("%s was told %d times in the next turn\n%s", agent, n, transcript(w.script.seen(agent)[2].contents))
		}
	}
}

// TestBudgetNeedsPrices refuses a budget in money where a price is not known.
func TestBudgetNeedsPrices(t *testing.T) {
	w := newWorld(t, nil)
	w.runner = New(Config{Resolve: pureModels{}.Resolve}) // whose models have no price
	spec := &record.Spec{Prompt: "go", Agent: llm("root", tools()), Budget: record.Budget{ModelCalls: 3}}
	if err := w.runner.Check(t.Context(), spec, nil); err != nil {
		t.Errorf("a budget of model calls: %v", err)
	}
	spec.SessionBudget.Cost = 1
	err := w.runner.Check(t.Context(), spec, nil)
	if e := fault.As(err); e.Code != agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST || !strings.Contains(e.Message, `"root"`) {
		t.Errorf("a budget in money: %v", err)
	}
}

// TestBudgetEndsTheTree stops a tree between two model calls, and leaves a history with
// which the session continues.
func TestBudgetEndsTheTree(t *testing.T) {
	w := newWorld(t, map[string][]step{"a": {use("search"), say("A")}, "b": {say("B"), say("B2")}})
	tree := seq("root", llm("a"), llm("b"))
	turn, err := w.manager.Start(t.Context(), session.Request{Agent: tree, Tools: w.tools, Prompt: "go", Budget: record.Budget{ModelCalls: 2}})
	if err != nil {
		t.Fatal(err)
	}
	w.session = turn.SessionID()
	res := w.follow(turn)
	if res.err.GetCode() != agentdv1.ErrorCode_ERROR_CODE_BUDGET_EXHAUSTED || res.text["root/a"] != "A" || res.text["root/b"] != "" || res.end.GetUsageSummary().GetLlmCalls() != 2 {
		t.Errorf("the turn ended with %v, %v and %v", res.text, res.err, res.end)
	}
	w.script.steps["a"] = []step{say("A3")}
	if res := w.run(tree, "on").ok(t); res.text["root/b"] != "B" {
		t.Errorf("the next turn said %v", res.text)
	}
	w.checkAll()
}
