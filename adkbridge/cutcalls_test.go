package adkbridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/genai"
	"google.golang.org/protobuf/encoding/protojson"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/record"
)

// billedModels are models that bill each try, failed ones too: "root" responds only in
// the third round, "b" in the second, "c" in all; each is tried twice.
type billedModels struct {
	// free are tries that have been paid for already.
	free []string

	mu sync.Mutex // agents may run side by side
	// tries are those that have failed, in order; protected by mu.
	tries []string
	// bill is what they all took, responses too; protected by mu.
	bill record.Usage
}

func (b *billedModels) Resolve(name string, _ map[string]string) (Model, error) {
	m := Model{LLM: modelcall.WithRetry(billedModel{b, name}, modelcall.Retry{Tries: 2, Base: 1, MaxWait: 1}), Provider: "p-" + name}
	if name != "b" { // whose price is not known
		m.Cost = func(u model.Usage) record.NanoUSD { return record.NanoUSD(u.Total) }
	}
	return m, nil
}

type billedModel struct {
	b    *billedModels
	name string
}

func (m billedModel) Generate(ctx context.Context, req *model.Request, _ func(model.Delta)) (*model.Response, error) {
	m.b.mu.Lock()
	defer m.b.mu.Unlock()
	round := 0
	for _, c := range req.Contents {
		for _, p := range c.Parts {
			if p.FunctionResponse != nil {
				round++
			}
		}
	}
	if round < map[string]int{"root": 2, "b": 1}[m.name] {
		try := fmt.Sprintf("%s%d%d", m.name, round, modelcall.From(ctx).Try)
		var u model.Usage
		if !slices.Contains(m.b.free, try) {
			u = model.Usage{Prompt: price[try], Total: price[try]}
			m.b.add(m.name, u)
		}
		m.b.tries = append(m.b.tries, try)
		return nil, u.Spent(&model.Error{Kind: model.KindUnavailable, Provider: "fake", Status: 500, Message: "no luck"})
	}
	resp := &model.Response{FinishReason: genai.FinishReasonStop, Usage: model.Usage{Prompt: 100, Total: 100}, Content: &genai.Content{Role: genai.RoleModel}}
	m.b.add(m.name, resp.Usage)
	if tool := []string{"search", "fetch", ""}[round]; tool != "" {
		resp.Content.Parts = []*genai.Part{adapter.NewCall("", tool, "{}")}
	} else {
		resp.Content.Parts = []*genai.Part{{Text: "done"}}
	}
	return resp, nil
}

// price is what each try takes that fails.
var price = map[string]int64{"root01": 1, "root02": 2, "b01": 4, "b02": 8, "root11": 16, "root12": 32}

func (b *billedModels) add(name string, u model.Usage) {
	one := record.Usage{Prompt: u.Prompt, Total: u.Total, Calls: 1, Cost: record.NanoUSD(u.Total)}
	if name == "b" {
		one.Cost, one.Unpriced = 0, 1
	}
	b.bill = b.bill.Add(one)
}

// summariesHold checks that a summary has what its models took that failed, also
// before a crash.
func (f *fakeRun) summariesHold(t *testing.T) {
	t.Helper()
	var failed int64
	for _, rec := range f.recs {
		switch rec.Kind {
		case record.KindModelFallback:
			if strings.Contains(string(rec.Data), `"message_id":""`) {
				failed++
			}
		case record.KindEvent:
			s, err := decode(rec.Data)
			f.must(err)
			m := s.CustomMetadata.Agentd
			if m.Compacted == nil && m.NoGain == "" {
				continue
			}
			var before record.Usage
			if m.Before != nil {
				before = *m.Before
			}
			if before.Calls != failed {
				t.Errorf("record %d: a summary of which %d models failed before holds %+v", rec.Seq, failed, before)
			}
			failed = 0
		default:
		}
	}
}

// failures counts the calls that clients see fail.
func (f *fakeRun) failures(r *Runner) int {
	n := 0
	for _, ev := range f.events(r) {
		if ended := ev.CallEnded("s"); ended != nil && ended.GetOutcome() == agentdv1.ModelCallEnded_OUTCOME_FAILED {
			n++
		}
	}
	return n
}

