package adkbridge

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/lineage"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/record"
)

// events are those of the log of a world's session and the prompts that started its turns: the author and the branch of
// each.
func (w *world) events() (out []string) {
	w.t.Helper()
	for rec, err := range w.turnLog("").Records {
		if err != nil {
			w.t.Fatal(err)
		}
		if rec.Kind == record.KindTurnStarted {
			out = append(out, user+" ")
		}
		if rec.Kind == record.KindEvent {
			author, branch, _, err := w.runner.Said(rec.Data)
			if err != nil {
				w.t.Fatal(err)
			}
			out = append(out, author+" "+lineage.Shown(branch))
		}
	}
	return out
}

// TestAgentTool calls an agent as a tool: six events, the third and fourth on its branch. It sees its request alone, its
// caller its text alone, and what it takes is the turn's.
func TestAgentTool(t *testing.T) {
	w := newWorld(t, map[string][]step{
		"root":     {consult("research", "find it"), say("done"), say("and again")},
		"research": {{thought: "hm", text: "found"}},
	})
	tree := llm("root", agents(llm("research", output("notes"))))
	lineages := map[string]bool{}
	w.watch = func(_ *session.Turn, m *agentdv1.RunResponse) {
		if l := m.GetLineage(); l != nil {
			lineages[compact(l)] = true
		}
	}
	res := w.run(tree, "go").ok(t)
	got := w.events()
	if want := []string{"user ", "root ", "user research", "research research", "root ", "root "}; !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
	if len(lineages) != 1 || !lineages[`{"branch":"research","depth":1}`] {
		t.Errorf("lineages %v", lineages)
	}
	if got := transcript(w.script.seen("research")[0].contents); got != "user: find it\n" {
		t.Errorf("the agent sees %q", got)
	}
	root := w.script.seen("root")
	if got := transcript(root[1].contents); !strings.HasSuffix(got, "result research{\"result\":\"found\"}\n") || strings.Contains(got, "[research]") {
		t.Errorf("its caller sees %q", got)
	}
	if res.text["root"] != "done" || res.text["root/research"] != "found" || res.state["notes"] != "found" || res.last["root/research"] != 1 {
		t.Errorf("clients see %v, state %v, last %v", res.text, res.state, res.last)
	}
	if u := res.end.GetUsageSummary(); u.GetLlmCalls() != 3 || u.GetTotalUsage().GetTotalTokens() != 30 {
		t.Errorf("usage %v", u)
	}
	w.restart()
	res = w.run(tree, "more").ok(t)
	if res.text["root"] != "and again" || len(res.text) != 1 {
		t.Errorf("the next turn: %v", res.text)
	}
	w.checkAll()
	w.verified()
}

// verified fails the test unless a replay of the session's log goes the same way.
func (w *world) verified() {
	w.t.Helper()
	rep, err := Verify(w.t.Context(), w.session, w.turnLog("").Records, nil)
	if err != nil || rep.Divergence != nil {
		w.t.Errorf("replay: %+v, error %v: %v", rep, err, rep.Divergence)
	}
}

// TestAgentToolForks: an agent that forks sees what its caller had seen, also of a fork, and nothing of other calls.
func TestAgentToolForks(t *testing.T) {
	w := newWorld(t, map[string][]step{
		"root": {say("hello"), {text: "I ask", calls: slices.Concat(consult("a", "one", "c", "two").calls, use("calc").calls)}, say("done")},
		"a":    {consult("b", "three"), say("A")}, "b": {say("B")},
		"c": {consult("d", "three"), say("C")}, "d": {say("D")},
	})
	tree := llm("root", forked(llm("a", forked(llm("b"))), llm("c", forked(llm("d")))))
	w.run(tree, "first").ok(t)
	w.restart()
	w.run(tree, "second").ok(t)
	before := "user: first\nuser: For context: [root] said: hello\nuser: second\n"
	seen := map[string]int{}
	for _, name := range []string{"a", "b", "c", "d"} {
		for _, r := range w.script.seen(name) {
			seen[r.agent+" "+transcript(r.contents)]++
		}
	}
	for _, want := range []string{
		"a " + before + "user: one\n", "b " + before + "user: one\nuser: three\n",
		"c " + before + "user: two\n", "d " + before + "user: two\nuser: three\n",
	} {
		if seen[want] != 1 {
			t.Errorf("no call sees %q: %s", want, compact(seen))
		}
	}
	w.checkAll()
	w.verified()
}

