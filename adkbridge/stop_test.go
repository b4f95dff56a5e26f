package adkbridge

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	adkmodel "google.golang.org/adk/v2/model"
	"google.golang.org/genai"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// stopTrees are turns to stop in the middle.
func stopTrees() map[string]struct {
	tree  *agentdv1.Agent
	steps map[string][]step
} {
	type turn = struct {
		tree  *agentdv1.Agent
		steps map[string][]step
	}
	return map[string]turn{
		"llm": {llm("root"), map[string][]step{
			"root": {{thought: "hm", text: "one two", calls: use("search", "fetch", "calc").calls}, use("search"), say("three four")},
		}},
		"transfer": {llm("root", subs(llm("a", subs(llm("b"))))), map[string][]step{
			"root": {transfer("a")}, "a": {use("search"), {text: "handing over", calls: append(use("calc").calls, transfer("b").calls...)}}, "b": {use("fetch"), say("B")},
		}},
		"nested": {seq("root", llm("a", output("plan")), par("p", rounds("l", 3, llm("b"), llm("c", builtin("exit_loop"))), llm("d", subs(llm("e"))), seq("s", llm("f"), llm("g"))), llm("z")), map[string][]step{
			"a": {use("search"), say("A")},
			"b": {use("search", "calc"), say("B1"), say("B2")},
			"c": {say("C"), exit()},
			"d": {use("calc"), transfer("e")}, "e": {use("fetch"), say("E")},
			"f": {use("calc", "calc"), say("F")}, "g": {use("search"), say("G")},
			"z": {use("search"), say("Z")},
		}},
	}
}

// continueSession continues a session that was stopped, twice: with what the bridge
// remembers and with what the log holds. Both must give the same valid prompts.
func continueSession(t *testing.T, w *world, tree *agentdv1.Agent) {
	t.Helper()
	w.watch, w.result = nil, nil
	w.script.mu.Lock()
	w.script.steps, w.script.fail, w.script.requests = nil, nil, nil
	w.script.always = func(agent string) step {
		if agent == "c" {
			return exit()
		}
		return say("going on")
	}
	w.script.mu.Unlock()
	res := w.run(tree, "go on").ok(t)
	if len(res.text) == 0 {
		t.Error("nobody spoke")
	}
	w.checkAll()
	warm := map[string]string{}
	for _, r := range w.script.requests {
		if _, ok := warm[r.agent]; !ok {
			warm[r.agent] = compact(r.contents)
		}
	}
	w.runner.cache = newCache(0, 0)
	w.restart()
	w.script.requests = nil
	w.run(tree, "and on").ok(t)
	w.checkAll()
	for _, r := range w.script.requests {
		first := strings.TrimSuffix(warm[r.agent], "]")
		if first == "" || strings.Contains(first, continueText) || strings.Contains(first, "For context") {
			continue // siblings interleave
		}
		if !strings.HasPrefix(compact(r.contents), first) {
			t.Errorf("%s: the reloaded prompt is another one:\n%s\n%s", r.agent, first, compact(r.contents))
		}
		delete(warm, r.agent)
	}
}

// TestCancelAnywhere cancels a turn at each message that a client sees, and continues
// the session.
func TestCancelAnywhere(t *testing.T) {
	for name, tc := range stopTrees() {
		t.Run(name, func(t *testing.T) {
			for at := 0; ; at++ {
				w := newWorld(t, maps.Clone(tc.steps))
				n := 0
				w.watch = func(turn *session.Turn, m *agentdv1.RunResponse) {
					if n == at {
						turn.Cancel("enough")
					}
					n++
				}
				res := w.run(tc.tree, "go")
				if res.err != nil {
					t.Fatalf("message %d: error %v", at, res.err)
				}
				if !res.end.GetCompleted() && res.end.GetReason() != "enough" {
					t.Fatalf("message %d: end %v", at, res.end)
				}
				continueSession(t, w, tc.tree)
				if n <= at {
					if !res.end.GetCompleted() || at < 5 {
						t.Fatalf("only %d messages: %v", n, res.end)
					}
					return
				}
			}
		})
	}
}

