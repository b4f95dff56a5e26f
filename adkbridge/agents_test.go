package adkbridge

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/record"
)

// changesOf are the starts and ends of agents that a record holds.
func changesOf(run *fakeRun, rec record.Record) []record.AgentChange {
	var f record.AgentsChanged
	run.must(json.Unmarshal(rec.Data, &f))
	if n := len(f.Changes); n == 0 || n > maxAgentChanges {
		run.t.Errorf("record %d holds %d changes", rec.Seq, n)
	}
	return f.Changes
}

// agentLines is what a log says of agents, one word for each change; a record is a line.
func agentLines(run *fakeRun) []string {
	var lines []string
	for _, rec := range run.recs {
		if rec.Kind != record.KindAgentsChanged {
			continue
		}
		var words []string
		for _, c := range changesOf(run, rec) {
			words = append(words, word(&c))
		}
		lines = append(lines, strings.Join(words, " "))
	}
	return lines
}

func word(c *record.AgentChange) string {
	switch {
	case c.Ended == record.AgentTransferred:
		return ">" + strings.Join(c.Path, "/")
	case c.Ended != "":
		return "-" + strings.Join(c.Path, "/")
	case c.Model != "":
		return "+" + strings.Join(c.Path, "/") + "(" + c.Model + ")"
	default:
		return "+" + strings.Join(c.Path, "/") + "[" + string(c.Kind) + "]"
	}
}

// TestAgentsChanged records what agents do when the next one begins, and nothing that the
// end of the turn says.
func TestAgentsChanged(t *testing.T) {
	for _, tc := range []struct {
		name  string
		tree  *agentdv1.Agent
		steps map[string][]step
		want  []string
	}{
		{"one", llm("a"), map[string][]step{"a": {use("search"), say("A")}}, []string{"+a(a)"}},
		{"sequential", seq("root", llm("a"), llm("b")), map[string][]step{"a": {say("A")}, "b": {say("B")}}, []string{
			"+root[sequential] +root/a(a)", "-root/a +root/b(b)",
		}},
		{"loop", rounds("root", 2, llm("a"), llm("b")), map[string][]step{"a": {say("A"), say("A")}, "b": {say("B"), say("B")}}, []string{
			"+root[loop] +root/a(a)", "-root/a +root/b(b)", "-root/b +root/a(a)", "-root/a +root/b(b)",
		}},
		{"transfer", llm("root", subs(llm("a"))), map[string][]step{"root": {transfer("a"), say("bye")}, "a": {transfer("root")}}, []string{
			"+root(root)", ">root +root/a(a)", ">root/a +root(root)",
		}},
		{"transfer below a parallel agent", par("root", llm("r", subs(llm("a")))), map[string][]step{"r": {transfer("a")}, "a": {say("A")}}, []string{
			"+root[parallel] +root/r(r)", ">root/r +root/r/a(a)", "-root/r/a",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, tc.steps)
			run := newFakeRun(t, tc.tree, "go")
			if err := w.runner.runTurn(t.Context(), run); err != nil {
				t.Fatal(err)
			}
			if got := agentLines(run); !slices.Equal(got, tc.want) {
				t.Errorf("got  %q\nwant %q", got, tc.want)
			}
		})
	}
}

// TestAgentAlone records nothing of the agent whose start the turn's start holds, also when the
// turn resumes from any record.
func TestAgentAlone(t *testing.T) {
	w := newWorld(t, map[string][]step{"a": {use("search"), say("A")}})
	run := newFakeRun(t, llm("a"), "go")
	data, err := json.Marshal(record.TurnStarted{Prompt: "go", Alone: &record.AgentChange{Path: []string{"a"}, Kind: record.LLMAgent, Model: "a"}})
	run.must(err)
	run.recs[0].Data = data
	run.must(w.runner.runTurn(t.Context(), run))
	for n := range run.recs {
		restarted := run.restarted(n + 1)
		w := newWorld(t, map[string][]step{"a": {use("search"), say("A")}})
		run.must(w.runner.runTurn(t.Context(), restarted))
		if got := agentLines(restarted); len(got) > 0 {
			t.Errorf("run again from record %d: %q", n+1, got)
		}
	}
}

// TestAgentsChangedParallel records the ends of agents that others outlive at once.
func TestAgentsChangedParallel(t *testing.T) {
	gate := make(chan struct{})
	w := newWorld(t, map[string][]step{"a": {say("A")}, "b": {{text: "B", gate: gate}}})
	run := newFakeRun(t, par("root", llm("a"), llm("b")), "go")
	done := make(chan error, 1)
	go func() { done <- w.runner.runTurn(t.Context(), run) }()
	for !slices.Contains(run.changed(), "-root/a") {
		select {
		case err := <-done:
			t.Fatalf("over before a was told to have ended: %v", err)
		default:
		}
	}
	if got := run.changed(); slices.Contains(got, "-root/b") {
		t.Errorf("%q, while b is at work", got)
	}
	close(gate)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	got := run.changed()
	slices.Sort(got)
	if want := []string{"+root/a(a)", "+root/b(b)", "+root[parallel]", "-root/a", "-root/b"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// changed are the changes so far.
func (f *fakeRun) changed() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Fields(strings.Join(agentLines(f), " "))
}

// TestAgentsChangedAtEnd says of an agent that was done before its turn failed that it was
// done.
func TestAgentsChangedAtEnd(t *testing.T) {
	w := newWorld(t, map[string][]step{"a": {say("A")}})
	run := newFakeRun(t, rounds("root", 1, llm("a")), "go")
	run.spec.Tools = append(run.spec.Tools, offer("loop_continue"))
	run.client = func(record.ToolCall) record.ToolResult { return record.ToolResult{} }
	run.limit = 3 // the end of a is not recorded
	err := w.runner.runTurn(t.Context(), run)
	if err == nil {
		t.Fatal("the turn has not failed")
	}
	if got, want := agentLines(run), []string{"+root[loop] +root/a(a)"}; !slices.Equal(got, want) {
		t.Errorf("recorded %q, want %q", got, want)
	}
	if len(run.atEnd) != 1 || word(&run.atEnd[0]) != "-root/a" {
		t.Errorf("recorded with the end: %v", run.atEnd)
	}
}