// TestCutUsage kills the process after each record of a turn whose models fail and bill
// that. The usage in the log is neither lost nor counted twice, and each try is
// reported once as part of a call. If repeating what failed costs nothing, the turn
// takes what an undisturbed one takes.
func TestCutUsage(t *testing.T) {
	tree := llm("root", fallback("b", "c"))
	models := &billedModels{}
	r := New(Config{Resolve: models.Resolve})
	whole := newFakeRun(t, tree, "go")
	if err := r.runTurn(t.Context(), whole); err != nil {
		t.Fatal(err)
	}
	want, reported := whole.usage(r)
	if want != models.bill || reported != want || want.Total != 363 || len(models.tries) != 6 || count(whole.recs, record.KindModelRetry) != 3 {
		t.Fatalf("billed %+v, the log has %+v and tells %+v", models.bill, want, reported)
	}
	for n := 1; n <= len(whole.recs); n++ {
		prefix := whole.restarted(n)
		failed := count(prefix.recs, record.KindModelRetry) + count(prefix.recs, record.KindModelFallback)
		had, _ := prefix.usage(r)
		for name, tc := range map[string]struct {
			free []string
			stop error
		}{
			"paid again": {},
			"free again": {free: models.tries[:failed]},
			"stopped":    {stop: errors.New("enough")},
			"suspended":  {stop: session.ErrSuspended},
		} {
			second := &billedModels{free: tc.free}
			r := New(Config{Resolve: second.Resolve})
			run := whole.restarted(n)
			if tc.stop != nil {
				ctx, cancel := context.WithCancelCause(t.Context())
				cancel(tc.stop)
				if err := r.runTurn(ctx, run); !errors.Is(err, tc.stop) {
					t.Fatalf("%s after record %d: %v", name, n, err)
				}
				if errors.Is(tc.stop, session.ErrSuspended) {
					run = run.restarted(len(run.recs))
				}
			}
			if tc.stop == nil || errors.Is(tc.stop, session.ErrSuspended) {
				if err := r.runTurn(t.Context(), run); err != nil {
					t.Fatalf("%s after record %d: %v", name, n, err)
				}
			}
			if failures := run.failures(r); tc.stop == nil && failures > 0 {
				t.Errorf("%s after record %d of %d: %d calls are told as failed, which were made again", name, n, len(whole.recs), failures)
			}
			taken, reported := run.usage(r)
			if taken != had.Add(second.bill) || reported != taken || tc.free != nil && taken != want {
				t.Errorf("%s after record %d of %d: the log had %+v, %+v was billed, it has %+v and tells %+v", name, n, len(whole.recs), had, second.bill, taken, reported)
			}
		}
	}
}

// TestCutUsageOld reads a log whose changes do not say what the models before took.
func TestCutUsageOld(t *testing.T) {
	r := New(Config{Resolve: (&billedModels{}).Resolve})
	run := newFakeRun(t, llm("root", fallback("b", "c")), "go")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(run.Retrying(t.Context(), record.ModelRetry{Path: []string{"root"}}))
	must(run.FellBack(t.Context(), record.ModelFallback{Path: []string{"root"}, Model: "root", Next: "b"}))
	// Then the response contained it all.
	must(run.storeFact(record.KindEvent, map[string]any{
		"author": "root", "invocationId": run.turnID, "content": genai.NewContentFromText("done", genai.RoleModel),
		"customMetadata": map[string]any{"agentd": meta{LLM: "root|#0", Path: []string{"root"}, Usage: &record.Usage{Total: 105, Calls: 3, Cost: 105}}},
	}))
	must(r.runTurn(t.Context(), run))
	if taken, reported := run.usage(r); taken != reported || taken.Total != 105 || taken.Calls != 3 || len(run.recs) != 4 {
		t.Errorf("%d records, taken %+v, told %+v", len(run.recs), taken, reported)
	}
}

