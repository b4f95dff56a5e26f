package adkbridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/genai"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/record"
)

// compacts is an agent of a window, of which the server knows the rest.
func compacts(window int, c *agentdv1.Compaction) *agentdv1.Agent {
	return llm("root", func(a *agentdv1.LlmAgent) {
		a.Model, a.Compaction = fmt.Sprintf("narrow-%d", window), c
	})
}

// long is a session with a narrow model.
func long(t *testing.T, tree *agentdv1.Agent, prompt string) *fakeRun {
	run := newFakeRun(t, tree, prompt)
	run.client = func(c record.ToolCall) record.ToolResult {
		var in struct{ Q int }
		if err := json.Unmarshal(c.Input, &in); err != nil {
			t.Error(err)
		}
		return resultWith(fmt.Sprintf(`{"n":%d,"text":%q}`, in.Q, strings.Repeat("r", 300)))
	}
	return run
}

// compacted are the summaries of a log.
func compacted(r *Runner, run *fakeRun) []*record.Event {
	return slices.DeleteFunc(run.events(r), func(ev *record.Event) bool { return ev.Compacted == nil })
}

// sameHistory fails the test unless a history that is read from the log gives the
// prompt and the measures that the runner's own one gives.
func sameHistory(t *testing.T, r *Runner, run *fakeRun) {
	t.Helper()
	ended := run.restarted(len(run.recs))
	ended.start = int64(len(run.recs)) + 1 // all is history
	live := r.cache.take(cacheKey{id: "s"}, ended.start)
	read := newHistory()
	if _, err := read.load(t.Context(), ended); err != nil {
		t.Fatal(err)
	}
	key := promptKey{"root", ""}
	a, b := live.outline(key, 0, run.start), read.outline(key, 0, run.start)
	if compact(a.contents) != compact(b.contents) || a.tokens(0) != b.tokens(0) || a.bytes != b.bytes {
		t.Fatalf("live, %d tokens:\n%s\nread, %d tokens:\n%s", a.tokens(0), transcript(a.contents), b.tokens(0), transcript(b.contents))
	}
	r.cache.put(cacheKey{id: "s"}, live)
}

// TestCompactAhead keeps a conversation of many turns, and one of many rounds in
// one turn, below the window: no prompt is ever refused.
func TestCompactAhead(t *testing.T) {
	for name, tc := range map[string]struct {
		known  bool
		c      *agentdv1.Compaction
		at     float64
		window int64 // that the model reports
	}{
		"of the model":  {true, &agentdv1.Compaction{AtShare: 0.75}, 0, 3000},
		"of the client": {false, &agentdv1.Compaction{AtShare: 0.75, ContextTokens: 2900, Instruction: "mind the gap"}, 0, 2900},
		"of the server": {true, nil, 0.75, 3000},
		"other model":   {true, &agentdv1.Compaction{AtShare: 0.75, Model: "sums-2500"}, 0, 3000},
	} {
		t.Run(name, func(t *testing.T) {
			w := &narrowModels{known: tc.known}
			r := New(Config{Resolve: w.Resolve, CompactAt: tc.at})
			run := long(t, compacts(3000, tc.c), "10 rounds")
			for i := range 60 {
				if i > 0 {
					run.begin(fmt.Sprintf("turn %d %s", i, strings.Repeat("u", 300)))
				}
				if err := r.runTurn(t.Context(), run); err != nil {
					t.Fatalf("turn %d: %v", i, err)
				}
				sameHistory(t, r, run)
			}
			run.begin("40 rounds")
			if err := r.runTurn(t.Context(), run); err != nil {
				t.Fatal(err)
			}
			if w.refused > 0 {
				t.Errorf("%d prompts were refused", w.refused)
			}
			for _, req := range w.requests {
				checkValid(t, req.Contents)
			}
			sums := compacted(r, run)
			if len(sums) < 5 || len(sums) != len(w.summed) {
				t.Fatalf("%d summaries of %d asked for", len(sums), len(w.summed))
			}
			last := sums[len(sums)-1]
			if c := last.Compacted; c.Overflow || c.Window != tc.window || c.Prompt < 2100 || c.Prompt > 3000 || c.Through <= run.start {
				t.Errorf("the last summary is %+v", last.Compacted)
			}
			if last.Text != "" || last.MessageID != "" || last.Usage == nil || last.Usage.Calls != 1 || last.Usage.Cost == 0 || last.Call.Provider != "narrow" {
				t.Errorf("the last summary is the event %s", compact(last))
			}
			first, end := w.summed[0], w.requests[len(w.requests)-1]
			if len(first.Functions()) > 0 || first.Config.MaxOutputTokens == 0 || tc.c.GetInstruction() != "" && !strings.HasSuffix(adapter.Text(first.Config.SystemInstruction), tc.c.GetInstruction()) {
				t.Errorf("asked for a summary with %s", compact(first.Config))
			}
			if second := transcript(w.summed[1].Contents); !strings.Contains(second, sums[0].Compacted.Summary) {
				t.Errorf("the second summary is not one of the first and more:\n%s", second)
			}
			if text := transcript(end.Contents); !strings.Contains(text, last.Compacted.Summary) || !strings.Contains(text, "40 rounds") || strings.Contains(text, "10 rounds") {
				t.Errorf("the last prompt is\n%s", text)
			}
			if slices.ContainsFunc(run.deltas, func(d record.Delta) bool { return strings.HasPrefix(d.Text, "summary") }) {
				t.Error("a summary was shown")
			}
		})
	}
}

