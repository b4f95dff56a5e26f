package adkbridge

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// dyingStore is a store that takes a number of appends and then none.
type dyingStore struct {
	store.Store
	left atomic.Int64
}

func (s *dyingStore) Append(ctx context.Context, b store.Batch) error {
	if s.left.Add(-1) < 0 {
		return store.ErrFailed
	}
	return s.Store.Append(ctx, b)
}

func (s *dyingStore) SetAttempts(ctx context.Context, id string, n int64, waits bool) error {
	if s.left.Load() < 0 {
		return store.ErrFailed
	}
	return s.Store.SetAttempts(ctx, id, n, waits)
}

// TestKilledAtTheEnd: wherever the process of a failing turn dies, the log has no
// result that says that its call was canceled without the end that cancels it. A turn
// without an end continues: clients receive its calls again, and the model sees their
// results.
func TestKilledAtTheEnd(t *testing.T) {
	tree := par("root", llm("left"), llm("middle"), llm("right"))
	wentOn := 0
	for n := int64(1); ; n++ {
		var asked atomic.Int64
		gate := make(chan struct{})
		broken := &model.Error{Kind: model.KindBlocked, Provider: "fake", Message: "no"}
		w := newWorld(t, map[string][]step{
			"left": {use("search", "calc")}, "middle": {use("fetch")}, "right": {{gate: gate, err: broken}},
		})
		w.onDisk()
		store := w.store
		mortal := &dyingStore{Store: store}
		mortal.left.Store(n)
		w.store = mortal
		w.restart()
		turn := w.start(tree, "go")
		watcher := turn.Watch()
		for done := false; !done; { // one of the three calls gets its result
			<-watcher.Ready()
			msgs, err := watcher.Next(t.Context())
			for _, m := range msgs {
				if tc := m.GetToolCall(); tc != nil {
					if tc.GetToolName() == "calc" {
						_ = turn.SubmitResult(t.Context(), session.ClientResult{CallID: tc.GetToolCallId(), Output: new("12")})
					}
					if asked.Add(1) == 3 {
						close(gate)
					}
				}
			}
			done = err != nil
		}
		watcher.Close()
		<-turn.Done()
		whole := mortal.left.Load() >= 0
		w.store = store
		if closed, ended := closings(t, store, w.session); closed > 0 && !ended || ended && closed != 2 {
			t.Errorf("killed at append %d: %d events close the turn, and its end is there: %v", n+1, closed, ended)
		} else if !ended && asked.Load() == 3 {
			wentOn++
			continueKilled(t, w)
		}
		if whole {
			break
		}
	}
	if wentOn == 0 { // at least the one whose end was not written
		t.Error("no turn went on")
	}
}

// continueKilled plays a turn to its end whose process has died while calls were open.
func continueKilled(t *testing.T, w *world) {
	t.Helper()
	w.runner = New(Config{Resolve: w.script.Resolve})
	w.restart()
	w.script.mu.Lock()
	w.script.steps, w.script.always = nil, func(string) step { return say("fine") }
	w.script.requests = nil
	w.script.mu.Unlock()
	turn, watcher, err := w.manager.Attach(t.Context(), session.AttachRequest{SessionID: w.session, Tools: []string{"search", "fetch", "calc"}})
	if err != nil {
		t.Fatal(err)
	}
	w.followOn(turn, watcher).ok(t)
	for _, agent := range []string{"left", "middle"} {
		seen := w.script.seen(agent)
		if len(seen) == 0 {
			t.Errorf("%s is told nothing", agent)
			continue
		}
		if got := transcript(seen[0].contents); strings.Contains(got, "cancelled") || !strings.Contains(got, "result") {
			t.Errorf("%s is told:\n%s", agent, got)
		}
	}
}

