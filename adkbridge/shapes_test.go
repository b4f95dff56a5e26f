package adkbridge

import (
	"slices"
	"strings"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
)

// TestShapes runs one turn of each kind of tree.
func TestShapes(t *testing.T) {
	for _, tc := range []struct {
		name  string
		tree  *agentdv1.Agent
		steps map[string][]step
		text  map[string]string // by path
		last  []string          // paths whose last chunk is marked
		tools []string          // "path name", sorted
	}{
		{
			name:  "llm",
			tree:  llm("root"),
			steps: map[string][]step{"root": {{thought: "hm", text: "hello there"}}},
			text:  map[string]string{"root": "hello there"},
		},
		{
			name:  "llm with tools",
			tree:  llm("root"),
			steps: map[string][]step{"root": {{text: "let me see. ", calls: use("search", "calc").calls}, say("found")}},
			text:  map[string]string{"root": "let me see. found"},
			tools: []string{"root calc", "root search"},
		},
		{
			name:  "sequential",
			tree:  seq("root", llm("a"), llm("b")),
			steps: map[string][]step{"a": {use("search"), say("A")}, "b": {say("B")}},
			text:  map[string]string{"root/a": "A", "root/b": "B"},
			tools: []string{"root/a search"},
		},
		{
			name:  "parallel",
			tree:  par("root", llm("a"), llm("b"), llm("c")),
			steps: map[string][]step{"a": {use("search"), say("A")}, "b": {use("search", "fetch", "calc"), say("B")}, "c": {say("C")}},
			text:  map[string]string{"root/a": "A", "root/b": "B", "root/c": "C"},
			tools: []string{"root/a search", "root/b calc", "root/b fetch", "root/b search"},
		},
		{
			name:  "loop to its cap",
			tree:  rounds("root", 3, llm("a"), llm("b")),
			steps: map[string][]step{"a": {say("1"), say("2"), say("3")}, "b": {say("x"), say("y"), say("z")}},
			text:  map[string]string{"root/a": "123", "root/b": "xyz"},
		},
		{
			name:  "loop until exit_loop",
			tree:  rounds("root", 9, llm("a"), llm("b", builtin("exit_loop")), llm("c")),
			steps: map[string][]step{"a": {say("1"), say("2")}, "b": {say("x"), exit()}, "c": {say("-")}},
			text:  map[string]string{"root/a": "12", "root/b": "x", "root/c": "-"},
		},
		{
			name: "the inner loop ends alone",
			tree: rounds("root", 2, rounds("inner", 9, llm("a", builtin("exit_loop"))), llm("b")),
			steps: map[string][]step{
				"a": {say("1"), exit(), say("2"), exit()},
				"b": {say("x"), say("y")},
			},
			text: map[string]string{"root/inner/a": "12", "root/b": "xy"},
		},
		{
			name: "exit within a sequence finishes the sequence",
			tree: rounds("root", 9, seq("s", llm("a", builtin("exit_loop")), llm("b")), llm("c")),
			steps: map[string][]step{
				"a": {exit()},
				"b": {say("still")},
			},
			text: map[string]string{"root/s/b": "still"},
		},
		{
			name: "transfer down, sideways and up",
			tree: llm("root", subs(llm("a"), llm("b", subs(llm("c"))))),
			steps: map[string][]step{
				"root": {transfer("a"), say("bye")},
				"a":    {use("search"), transfer("b")},
				"b":    {transfer("c"), transfer("root")},
				"c":    {{text: "deep ", calls: use("calc").calls}, transfer("b")},
			},
			text:  map[string]string{"root/b/c": "deep ", "root": "bye"},
			tools: []string{"root/a search", "root/b/c calc"},
		},
		{
			name: "transfer to a workflow",
			tree: llm("root", subs(par("fan", llm("a"), llm("b")))),
			steps: map[string][]step{
				"root": {use("search"), transfer("fan")},
				"a":    {use("calc"), say("A")},
				"b":    {say("B")},
			},
			text:  map[string]string{"root/fan/a": "A", "root/fan/b": "B"},
			tools: []string{"root search", "root/fan/a calc"},
		},
		{
			name: "six levels",
			tree: seq("root", par("p", rounds("l", 4, seq("s", llm("r", subs(llm("x", builtin("exit_loop")))))), llm("q")), llm("z")),
			steps: map[string][]step{
				"r": {transfer("x"), use("search"), transfer("x")},
				"x": {say("1"), step{calls: append(use("calc").calls, exit().calls...)}},
				"q": {use("fetch"), say("Q")},
				"z": {say("Z")},
			},
			text:  map[string]string{"root/p/l/s/r/x": "1", "root/p/q": "Q", "root/z": "Z"},
			tools: []string{"root/p/l/s/r search", "root/p/l/s/r/x calc", "root/p/q fetch"},
		},
		{
			name:  "an empty answer",
			tree:  seq("root", llm("a"), llm("b")),
			steps: map[string][]step{"a": {{}}, "b": {say("B")}},
			text:  map[string]string{"root/b": "B"},
		},
		{
			name:  "thoughts alone are followed by an answer",
			tree:  llm("root"),
			steps: map[string][]step{"root": {{thought: "hm"}, {thought: "hm"}, say("A")}},
			text:  map[string]string{"root": "A"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, tc.steps)
			w.onDisk()
			res := w.run(tc.tree, "go").ok(t)
			w.checkAll()
			for path, text := range res.text {
				if text != tc.text[path] {
					t.Errorf("%s said %q, want %q", path, text, tc.text[path])
				}
			}
			if len(res.text) != len(tc.text) {
				t.Errorf("texts %v, want %v", res.text, tc.text)
			}
			for path := range tc.text {
				if res.last[path] != 1 {
					t.Errorf("%s: last was set %d times", path, res.last[path])
				}
			}
			var got []string
			for _, tcall := range res.tools {
				got = append(got, strings.Join(tcall.GetAgentPath(), "/")+" "+tcall.GetToolName())
			}
			slices.Sort(got)
			if !slices.Equal(got, tc.tools) {
				t.Errorf("tool calls %v, want %v", got, tc.tools)
			}
			if n := int(res.end.GetUsageSummary().GetLlmCalls()); n != len(w.script.requests) {
				t.Errorf("%d model calls counted, %d made", n, len(w.script.requests))
			}
			for agent, rest := range w.script.steps {
				if len(rest) > 0 {
					t.Errorf("%s has %d answers left", agent, len(rest))
				}
			}
			if len(res.replies) > 0 {
				t.Errorf("answers refused: %v", res.replies)
			}
		})
	}
}

