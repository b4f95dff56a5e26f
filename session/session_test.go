package session_test

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // little is alive at a time, and collecting it costs
	session.PanicOnUndrawnPhases()
	goleak.VerifyTestMain(m)
}

func TestTextArrivesOnce(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{})
	f.on(func(ctx context.Context, r *session.Run) error {
		r.Delta(record.Delta{MessageID: "m", Path: root, Text: "hm", Thought: true})
		return add(ctx, r, func() *record.Event {
			r.Delta(record.Delta{MessageID: "m", Path: root, Text: "Hello, "})
			return &record.Event{MessageID: "m", Path: root, Text: "Hello, world", Thoughts: "hmm", Last: true,
				Usage: &record.Usage{Prompt: 1, Completion: 2, Total: 3, Calls: 1, Cost: 500_000_000}}
		}())
	})
	turn := f.start(session.Request{InitialState: map[string]any{"k": "v"}})
	got := follow(t, turn.Watch())
	if got[0].GetExecute().GetSessionId() != turn.SessionID() {
		t.Errorf("first message is %v", got[0])
	}
	if v := got[1].GetStateUpdate().GetStateDelta().AsMap()["k"]; v != "v" {
		t.Errorf("second message is %v, want the state", got[1])
	}
	var text, thoughts string
	last := 0
	for _, m := range got {
		c := m.GetOutputChunk()
		if c.GetIsThought() {
			thoughts += c.GetContent()
		} else {
			text += c.GetContent()
		}
		if c.GetLast() {
			last++
		}
	}
	if text != "Hello, world" || thoughts != "hmm" || last != 1 {
		t.Errorf("text %q, thoughts %q, %d last chunks", text, thoughts, last)
	}
	completed := func(all []*agentdv1.RunResponse) (out []string) {
		for i, m := range all {
			if c := m.GetMessageCompleted(); c != nil {
				out = append(out, fmt.Sprintf("%v %s %d %d after %t", c.GetAgentPath(), c.GetMessageId(), c.GetTextBytes(), c.GetThoughtBytes(), all[i-1].GetOutputChunk() != nil))
			}
		}
		return out
	}
	want := []string{"[root] m 12 3 after true"}
	if was := completed(got); !slices.Equal(was, want) {
		t.Errorf("messages completed %q, want %q", was, want)
	}
	if was := completed(follow(t, turn.Watch())); !slices.Equal(was, want) {
		t.Errorf("read again, messages completed %q, want %q", was, want)
	}
	e := end(t, got)
	if u := e.UsageSummary; !e.Completed || e.Reason != nil || u.LlmCalls != 1 || u.TotalUsage.TotalTokens != 3 || u.EstimatedCost != 0.5 {
		t.Errorf("end is %v", e)
	}
	if again := follow(t, turn.Watch()); texts(again)["root"] != "Hello, world" {
		t.Errorf("read again, the turn is %v", again)
	}
}

func TestLastComesWithTheEndOfTheTurn(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{})
	f.on(func(ctx context.Context, r *session.Run) error {
		return errors.Join(say(ctx, r, "1", []string{"root", "a"}, "one"), say(ctx, r, "2", []string{"root", "b"}, "two"),
			say(ctx, r, "3", []string{"root", "a"}, "three"))
	})
	got := follow(t, f.start(session.Request{}).Watch())
	last := map[string]int{}
	for i, m := range got {
		if c := m.GetOutputChunk(); c.GetLast() {
			last[strings.Join(c.AgentPath, "/")]++
			for _, later := range got[i+1:] {
				if l := later.GetOutputChunk(); l != nil && strings.Join(l.AgentPath, "/") == strings.Join(c.AgentPath, "/") {
					t.Errorf("%v follows the last chunk of its agent", l)
				}
			}
		}
	}
	if last["root/a"] != 1 || last["root/b"] != 1 || len(last) != 2 {
		t.Errorf("last chunks: %v", last)
	}
}

func TestWatcherThatDoesNotKeepUp(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{WatchItems: 4})
	var want strings.Builder
	told := make(chan struct{})
	f.on(func(ctx context.Context, r *session.Run) error {
		defer close(told)
		for i := range 50 {
			pieces := []string{fmt.Sprintf("<%d", i), "-", fmt.Sprintf("%d>", i)}
			want.WriteString(strings.Join(pieces, ""))
			if err := say(ctx, r, fmt.Sprint(i), root, pieces...); err != nil {
				return err
			}
		}
		return nil
	})
	turn := f.start(session.Request{})
	w := turn.Watch()
	<-told
	if got := texts(follow(t, w))["root"]; got != want.String() {
		t.Errorf("slow watcher read %q\nwant %q", got, want.String())
	}
}

