package adkbridge

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/genai"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/session/record"
)

// ask has somebody ask for summaries. The caller holds mu, or is alone.
func (f *fakeRun) ask(focus string) {
	data, err := json.Marshal(record.CompactionAsked{Focus: focus})
	f.must(err)
	_, _ = f.store(record.KindCompactionAsked, data) // a crash is for others to see
}

// marks gives an agent mark_task_done.
func marks(a *agentdv1.Agent) *agentdv1.Agent {
	a.GetLlm().BuiltinTools = append(a.GetLlm().BuiltinTools, taskDoneTool)
	return a
}

// doneAfter has a model mark a task as done, with a detail, after the results of a round.
func doneAfter(details map[string]string) func([]*genai.Content) []*genai.Part {
	return func(contents []*genai.Content) []*genai.Part {
		last := contents[len(contents)-1].Parts
		for _, p := range last {
			if p.FunctionResponse == nil || p.FunctionResponse.Name == taskDoneTool {
				return nil
			}
			if detail, ok := details[fmt.Sprint(p.FunctionResponse.Response["n"])]; ok {
				return []*genai.Part{{Text: "done."}, adapter.NewCall("", taskDoneTool, fmt.Sprintf(`{"detail":%q}`, detail))}
			}
		}
		return nil
	}
}

// A summary that was asked for is written before the next model call, once, whatever the share; also for a runner that
// has only the log.
func TestCompactAsked(t *testing.T) {
	w := &narrowModels{known: true}
	r := New(Config{Resolve: w.Resolve})
	run := long(t, compacts(100_000, nil), "3 rounds")
	turn := func(prompt string) {
		t.Helper()
		if prompt != "" {
			run.begin(prompt)
		}
		if err := r.runTurn(t.Context(), run); err != nil {
			t.Fatal(err)
		}
		sameHistory(t, r, run)
	}
	turn("")
	turn("a second turn")
	run.ask("an older wish")
	run.ask("the plan, word for word")
	if n := len(w.summed); n != 0 {
		t.Fatalf("%d summaries before the next model call", n)
	}
	r = New(Config{Resolve: w.Resolve})
	turn("and now " + strings.Repeat("u", 300))
	sums := compacted(r, run)
	if len(sums) != 1 || !sums[0].Compacted.Asked || sums[0].Compacted.Overflow {
		t.Fatalf("summaries: %s", compact(sums))
	}
	asked := adapter.Text(w.summed[0].Config.SystemInstruction)
	if !strings.HasSuffix(asked, "\nthe plan, word for word") || strings.Contains(asked, "older") {
		t.Errorf("asked for with %q", asked)
	}
	last := transcript(w.requests[len(w.requests)-1].Contents)
	if !strings.Contains(last, sums[0].Compacted.Summary) || !strings.Contains(last, "and now") || strings.Contains(last, "a second turn") {
		t.Errorf("the prompt after it is\n%s", last)
	}
	turn("a turn more")
	r = New(Config{Resolve: w.Resolve})
	turn("and another one")
	if n := len(compacted(r, run)); n != 1 {
		t.Errorf("%d summaries, want the one that was asked for", n)
	}

	// In a turn that runs, it is the next call.
	client := run.client
	run.client = func(c record.ToolCall) record.ToolResult {
		if c.Name == "search" && strings.Contains(string(c.Input), "2") {
			run.ask("")
		}
		return client(c)
	}
	turn("5 rounds")
	if sums = compacted(r, run); len(sums) != 2 || !sums[1].Compacted.Asked {
		t.Fatalf("summaries: %s", compact(sums))
	}
	if through := sums[1].Compacted.Through; through <= run.start {
		t.Errorf("the second summary ends at record %d, before the turn began at %d", through, run.start)
	}
	if strings.Contains(adapter.Text(w.summed[1].Config.SystemInstruction), "For this summary") {
		t.Error("a request without a focus has one")
	}
	for _, req := range w.requests {
		checkValid(t, req.Contents)
	}
}

