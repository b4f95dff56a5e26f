package adkbridge

import (
	"errors"
	"iter"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/record"
)

// turnLog returns the current log of a world's session.
func (w *world) turnLog(turnID string) session.TurnLog {
	w.t.Helper()
	recs, err := w.store.Read(w.t.Context(), w.session, 0, 1<<20)
	if err != nil {
		w.t.Fatal(err)
	}
	return logOfTurn(w.session, turnID, recs)
}

func logOfTurn(sessionID, turnID string, recs []record.Record) session.TurnLog {
	var all iter.Seq2[record.Record, error] = func(yield func(record.Record, error) bool) {
		for _, r := range recs {
			if !yield(r, nil) {
				return
			}
		}
	}
	return session.TurnLog{SessionID: sessionID, TurnID: turnID, Records: all}
}

// listedCalls lists the calls of a turn, on one page and on small ones.
func listedCalls(t testing.TB, log session.TurnLog) ([]*agentdv1.ModelCallDetails, error) {
	t.Helper()
	calls, more, err := New(Config{}).ModelCalls(t.Context(), log, math.MaxInt)
	if more {
		t.Errorf("there are more than %d calls", len(calls))
	}
	var out []*agentdv1.ModelCallDetails
	for _, c := range calls {
		out = append(out, c.Details)
	}
	for _, limit := range []int{1, 2, 5} {
		if err != nil {
			if _, _, paged := New(Config{}).ModelCalls(t.Context(), log, limit); paged == nil || paged.Error() != err.Error() {
				t.Errorf("in pages of %d: %v, on one page: %v", limit, paged, err)
			}
			continue
		}
		paged := inPages(t, log, limit)
		if !slices.EqualFunc(paged, out, func(a, b *agentdv1.ModelCallDetails) bool { return proto.Equal(a, b) }) {
			t.Errorf("in pages of %d: %s, on one page: %s", limit, compact(paged), compact(out))
		}
	}
	return out, err
}

// inPages lists the calls of a turn, at most limit on a page.
func inPages(t testing.TB, log session.TurnLog, limit int) []*agentdv1.ModelCallDetails {
	t.Helper()
	var out []*agentdv1.ModelCallDetails
	for {
		calls, more, err := New(Config{}).ModelCalls(t.Context(), log, limit)
		if err != nil || len(calls) > limit || more && len(calls) < limit {
			t.Fatalf("a page behind record %d has %d calls, more: %v, error: %v", log.After, len(calls), more, err)
		}
		for _, c := range calls {
			if c.Seq <= log.After {
				t.Errorf("a page behind record %d has a call of record %d", log.After, c.Seq)
			}
			out, log.After = append(out, c.Details), c.Seq
		}
		if !more {
			return out
		}
	}
}

// sameAsSent compares the details of a turn's calls with the requests of its models,
// and returns the details.
func (w *world) sameAsSent(turnID string, want int) []*agentdv1.ModelCallDetails {
	w.t.Helper()
	calls, err := listedCalls(w.t, w.turnLog(turnID))
	if err != nil {
		w.t.Fatal(err)
	}
	if len(calls) != want {
		w.t.Fatalf("%d calls, want %d: %s", len(calls), want, compact(calls))
	}
	w.script.mu.Lock()
	defer w.script.mu.Unlock()
	for _, c := range calls {
		i := slices.IndexFunc(w.script.requests, func(r request) bool { return r.info.MessageID == c.GetCall().GetMessageId() })
		if i < 0 {
			w.t.Errorf("call %q was not made", c.GetCall().GetMessageId())
			continue
		}
		sent := w.script.requests[i]
		if got, want := c.GetInstruction(), sent.system; got != want {
			w.t.Errorf("%s: instruction %q, sent %q", c.GetCall().GetMessageId(), got, want)
		}
		if got, want := c.GetToolNames(), sent.tools; !slices.Equal(got, want) {
			w.t.Errorf("%s: tools %q, sent %q", c.GetCall().GetMessageId(), got, want)
		}
		if got, want := int(c.GetContents()), len(sent.contents); got != want {
			w.t.Errorf("%s: %d contents, sent %d", c.GetCall().GetMessageId(), got, want)
		}
	}
	return calls
}

