package adkbridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/session"
)

// billed are models that bill each try, also those that fail: "root" answers in the
// third round alone, "b" in the second, "c" in all; each is tried twice.
type billed struct {
	// free are tries that have been paid for already.
	free []string
	// tries are those that have failed, in order; owned by the run.
	tries []string
	// bill is what they all took, answers too.
	bill session.Usage
}

func (b *billed) Resolve(name string, _ map[string]string) (Model, error) {
	m := Model{LLM: model.Again(billedModel{b, name}, model.Retry{Tries: 2, Base: 1, MaxWait: 1}), Provider: "p-" + name}
	if name != "b" { // whose price is not known
		m.Cost = func(u model.Usage) float64 { return float64(u.Total) }
	}
	return m, nil
}

type billedModel struct {
	b    *billed
	name string
}

func (m billedModel) Generate(_ context.Context, req *model.Request, _ func(model.Delta)) (*model.Response, error) {
	round := 0
	for _, c := range req.Contents {
		for _, p := range c.Parts {
			if p.FunctionResponse != nil {
				round++
			}
		}
	}
	if round < map[string]int{"root": 2, "b": 1}[m.name] {
		try := fmt.Sprintf("%s%d%d", m.name, round, req.Try)
		var u model.Usage
		if !slices.Contains(m.b.free, try) {
			u = model.Usage{Prompt: price[try], Total: price[try]}
			m.b.add(m.name, u)
		}
		m.b.tries = append(m.b.tries, try)
		return nil, model.Spent(&model.Error{Kind: model.KindUnavailable, Provider: "fake", Status: 500, Message: "no luck"}, u)
	}
	resp := &model.Response{FinishReason: genai.FinishReasonStop, Usage: model.Usage{Prompt: 100, Total: 100}, Content: &genai.Content{Role: genai.RoleModel}}
	m.b.add(m.name, resp.Usage)
	if tool := []string{"search", "fetch", ""}[round]; tool != "" {
		resp.Content.Parts = []*genai.Part{model.NewCall("", tool, "{}")}
	} else {
		resp.Content.Parts = []*genai.Part{{Text: "done"}}
	}
	return resp, nil
}

// price is what each try takes that fails.
var price = map[string]int64{"root01": 1, "root02": 2, "b01": 4, "b02": 8, "root11": 16, "root12": 32}

func (b *billed) add(name string, u model.Usage) {
	one := session.Usage{Prompt: u.Prompt, Total: u.Total, Calls: 1, CostUSD: float64(u.Total)}
	if name == "b" {
		one.CostUSD, one.Unpriced = 0, 1
	}
	b.bill = b.bill.Add(one)
}

// TestCutUsage kills the process behind each record of a turn whose models fail and
// bill that: what the log has was taken is neither lost nor counted twice, and each
// try is told once as part of a call. Where what failed costs nothing when it is
// asked again, it is what an undisturbed turn takes.
func TestCutUsage(t *testing.T) {
	tree := llm("root", fallback("b", "c"))
	models := &billed{}
	r := New(Config{Models: models})
	whole := newFakeRun(t, tree, "go")
	if err := r.drive(t.Context(), whole); err != nil {
		t.Fatal(err)
	}
	want, told := whole.usage(r)
	if want != models.bill || told != want || want.Total != 363 || len(models.tries) != 6 || count(whole.recs, session.KindModelRetry) != 3 {
		t.Fatalf("billed %+v, the log has %+v and tells %+v", models.bill, want, told)
	}
	for n := 1; n <= len(whole.recs); n++ {
		prefix := whole.restarted(n)
		failed := count(prefix.recs, session.KindModelRetry) + count(prefix.recs, session.KindModelFallback)
		had, _ := prefix.usage(r)
		for name, tc := range map[string]struct {
			free []string
			stop error
		}{
			"paid again": {},
			"free again": {free: models.tries[:failed]},
			"stopped":    {stop: errors.New("enough")},
			"put aside":  {stop: session.ErrPutAside},
		} {
			again := &billed{free: tc.free}
			r := New(Config{Models: again})
			run := whole.restarted(n)
			if tc.stop != nil {
				ctx, cancel := context.WithCancelCause(t.Context())
				cancel(tc.stop)
				if err := r.drive(ctx, run); !errors.Is(err, tc.stop) {
					t.Fatalf("%s after record %d: %v", name, n, err)
				}
				if errors.Is(tc.stop, session.ErrPutAside) {
					run = run.restarted(len(run.recs))
				}
			}
			if tc.stop == nil || errors.Is(tc.stop, session.ErrPutAside) {
				if err := r.drive(t.Context(), run); err != nil {
					t.Fatalf("%s after record %d: %v", name, n, err)
				}
			}
			taken, told := run.usage(r)
			if taken != had.Add(again.bill) || told != taken || tc.free != nil && taken != want {
				t.Errorf("%s after record %d of %d: the log had %+v, %+v was billed, it has %+v and tells %+v", name, n, len(whole.recs), had, again.bill, taken, told)
			}
		}
	}
}

// TestCutUsageOld reads a log whose changes do not say what the models before took.
func TestCutUsageOld(t *testing.T) {
	r := New(Config{Models: &billed{}})
	run := newFakeRun(t, llm("root", fallback("b", "c")), "go")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(run.Retrying(t.Context(), session.ModelRetry{Path: []string{"root"}}))
	must(run.FellBack(t.Context(), session.ModelFallback{Path: []string{"root"}, Model: "root", Next: "b"}))
	// Then the answer has held it all.
	must(run.tellOf(session.KindEvent, map[string]any{
		"author": "root", "invocationId": run.turnID, "content": genai.NewContentFromText("done", genai.RoleModel),
		"customMetadata": map[string]any{"agentd": meta{LLM: "root|#0", Path: []string{"root"}, Usage: &session.Usage{Total: 105, Calls: 3, CostUSD: 105}}},
	}))
	must(r.drive(t.Context(), run))
	if taken, told := run.usage(r); taken != told || taken.Total != 105 || taken.Calls != 3 || len(run.recs) != 4 {
		t.Errorf("%d records, taken %+v, told %+v", len(run.recs), taken, told)
	}
}