// A summary that fails is not asked for again until somebody does, also not by a runner that reads the log.
func TestCompactAskedFails(t *testing.T) {
	w := &narrowModels{known: true, summary: func(context.Context) (*model.Response, error) {
		return nil, &model.Error{Kind: model.KindUnavailable, Provider: "narrow", Message: "down", Status: 404}
	}}
	run := long(t, compacts(100_000, nil), "4 rounds")
	turn := func(prompt string) {
		t.Helper()
		if prompt != "" {
			run.begin(prompt)
		}
		if err := New(Config{Resolve: w.Resolve}).runTurn(t.Context(), run); err != nil {
			t.Fatal(err)
		}
	}
	turn("")
	run.ask("")
	turn("2 rounds")
	turn("a turn more")
	if len(w.summed) != 1 || len(compacted(New(Config{}), run)) != 0 {
		t.Fatalf("%d tries of a summary that fails, want 1", len(w.summed))
	}
	w.summary = nil
	run.ask("")
	turn("another turn")
	if len(w.summed) != 2 || len(compacted(New(Config{}), run)) != 1 {
		t.Errorf("%d tries, %d summaries after it was asked for again", len(w.summed), len(compacted(New(Config{}), run)))
	}
}

// An agent alone with its turn has nothing to summarize of what was asked for before.
func TestCompactAskedOfTurnsBefore(t *testing.T) {
	w := &narrowModels{known: true}
	tree := compacts(100_000, nil)
	tree.GetLlm().IncludeHistory = agentdv1.IncludeHistory_INCLUDE_HISTORY_TURN
	run := long(t, tree, "4 rounds")
	r := New(Config{Resolve: w.Resolve})
	if err := r.runTurn(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	run.ask("")
	run.begin("6 rounds")
	if err := r.runTurn(t.Context(), run); err != nil || len(w.summed) != 0 {
		t.Errorf("%v, %d summaries of a turn that came after the request", err, len(w.summed))
	}
}

// A task that is done is summarized when the model has spoken again, in the same turn or the next one, with the detail.
func TestTaskDone(t *testing.T) {
	w := &narrowModels{known: true, say: doneAfter(map[string]string{"4": "the sum is 42", "6": "all is done"})}
	r := New(Config{Resolve: w.Resolve})
	run := long(t, marks(compacts(100_000, nil)), "6 rounds")
	turn := func(prompt string) {
		t.Helper()
		if prompt != "" {
			run.begin(prompt)
		}
		if err := r.runTurn(t.Context(), run); err != nil {
			t.Fatal(err)
		}
		sameHistory(t, r, run)
	}
	turn("")
	sums := compacted(r, run)
	if len(sums) != 1 || !sums[0].Compacted.Done {
		t.Fatalf("summaries: %s", compact(sums))
	}
	if text := adapter.Text(w.summed[0].Config.SystemInstruction); !strings.HasSuffix(text, "\nthe sum is 42") {
		t.Errorf("asked for with %q", text)
	}
	for _, ev := range run.events(r) {
		for _, c := range ev.Calls {
			if c.Name == taskDoneTool {
				t.Error("the client is asked for mark_task_done")
			}
		}
	}
	r = New(Config{Resolve: w.Resolve})
	turn("what now? " + strings.Repeat("u", 200))
	if sums = compacted(r, run); len(sums) != 2 || !sums[1].Compacted.Done || sums[1].Compacted.Through >= run.start {
		t.Fatalf("summaries: %s", compact(sums))
	}
	if text := adapter.Text(w.summed[1].Config.SystemInstruction); !strings.HasSuffix(text, "\nall is done") {
		t.Errorf("asked for with %q", text)
	}
	for _, req := range w.requests {
		checkValid(t, req.Contents)
	}
}

// A client's own tool of that name is none of the server's, and an agent cannot have both.
func TestTaskDoneOfClient(t *testing.T) {
	w := &narrowModels{known: true, say: func(contents []*genai.Content) []*genai.Part {
		if len(contents) == 1 {
			return []*genai.Part{adapter.NewCall("", taskDoneTool, `{"detail":"mine"}`)}
		}
		return nil
	}}
	tree := compacts(100_000, nil)
	tree.GetLlm().ToolNames = []string{taskDoneTool}
	run := long(t, tree, "hi")
	run.spec.Tools = append(run.spec.Tools, offer(taskDoneTool))
	asked := 0
	run.client = func(c record.ToolCall) record.ToolResult {
		asked++
		return resultWith(doneText)
	}
	r := New(Config{Resolve: w.Resolve})
	for range 3 {
		if err := r.runTurn(t.Context(), run); err != nil {
			t.Fatal(err)
		}
		run.begin(strings.Repeat("u", 300))
	}
	if asked != 1 || len(w.summed) != 0 {
		t.Errorf("the client ran it %d times, %d summaries", asked, len(w.summed))
	}
	tree.GetLlm().BuiltinTools = []string{taskDoneTool}
	err := New(Config{Resolve: w.Resolve}).Check(t.Context(), run.spec, nil)
	if err == nil || !strings.Contains(err.Error(), "name one of them") {
		t.Errorf("an agent with both: %v", err)
	}
}