// TestCompactNever: without compaction, and without a window or with a share of 0,
// nothing is summarised before a prompt is refused.
func TestCompactNever(t *testing.T) {
	for name, tc := range map[string]struct {
		known bool
		c     *agentdv1.Compaction
		want  int // summaries after the first refused prompt
	}{
		"no compaction": {true, nil, 0},
		"no window":     {false, &agentdv1.Compaction{AtShare: 0.1}, 1},
		"no share":      {true, &agentdv1.Compaction{}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := &narrowModels{known: tc.known}
			r := New(Config{Resolve: w.Resolve})
			run := long(t, compacts(3000, tc.c), "start")
			var err error
			for i := 0; w.refused == 0 && i < 100 && err == nil; i++ {
				run.begin(strings.Repeat("u", 300))
				if n := len(compacted(r, run)); n > 0 {
					t.Fatalf("turn %d: %d summaries", i, n)
				}
				err = r.runTurn(t.Context(), run)
			}
			sums := compacted(r, run)
			if len(sums) != tc.want || (err == nil) != (tc.want > 0) || err != nil && fault.As(err).Code != agentdv1.ErrorCode_ERROR_CODE_CONTEXT_TOO_LONG {
				t.Fatalf("%d summaries, %v", len(sums), err)
			}
			if tc.want > 0 && !sums[0].Compacted.Overflow {
				t.Errorf("summary %+v", sums[0].Compacted)
			}
		})
	}
}