// TestFailAnywhere fails each model call in turn, and continues.
func TestFailAnywhere(t *testing.T) {
	for name, tc := range stopTrees() {
		for _, how := range []string{"error", "panic"} {
			t.Run(name+"/"+how, func(t *testing.T) {
				for at := 0; ; at++ {
					w := newWorld(t, maps.Clone(tc.steps))
					w.script.fail = func(agent string, n int) error {
						switch {
						case n != at:
							return nil
						case how == "panic":
							panic("scripted")
						}
						return &model.Error{Kind: model.KindRateLimited, Provider: "fake", Message: "slow down"}
					}
					res := w.run(tc.tree, "go")
					if at >= len(w.script.requests) {
						res.ok(t)
						return
					}
					want := agentdv1.ErrorCode_ERROR_CODE_INTERNAL
					if how == "error" {
						want = agentdv1.ErrorCode_ERROR_CODE_RATE_LIMITED
					}
					if res.err.GetCode() != want || res.end.GetCompleted() {
						t.Fatalf("call %d: %v, %v", at, res.err, res.end)
					}
					continueSession(t, w, tc.tree)
				}
			})
		}
	}
}

// TestFailureBesideTools fails one branch while another waits for a tool. What
// ADK makes of the wait that was broken off must not become the tool's result;
// whether it tries is a matter of luck.
func TestFailureBesideTools(t *testing.T) {
	for range 20 {
		gate := make(chan struct{})
		w := newWorld(t, map[string][]step{
			"a": {use("search"), say("never")},
			"b": {{gate: gate, err: &model.Error{Kind: model.KindBlocked, Provider: "fake", Message: "no"}}},
		})
		w.result = func(*agentdv1.RunResponse_ToolCallRequest) session.ClientResult {
			close(gate)
			return session.ClientResult{CallID: "-"}
		}
		tree := par("root", llm("a"), llm("b"))
		res := w.run(tree, "go")
		if res.err.GetCode() != agentdv1.ErrorCode_ERROR_CODE_CONTENT_BLOCKED {
			t.Fatalf("error %v", res.err)
		}
		continueSession(t, w, tree)
		got := transcript(w.script.seen("a")[0].contents)
		want := "user: go\nmodel: call search{\"q\":1}\nuser: result search{\"error\":\"cancelled: the turn was stopped: root/b: model \\\"b\\\": fake: no\"}\nuser: go on\n"
		if !strings.HasPrefix(got, want) {
			t.Fatalf("prompt of a:\n%swant:\n%s", got, want)
		}
	}
}

// TestCause: the cause is returned as it is, whatever was running.
func TestCause(t *testing.T) {
	gone := errors.New("gone")
	for name, tree := range map[string]*agentdv1.Agent{"llm": llm("a"), "parallel": par("root", llm("a"), llm("b")), "loop": rounds("root", 2, llm("a"))} {
		w := newWorld(t, map[string][]step{"a": {{text: "half a", hang: true}}, "b": {{text: "half a", hang: true}}})
		run := newFakeRun(t, tree, "go")
		ctx, cancel := context.WithCancelCause(t.Context())
		run.streaming = func(record.Delta) { cancel(gone) }
		if err := w.runner.runTurn(ctx, run); err != gone { //nolint:errorlint // the cause itself is promised
			t.Errorf("%s: error %v", name, err)
		}
		if n := len(run.events(w.runner)); n != 0 {
			t.Errorf("%s: %d events", name, n)
		}
	}
}

