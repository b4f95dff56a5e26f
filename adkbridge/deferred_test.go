package adkbridge

import (
	"errors"
	"slices"
	"strings"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/record"
)

// TestDeferredNeedsSearch: tools can be deferred only where the agent can find them, by
// the provider's search or by a tool that is not deferred.
func TestDeferredNeedsSearch(t *testing.T) {
	later := offer("fetch")
	later.Deferred = true
	offered := []*agentdv1.Tool{offer("search"), later, offer("calc")}
	for name, tc := range map[string]struct {
		tree *agentdv1.Agent
		want string // "" where it can run
	}{
		"searched":    {tree: llm("root", builtin("tool_search"))},
		"by a tool":   {tree: llm("root", tools("fetch", "search"))},
		"not used":    {tree: llm("root", tools("search"))},
		"no search":   {llm("root", tools("fetch")), `root: tool "fetch" is deferred: an agent finds such tools with the builtin tool "tool_search" or with a tool that is not deferred, and it has neither`},
		"nothing":     {llm("root", tools("search"), builtin("tool_search")), `root: builtin tool "tool_search": none of the agent's tools is deferred`},
		"only others": {seq("root", llm("a", builtin("tool_search")), llm("b", tools("fetch"))), `root/b: tool "fetch" is deferred`},
	} {
		err := check(&script{}, &record.Spec{Agent: tc.tree, Tools: offered})
		e, ok := errors.AsType[*fault.Error](err)
		switch {
		case tc.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tc.want != "" && (!ok || e.Code != agentdv1.ErrorCode_ERROR_CODE_INVALID_AGENT_TREE || !strings.Contains(e.Message, tc.want)):
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	tree, err := New(Config{Resolve: (&script{}).Resolve}).plan(&record.Spec{Agent: llm("root", builtin("tool_search", "google_search")), Tools: offered}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := tree.root; !slices.Equal(n.deferred(), []string{"fetch"}) || !n.toolSearch || len(n.builtins) != 1 {
		t.Errorf("deferred %q, %d tools of genai's", n.deferred(), len(n.builtins))
	}
}

// TestFoundTools: the tools that a tool finds for its agent are in the request with the
// result, in what other agents and summaries see, and the same after a restart and in a
// replay.
func TestFoundTools(t *testing.T) {
	w := newWorld(t, map[string][]step{"a": {use("search"), use("fetch"), say("A"), say("A2")}, "b": {say("B"), say("B2")}})
	for _, tool := range w.tools {
		tool.Deferred = tool.GetName() != "search"
	}
	found := []*agentdv1.Part{toolPart("fetch"), toolPart("nowhere")}
	w.result = func(tc *agentdv1.RunResponse_ToolCallRequest) session.ClientResult {
		if tc.GetToolName() == "search" {
			return session.ClientResult{Parts: append(record.Parts{filePart("image/png", []byte("png"))}, found...)}
		}
		return session.ClientResult{Output: new("page")}
	}
	tree := seq("root", llm("a"), llm("b"))
	turn, err := w.manager.Start(t.Context(), session.Request{Agent: tree, Tools: w.tools, Prompt: "go"})
	if err != nil {
		t.Fatal(err)
	}
	w.session = turn.SessionID()
	w.follow(turn).ok(t)
	w.checkAll()
	check := func(req *model.Request) {
		t.Helper()
		if !slices.Equal(req.Loaded(), []string{"fetch"}) || !slices.Contains(req.Deferred, "calc") || req.ToolSearch {
			t.Errorf("loaded %q of %q, searches: %t", req.Loaded(), req.Deferred, req.ToolSearch)
		}
	}
	a := w.script.seen("a")
	if got := a[0].raw.Loaded(); len(got) != 0 {
		t.Errorf("%q is loaded before it was found", got)
	}
	check(a[1].raw)
	request := w.script.seen("b")[0]
	if got := request.raw.Loaded(); len(got) != 0 {
		t.Errorf("%q is loaded for an agent that has not found it", got)
	}
	if got := describe(request.contents); !strings.Contains(got, "[a] `search` tool found the tool `fetch` [a] `search` tool found the tool `nowhere`") {
		t.Errorf("b is told %s", got)
	}
	for i, want := range []string{"(found: the tool fetch)", "(found: the tool nowhere)"} {
		if !slices.Contains(passages(a[1].contents), passage{"[result of search]", want}) {
			t.Errorf("check %d: a summary does not have %s", i, want)
		}
	}
	details, err := listedCalls(t, w.turnLog(turn.ID()))
	if err != nil || len(details) != 4 || !slices.Equal(details[0].GetToolNames(), []string{"search"}) || !slices.Equal(details[1].GetToolNames(), []string{"search", "fetch"}) {
		t.Errorf("the calls are told as %v, error %v", details, err)
	}
	w.runner = New(Config{Resolve: w.script.Resolve})
	w.restart()
	w.run(tree, "again").ok(t)
	check(w.script.seen("a")[3].raw)
	rep, err := Verify(t.Context(), w.session, w.turnLog("").Records, nil)
	if err != nil || rep.Divergence != nil || rep.Turns != 2 {
		t.Errorf("replay: %+v, error %v", rep, err)
	}
}

func toolPart(name string) *agentdv1.Part {
	return &agentdv1.Part{Content: &agentdv1.Part_Tool{Tool: &agentdv1.ToolReference{ToolName: name}}}
}