// TestCompactOverflow continues after each prompt that was refused, and ends
// with the provider's error when nothing can be left out.
func TestCompactOverflow(t *testing.T) {
	w := &narrowModels{}
	r := New(Config{Resolve: w.Resolve})
	run := long(t, compacts(2000, &agentdv1.Compaction{AtShare: 1}), "30 rounds")
	if err := r.runTurn(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	if sums := compacted(r, run); len(sums) < 3 || len(sums) != w.refused {
		t.Fatalf("%d summaries, %d prompts were refused", len(sums), w.refused)
	}
	for _, req := range w.requests {
		checkValid(t, req.Contents)
	}
	for i := range 40 {
		run.begin(fmt.Sprintf("turn %d %s", i, strings.Repeat("u", 300)))
		if err := r.runTurn(t.Context(), run); err != nil {
			t.Fatal(err)
		}
		sameHistory(t, r, run)
	}
	before, refused := len(compacted(r, run)), w.refused
	run.begin(strings.Repeat("u", 20_000))
	err := r.runTurn(t.Context(), run)
	if e := fault.As(err); e.Code != agentdv1.ErrorCode_ERROR_CODE_CONTEXT_TOO_LONG || !strings.Contains(e.Message, "tokens, at most 2000") {
		t.Errorf("a prompt that does not fit: %v", err)
	}
	if n := w.refused - refused; n > 2 || len(compacted(r, run)) > before+1 {
		t.Errorf("%d tries, %d more summaries", n, len(compacted(r, run))-before)
	}
}

// TestCompactCrashes kills the process after each record: the turn takes the same way
// and writes no summary twice.
func TestCompactCrashes(t *testing.T) {
	for name, tc := range map[string]struct {
		known bool
		cut   bool // the first summary
		c     *agentdv1.Compaction
		asks  bool // somebody, in the middle; the model marks two tasks as done
		fails bool // each summary
	}{
		"ahead":        {true, false, &agentdv1.Compaction{AtShare: 0.8}, false, false},
		"overflow":     {false, false, &agentdv1.Compaction{}, false, false},
		"cut":          {true, true, &agentdv1.Compaction{AtShare: 0.8}, false, false},
		"cut overflow": {false, true, &agentdv1.Compaction{ContextTokens: 2000}, false, false},
		"asked":        {true, false, nil, true, false},
		"asked, cut":   {true, true, nil, true, false},
		"asked, fails": {true, false, nil, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			models := &narrowModels{known: tc.known}
			if tc.fails {
				models.summary = func(context.Context) (*model.Response, error) {
					return nil, &model.Error{Kind: model.KindUnavailable, Provider: "narrow", Message: "down", Status: 404}
				}
			}
			if tc.cut {
				models.summary = models.thinking(500)
			}
			var now *fakeRun
			finish := func(run *fakeRun) *fakeRun {
				now = run
				r := New(Config{Resolve: models.Resolve})
				if err := r.runTurn(t.Context(), run); err != nil {
					t.Fatalf("%d records: %v", len(run.recs), err)
				}
				sameHistory(t, r, run)
				return run
			}
			said := func(run *fakeRun) []string {
				var out []string
				for _, ev := range run.events(New(Config{})) {
					if c := ev.Compacted; c != nil {
						out = append(out, compact(*c))
					}
					out = append(out, ev.Text+compact(len(ev.Calls)))
				}
				return out
			}
			first := long(t, compacts(2000, tc.c), "20 rounds")
			if tc.asks {
				models.say = doneAfter(map[string]string{"4": "one", "13": "two"})
				first = long(t, marks(compacts(9000, tc.c)), "20 rounds")
				client := first.client
				first.client = func(c record.ToolCall) record.ToolResult {
					asked := slices.ContainsFunc(now.recs, func(r record.Record) bool { return r.Kind == record.KindCompactionAsked })
					if c.Name == "fetch" && string(c.Input) == `{"q":8}` && !asked {
						now.ask("the plan")
					}
					return client(c)
				}
			}
			full := finish(first)
			want := said(full)
			if n := len(compacted(New(Config{}), full)); n < 2 && !tc.fails {
				t.Fatalf("%d summaries", n)
			}
			for n := 1; n <= len(full.recs); n++ {
				models.refused = 0
				got := finish(full.restarted(n))
				if s := said(got); !slices.Equal(s, want) {
					t.Fatalf("%d records: another transcript\n%s\nwant\n%s", n, strings.Join(s, "\n"), strings.Join(want, "\n"))
				}
				for i, rec := range full.recs[:n] {
					if !bytes.Equal(rec.Data, got.recs[i].Data) {
						t.Fatalf("%d records: record %d was rewritten", n, i+1)
					}
				}
			}
		})
	}
}