func TestToolCallsAndAnswers(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{MaxResultBytes: 1000})
	var results map[string]record.ToolResult
	f.on(func(ctx context.Context, r *session.Run) (err error) {
		results, err = call(ctx, r, "c1", "c2", "c3")
		return err
	})
	turn := f.start(session.Request{})
	w := turn.Watch()
	got := await(t, w, isCall)
	calls := 0
	for _, m := range got {
		if c := m.GetToolCall(); c != nil {
			calls++
			if c.ToolInput != `{"b":1,"a":2}` {
				t.Errorf("tool input is %s, want the model's own text", c.ToolInput)
			}
		}
	}
	if calls != 3 {
		t.Fatalf("%d calls came together, want 3", calls)
	}
	ctx := t.Context()
	answer := func(id, out string) error {
		return turn.SubmitResult(ctx, session.ClientResult{CallID: id, Output: &out})
	}
	for _, step := range []struct {
		what string
		err  error
		want agentdv1.ErrorCode
	}{
		{"last call first", answer("c3", "three"), 0},
		{"the same again", answer("c3", "three"), 0},
		{"another answer", answer("c3", "drei"), agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST},
		{"unknown call", answer("c9", "x"), agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST},
		{"too large", answer("c2", strings.Repeat("x", 1000)), agentdv1.ErrorCode_ERROR_CODE_LIMIT_EXCEEDED},
		{"too large is the result", answer("c2", "two"), agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST},
		{"neither output nor error", turn.SubmitResult(ctx, session.ClientResult{CallID: "c1"}), 0},
	} {
		if got := code(step.err); got != step.want || (step.err != nil) != (step.want != 0) {
			t.Errorf("%s: %v (%v), want %v", step.what, step.err, got, step.want)
		}
	}
	if e := end(t, follow(t, w)); !e.Completed {
		t.Errorf("end is %v", e)
	}
	if *results["c3"].Output != "three" || !strings.Contains(results["c2"].Error, "at most 1000 are allowed") || !strings.Contains(results["c1"].Error, "neither output nor error") {
		t.Errorf("results: %v", results)
	}
	if err := answer("c1", "late"); code(err) != agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST {
		t.Errorf("answer after the end: %v", err)
	}
}

func TestCallsThatNobodyAnswers(t *testing.T) {
	for _, tc := range []struct {
		name    string
		act     func(*session.Turn, *session.Watcher) error
		outcome record.Outcome
	}{
		{"cancelled", func(turn *session.Turn, _ *session.Watcher) error { return turn.CancelCall(context.Background(), "c1") }, record.Cancelled},
		{"timed out", func(*session.Turn, *session.Watcher) error { return nil }, record.TimedOut},
		{"abandoned", func(_ *session.Turn, w *session.Watcher) error { w.Unattended("the client has left"); return nil }, record.Abandoned},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, memory(t), limits.Limits{ToolTimeout: time.Minute})
				var first, second map[string]record.ToolResult
				f.on(func(ctx context.Context, r *session.Run) (err error) {
					if first, err = call(ctx, r, "c1"); err != nil {
						return err
					}
					if tc.outcome == record.Abandoned { // also what comes later
						second, err = call(ctx, r, "c2")
					}
					return err
				})
				turn := f.start(session.Request{})
				w := turn.Watch()
				await(t, w, isCall)
				if err := tc.act(turn, w); err != nil {
					t.Fatal(err)
				}
				rest := follow(t, w)
				if first["c1"].Outcome != tc.outcome || (tc.outcome == record.Abandoned && second["c2"].Outcome != tc.outcome) {
					t.Errorf("results %v %v", first, second)
				}
				told := 0
				for _, m := range rest {
					if m.GetToolCallCanceled().GetToolCallId() == "c1" {
						told++
					}
				}
				if told != 1 || !end(t, rest).Completed {
					t.Errorf("client was told %d times that c1 is cancelled; %v", told, rest)
				}
				if tc.outcome == record.Cancelled {
					if err := turn.CancelCall(t.Context(), "c1"); err != nil {
						t.Errorf("cancelling the call again: %v", err)
					}
					if err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: "c1", Output: new("late")}); code(err) != agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST {
						t.Errorf("answering the cancelled call: %v", err)
					}
				}
			})
		})
	}
}