// TestAgentToolDepth: a call that is too deep has a result that says so, and the tree goes on.
func TestAgentToolDepth(t *testing.T) {
	w := newWorld(t, map[string][]step{
		"root": {consult("a", "1"), say("done")}, "a": {consult("b", "2"), say("A")}, "b": {consult("c", "3", "d", "3"), say("B")}, "d": {say("D")},
	})
	deeper := agents(llm("c"), llm("d"))
	b := llm("b", deeper)
	b.GetLlm().AgentTools[1].MaxDepth = 3
	w.run(llm("root", agents(llm("a", agents(b)))), "go").ok(t)
	got := transcript(w.script.seen("b")[1].contents)
	if !strings.Contains(got, `{"result":"subagent \"c\" refused: depth limit reached (2)"}`) || !strings.Contains(got, `{"result":"D"}`) {
		t.Errorf("b sees %s", got)
	}
	w.verified()
}

// TestAgentToolRefusesCalls: a call that says nothing is not run.
func TestAgentToolRefusesCalls(t *testing.T) {
	w := newWorld(t, map[string][]step{
		"root": {{calls: []call{{name: "a", args: `{"request":" "}`}, {name: "a", args: `{"q":1}`}, {name: "a", args: "?"}}}, say("done")},
	})
	w.run(llm("root", agents(llm("a"))), "go").ok(t)
	got := transcript(w.script.seen("root")[1].contents)
	if strings.Count(got, `not run: \"request\" must be a text that is not empty`) != 2 || !strings.Contains(got, malformedText) {
		t.Errorf("root sees %s", got)
	}
	w.verified()
}

// TestAgentToolStops: an agent that fails as a tool fails the turn; what was asked meanwhile is closed.
func TestAgentToolStops(t *testing.T) {
	w := newWorld(t, map[string][]step{
		"root": {consult("a", "1", "b", "2"), say("again")}, "a": {use("search")}, "b": {use("fetch"), {err: &model.Error{Kind: model.KindInvalid, Provider: "fake", Message: "not so"}}},
	})
	w.result = func(tc *agentdv1.RunResponse_ToolCallRequest) session.ClientResult {
		if tc.GetToolName() == "search" {
			return session.ClientResult{CallID: "-"}
		}
		return session.ClientResult{Output: new("found")}
	}
	tree := llm("root", agents(llm("a"), llm("b")))
	if res := w.run(tree, "go"); res.err == nil || !strings.Contains(res.err.GetMessage(), "not so") {
		t.Fatalf("error %v", res.err)
	}
	w.restart()
	w.run(tree, "go on").ok(t)
	w.checkAll()
	if got := transcript(w.script.seen("root")[1].contents); strings.Count(got, stoppedText) != 2 {
		t.Errorf("root sees %s", got)
	}
	w.verified()
}

// TestAgentToolWithoutPayloads: what an agent is asked as a tool, and what it says, is said by models, and stays.
func TestAgentToolWithoutPayloads(t *testing.T) {
	w := newWorld(t, map[string][]step{
		"root": {consult("a", "find it"), say("done")}, "a": {use("search"), say("found")},
	})
	w.run(llm("root", agents(llm("a"))), "go").ok(t)
	recs, err := w.store.Read(t.Context(), w.session, 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	changed, err := w.runner.WithoutPayloads(each(recs))
	if err != nil || len(changed) != 3 {
		t.Fatalf("%d records changed, %v, want call, result and event of search", len(changed), err)
	}
	for _, rec := range changed {
		recs[rec.Seq-1] = rec
	}
	if !slices.ContainsFunc(recs, func(r record.Record) bool { return bytes.Contains(r.Data, []byte(`"result":"found"`)) }) {
		t.Error("the log does not have the result of the agent any more")
	}
	rep, err := Verify(t.Context(), w.session, logOfTurn(w.session, "", recs).Records, nil)
	if err != nil || rep.Divergence != nil {
		t.Errorf("replay: %+v, error %v: %v", rep, err, rep.Divergence)
	}
}

// TestAgentToolModelCalls: the prompts of agents that are called as tools are found again.
func TestAgentToolModelCalls(t *testing.T) {
	w := newWorld(t, map[string][]step{
		"root": {consult("a", "1", "a", "2"), consult("a", "3"), say("done")},
		"a":    {say("A"), say("A"), say("A")},
	})
	turn := w.start(llm("root", agents(llm("a", instruct("be {mood?}")))), "go")
	w.follow(turn).ok(t)
	w.sameAsSent(turn.ID(), 6)
}
