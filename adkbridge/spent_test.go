package adkbridge

import (
	"testing"

	"github.com/apzuk3/agentd/model"
)

// TestSpent counts what a failed model call took, also when the process dies
// right behind it and the call is made again.
func TestSpent(t *testing.T) {
	blocked := step{err: &model.Error{Kind: model.KindBlocked, Provider: "fake", Message: "no", Usage: &model.Usage{Prompt: 7, Total: 7}}}
	w := newWorld(t, map[string][]step{"root": {use("search"), blocked}})
	run := newFakeRun(t, llm("root"), "go")
	if err := w.runner.drive(t.Context(), run); err == nil {
		t.Fatal("no error")
	}
	events := run.events(w.runner)
	last := events[len(events)-1]
	if u := last.Usage; u == nil || u.Total != 7 || u.Calls != 1 || u.CostUSD != 0.007 || last.Text != "" || last.MessageID != "" {
		t.Fatalf("last event %s", compact(last))
	}

	again := run.restarted(len(run.recs))
	w.script.steps = map[string][]step{"root": {say("fine"), say("still fine")}}
	w.runner.cache = newCache(0, 0)
	if err := w.runner.drive(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	again.begin("go on")
	if err := w.runner.drive(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	events = again.events(w.runner)
	if got := events[len(events)-2].Text + ", " + events[len(events)-1].Text; got != "fine, still fine" {
		t.Errorf("texts %q", got)
	}
	if n := len(again.recs) - len(run.recs); n != 3 { // two answers and a prompt
		t.Errorf("%d more records, want 3", n)
	}
	w.checkAll()
}

// TestSpentTries counts each try of a failed call of which the provider said what
// it took.
func TestSpentTries(t *testing.T) {
	failed := step{err: &model.Error{
		Kind: model.KindUnavailable, Provider: "fake", Message: "no", Tries: 4,
		Usage: &model.Usage{Prompt: 7, Total: 7}, Failed: []model.Usage{{Prompt: 5, Total: 5}, {Total: -1}},
	}}
	w := newWorld(t, map[string][]step{"root": {failed}})
	run := newFakeRun(t, llm("root"), "go")
	if err := w.runner.drive(t.Context(), run); err == nil {
		t.Fatal("no error")
	}
	events := run.events(w.runner)
	if u := events[len(events)-1].Usage; u == nil || u.Prompt != 12 || u.Total != 12 || u.Calls != 2 || u.CostUSD != 0.012 {
		t.Errorf("usage %+v, want that of two tries", u)
	}
}

// TestSpentNonsense leaves out counts that cannot be.
func TestSpentNonsense(t *testing.T) {
	w := newWorld(t, map[string][]step{"root": {{err: &model.Error{Kind: model.KindBlocked, Usage: &model.Usage{Total: -1}}}}})
	run := newFakeRun(t, llm("root"), "go")
	if err := w.runner.drive(t.Context(), run); err == nil {
		t.Fatal("no error")
	}
	if events := run.events(w.runner); len(events) != 0 {
		t.Errorf("events %s", compact(events))
	}
}