func TestAskIsACallOfItsOwn(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{})
	f.on(func(ctx context.Context, r *session.Run) error {
		c := record.ToolCall{ID: "loop1", Name: "loop_continue", Input: []byte(`{"iteration":1}`), Path: root}
		if _, err := r.Ask(ctx, c); err != nil {
			return err
		}
		res, err := r.Ask(ctx, c) // settled: no second call
		if err == nil && *res.Output != "yes" {
			err = fmt.Errorf("result is %v", res)
		}
		return err
	})
	turn := f.start(session.Request{})
	w := turn.Watch()
	await(t, w, isCall)
	if err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: "loop1", Output: new("yes")}); err != nil {
		t.Fatal(err)
	}
	rest := follow(t, w)
	for _, m := range rest {
		if isCall(m) {
			t.Error("asked twice")
		}
	}
	if !end(t, rest).Completed {
		t.Errorf("end: %v", rest)
	}
}

func TestEveryOutcomeAndThenAnotherTurn(t *testing.T) {
	const reasonTimeout = "the turn took longer than 1m0s"
	for _, tc := range []struct {
		name   string
		run    func(ctx context.Context, r *session.Run) error
		act    func(*session.Turn)
		code   agentdv1.ErrorCode
		reason string
		done   bool
	}{
		{name: "completed", run: func(ctx context.Context, r *session.Run) error { return say(ctx, r, "m", root, "x") }, done: true},
		{name: "cancelled", act: func(turn *session.Turn) { turn.Cancel("") }, reason: "cancelled by the client"},
		{name: "ended", act: func(turn *session.Turn) { turn.End("enough") }, reason: "enough"},
		{name: "cancelled, then ended", act: func(turn *session.Turn) { turn.Cancel("first"); turn.End("second") }, reason: "first"},
		{name: "timed out", code: agentdv1.ErrorCode_ERROR_CODE_TIMEOUT, reason: reasonTimeout},
		{
			name: "failed", run: func(context.Context, *session.Run) error {
				return fault.Errorf(agentdv1.ErrorCode_ERROR_CODE_RATE_LIMITED, "root: slow down")
			},
			code: agentdv1.ErrorCode_ERROR_CODE_RATE_LIMITED, reason: "root: slow down",
		},
		{
			name: "broken", run: func(context.Context, *session.Run) error { return errors.New("secret detail") },
			code: agentdv1.ErrorCode_ERROR_CODE_INTERNAL, reason: "internal error",
		},
		{
			name: "panicked", run: func(context.Context, *session.Run) error { panic("secret detail") },
			code: agentdv1.ErrorCode_ERROR_CODE_INTERNAL, reason: "internal error",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memory(t)
				f := newFixture(t, store, limits.Limits{TurnTimeout: time.Minute, ToolTimeout: time.Hour})
				f.on(func(ctx context.Context, r *session.Run) error {
					if err := say(ctx, r, "m0", root, "a"); err != nil {
						return err
					}
					if tc.run != nil {
						return tc.run(ctx, r)
					}
					_, err := call(ctx, r, "c1")
					return err
				})
				turn := f.start(session.Request{})
				w := turn.Watch()
				if tc.run == nil {
					await(t, w, isCall)
				}
				if tc.act != nil {
					tc.act(turn)
				}
				got := follow(t, w)
				e := end(t, got)
				var failed *agentdv1.RunResponse_ErrorResponse
				for _, m := range got {
					if m.GetError() != nil {
						failed = m.GetError()
					}
				}
				if e.Completed != tc.done || e.GetReason() != tc.reason || failed.GetCode() != tc.code {
					t.Fatalf("end is %v, error %v", e, failed)
				}
				if failed != nil && (failed.Message != tc.reason || failed.Retryable != (&fault.Error{Code: tc.code}).Retryable()) {
					t.Errorf("error is %v", failed)
				}
				if e.UsageSummary.GetLlmCalls() < 1 {
					t.Errorf("usage is %v", e.UsageSummary)
				}
				<-turn.Done()
				f.on(func(ctx context.Context, r *session.Run) error { return say(ctx, r, "m1", root, "again") })
				next := f.start(session.Request{SessionID: turn.SessionID(), Prompt: "go on"})
				if got := follow(t, next.Watch()); texts(got)["root"] != "again" || end(t, got).UsageSummary.LlmCalls != 1 {
					t.Errorf("next turn: %v", got)
				}
			})
		})
	}
}