// TestCutSummary is TestCutUsage for a model that fails before it has written a
// summary, and for a summary that is of no use: that one is not requested a second time.
func TestCutSummary(t *testing.T) {
	useless := func(context.Context) (*model.Response, error) {
		return &model.Response{Usage: model.Usage{Prompt: 1000, Total: 1000}}, nil
	}
	fails := func(context.Context) (*model.Response, error) {
		return nil, &model.Error{Kind: model.KindBlocked, Provider: "narrow", Message: "no", Usage: &model.Usage{Prompt: 1000, Total: 1000}}
	}
	unpaid := func(context.Context) (*model.Response, error) {
		return nil, &model.Error{Kind: model.KindBlocked, Provider: "narrow", Message: "no"}
	}
	for name, tc := range map[string]struct {
		known   bool
		summary func(context.Context) (*model.Response, error)
		share   float64
		prompt  string
	}{
		"written":              {true, nil, 0.8, "12 rounds"},
		"useless":              {true, useless, 0.5, "4 rounds"},
		"fails":                {true, fails, 0.5, "4 rounds"},
		"fails for nothing":    {true, unpaid, 0.5, "4 rounds"},
		"refused":              {false, nil, 1, "12 rounds"},
		"refused, useless":     {false, useless, 1, "12 rounds"},
		"refused, for nothing": {false, unpaid, 1, "12 rounds"},
	} {
		t.Run(name, func(t *testing.T) {
			tree := compacts(2000, &agentdv1.Compaction{AtShare: tc.share})
			tree.GetLlm().Model, tree.GetLlm().FallbackModels = "down-2000", []string{"narrow-2000"}
			models := &narrowModels{known: tc.known, summary: tc.summary}
			r := New(Config{Resolve: models.Resolve})
			whole := long(t, tree, tc.prompt)
			end := r.runTurn(t.Context(), whole)
			taken, reported := whole.usage(r)
			if n := len(models.summed); taken != reported || (end != nil) != (!tc.known && tc.summary != nil) || n == 0 || tc.summary != nil && n != 1 {
				t.Fatalf("%d summaries were asked for, taken %+v, told %+v, ended with %v", n, taken, reported, end)
			}
			for n := 1; n <= len(whole.recs); n++ {
				second := &narrowModels{known: tc.known, summary: tc.summary}
				r := New(Config{Resolve: second.Resolve})
				run := whole.restarted(n)
				tried := 0
				for _, rec := range run.recs {
					if s, err := decode(rec.Data); rec.Kind == record.KindEvent && err == nil && (s.CustomMetadata.Agentd.NoGain != "" || s.CustomMetadata.Agentd.Compacted != nil) {
						tried++
					}
				}
				before, _ := run.usage(r)
				if err := r.runTurn(t.Context(), run); fmt.Sprint(err) != fmt.Sprint(end) {
					t.Fatalf("after record %d of %d: ended with %v, want %v", n, len(whole.recs), err, end)
				}
				if got := tried + len(second.summed); got != len(models.summed) {
					t.Errorf("after record %d of %d: %d summaries were asked for, want %d", n, len(whole.recs), got, len(models.summed))
				}
				if got, want := run.failures(r), whole.failures(r); got != want && tc.known {
					t.Errorf("after record %d of %d: %d calls are told as failed, want %d", n, len(whole.recs), got, want)
				}
				run.summariesHold(t)
				after, reported := run.usage(r)
				if after != reported {
					t.Errorf("after record %d of %d: taken %+v, told %+v", n, len(whole.recs), after, reported)
				}
				if after != before.Add(second.bill()) {
					t.Errorf("after record %d of %d: the log had %+v, %+v was billed, it has %+v", n, len(whole.recs), before, second.bill(), after)
				}
			}
		})
	}
}

