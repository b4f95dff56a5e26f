package adkbridge

import (
	"bytes"
	"iter"
	"slices"
	"strings"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/record"
)

// TestWithoutPayloads: what tools were given and returned is not in the log any more; all else is, a replay goes the same
// way, and later turns read it.
func TestWithoutPayloads(t *testing.T) {
	args := func(name string) call { return call{name: name, args: `{"q":"canary"}`} }
	w := newWorld(t, map[string][]step{
		"a": {
			{text: "let me", calls: []call{args("search"), args("fetch"), args("calc"), args("none")}},
			{calls: []call{{name: "search", args: `not JSON: canary`}, args("search")}},
			transfer("b"), say("again"),
		},
		"b": {say("done"), say("more")},
	})
	w.result = func(tc *agentdv1.RunResponse_ToolCallRequest) session.ClientResult {
		switch tc.GetToolName() {
		case "fetch":
			return session.ClientResult{Error: new("canary is away")}
		case "calc":
			return session.ClientResult{
				Output: new(`{"error":"canary"}`), Parts: record.Parts{textPart("canary"), filePart("image/png", []byte("canary"))},
				State: map[string]any{"kept": "state"},
			}
		}
		return session.ClientResult{Output: new(`{"n":"canary"}`)}
	}
	tree := llm("a", tools("search", "fetch", "calc"), subs(llm("b")))
	w.run(tree, "go").ok(t)
	recs, err := w.store.Read(t.Context(), w.session, 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	changed, err := w.runner.WithoutPayloads(each(recs))
	if err != nil {
		t.Fatal(err)
	}
	without := slices.Clone(recs)
	before := 0
	for _, rec := range recs {
		before += bytes.Count(rec.Data, []byte("canary")) + bytes.Count(rec.Data, []byte("Y2FuYXJ5"))
	}
	for _, rec := range changed {
		if old := recs[rec.Seq-1]; old.Kind != rec.Kind || old.TurnID != rec.TurnID || !old.Time.Equal(rec.Time) {
			t.Errorf("record %d is %s now", rec.Seq, rec.Kind)
		}
		without[rec.Seq-1] = rec
	}
	for _, rec := range without {
		if bytes.Contains(rec.Data, []byte("canary")) || bytes.Contains(rec.Data, []byte("Y2FuYXJ5")) {
			t.Errorf("record %d still has it: %s", rec.Seq, rec.Data)
		}
	}
	if before < 10 || len(changed) == 0 {
		t.Fatalf("the log had it %d times, %d records are changed", before, len(changed))
	}
	if again, err := w.runner.WithoutPayloads(each(without)); err != nil || len(again) > 0 {
		t.Errorf("a second time changes %d records, %v", len(again), err)
	}
	rep, err := Verify(t.Context(), w.session, logOfTurn(w.session, "", without).Records, nil)
	if err != nil || rep.Divergence != nil || rep.Turns != 1 {
		t.Errorf("replay: %+v, error %v", rep, err)
	}

	s := newMemStore()
	s.logs[w.session] = without
	w.store, w.runner = s, New(Config{Resolve: w.script.Resolve})
	w.restart()
	w.run(tree, "and now?").ok(t)
	w.checkAll()
	seen := w.script.seen("b")
	got := describe(seen[len(seen)-1].contents)
	if strings.Contains(got, "canary") || !strings.Contains(got, dropped) || !strings.Contains(got, "called tool `fetch`") {
		t.Errorf("the next turn reads\n%s", got)
	}
}

func each(recs []record.Record) iter.Seq2[record.Record, error] {
	return func(yield func(record.Record, error) bool) {
		for _, rec := range recs {
			if !yield(rec, nil) {
				return
			}
		}
	}
}