// TestCompactFails continues without a summary that fails, keeps its usage, and asks
// once a turn.
func TestCompactFails(t *testing.T) {
	u := model.Usage{Prompt: 5, Total: 5}
	for name, tc := range map[string]struct {
		asked   int // until the agent continues without
		summary func(context.Context) (*model.Response, error)
	}{
		"error": {1, func(context.Context) (*model.Response, error) {
			return nil, &model.Error{Kind: model.KindUnavailable, Provider: "narrow", Message: "no", Usage: &u}
		}},
		"empty": {1, func(context.Context) (*model.Response, error) {
			return &model.Response{Content: &genai.Content{Parts: []*genai.Part{{Text: "hm", Thought: true}, {Text: " \n"}}}, Usage: u}, nil
		}},
		"nothing": {1, func(context.Context) (*model.Response, error) { return &model.Response{Usage: u}, nil }},
		"too long": {1, func(context.Context) (*model.Response, error) {
			return &model.Response{Content: genai.NewContentFromText(strings.Repeat("s", 8000), "model"), Usage: u}, nil
		}},
		"cut": {2, func(context.Context) (*model.Response, error) {
			return &model.Response{Content: genai.NewContentFromText("wants: 1. the log 2. the", "model"), Usage: u, FinishReason: genai.FinishReasonMaxTokens}, nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := &narrowModels{known: true, summary: tc.summary}
			r := New(Config{Resolve: w.Resolve})
			run := long(t, compacts(2000, &agentdv1.Compaction{AtShare: 0.5}), "5 rounds")
			if err := r.runTurn(t.Context(), run); err != nil {
				t.Fatal(err)
			}
			var took int64
			for _, ev := range run.events(r) {
				if ev.Usage != nil && ev.MessageID == "" {
					took += ev.Usage.Total
				}
			}
			if len(w.summed) != tc.asked || len(compacted(r, run)) > 0 || took != int64(5*tc.asked) {
				t.Errorf("asked %d times, %d summaries, %d tokens", len(w.summed), len(compacted(r, run)), took)
			}
			run.begin("30 rounds")
			err := r.runTurn(t.Context(), run)
			if e := fault.As(err); e.Code != agentdv1.ErrorCode_ERROR_CODE_CONTEXT_TOO_LONG || w.refused != 1 {
				t.Errorf("%d prompts were refused, the turn ended with %v", w.refused, err)
			}
		})
	}
	t.Run("panic", func(t *testing.T) {
		w := &narrowModels{known: true, summary: func(context.Context) (*model.Response, error) { panic("scripted panic") }}
		run := long(t, compacts(2000, &agentdv1.Compaction{AtShare: 0.5}), "5 rounds")
		if err := New(Config{Resolve: w.Resolve}).runTurn(t.Context(), run); err != nil {
			t.Error(err)
		}
	})
}