// TestLoopContinue asks the client after each iteration.
func TestLoopContinue(t *testing.T) {
	text := func(s string) *string { return &s }
	for _, tc := range []struct {
		name    string
		results []session.ClientResult
		want    string
	}{
		{"until it says no", []session.ClientResult{{Output: text(`{"continue":true}`)}, {Output: text(`{"continue":false}`)}}, "xx"},
		{"any other answer goes on", []session.ClientResult{{Output: text(`{}`)}, {Output: text(`yes`)}, {Output: text(`{"continue":false}`)}}, "xxx"},
		{"an error ends it", []session.ClientResult{{Error: text("broken")}}, "x"},
		{"to the cap", []session.ClientResult{{Output: text(`1`)}, {Output: text(`1`)}, {Output: text(`1`)}, {Output: text(`1`)}}, "xxxx"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, nil)
			w.script.always = func(string) step { return say("x") }
			w.tools = append(w.tools, offer("loop_continue"))
			n := 0
			w.result = func(c *agentdv1.RunResponse_ToolCallRequest) session.ClientResult {
				want := `{"agent":"l","iteration":` + string(rune('1'+n)) + `,"max_iterations":4}`
				if c.GetToolName() != "loop_continue" || c.GetToolInput() != want || strings.Join(c.GetAgentPath(), "/") != "root/l" {
					t.Errorf("asked %s %s of %v, want %s", c.GetToolName(), c.GetToolInput(), c.GetAgentPath(), want)
				}
				n++
				return tc.results[n-1]
			}
			res := w.run(seq("root", rounds("l", 4, llm("a"))), "go").ok(t)
			if res.text["root/l/a"] != tc.want || n != len(tc.results) {
				t.Errorf("said %q, asked %d times; want %q, %d", res.text["root/l/a"], n, tc.want, len(tc.results))
			}
		})
	}
}

// TestNextTurnStartsAtTheLastSpeaker keeps a conversation with the agent it was
// handed to.
func TestNextTurnStartsAtTheLastSpeaker(t *testing.T) {
	tree := llm("root", subs(llm("a", subs(llm("b"))), par("fan", llm("p"))))
	w := newWorld(t, map[string][]step{
		"root": {transfer("a"), transfer("fan")},
		"a":    {transfer("b"), transfer("root")},
		"b":    {say("one"), say("two"), transfer("a")},
		"p":    {say("three")},
	})
	w.run(tree, "1").ok(t)
	if got := w.run(tree, "2").ok(t).text; got["root/a/b"] != "two" || len(got) != 1 {
		t.Errorf("second turn: %v", got)
	}
	w.restart()
	if got := w.run(tree, "3").ok(t).text; got["root/fan/p"] != "three" {
		t.Errorf("third turn: %v", got)
	}
	// An agent below a workflow cannot begin a turn: the newest that can is root.
	w.script.steps["root"] = []step{say("four")}
	if got := w.run(tree, "4").ok(t).text; got["root"] != "four" || len(got) != 1 {
		t.Errorf("fourth turn: %v", got)
	}
	w.checkAll()
}