// TestResponseNotAppended keeps a complete response whose branch was stopped before the
// append: it was shown, and its tokens were spent.
func TestResponseNotAppended(t *testing.T) {
	w := newWorld(t, nil)
	run := newFakeRun(t, par("root", llm("a"), llm("b")), "go")
	hist := newHistory()
	logged, err := hist.load(t.Context(), run)
	if err != nil {
		t.Fatal(err)
	}
	turn := newTurn(run, hist, w.runner, logged)
	if turn.tree, err = w.runner.plan(run.spec, nil); err != nil {
		t.Fatal(err)
	}
	m := &agentModel{t: turn, n: turn.tree.byName["b"]}
	req := &adkmodel.LLMRequest{Tools: map[string]any{"search": nil}}
	a := m.newResponse(&model.Response{
		Content: &genai.Content{Parts: []*genai.Part{{Text: "B"}, adapter.NewCall("", "search", "{}"), adapter.NewCall("", "ghost", "{}")}},
		Usage:   model.Usage{Total: 5},
	}, "b|root.b#0", "root.b")
	m.classify(a, req).note(a.meta)
	turn.unappended = append(turn.unappended, a)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if err := turn.close(ctx, context.Cause(ctx)); err != nil {
		t.Fatal(err)
	}
	events := run.events(w.runner)
	if len(events) != 2 || events[0].Text != "B" || events[0].Usage.Total != 5 || len(events[0].Calls) != 1 || events[0].MessageID != run.turnID+"/b|root.b#0" {
		t.Fatalf("events %s", compact(events))
	}
	turn.hist.seal(run.start)
	if logged, err = hist.load(t.Context(), run); err != nil || len(logged.events) != 1 {
		t.Fatalf("behind what the history knows the log has %d events, %v, want the results", len(logged.events), err)
	}
	hist.addStored(logged.events[0].seq, logged.events[0].ev, logged.events[0].size)
	got := transcript(hist.prompt("b", "root.b", 0))
	want := "user: go\nmodel: B call search{} call ghost{}\n" +
		`user: result search{"error":"cancelled: the turn was stopped before this call was over"} result ghost{"error":"there is no tool \"ghost\"; available: \"search\""}` + "\n"
	if got != want {
		t.Errorf("prompt:\n%swant:\n%s", got, want)
	}
	if err := turn.close(ctx, nil); err != nil || len(run.events(w.runner)) != 2 {
		t.Errorf("closing again: %v, %d events", err, len(run.events(w.runner)))
	}
}

// TestInterrupted closes what a dead process has left: a run whose context has
// ended reads the log, appends the missing results and returns the cause.
func TestInterrupted(t *testing.T) {
	w := newWorld(t, map[string][]step{"root": {use("search", "calc")}})
	run := newFakeRun(t, llm("root"), "go")
	run.client = func(c record.ToolCall) record.ToolResult {
		res := resultWith(`"late"`)
		res.State = map[string]any{"k": "v", "temp:t": 1}
		if c.Name == "calc" {
			run.limit = len(run.recs) // search has a result, calc has none
		}
		return res
	}
	if err := w.runner.runTurn(t.Context(), run); err == nil {
		t.Fatal("no error")
	}
	n := len(run.recs)
	restarted := run.restarted(n)
	w.runner.cache = newCache(0, 0)
	w.script.bad = map[string]error{"root": errors.New("no key any more")}
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("interrupted")
	cancel(gone)
	if err := w.runner.runTurn(ctx, restarted); !errors.Is(err, gone) {
		t.Fatalf("error %v", err)
	}
	events := restarted.events(w.runner)
	if len(restarted.recs) != n+1 || len(events) != 2 {
		t.Fatalf("%d records, want %d", len(restarted.recs), n+1)
	}
	s, err := decode(restarted.recs[n].Data)
	if err != nil {
		t.Fatal(err)
	}
	results := []string{compact(s.Content.Parts[0].FunctionResponse.Response), compact(s.Content.Parts[1].FunctionResponse.Response)}
	slices.Sort(results)
	one, two := `{"error":"cancelled: the turn was stopped before this call was over"}`, `{"output":"late"}`
	// The tools run at the same time: either has its result first, or none.
	if !slices.Contains(results, one) || results[1] != one && results[1] != two {
		t.Errorf("results %v", results)
	}
	if events[1].State["temp:t"] != nil {
		t.Errorf("state %v", events[1].State)
	}
	restarted.begin("go on")
	w.script.bad, w.script.steps = nil, map[string][]step{"root": {say("fine")}}
	if err := w.runner.runTurn(t.Context(), restarted); err != nil {
		t.Fatal(err)
	}
	w.checkAll()
}