// TestCompactTurnOnly: an agent that sees only the current turn has its turn
// summarized, and begins the next turn without the summary.
func TestCompactTurnOnly(t *testing.T) {
	w := &narrowModels{known: true}
	r := New(Config{Resolve: w.Resolve})
	tree := compacts(2000, &agentdv1.Compaction{AtShare: 0.8})
	tree.GetLlm().IncludeHistory = agentdv1.IncludeHistory_INCLUDE_HISTORY_TURN
	run := long(t, tree, "20 rounds")
	if err := r.runTurn(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	sums := compacted(r, run)
	if len(sums) == 0 {
		t.Fatal("no summary")
	}
	run.begin("hello")
	if err := r.runTurn(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	if got := transcript(w.requests[len(w.requests)-1].Contents); got != "user: hello\n" {
		t.Errorf("the next turn was told\n%s", got)
	}
	// With the whole history back in its prompt, the model gets no summary of one turn in place of half of it.
	tree.GetLlm().IncludeHistory, tree.GetLlm().Compaction = agentdv1.IncludeHistory_INCLUDE_HISTORY_ALL, nil
	tree.GetLlm().Model = "narrow-100000"
	run.begin("and all")
	if err := r.runTurn(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	if got := transcript(w.requests[len(w.requests)-1].Contents); strings.Contains(got, "<summary>") || strings.Count(got, "result search") != 20 {
		t.Errorf("told\n%s", got)
	}
}

// narrowWorld is a world with a narrow model and tools that count.
func narrowWorld(t *testing.T, models *narrowModels) *world {
	w := newWorld(t, nil)
	w.runner = New(Config{Resolve: models.Resolve})
	w.restart()
	w.result = func(tc *agentdv1.RunResponse_ToolCallRequest) session.ClientResult {
		var in struct{ Q int }
		if err := json.Unmarshal([]byte(tc.GetToolInput()), &in); err != nil {
			t.Error(err)
		}
		return session.ClientResult{Output: new(fmt.Sprintf(`{"n":%d,"text":%q}`, in.Q, strings.Repeat("r", 300)))}
	}
	return w
}

// TestCompactReported: clients receive a summary and its usage, the budget counts it,
// and the log is what the engine would write.
func TestCompactReported(t *testing.T) {
	models := &narrowModels{known: true}
	w := narrowWorld(t, models)
	var reported []*agentdv1.HistoryCompacted
	calls, seq := 0, int64(0)
	w.watch = func(_ *session.Turn, m *agentdv1.RunResponse) {
		if c := m.GetHistoryCompacted(); c != nil {
			reported, seq = append(reported, c), m.GetSeq()
		}
		if m.GetModelCallEnded() != nil {
			calls++
		}
	}
	tree := compacts(2000, &agentdv1.Compaction{AtShare: 0.8})
	turn := w.start(tree, "20 rounds")
	res := w.follow(turn).ok(t)
	if len(reported) < 2 || reported[0].GetReason() != agentdv1.HistoryCompacted_REASON_SHARE || reported[0].GetContextTokens() != 2000 ||
		!strings.HasPrefix(reported[0].GetSummary(), "summary ") || reported[len(reported)-1].GetThroughSeq() >= seq {
		t.Fatalf("told of %v", reported)
	}
	if n := len(models.requests); calls != n || int(res.end.GetUsageSummary().GetLlmCalls()) != n {
		t.Errorf("%d calls, told of %d, counted %d", n, calls, res.end.GetUsageSummary().GetLlmCalls())
	}
	details, err := listedCalls(t, w.turnLog(turn.ID()))
	if err != nil || len(details) != len(models.requests) {
		t.Fatalf("%d of %d calls are told, %v", len(details), len(models.requests), err)
	}
	for i, c := range details { // one call after the other
		req := models.requests[i]
		switch summary := slices.Contains(models.summed, req); {
		case summary && (c.GetContents() != 0 || c.GetInstruction() != ""):
			t.Errorf("call %d, a summary, is told as %v", i, c)
		case !summary && (int(c.GetContents()) != len(req.Contents) || c.GetSummary() != "" != strings.Contains(transcript(req.Contents), summaryHead) ||
			!strings.Contains(transcript(req.Contents), c.GetSummary())):
			t.Errorf("call %d of %d contents is told as %v", i, len(req.Contents), c)
		}
	}
	w.run(tree, "and now").ok(t)
	log := func() iter.Seq2[record.Record, error] {
		recs, err := w.store.Read(t.Context(), w.session, 0, 1<<20)
		return func(yield func(record.Record, error) bool) {
			for _, rec := range recs {
				if !yield(rec, err) {
					return
				}
			}
		}
	}()
	rep, err := Verify(t.Context(), w.session, log, nil)
	if err != nil || rep.Turns != 2 || rep.Divergence != nil {
		t.Errorf("verified %+v, %v: %v", rep, err, rep.Divergence)
	}
}

// TestCompactRaw: a turn that asks for raw payloads gets those of its summaries
// too, and is replayed all the same.
func TestCompactRaw(t *testing.T) {
	models := &narrowModels{known: true}
	w := narrowWorld(t, models)
	payloads := 0
	w.watch = func(_ *session.Turn, m *agentdv1.RunResponse) {
		if m.GetRawPayloadReceived() != nil {
			payloads++
		}
	}
	turn, err := w.manager.Start(t.Context(), session.Request{Agent: compacts(2000, &agentdv1.Compaction{AtShare: 0.8}), Tools: w.tools, Prompt: "20 rounds", Raw: true})
	if err != nil {
		t.Fatal(err)
	}
	w.session = turn.SessionID()
	w.follow(turn).ok(t)
	if n := len(models.requests); payloads != n || len(models.summed) == 0 {
		t.Errorf("%d payloads of %d calls, %d of which wrote summaries", payloads, n, len(models.summed))
	}
	rep, err := Verify(t.Context(), w.session, w.turnLog(turn.ID()).Records, nil)
	if err != nil || rep.Turns != 1 || rep.Divergence != nil {
		t.Errorf("verified %+v, %v: %v", rep, err, rep.Divergence)
	}
}

// TestCompactBudget ends the turn when the summary was the last call it may make,
// and when there is no call left for it.
func TestCompactBudget(t *testing.T) {
	free := &narrowModels{known: true}
	tree := compacts(2000, &agentdv1.Compaction{AtShare: 0.8})
	narrowWorld(t, free).run(tree, "20 rounds").ok(t)
	at := int64(slices.Index(free.requests, free.summed[0])) // calls before the summary
	for _, n := range []int64{at, at + 1} {
		models := &narrowModels{known: true}
		w := narrowWorld(t, models)
		turn, err := w.manager.Start(t.Context(), session.Request{Agent: tree, Tools: w.tools, Prompt: "20 rounds", Budget: record.Budget{ModelCalls: n}})
		if err != nil {
			t.Fatal(err)
		}
		w.session = turn.SessionID()
		res := w.follow(turn)
		if res.err.GetCode() != agentdv1.ErrorCode_ERROR_CODE_BUDGET_EXHAUSTED || int64(res.end.GetUsageSummary().GetLlmCalls()) != n || len(models.summed) != int(n-at) {
			t.Errorf("%d calls: %d summaries, ended with %v and %v", n, len(models.summed), res.err, res.end)
		}
		w.run(tree, "and now").ok(t)
		for _, req := range models.requests {
			checkValid(t, req.Contents)
		}
	}
	limited := New(Config{Resolve: (&narrowModels{known: true}).Resolve, Limits: Limits{ModelCalls: int(at) + 1}})
	if err := limited.runTurn(t.Context(), long(t, tree, "20 rounds")); fault.As(err).Code != codeLimit {
		t.Errorf("the limit of model calls: %v", err)
	}
}

// TestCompactCancel aborts a summary with its turn; the receipt names it.
func TestCompactCancel(t *testing.T) {
	asked := make(chan struct{})
	models := &narrowModels{known: true, summary: func(ctx context.Context) (*model.Response, error) {
		close(asked)
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	w := narrowWorld(t, models)
	tree := compacts(2000, &agentdv1.Compaction{AtShare: 0.8})
	turn := w.start(tree, "20 rounds")
	go func() { // ends with the summary
		<-asked
		turn.Cancel("enough")
	}()
	res := w.follow(turn)
	aborted := res.end.GetReceipt().GetAbortedModelCalls()
	if res.end.GetCompleted() || len(aborted) != 1 || aborted[0].GetModel() != "narrow-2000" {
		t.Fatalf("ended with %v", res.end)
	}
	models.summary = nil
	w.run(tree, "and now").ok(t)
	for _, req := range models.requests {
		checkValid(t, req.Contents)
	}
}

func TestPlanCompaction(t *testing.T) {
	for name, tc := range map[string]struct {
		c    *agentdv1.Compaction
		want string // "": it is taken
	}{
		"all":          {&agentdv1.Compaction{AtShare: 0.5, ContextTokens: 1000, Model: "sums-7", Instruction: "x"}, ""},
		"none":         {nil, ""},
		"share":        {&agentdv1.Compaction{AtShare: 1.5}, `at_share is 1.5`},
		"below":        {&agentdv1.Compaction{AtShare: -0.5}, `at_share is -0.5`},
		"window":       {&agentdv1.Compaction{ContextTokens: -1}, `context_tokens is -1`},
		"long":         {&agentdv1.Compaction{Instruction: strings.Repeat("x", maxCompactionText+1)}, `16385 bytes`},
		"other model":  {&agentdv1.Compaction{Model: "nobody"}, `model "nobody"`},
		"not a number": {&agentdv1.Compaction{AtShare: nan()}, `at_share is NaN`},
	} {
		t.Run(name, func(t *testing.T) {
			r := New(Config{Resolve: (&narrowModels{}).Resolve})
			err := r.Check(t.Context(), &record.Spec{Prompt: "go", Agent: seq("top", compacts(1000, tc.c)), Tools: newWorld(t, nil).tools}, nil)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "top/root")) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

func nan() float64 {
	zero := 0.0
	return zero / zero
}

// TestCompactOthers: a summary for one agent changes nothing for another one, also
// when both speak at the same time and only one of them has a narrow model.
func TestCompactOthers(t *testing.T) {
	models := &narrowModels{known: true}
	w := narrowWorld(t, models)
	small, wide := compacts(2000, &agentdv1.Compaction{AtShare: 0.8}), llm("wide", func(a *agentdv1.LlmAgent) { a.Model = "narrow-1000000" })
	tree := par("top", small, wide)
	for i := range 3 {
		w.run(tree, fmt.Sprintf("%d rounds", 10+i)).ok(t)
	}
	summarized := map[string]int{}
	for i, req := range models.requests {
		checkValid(t, req.Contents)
		if strings.Contains(transcript(req.Contents), summaryHead) {
			summarized[models.agents[i]]++
		}
	}
	if models.refused > 0 || len(models.summed) == 0 || !slices.Equal(slices.Collect(maps.Keys(summarized)), []string{"root"}) {
		t.Errorf("%d refused, %d summaries, told of them %v", models.refused, len(models.summed), summarized)
	}
}

// TestCompactFallback: a fallback refuses the prompt, writes its summary and continues;
// the usage of each model counts once.
func TestCompactFallback(t *testing.T) {
	w := &narrowModels{}
	r := New(Config{Resolve: w.Resolve})
	tree := compacts(2000, &agentdv1.Compaction{AtShare: 1})
	tree.GetLlm().Model, tree.GetLlm().FallbackModels = "down-2000", []string{"narrow-2000", "other-100000"}
	run := long(t, tree, "20 rounds")
	if err := r.runTurn(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	sums := compacted(r, run)
	if len(sums) == 0 || w.refused != len(sums) {
		t.Fatalf("%d summaries, %d prompts were refused", len(sums), w.refused)
	}
	taken, reported := run.usage(r)
	total, want := taken.Calls, int64(0)
	if taken != reported {
		t.Errorf("the log has %+v, told is %+v", taken, reported)
	}
	for _, ev := range run.events(r) {
		if ev.Call != nil && ev.Call.Model != "narrow-2000" {
			t.Errorf("a call of %s: %s", ev.Call.Model, compact(ev))
		}
	}
	for _, req := range w.requests {
		checkValid(t, req.Contents)
		want++
	}
	if want -= int64(w.refused); total != want+int64(w.down) {
		t.Errorf("%d tries are counted, want %d and %d of the model that is down", total, want, w.down)
	}
}

// TestCompactOwnModelDown: while the agent's own model is down, its fallback writes the
// summaries too, so no prompt gets too long.
func TestCompactOwnModelDown(t *testing.T) {
	w := &narrowModels{known: true}
	r := New(Config{Resolve: w.Resolve})
	tree := compacts(2000, &agentdv1.Compaction{AtShare: 0.8})
	tree.GetLlm().Model, tree.GetLlm().FallbackModels = "down-2000", []string{"narrow-2000"}
	run := long(t, tree, "20 rounds")
	if err := r.runTurn(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	sums := compacted(r, run)
	if len(sums) < 2 || w.refused > 0 {
		t.Fatalf("%d summaries, %d prompts were refused", len(sums), w.refused)
	}
	for _, ev := range sums { // what the first model took is part of it
		if c := ev.Call; c.Model != "narrow-2000" || ev.Usage.Calls != 1 || ev.Before.Calls != 1 {
			t.Errorf("a summary is told as %+v, took %+v and before %+v", c, ev.Usage, ev.Before)
		}
	}
	sameHistory(t, r, run)
}

// TestCompactSuspended: a summary that exists when the turn is suspended belongs to the
// turn, and is not written twice when the turn resumes.
func TestCompactSuspended(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	w := &narrowModels{known: true}
	w.summary = func(context.Context) (*model.Response, error) {
		cancel(session.ErrSuspended)
		return &model.Response{
			Content: genai.NewContentFromText("the summary", genai.RoleModel), Usage: model.Usage{Prompt: 9, Total: 9}, FinishReason: genai.FinishReasonStop,
		}, nil
	}
	r := New(Config{Resolve: w.Resolve})
	run := long(t, compacts(2000, &agentdv1.Compaction{AtShare: 0.8}), "8 rounds")
	if err := r.runTurn(ctx, run); !errors.Is(err, session.ErrSuspended) {
		t.Fatal(err)
	}
	sums := compacted(r, run)
	if len(sums) != 1 || sums[0].Compacted.Summary != "the summary" || sums[0].Usage.Total != 9 {
		t.Fatalf("the log has %s", compact(sums))
	}
	restarted := run.restarted(len(run.recs))
	if err := r.runTurn(t.Context(), restarted); err != nil {
		t.Fatal(err)
	}
	if len(w.summed) != 1 {
		t.Errorf("%d summaries were written", len(w.summed))
	}
	sameHistory(t, r, restarted)
}