// TestModelCalls says of each turn of each kind of tree what its models were sent.
func TestModelCalls(t *testing.T) {
	for _, tc := range replayTrees() {
		if tc.leave || tc.injectAt != nil {
			continue // people and prompts in between have tests of their own
		}
		t.Run(tc.name, func(t *testing.T) {
			steps := map[string][]step{}
			for name, own := range tc.steps {
				for range tc.turns {
					steps[name] = append(steps[name], own...)
				}
			}
			w := newWorld(t, steps)
			if tc.ask {
				w.tools = append(w.tools, offer("loop_continue"))
			}
			w.state = map[string]any{"seen": "nothing"}
			n := 0
			w.result = func(*agentdv1.RunResponse_ToolCallRequest) session.ClientResult {
				n++
				return session.ClientResult{Output: new("ok"), State: map[string]any{"seen": strings.Repeat("x", n)}}
			}
			var turns []string
			var sizes []int
			for range tc.turns {
				before := len(w.script.requests)
				turn := w.start(tc.tree, "go")
				w.follow(turn).ok(t)
				w.state = nil
				turns, sizes = append(turns, turn.ID()), append(sizes, len(w.script.requests)-before)
			}
			for i, id := range turns {
				w.sameAsSent(id, sizes[i])
			}
		})
	}
}

// TestModelCallsOfEachAgent changes the state, and says something more, while
// the turn runs: each call has the instruction that it had.
func TestModelCallsOfEachAgent(t *testing.T) {
	w := newWorld(t, map[string][]step{"root": {use("search"), use("search"), say("done")}})
	w.state = map[string]any{"mood": "calm & quiet"}
	n := 0
	w.watch = func(turn *session.Turn, m *agentdv1.RunResponse) {
		if m.GetToolCall() == nil {
			return
		}
		if n++; n == 2 {
			if _, err := w.manager.Start(t.Context(), session.Request{SessionID: turn.SessionID(), Prompt: "hurry", OnBusy: agentdv1.OnBusy_ON_BUSY_INJECT}); err != nil {
				t.Error(err)
			}
		}
	}
	w.result = func(*agentdv1.RunResponse_ToolCallRequest) session.ClientResult {
		return session.ClientResult{Output: new("ok"), State: map[string]any{"mood": n}}
	}
	var open []*agentdv1.ModelCallDetails
	temperature := func(a *agentdv1.LlmAgent) { a.Generation = &agentdv1.GenerationSettings{Temperature: new(0.5)} }
	tree := llm("root", instruct("be {mood}"), builtin("google_search", "ask_user"), temperature)
	watch := w.watch
	w.watch = func(turn *session.Turn, m *agentdv1.RunResponse) {
		if m.GetToolCall() != nil && n == 1 {
			var err error
			if open, err = listedCalls(t, w.turnLog(turn.ID())); err != nil {
				t.Error(err)
			}
		}
		watch(turn, m)
	}
	turn := w.start(tree, "go")
	w.follow(turn).ok(t)
	calls, err := listedCalls(t, w.turnLog(turn.ID()))
	if err != nil || len(calls) != 3 || len(open) != 2 {
		t.Fatalf("%d calls, %d while it ran, %v", len(calls), len(open), err)
	}
	for i, want := range []string{"be calm & quiet", "be 1", "be 2"} {
		c := calls[i]
		if !strings.HasPrefix(c.GetInstruction(), want+"\n") || i < 2 && open[i].GetInstruction() != c.GetInstruction() {
			t.Errorf("call %d: %q, want %q first", i, c.GetInstruction(), want)
		}
		if got := strings.Join(c.GetToolNames(), " "); got != "search fetch calc ask_user google_search" || c.GetGeneration().GetTemperature() != 0.5 {
			t.Errorf("call %d: tools %s, generation %v", i, got, c.GetGeneration())
		}
		if got, sent := int(c.GetContents()), len(w.script.requests[i].contents); got != sent {
			t.Errorf("call %d: %d contents, sent %d", i, got, sent)
		}
	}
	if u := calls[1].GetCall(); u.GetModel() != "root" || u.GetProvider() != "fake" || u.GetUsage().GetModelCalls() != 1 {
		t.Errorf("call %v", u)
	}
}

// TestModelCallsAfterSummaries returns the summary at the beginning of each prompt, and
// the calls that wrote the summaries.
func TestModelCallsAfterSummaries(t *testing.T) {
	models := &narrowModels{known: true}
	w := narrowWorld(t, models)
	tree := compacts(3000, &agentdv1.Compaction{AtShare: 0.75})
	before := 0
	for range 3 {
		turn := w.start(tree, "12 rounds")
		w.follow(turn).ok(t)
		calls, err := listedCalls(t, w.turnLog(turn.ID()))
		made := models.requests[before:]
		before = len(models.requests)
		if err != nil || len(calls) != len(made) {
			t.Fatalf("%d calls, %d were made, %v", len(calls), len(made), err)
		}
		for i, c := range calls {
			if strings.HasPrefix(adapter.Text(made[i].Config.SystemInstruction), summaryInstruction) {
				if c.GetContents() != 0 || c.GetCall().GetMessageId() != "" || c.GetCall().GetUsage().GetTotalTokens() == 0 {
					t.Errorf("a call for a summary: %v", c)
				}
				continue
			}
			if got, want := int(c.GetContents()), len(made[i].Contents); got != want {
				t.Errorf("call %d: %d contents, sent %d", i, got, want)
			}
			sent := adapter.Text(made[i].Contents[0])
			if got := c.GetSummary(); got == "" && strings.HasPrefix(sent, summaryHead) || !strings.Contains(sent, got) {
				t.Errorf("call %d: summary %q, sent %q", i, got, sent)
			}
		}
	}
	if len(models.summed) < 2 {
		t.Errorf("%d summaries", len(models.summed))
	}
}

