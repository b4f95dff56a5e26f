package adkbridge

import (
	"context"
	"errors"
	"testing"

	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/record"
)

// TestUsageReported counts the usage of a failed model call, also when the process dies
// right after it and the call is repeated.
func TestUsageReported(t *testing.T) {
	blocked := step{err: &model.Error{Kind: model.KindBlocked, Provider: "fake", Message: "no", Usage: &model.Usage{Prompt: 7, Total: 7}}}
	w := newWorld(t, map[string][]step{"root": {use("search"), blocked}})
	run := newFakeRun(t, llm("root"), "go")
	if err := w.runner.runTurn(t.Context(), run); err == nil {
		t.Fatal("no error")
	}
	events := run.events(w.runner)
	last := events[len(events)-1]
	if u := last.Usage; u == nil || u.Total != 7 || u.Calls != 1 || u.Cost != 7_000_000 || last.Text != "" || last.MessageID != "" {
		t.Fatalf("last event %s", compact(last))
	}

	restarted := run.restarted(len(run.recs))
	w.script.steps = map[string][]step{"root": {say("fine"), say("still fine")}}
	w.runner.cache = newCache(0, 0)
	if err := w.runner.runTurn(t.Context(), restarted); err != nil {
		t.Fatal(err)
	}
	restarted.begin("go on")
	if err := w.runner.runTurn(t.Context(), restarted); err != nil {
		t.Fatal(err)
	}
	events = restarted.events(w.runner)
	if got := events[len(events)-2].Text + ", " + events[len(events)-1].Text; got != "fine, still fine" {
		t.Errorf("texts %q", got)
	}
	if n := len(restarted.recs) - len(run.recs); n != 4 { // two responses, a prompt, and a start of root
		t.Errorf("%d more records, want 4", n)
	}
	w.checkAll()
}

// TestUsageOfTries counts each try of a failed call of which the provider said what
// it took.
func TestUsageOfTries(t *testing.T) {
	failed := step{err: &model.Error{
		Kind: model.KindUnavailable, Provider: "fake", Message: "no", Tries: 4,
		Usage: &model.Usage{Prompt: 7, Total: 7}, Failed: []model.Usage{{Prompt: 5, Total: 5}, {Total: -1}},
	}}
	w := newWorld(t, map[string][]step{"root": {failed}})
	run := newFakeRun(t, llm("root"), "go")
	if err := w.runner.runTurn(t.Context(), run); err == nil {
		t.Fatal("no error")
	}
	events := run.events(w.runner)
	if u := events[len(events)-1].Usage; u == nil || u.Prompt != 12 || u.Total != 12 || u.Calls != 2 || u.Cost != 12_000_000 {
		t.Errorf("usage %+v, want that of two tries", u)
	}
}

// TestUsageNonsense leaves out counts that cannot be.
func TestUsageNonsense(t *testing.T) {
	w := newWorld(t, map[string][]step{"root": {{err: &model.Error{Kind: model.KindBlocked, Usage: &model.Usage{Total: -1}}}}})
	run := newFakeRun(t, llm("root"), "go")
	if err := w.runner.runTurn(t.Context(), run); err == nil {
		t.Fatal("no error")
	}
	if events := run.events(w.runner); len(events) != 0 {
		t.Errorf("events %s", compact(events))
	}
}

// TestUsageAborted counts the usage of an aborted model call once: when its turn is
// stopped, and when the turn is suspended and repeats the call.
func TestUsageAborted(t *testing.T) {
	for _, cause := range []error{errors.New("enough"), session.ErrSuspended} {
		t.Run(cause.Error(), func(t *testing.T) {
			cut := step{text: "half an answer", hang: true, early: model.Usage{Prompt: 7, Total: 7}}
			w := newWorld(t, map[string][]step{"a": {cut}, "b": {cut}})
			run := newFakeRun(t, par("root", llm("a"), llm("b")), "go")
			ctx, cancel := context.WithCancelCause(t.Context())
			spoke := map[string]bool{}
			run.streaming = func(d record.Delta) {
				if spoke[d.Path[len(d.Path)-1]] = true; len(spoke) == 2 {
					cancel(cause)
				}
			}
			if err := w.runner.runTurn(ctx, run); err != cause { //nolint:errorlint // the cause itself is promised
				t.Fatalf("error %v", err)
			}
			want := record.Usage{Prompt: 14, Total: 14, Calls: 2, Cost: 14_000_000}
			taken, reported := run.usage(w.runner)
			if n := run.failures(w.runner); taken != want || reported != want || n != 2 {
				t.Errorf("the log has %+v and tells %+v of %d calls, want %+v", taken, reported, n, want)
			}
			run = run.restarted(len(run.recs))
			if !errors.Is(cause, session.ErrSuspended) {
				run.begin("go on")
			}
			want = want.Add(record.Usage{Prompt: 14, Completion: 6, Total: 20, Calls: 2, Cost: 20_000_000})
			w.script.steps = map[string][]step{"a": {say("A")}, "b": {say("B")}}
			w.runner.cache = newCache(0, 0)
			if err := w.runner.runTurn(t.Context(), run); err != nil {
				t.Fatal(err)
			}
			if taken, reported = run.usage(w.runner); taken != want || reported != want {
				t.Errorf("then the log has %+v and tells %+v, want %+v", taken, reported, want)
			}
			w.checkAll()
		})
	}
}