// pausable is the store of a process that can be paused. While it is, its appends wait.
type pausable struct {
	store.Store
	writing   sync.RWMutex // pause locks it, each append has it read-locked
	conflicts atomic.Int64
}

// pause returns when no append of the process is under way.
func (p *pausable) pause() { p.writing.Lock() }

func (p *pausable) resume() { p.writing.Unlock() }

func (p *pausable) Append(ctx context.Context, b store.Batch) error {
	p.writing.RLock()
	defer p.writing.RUnlock()
	err := p.Store.Append(ctx, b)
	if errors.Is(err, store.ErrConflict) {
		p.conflicts.Add(1)
	}
	return err
}

// TestRestart continues a session whose process died while a tool was running.
func TestRestart(t *testing.T) {
	w := newWorld(t, map[string][]step{"a": {use("search", "calc")}, "b": {say("B")}})
	db := w.store
	old := &pausable{Store: db}
	w.store = old
	w.restart()
	tree := par("root", llm("a"), llm("b"))
	dead := w.start(tree, "go")
	watcher := dead.Watch()
	defer watcher.Close()
	for open, spoken := 0, false; open < 2 || !spoken; {
		<-watcher.Ready()
		msgs, err := watcher.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range msgs {
			spoken = spoken || m.GetOutputChunk().GetLast() // b's event is durable
			if tc := m.GetToolCall(); tc != nil {
				open++
				if tc.GetToolName() == "calc" {
					a := session.ClientResult{CallID: tc.GetToolCallId(), Output: new("late"), State: map[string]any{"k": "v"}}
					if err := dead.SubmitResult(t.Context(), a); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
	old.pause() // it may be about to record that b has ended
	w.script.mu.Lock()
	w.script.always = func(string) step { return say("fine") }
	w.script.mu.Unlock()
	w.store, w.runner = db, New(Config{Resolve: w.script.Resolve})
	w.restart()
	res := w.run(tree, "go on").ok(t)
	w.checkAll()
	if res.state["k"] != "v" {
		t.Errorf("state %v", res.state)
	}
	got := transcript(w.script.seen("a")[1].contents[2:3])
	if !strings.Contains(got, `search{"error":"cancelled: `) || !strings.Contains(got, `calc{"output":"late"}`) {
		t.Errorf("results: %s", got)
	}
	// The old process was not dead after all. It cannot write any more.
	n := len(db.(*memStore).logs[dead.SessionID()])
	dead.Cancel("too late")
	old.resume()
	<-dead.Done()
	if got := len(db.(*memStore).logs[dead.SessionID()]); got != n {
		t.Errorf("the old process has written %d records", got-n)
	}
	if old.conflicts.Load() == 0 {
		t.Error("the old process has not tried to write")
	}
}

// TestPanicsAtTheSeams end the turn, not the process.
func TestPanicsAtTheSeams(t *testing.T) {
	for _, tree := range []*agentdv1.Agent{
		rounds("l", 2, llm("a")),
		par("root", rounds("l", 2, llm("a")), llm("b")),
	} {
		for _, where := range []string{"append", "await", "ask"} {
			w := newWorld(t, nil)
			w.script.always = func(string) step { return use("search") }
			run := newFakeRun(t, tree, "go")
			run.spec.Tools = append(run.spec.Tools, offer("loop_continue"))
			broken := true
			boom := func(at string) {
				if at == where && broken {
					panic("scripted panic at " + at)
				}
			}
			run.appending = func(*record.Event) { boom("append") }
			run.client = func(c record.ToolCall) record.ToolResult {
				if c.Name == "loop_continue" {
					boom("ask")
				}
				boom("await")
				w.script.mu.Lock()
				w.script.always = func(string) step { return say("x") }
				w.script.mu.Unlock()
				return resultWith("{}")
			}
			if where == "append" {
				// Closing appends too; by then the store works.
				run.appending = func(*record.Event) {
					defer func() { broken = false }()
					boom("append")
				}
			}
			err := w.runner.runTurn(t.Context(), run)
			if err == nil || !strings.Contains(err.Error(), "scripted panic at "+where) {
				t.Errorf("%s: error %v", where, err)
			}
		}
	}
}