func TestRefusals(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{MaxTurns: 1, MaxPromptBytes: 100, MaxStateBytes: 100})
	release := make(chan struct{})
	f.on(func(context.Context, *session.Run) error { <-release; return nil })
	f.check = func(spec *record.Spec) error {
		if spec.Prompt == "bad tree" {
			return fault.Errorf(agentdv1.ErrorCode_ERROR_CODE_INVALID_AGENT_TREE, "root: bad")
		}
		return nil
	}
	big := strings.Repeat("x", 101)
	for _, tc := range []struct {
		name string
		req  session.Request
		code agentdv1.ErrorCode
	}{
		{"no prompt", session.Request{Agent: tree(), Prompt: " "}, agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST},
		{"long prompt", session.Request{Agent: tree(), Prompt: big}, agentdv1.ErrorCode_ERROR_CODE_LIMIT_EXCEEDED},
		{"no agent", session.Request{Prompt: "x"}, agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST},
		{"tools alone", session.Request{SessionID: "s", Prompt: "x", Tools: []*agentdv1.Tool{{Name: "t"}}}, agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST},
		{"unknown session", session.Request{SessionID: "nope", Prompt: "x"}, agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND},
		{"large state", session.Request{Agent: tree(), Prompt: "x", InitialState: map[string]any{"k": big}}, agentdv1.ErrorCode_ERROR_CODE_LIMIT_EXCEEDED},
		{"bad tree", session.Request{Agent: tree(), Prompt: "bad tree"}, agentdv1.ErrorCode_ERROR_CODE_INVALID_AGENT_TREE},
	} {
		if _, err := f.m.Start(t.Context(), tc.req); code(err) != tc.code {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.code)
		}
	}
	turn := f.start(session.Request{})
	if _, err := f.m.Start(t.Context(), session.Request{Agent: tree(), Prompt: "x"}); code(err) != agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE {
		t.Errorf("one turn too many: %v", err)
	}
	close(release)
	<-turn.Done()
	if !end(t, follow(t, f.start(session.Request{}).Watch())).Completed {
		t.Error("no turn after the refusals")
	}
}

func TestOneTurnAtATime(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{})
	release := make(chan struct{})
	f.on(func(context.Context, *session.Run) error { <-release; return nil })
	turn := f.start(session.Request{})
	if _, err := f.m.Start(t.Context(), session.Request{SessionID: turn.SessionID(), Prompt: "x"}); code(err) != agentdv1.ErrorCode_ERROR_CODE_SESSION_BUSY {
		t.Errorf("second turn: %v", err)
	}
	close(release)
	<-turn.Done()
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	hold := make(chan struct{})
	f.on(func(context.Context, *session.Run) error { <-hold; return nil })
	for range 8 {
		wg.Go(func() {
			_, err := f.m.Start(t.Context(), session.Request{SessionID: turn.SessionID(), Prompt: "x"})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won++
			} else if code(err) != agentdv1.ErrorCode_ERROR_CODE_SESSION_BUSY {
				t.Errorf("start: %v", err)
			}
		})
	}
	wg.Wait()
	close(hold)
	if won != 1 {
		t.Errorf("%d turns started at once", won)
	}
}

func TestStateAndItsScopes(t *testing.T) {
	store := memory(t)
	f := newFixture(t, store, limits.Limits{MaxIdleSessions: 1})
	var seen []map[string]any
	f.on(func(ctx context.Context, r *session.Run) error {
		seen = append(seen, r.State())
		return add(ctx, r, &record.Event{Path: root, State: map[string]any{"own": "1", "app:a": "2", "user:u": "3"}})
	})
	first := f.start(session.Request{InitialState: map[string]any{"init": true, "temp:t": "gone", "app:b": "4"}})
	got := follow(t, first.Watch())
	<-first.Done()
	if snap := got[1].GetStateUpdate().GetStateDelta().AsMap(); len(snap) != 2 || fmt.Sprint(snap["init"]) != "true" || snap["app:b"] != "4" {
		t.Errorf("snapshot %v", snap)
	}
	if delta := got[3].GetStateUpdate().GetStateDelta().AsMap(); len(delta) != 3 || delta["own"] != "1" {
		t.Errorf("delta %v", delta)
	}
	other := f.start(session.Request{})
	<-other.Done()
	again := f.start(session.Request{SessionID: first.SessionID()})
	<-again.Done()
	if s := seen[0]; s["temp:t"] != "gone" || fmt.Sprint(s["init"]) != "true" {
		t.Errorf("first turn saw %v", s)
	}
	if s := seen[1]; s["app:a"] != "2" || s["user:u"] != "3" || s["app:b"] != "4" || len(s) != 3 {
		t.Errorf("another session saw %v, want the shared keys alone", s)
	}
	if s := seen[2]; s["own"] != "1" || fmt.Sprint(s["init"]) != "true" || s["temp:t"] != nil {
		t.Errorf("the session's next turn saw %v", s)
	}
}

