package session_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
)

const unavailable = agentdv1.ErrorCode_ERROR_CODE_UNAVAILABLE

// story is a turn that can continue where its log ends: a response with a call, the
// call's result, a response that has it.
func story(ctx context.Context, r *session.Run) error {
	events, err := eventsOf(ctx, r)
	if err != nil {
		return err
	}
	if events == 0 {
		r.Delta(record.Delta{MessageID: "m1", Path: root, Text: "let me "})
		ev := &record.Event{
			MessageID: "m1", Path: root, Text: "let me look. ", Usage: &record.Usage{Calls: 1},
			Calls: []record.ToolCall{{ID: "c1", Name: "tool", Input: []byte("{}"), Path: root}},
		}
		if err := add(ctx, r, ev); err != nil {
			return err
		}
	}
	res, err := r.Await(ctx, "c1")
	if err != nil {
		return err
	}
	if events > 1 {
		return nil
	}
	return add(ctx, r, &record.Event{MessageID: "m2", Path: root, Text: "it is " + *res.Output, Usage: &record.Usage{Calls: 1}})
}

// newServer is another server on the same store.
func (f *fixture) newServer(limits limits.Limits) *fixture {
	g := newFixture(f.t, f.store, limits)
	g.engine.run = story
	if err := g.m.Recover(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	return g
}

func (f *fixture) attach(req session.AttachRequest) (*session.Turn, *session.Watcher) {
	f.t.Helper()
	turn, w, err := f.m.Attach(f.t.Context(), req)
	if err != nil {
		f.t.Fatalf("attach: %v", err)
	}
	return turn, w
}

func (f *fixture) stop() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := f.m.Shutdown(ctx); err != nil {
		f.t.Errorf("shutdown: %v", err)
	}
}

func TestTurnGoesOnAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(story)
		turn := f.start(session.Request{InitialState: map[string]any{"k": "v", "temp:t": "x"}})
		w := turn.Watch()
		first := await(t, w, isCall)
		f.stop()
		if _, err := followErr(t, w); code(err) != unavailable {
			t.Fatalf("the watcher of a stopped server: %v", err)
		}
		last := first[len(first)-1].Seq
		g := f.newServer(limits.Limits{})
		g.engine.on(func(ctx context.Context, r *session.Run) error {
			if s := r.State(); s["k"] != "v" || s["temp:t"] != "x" {
				return fmt.Errorf("state is %v", s)
			}
			return story(ctx, r)
		})
		turn2, w2 := g.attach(session.AttachRequest{SessionID: turn.SessionID(), After: &last, Tools: []string{"tool"}})
		if turn2.ID() != turn.ID() {
			t.Errorf("turn %s goes on as %s", turn.ID(), turn2.ID())
		}
		second := await(t, w2, isCall)
		if err := turn2.SubmitResult(t.Context(), session.ClientResult{CallID: "c1", Output: new("fine")}); err != nil {
			t.Fatal(err)
		}
		second = append(second, follow(t, w2)...)
		all := slices.Concat(first, second)
		if got := texts(all)["root"]; got != "let me look. it is fine" {
			t.Errorf("joined text is %q", got)
		}
		if e := end(t, all); !e.Completed || e.UsageSummary.LlmCalls != 2 {
			t.Errorf("end is %v", e)
		}
		calls := 0
		for _, m := range all {
			if isCall(m) {
				calls++
			}
		}
		if calls != 2 { // once by each server, under one id
			t.Errorf("asked %d times", calls)
		}
		for _, m := range second {
			if m.GetExecute() != nil || m.GetStateUpdate() != nil {
				t.Errorf("%v came again", m)
			}
		}
	})
}

func TestWhatACrashTearsIsRetracted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &faulty{Store: memory(t)}
		f := newFixture(t, store, limits.Limits{})
		shown := make(chan struct{})
		f.on(func(ctx context.Context, r *session.Run) error {
			r.Delta(record.Delta{MessageID: "m1", Path: root, Text: "let me th"})
			close(shown)
			<-ctx.Done()
			store.before.Store(true) // as if the process were gone
			return context.Cause(ctx)
		})
		turn := f.start(session.Request{})
		w := turn.Watch()
		<-shown
		torn := await(t, w, func(m *agentdv1.RunResponse) bool { return m.GetOutputChunk() != nil })
		f.stop()
		store.before.Store(false)
		g := f.newServer(limits.Limits{})
		last := torn[len(torn)-1].Seq
		turn2, w2 := g.attach(session.AttachRequest{SessionID: turn.SessionID(), After: &last, Tools: []string{"tool"}})
		got := await(t, w2, isCall)
		if err := turn2.SubmitResult(t.Context(), session.ClientResult{CallID: "c1", Output: new("fine")}); err != nil {
			t.Fatal(err)
		}
		got = append(got, follow(t, w2)...)
		if got[0].GetMessageRetracted() == nil || texts(got)["root"] != "let me look. it is fine" {
			t.Errorf("after the crash the client reads %v", got)
		}
	})
}

func TestOneClientIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(story)
		go1 := make(chan struct{})
		f.on(func(ctx context.Context, r *session.Run) error { <-go1; return story(ctx, r) })
		turn := f.start(session.Request{})
		starter := turn.Watch()
		id := turn.SessionID()
		_, idle := f.attach(session.AttachRequest{SessionID: id})
		_, newest := f.attach(session.AttachRequest{SessionID: id, Tools: []string{"tool", "other"}})
		_, other := f.attach(session.AttachRequest{SessionID: id, Tools: []string{"other"}})
		close(go1)
		notice := func(m *agentdv1.RunResponse) bool { return m.GetToolCallAnnounced() != nil }
		await(t, newest, isCall)
		for _, w := range []*session.Watcher{starter, idle, other} {
			await(t, w, notice)
		}
		newest.Close()
		time.Sleep(limits.Limits{}.WithDefaults().HandoverGrace - time.Millisecond)
		synctest.Wait()
		if msgs, err := starter.Next(t.Context()); len(msgs) > 0 || err != nil {
			t.Errorf("before the grace is over the other client reads %v, %v", msgs, err)
		}
		await(t, starter, isCall)
		if err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: "c1", Output: new("fine")}); err != nil {
			t.Fatal(err)
		}
		for _, w := range []*session.Watcher{starter, idle, other} {
			rest := follow(t, w)
			if texts(rest)["root"] != "it is fine" || !end(t, rest).Completed {
				t.Errorf("a watcher reads %v", rest)
			}
		}
	})
}

func TestTurnOnItsOwn(t *testing.T) {
	for _, tc := range []struct {
		name   string
		policy record.OnDisconnect
		back   time.Duration // when the client comes back
		want   string        // text of the whole turn, or the reason of its end
	}{
		{"goes on", record.OnDisconnect{}, time.Second, "let me look. it is fine"},
		{"is put aside", record.OnDisconnect{}, time.Hour, "let me look. it is fine"},
		{"expires", record.OnDisconnect{}, 26 * time.Hour, "expired: no client came within 24h0m0s"},
		{"is cancelled", record.OnDisconnect{Cancel: true}, time.Second, "the client disconnected"},
		{"is cancelled after a grace", record.OnDisconnect{Cancel: true, Grace: time.Minute}, 2 * time.Minute, "the client disconnected"},
		{"is back within the grace", record.OnDisconnect{Cancel: true, Grace: time.Minute}, time.Second, "let me look. it is fine"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, memory(t), limits.Limits{})
				f.on(story)
				if err := f.m.Recover(t.Context()); err != nil {
					t.Fatal(err)
				}
				turn := f.start(session.Request{OnDisconnect: tc.policy})
				w := turn.Watch()
				got := await(t, w, isCall)
				last := got[len(got)-1].Seq
				w.Close()
				time.Sleep(tc.back)
				synctest.Wait()
				turn, w = f.attach(session.AttachRequest{SessionID: turn.SessionID(), After: &last, Tools: []string{"tool"}})
				err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: "c1", Output: new("fine")})
				rest := follow(t, w)
				e := end(t, rest)
				if done := strings.HasPrefix(tc.want, "let"); done != e.Completed || done != (err == nil) {
					t.Errorf("answer: %v, end: %v", err, e)
				} else if text := texts(append(got, rest...))["root"]; done && text != tc.want || !done && e.GetReason() != tc.want {
					t.Errorf("text %q, reason %q, want %q", text, e.GetReason(), tc.want)
				}
			})
		})
	}
}

func TestPutAsideLeavesMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{IdleTurn: time.Minute})
		f.on(story)
		turn := f.start(session.Request{})
		w := turn.Watch()
		await(t, w, isCall)
		w.Close()
		time.Sleep(time.Minute)
		<-turn.Done()
		head, err := f.store.Head(t.Context(), turn.SessionID())
		if err != nil || head.OpenTurn != turn.ID() {
			t.Errorf("head %v, %v: the turn is not over", head, err)
		}
		// A new prompt is worth more than a turn that waits for nobody.
		next := f.start(session.Request{SessionID: turn.SessionID()})
		nw := next.Watch()
		await(t, nw, isCall)
		nw.Close()
		again := f.start(session.Request{SessionID: turn.SessionID()}) // the same while it is in memory
		aw := again.Watch()
		await(t, aw, isCall)
		if err := again.SubmitResult(t.Context(), session.ClientResult{CallID: "c1", Output: new("fine")}); err != nil {
			t.Fatal(err)
		}
		if e := end(t, follow(t, aw)); !e.Completed {
			t.Errorf("end is %v", e)
		}
	})
}