// closings returns how many events of a log hold results of calls that the turn's end
// cancels, and whether that end is in the log.
func closings(t *testing.T, db store.Store, id string) (n int, ended bool) {
	t.Helper()
	log, err := db.Read(t.Context(), id, 0, 1000)
	if errors.Is(err, store.ErrNoSession) {
		return 0, false
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range log {
		switch rec.Kind {
		case record.KindEvent:
			s, err := decode(rec.Data)
			if err != nil {
				t.Fatal(err)
			}
			if s.isCutOff() {
				n++
			}
		case record.KindTurnEnded:
			ended = true
		default:
		}
	}
	return n, ended
}

// TestClosingIsSmall: what closes a turn of very many open calls is one append, whatever
// the error says that has ended the turn.
func TestClosingIsSmall(t *testing.T) {
	const agents, calls = 16, 128
	gate := make(chan struct{})
	var asked atomic.Int64
	names := make([]string, calls)
	for i := range names {
		names[i] = "search"
	}
	broken := &model.Error{Kind: model.KindBlocked, Provider: "fake", Message: strings.Repeat("no ", 10_000)}
	steps := map[string][]step{"bad": {{gate: gate, err: broken}}}
	all := []*agentdv1.Agent{llm("bad")}
	for i := range agents {
		name := "a" + string(rune('a'+i))
		steps[name], all = []step{use(names...)}, append(all, llm(name))
	}
	w := newWorld(t, steps)
	w.result = func(*agentdv1.RunResponse_ToolCallRequest) session.ClientResult {
		if asked.Add(1) == agents*calls {
			close(gate)
		}
		return session.ClientResult{CallID: "-"}
	}
	largest := &sizeStore{Store: w.store}
	w.store = largest
	w.restart()
	if res := w.run(par("root", all...), "go"); res.end.GetCompleted() {
		t.Fatalf("the turn completes: %v", res.end)
	}
	if closed, ended := closings(t, w.store, w.session); closed != agents || !ended {
		t.Errorf("%d events close the turn, and its end is there: %v; want %d", closed, ended, agents)
	}
	if most := int64(reasonBytes + agents*calls*200 + 100_000); largest.bytes.Load() > most {
		t.Errorf("the largest append has %d bytes, want at most %d", largest.bytes.Load(), most)
	}
}

// sizeStore is a store that knows how much the largest append has held.
type sizeStore struct {
	store.Store
	bytes atomic.Int64
}

func (s *sizeStore) Append(ctx context.Context, b store.Batch) error {
	n := int64(0)
	for _, rec := range b.Records {
		n += int64(len(rec.Data))
	}
	for old := s.bytes.Load(); n > old && !s.bytes.CompareAndSwap(old, n); old = s.bytes.Load() {
	}
	return s.Store.Append(ctx, b)
}

// TestStoppedWhileRead stops a turn that resumes at each record that it reads: its calls get their results, and the next
// turn goes on from a valid history.
func TestStoppedWhileRead(t *testing.T) {
	steps := map[string][]step{"root": {use("search", "fetch"), say("done")}}
	whole := newFakeRun(t, llm("root", tools("search", "fetch")), "go")
	if err := newWorld(t, steps).runner.runTurn(t.Context(), whole); err != nil {
		t.Fatal(err)
	}
	log := len(whole.recs)
	for log > 0 && whole.recs[log-1].Kind != record.KindToolResult {
		log--
	}
	if log == 0 {
		t.Fatal("the log has no results")
	}
	for at := range log + 1 {
		run := whole.restarted(log)
		ctx, cancel := context.WithCancelCause(t.Context())
		enough := errors.New("enough")
		run.reading = func(n int) {
			if n == at {
				cancel(enough)
			}
		}
		w := newWorld(t, steps)
		if err := w.runner.runTurn(ctx, run); !errors.Is(err, enough) {
			t.Fatalf("stopped at record %d: %v", at, err)
		}
		given := 0
		for _, rec := range run.recs[log:] {
			if rec.Kind == record.KindEvent {
				s, err := decode(rec.Data)
				if err != nil {
					t.Fatal(err)
				}
				given += len(responses(s.Content))
			}
		}
		if given != 2 {
			t.Errorf("stopped at record %d: %d results are given to the model, want 2", at, given)
		}
	}
}