// TestSummaryFallback reports another model that writes a summary before it is called,
// and names that model when it is stopped.
func TestSummaryFallback(t *testing.T) {
	tree := compacts(2000, &agentdv1.Compaction{AtShare: 0.8})
	tree.GetLlm().Model, tree.GetLlm().FallbackModels = "down-2000", []string{"narrow-2000"}
	models := &narrowModels{known: true}
	w := narrowWorld(t, models)
	var reported []*agentdv1.ModelCallFellBack
	var outcomes []string
	w.watch = func(_ *session.Turn, m *agentdv1.RunResponse) {
		if f := m.GetModelCallFellBack(); f != nil && f.GetMessageId() == "" {
			reported = append(reported, f)
		}
		if e := m.GetModelCallEnded(); e != nil {
			outcomes = append(outcomes, strings.TrimPrefix(e.GetOutcome().String(), "OUTCOME_"))
		}
	}
	res := w.run(tree, "12 rounds").ok(t)
	if len(reported) == 0 || len(reported) != len(models.summed) {
		t.Fatalf("told of %d changes, %d summaries were written", len(reported), len(models.summed))
	}
	if f := reported[0]; f.GetModel() != "down-2000" || f.GetNextModel() != "narrow-2000" || f.GetCode() != agentdv1.ErrorCode_ERROR_CODE_MODEL_UNAVAILABLE ||
		!slices.Equal(f.GetAgentPath(), []string{"root"}) || !strings.Contains(f.GetMessage(), `model "down-2000": narrow: gone`) {
		t.Errorf("told %v", f)
	}
	sums := len(models.summed)
	if got := strings.Count(strings.Join(outcomes, " "), "SUMMARIZED"); got != sums || slices.Contains(outcomes, "FAILED") || outcomes[len(outcomes)-1] != "ANSWERED" {
		t.Errorf("%d summaries, outcomes %q", sums, outcomes)
	}
	if u := models.bill(); int64(res.end.GetUsageSummary().GetLlmCalls()) != u.Calls || res.end.GetUsageSummary().GetEstimatedCost() != u.Cost.Dollars() {
		t.Errorf("the turn took %v, billed is %+v", res.end.GetUsageSummary(), u)
	}

	asked := make(chan struct{})
	models.summary = func(ctx context.Context) (*model.Response, error) {
		close(asked)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	turn := w.start(tree, "20 rounds")
	go func() { // ends with the turn, at the latest
		select {
		case <-asked:
			turn.Cancel("enough")
		case <-turn.Done():
		}
	}()
	res = w.follow(turn)
	aborted := res.end.GetReceipt().GetAbortedModelCalls()
	if len(aborted) != 1 || aborted[0].GetModel() != "narrow-2000" {
		t.Fatalf("ended with %v", res.end)
	}
	if last := outcomes[len(outcomes)-1]; last != "FAILED" {
		t.Errorf("the summary that was cut off is told as %s", last)
	}
}

// TestSummaryFallbackUnrecorded ends the turn when the change cannot be recorded: no
// model is called of which the log does not know.
func TestSummaryFallbackUnrecorded(t *testing.T) {
	tree := compacts(2000, &agentdv1.Compaction{AtShare: 0.8})
	tree.GetLlm().Model, tree.GetLlm().FallbackModels = "down-2000", []string{"narrow-2000"}
	whole := long(t, tree, "12 rounds")
	if err := New(Config{Resolve: (&narrowModels{known: true}).Resolve}).runTurn(t.Context(), whole); err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(whole.recs, func(rec record.Record) bool {
		return rec.Kind == record.KindModelFallback && strings.Contains(string(rec.Data), `"message_id":""`)
	})
	models := &narrowModels{known: true}
	run := whole.restarted(at)
	run.limit = at
	if err := New(Config{Resolve: models.Resolve}).runTurn(t.Context(), run); !errors.Is(err, errCrashed) || len(models.requests) > 0 {
		t.Errorf("got %v, %d requests", err, len(models.requests))
	}
}

// TestCutBranch stops a turn whose process was killed while a parallel agent was
// between two models: the call that was cut off is reported on its branch, with the
// model that it had reached.
func TestCutBranch(t *testing.T) {
	r := New(Config{Resolve: (&billedModels{}).Resolve})
	whole := newFakeRun(t, par("top", llm("root", fallback("b", "c")), llm("other", func(a *agentdv1.LlmAgent) { a.Model = "c" })), "go")
	if err := r.runTurn(t.Context(), whole); err != nil {
		t.Fatal(err)
	}
	model := ""
	for n := 1; n <= len(whole.recs); n++ {
		run := whole.restarted(n)
		last := run.recs[n-1]
		switch last.Kind {
		case record.KindModelFallback:
			var f record.ModelFallback
			run.must(json.Unmarshal(last.Data, &f))
			model = f.Next
		case record.KindModelRetry:
		case record.KindEvent:
			if s, err := decode(last.Data); err == nil && s.Author == "root" {
				model = ""
			}
			continue
		default:
			continue
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("enough"))
		err := r.runTurn(ctx, run)
		if err == nil {
			t.Fatal("not stopped")
		}
		started := record.TurnStarted{Prompt: "go"}
		started.Agent, err = protojson.Marshal(run.spec.Agent)
		run.must(err)
		for _, tool := range run.spec.Tools {
			data, err := protojson.Marshal(tool)
			run.must(err)
			started.Tools = append(started.Tools, data)
		}
		run.recs[0].Data, err = json.Marshal(started)
		run.must(err)
		data, err := json.Marshal(record.TurnEnded{Reason: "enough"})
		run.must(err)
		_, err = run.store(record.KindTurnEnded, data)
		run.must(err)
		calls, err := listedCalls(t, logOfTurn("s", run.turnID, run.recs))
		if err != nil {
			t.Errorf("after record %d: %v", n, err)
			continue
		}
		i := slices.IndexFunc(calls, func(c *agentdv1.ModelCallDetails) bool {
			return c.GetCall().GetOutcome() == agentdv1.ModelCallEnded_OUTCOME_FAILED
		})
		if i < 0 || calls[i].GetContents() == 0 || !strings.HasSuffix(strings.Join(calls[i].GetCall().GetAgentPath(), "/"), "top/root") || calls[i].GetCall().GetModel() != model {
			t.Errorf("after record %d of %d, with model %q next: %s", n, len(whole.recs), model, compact(calls))
		}
	}
}