// TestManyComeBackAtOnce has all clients of a stopped server attach together.
func TestManyComeBackAtOnce(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{})
	f.on(story)
	turn := f.start(session.Request{})
	await(t, turn.Watch(), isCall)
	f.stop()
	g := f.newServer(limits.Limits{})
	g.engine.check = func(*record.Spec) error {
		for range 1000 {
			runtime.Gosched() // let the others come while the turn is being resumed
		}
		return nil
	}
	watchers := make([]*session.Watcher, 8)
	var wg sync.WaitGroup
	for i := range watchers {
		wg.Go(func() {
			_, w, err := g.m.Attach(t.Context(), session.AttachRequest{SessionID: turn.SessionID(), Tools: []string{"tool"}})
			if err != nil {
				t.Errorf("client %d: %v", i, err)
			}
			watchers[i] = w
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	last, _ := g.attach(session.AttachRequest{SessionID: turn.SessionID()})
	if err := last.SubmitResult(t.Context(), session.ClientResult{CallID: "c1", Output: new("fine")}); err != nil {
		t.Fatal(err)
	}
	for _, w := range watchers {
		if got := follow(t, w); texts(got)["root"] != "let me look. it is fine" || !end(t, got).Completed {
			t.Errorf("a client that came back reads %v", got)
		}
	}
}

// TestPanicWhileResuming: the engine panics when it resumes a turn. The next client
// finds the turn as it was.
func TestPanicWhileResuming(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{})
	f.on(story)
	turn := f.start(session.Request{})
	await(t, turn.Watch(), isCall)
	f.stop()
	g := f.newServer(limits.Limits{MaxTurns: 1})
	g.engine.check = func(*record.Spec) error { panic("check") }
	req := session.AttachRequest{SessionID: turn.SessionID(), Tools: []string{"tool"}}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_, _, err := g.m.Attach(t.Context(), req)
		t.Errorf("attach: %v", err)
	}()
	g.engine.check = nil
	turn, w := g.attach(req)
	if err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: "c1", Output: new("fine")}); err != nil {
		t.Fatal(err)
	}
	if !end(t, follow(t, w)).Completed {
		t.Error("the turn did not go on")
	}
}

// TestBadRequestInterruptsNothing sends a tree that is refused to a session with
// a turn that waits.
func TestBadRequestInterruptsNothing(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{})
	f.on(story)
	turn := f.start(session.Request{})
	w := turn.Watch()
	await(t, w, isCall)
	w.Close()
	f.check = func(*record.Spec) error {
		return fault.Errorf(agentdv1.ErrorCode_ERROR_CODE_INVALID_AGENT_TREE, "root: bad")
	}
	_, err := f.m.Start(t.Context(), session.Request{SessionID: turn.SessionID(), Agent: tree(), Prompt: "x"})
	if code(err) != agentdv1.ErrorCode_ERROR_CODE_INVALID_AGENT_TREE {
		t.Errorf("start: %v", err)
	}
	turn, w = f.attach(session.AttachRequest{SessionID: turn.SessionID(), Tools: []string{"tool"}})
	if err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: "c1", Output: new("fine")}); err != nil {
		t.Fatal(err)
	}
	if e := end(t, follow(t, w)); !e.Completed {
		t.Errorf("the turn that waited ended with %v", e)
	}
}

func TestAttachRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(story)
		turn := f.start(session.Request{Keys: session.Keys{"gemini": "sk-own"}})
		w := turn.Watch()
		got := await(t, w, isCall)
		far := got[len(got)-1].Seq + 1<<30
		for _, tc := range []struct {
			name string
			req  session.AttachRequest
			code agentdv1.ErrorCode
		}{
			{"unknown session", session.AttachRequest{SessionID: "nope"}, agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND},
			{"far cursor", session.AttachRequest{SessionID: turn.SessionID(), After: &far}, agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST},
			{"negative cursor", session.AttachRequest{SessionID: turn.SessionID(), After: new(int64(-1))}, agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST},
		} {
			if _, _, err := f.m.Attach(t.Context(), tc.req); code(err) != tc.code {
				t.Errorf("%s: %v", tc.name, err)
			}
		}
		f.stop()
		w.Close()
		g := f.newServer(limits.Limits{})
		req := session.AttachRequest{SessionID: turn.SessionID(), Tools: []string{"tool"}}
		_, _, err := g.m.Attach(t.Context(), req)
		if code(err) != agentdv1.ErrorCode_ERROR_CODE_AUTH_FAILED || !strings.Contains(err.Error(), "gemini") {
			t.Errorf("attach without the caller's own key: %v", err)
		}
		req.Keys = session.Keys{"gemini": "sk-own"}
		turn, w = g.attach(req)
		await(t, w, isCall)
		if err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: "c1", Output: new("fine")}); err != nil {
			t.Fatal(err)
		}
		if !end(t, follow(t, w)).Completed {
			t.Error("the turn did not go on with its key")
		}
		if _, _, err := g.m.Attach(t.Context(), session.AttachRequest{SessionID: turn.SessionID()}); err != nil {
			t.Errorf("attach to a turn that is over: %v", err)
		}
	})
}