func TestSessionIsWhatItsLogSays(t *testing.T) {
	store := memory(t)
	f := newFixture(t, store, limits.Limits{})
	f.on(func(ctx context.Context, r *session.Run) error {
		return errors.Join(say(ctx, r, "m", root, "x"), add(ctx, r, &record.Event{Path: root, State: map[string]any{"n": 1}}))
	})
	turn := f.start(session.Request{Agent: tree(), Tools: []*agentdv1.Tool{{Name: "t", Description: "d"}}})
	<-turn.Done()
	// Another server on the same store.
	g := newFixture(t, store, limits.Limits{})
	g.on(func(ctx context.Context, r *session.Run) error {
		if fmt.Sprint(r.State()["n"]) != "1" || r.Spec().Agent.GetName() != "root" || r.Spec().Tools[0].GetName() != "t" {
			return fmt.Errorf("state %v, spec %v", r.State(), r.Spec())
		}
		n := 0
		for rec, err := range r.Records(ctx, 0) {
			if err != nil {
				return err
			}
			if n++; rec.Seq != int64(n) {
				return fmt.Errorf("record %d is number %d", rec.Seq, n)
			}
		}
		if int64(n) != r.StartSeq() {
			return fmt.Errorf("%d records, turn starts at %d", n, r.StartSeq())
		}
		return nil
	})
	if e := end(t, follow(t, g.start(session.Request{SessionID: turn.SessionID()}).Watch())); !e.Completed {
		t.Errorf("end is %v", e)
	}
}