// TestModelCallsOfFailedTurn returns a failed call too.
func TestModelCallsOfFailedTurn(t *testing.T) {
	blocked := step{err: &model.Error{Kind: model.KindBlocked, Provider: "fake", Message: "no", Usage: &model.Usage{Prompt: 7, Total: 7}}}
	w := newWorld(t, map[string][]step{"a": {say("A")}, "b": {use("search"), blocked}})
	turn := w.start(seq("root", llm("a"), llm("b", instruct("after a"))), "go")
	if res := w.follow(turn); res.err == nil {
		t.Fatal("the turn has not failed")
	}
	calls, err := listedCalls(t, w.turnLog(turn.ID()))
	if err != nil || len(calls) != 3 {
		t.Fatalf("%d calls, %v", len(calls), err)
	}
	last := calls[2]
	if last.GetCall().GetUsage().GetPromptTokens() != 7 || !strings.HasPrefix(last.GetInstruction(), "after a\n") || int(last.GetContents()) != len(w.script.requests[2].contents) {
		t.Errorf("the call that failed: %v", last)
	}
}

// TestModelCallsOfOtherLogs are those of logs that the engine would not write.
func TestModelCallsOfOtherLogs(t *testing.T) {
	w := newWorld(t, map[string][]step{"a": {say("A")}, "b": {say("B")}})
	turn := w.start(seq("root", llm("a"), llm("b")), "go")
	w.follow(turn).ok(t)
	var recs []record.Record
	for r, err := range w.turnLog(turn.ID()).Records {
		if err != nil {
			t.Fatal(err)
		}
		recs = append(recs, r)
	}
	change := func(old, with string) session.TurnLog {
		out := slices.Clone(recs)
		found := false
		for i, r := range out {
			if strings.Contains(string(r.Data), old) {
				found = true
				out[i].Data = []byte(strings.ReplaceAll(string(r.Data), old, with))
			}
		}
		if !found {
			t.Fatalf("no record has %s", old)
		}
		return logOfTurn(w.session, turn.ID(), out)
	}
	calls, err := listedCalls(t, change(`"last":true`, `"last":false`))
	if err != nil || len(calls) != 2 || calls[0].GetInstruction() == "" || calls[1].GetContents() != 0 || calls[1].GetCall().GetModel() != "b" {
		t.Errorf("the run differs from the first event on: %v, %v", calls, err)
	}
	_, err = listedCalls(t, change(`"name":"a"`, `"name":"c"`))
	if e, ok := errors.AsType[*fault.Error](err); !ok || e.Code != agentdv1.ErrorCode_ERROR_CODE_FAILED_PRECONDITION || !strings.Contains(e.Message, turn.ID()) {
		t.Errorf("no call can be made again: %v", err)
	}
	if calls, err := listedCalls(t, logOfTurn(w.session, "e-later", recs)); err != nil || len(calls) != 0 {
		t.Errorf("a turn that has not begun: %v, %v", calls, err)
	}
	broken := slices.Clone(recs)
	broken[0].Data = []byte("{")
	if _, err := listedCalls(t, logOfTurn(w.session, turn.ID(), broken)); err == nil {
		t.Error("a log that cannot be read has calls")
	}
}

// TestStateIsOfTheLastWriter takes in the events of a turn in another order than
// the log's, as a turn does that resumes.
func TestStateIsOfTheLastWriter(t *testing.T) {
	run := newFakeRun(t, llm("root"), "go")
	turn := newTurn(run, newHistory(), New(Config{}), openTurn{})
	for _, seq := range []int64{5, 3} {
		s := &stored{}
		s.Actions.StateDelta = map[string]any{"k": seq}
		turn.apply(seq, s, 1, map[string]any{"temp:k": seq})
	}
	if turn.state["k"] != int64(5) || turn.state["temp:k"] != int64(5) {
		t.Errorf("state %v, want what record 5 has written", turn.state)
	}
}