func TestInterruptedTurnIsClosed(t *testing.T) {
	store := &faulty{Store: memory(t)}
	f := newFixture(t, store, limits.Limits{})
	stop := make(chan struct{})
	f.on(func(ctx context.Context, r *session.Run) error {
		defer close(stop)
		if err := add(ctx, r, &record.Event{Path: root, Calls: []record.ToolCall{{ID: "c", Name: "t", Input: []byte("{}")}}}); err != nil {
			return err
		}
		store.before.Store(true) // from here on nothing is written, as if the process were gone
		return errors.New("gone")
	})
	turn := f.start(session.Request{})
	if got, err := followErr(t, turn.Watch()); code(err) != agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE {
		t.Errorf("the watcher read %v, then %v", got, err)
	}
	<-stop
	<-turn.Done()
	store.before.Store(false)
	g := newFixture(t, store, limits.Limits{})
	g.on(func(ctx context.Context, r *session.Run) error { return say(ctx, r, "m", root, "fine") })
	if got := follow(t, g.start(session.Request{SessionID: turn.SessionID()}).Watch()); texts(got)["root"] != "fine" {
		t.Errorf("turn after the interruption: %v", got)
	}
	recs, err := store.Read(t.Context(), turn.SessionID(), 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, r := range recs {
		kinds = append(kinds, string(r.Kind))
	}
	if got := strings.Join(kinds, " "); got != "turn_started event turn_ended turn_started event turn_ended" {
		t.Errorf("log is %s", got)
	}
}

func TestStoreThatFails(t *testing.T) {
	for _, persisted := range []bool{false, true} {
		t.Run(fmt.Sprintf("persisted=%v", persisted), func(t *testing.T) {
			store := &faulty{Store: memory(t)}
			f := newFixture(t, store, limits.Limits{})
			fault := &store.before
			if persisted {
				fault = &store.after
			}
			f.on(func(ctx context.Context, r *session.Run) error {
				if err := say(ctx, r, "m", root, "shown"); err != nil {
					return err
				}
				fault.Store(true)
				return say(ctx, r, "m2", root, "not sure")
			})
			turn := f.start(session.Request{})
			for range 2 { // the second one comes after the failure
				if got, err := followErr(t, turn.Watch()); code(err) != agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE {
					t.Errorf("the watcher read %v, then %v", got, err)
				}
				<-turn.Done()
			}
			if _, err := f.m.Start(t.Context(), session.Request{Agent: tree(), Prompt: "x"}); err == nil {
				t.Error("a turn started on a store that fails")
			}
			fault.Store(false)
			f.on(func(ctx context.Context, r *session.Run) error { return say(ctx, r, "m3", root, "fine") })
			next := f.start(session.Request{SessionID: turn.SessionID()})
			if got := follow(t, next.Watch()); texts(got)["root"] != "fine" {
				t.Errorf("turn after the failure: %v", got)
			}
			recs, err := store.Read(t.Context(), turn.SessionID(), 0, 100)
			if err != nil {
				t.Fatal(err)
			}
			want := map[bool]int{false: 6, true: 7}[persisted] // what is in the log counts
			if len(recs) != want {
				t.Errorf("log has %d records, want %d", len(recs), want)
			}
		})
	}
}

func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(func(ctx context.Context, r *session.Run) error {
			select {
			case <-time.After(time.Second):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		soft := f.start(session.Request{})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := f.m.Shutdown(ctx); err != nil {
			t.Fatal(err)
		}
		if !end(t, follow(t, soft.Watch())).Completed {
			t.Error("a soft stop cut a turn short")
		}
		if _, err := f.m.Start(t.Context(), session.Request{Agent: tree(), Prompt: "x"}); code(err) != agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE {
			t.Errorf("start while stopping: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		release := make(chan struct{})
		f.on(func(ctx context.Context, r *session.Run) error {
			<-ctx.Done()
			<-release
			return errors.New("whatever")
		})
		hard := f.start(session.Request{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := f.m.Shutdown(ctx); err == nil || !strings.Contains(err.Error(), hard.ID()) {
			t.Errorf("shutdown with a turn that hangs: %v", err)
		}
		close(release)
		if got, err := followErr(t, hard.Watch()); code(err) != agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE {
			t.Errorf("the watcher read %v, then %v", got, err)
		}
	})
}

// A stop waits for nobody: a person may take days, and a tool minutes.
func TestShutdownSuspendsWhatWaits(t *testing.T) {
	for name, tc := range map[string]struct {
		turn  func(context.Context, *session.Run) error
		tools []string // of the client that is there
		until func(*agentdv1.RunResponse) bool
	}{
		"a person is asked":          {careful, []string{"tool"}, isAsked},
		"nobody has the tool":        {story, nil, func(m *agentdv1.RunResponse) bool { return m.GetToolCallAnnounced() != nil }},
		"a client's tool is at work": {story, []string{"tool"}, isCall},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, memory(t), limits.Limits{})
				f.on(tc.turn)
				turn := f.start(session.Request{})
				_, w := f.attach(session.AttachRequest{SessionID: turn.SessionID(), Tools: tc.tools})
				await(t, w, tc.until)
				begin := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err := f.m.Shutdown(ctx); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begin); took >= time.Second {
					t.Errorf("the stop took %v", took)
				}
				if _, err := followErr(t, w); code(err) != agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE {
					t.Errorf("the watcher was told %v", err)
				}
			})
		})
	}
}

func TestAnswersShareAppends(t *testing.T) {
	store := &faulty{Store: memory(t)}
	f := newFixture(t, store, limits.Limits{})
	var ids []string
	for i := range 64 {
		ids = append(ids, fmt.Sprint("c", i))
	}
	f.on(func(ctx context.Context, r *session.Run) error {
		res, err := call(ctx, r, ids...)
		if err == nil && len(res) != len(ids) {
			err = fmt.Errorf("%d results", len(res))
		}
		return err
	})
	turn := f.start(session.Request{})
	w := turn.Watch()
	await(t, w, isCall)
	var wg sync.WaitGroup
	for _, id := range ids {
		for range 2 { // each result comes twice
			wg.Go(func() {
				if err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: id, Output: &id}); err != nil {
					t.Errorf("answer %s: %v", id, err)
				}
			})
		}
	}
	wg.Wait()
	if !end(t, follow(t, w)).Completed {
		t.Error("not completed")
	}
	recs, err := store.Read(t.Context(), turn.SessionID(), 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if len(recs) != 64+3 {
		t.Errorf("%d records, want one result for each call", len(recs))
	}
	t.Logf("%d records in %d appends", len(recs), store.appends.Load())
}

func TestSecretsDoNotPrint(t *testing.T) {
	s := session.Secret("sk-canary")
	data, err := s.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{fmt.Sprint(s), fmt.Sprintf("%v %s %q %#v %x", s, s, s, s, s), string(data), fmt.Sprint(session.Keys{"p": s}), s.LogValue().String()} {
		if strings.Contains(text, "canary") || strings.Contains(text, fmt.Sprintf("%x", "canary")) {
			t.Errorf("printed %q", text)
		}
	}
}
