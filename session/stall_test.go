package session_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// tampered is a store whose appends a test decides about.
type tampered struct {
	store.Store

	mu  sync.Mutex
	how func(ctx context.Context, b store.Batch) error // protected by mu; nil lets all through
}

func (s *tampered) tamper(how func(ctx context.Context, b store.Batch) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.how = how
}

func (s *tampered) Append(ctx context.Context, b store.Batch) error {
	s.mu.Lock()
	how := s.how
	s.mu.Unlock()
	if how != nil {
		return how(ctx, b)
	}
	return s.Store.Append(ctx, b)
}

// Ping writes, as every store's does.
func (s *tampered) Ping(ctx context.Context) error {
	s.mu.Lock()
	how := s.how
	s.mu.Unlock()
	if how != nil {
		return how(ctx, store.Batch{})
	}
	return s.Store.Ping(ctx)
}

func always(err error) func(context.Context, store.Batch) error {
	return func(context.Context, store.Batch) error { return fmt.Errorf("append: %w", err) }
}

var errBlip = errors.New("connection reset by the database")

// logOf returns the kinds of a session's records, having checked their numbers.
func logOf(t *testing.T, store store.Store, id string) string {
	t.Helper()
	recs, err := store.Read(t.Context(), id, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for i, rec := range recs {
		if rec.Seq != int64(i)+1 {
			t.Errorf("record %d stands at place %d", rec.Seq, i+1)
		}
		kinds = append(kinds, string(rec.Kind))
	}
	return strings.Join(kinds, " ")
}

// TestTurnWaitsForSpace (F17): while the store is full a turn waits and shows
// nothing that is not in the log, what needs a write is refused, a result is taken. When there is
// space, the turn ends as if nothing had been.
func TestTurnWaitsForSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &tampered{Store: memory(t)}
		f := newFixture(t, db, limits.Limits{TurnTimeout: time.Hour, StorePatience: 30 * time.Second})
		f.on(story)
		other := f.start(session.Request{}) // waits for its tool
		synctest.Wait()
		turn := f.start(session.Request{})
		w := turn.Watch()
		await(t, w, isCall)
		db.tamper(always(store.ErrFull))

		// The result is taken, not shown, and the turn does not continue.
		if err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: "c1", Output: new("fine")}); err != nil {
			t.Errorf("answer: %v", err)
		}
		if err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: "c1", Output: new("fine")}); err != nil {
			t.Errorf("the same answer: %v", err)
		}
		if err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: "c1", Output: new("other")}); code(err) != agentdv1.ErrorCode_ERROR_CODE_INVALID_REQUEST {
			t.Errorf("another answer: %v", err)
		}
		time.Sleep(3 * time.Hour) // longer than a turn may run
		if msgs, err := w.Next(t.Context()); len(msgs) > 0 || err != nil {
			t.Errorf("shown while the store is full: %v, %v", msgs, err)
		}
		if got := logOf(t, db, turn.SessionID()); got != "turn_started event" {
			t.Errorf("the log holds %s", got)
		}

		// What needs a write is refused, at once, and not as the server's fault.
		begun := time.Now()
		for what, call := range map[string]func() error{
			"a new session": func() error {
				_, err := f.m.Start(t.Context(), session.Request{Agent: tree(), Prompt: "x"})
				return err
			},
			"a prompt that waits": func() error {
				_, err := f.m.Start(t.Context(), session.Request{SessionID: other.SessionID(), Prompt: "x", OnBusy: enqueue})
				return err
			},
			"readiness": func() error { return f.m.Ready(t.Context()) },
		} {
			err := call()
			if err == nil || what != "readiness" && (code(err) != unavailable || !strings.Contains(err.Error(), "no space is left; try again later")) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if took := time.Since(begun); took != 0 {
			t.Errorf("refused after %v", took)
		}
		// What needs none is not.
		_, second, err := f.m.Attach(t.Context(), session.AttachRequest{SessionID: turn.SessionID()})
		if err != nil {
			t.Fatalf("attach: %v", err)
		}

		// A fault of another kind in between does not use up the patience.
		blips := 0
		db.tamper(func(ctx context.Context, b store.Batch) error {
			if blips++; blips == 1 {
				return errBlip
			}
			return db.Store.Append(ctx, b)
		})
		got := follow(t, w)
		db.tamper(nil)
		if texts(got)["root"] != "it is fine" || !end(t, got).Completed {
			t.Errorf("then: %v", got)
		}
		if !end(t, follow(t, second)).Completed {
			t.Error("the second watcher missed the end")
		}
		if got := logOf(t, db, turn.SessionID()); got != "turn_started event tool_result event turn_ended" {
			t.Errorf("the log holds %s", got)
		}
		if err := f.m.Ready(t.Context()); err != nil {
			t.Errorf("ready: %v", err)
		}
		f.start(session.Request{})
	})
}

// TestFullStoreRefusesAtOnce (F17): a request that is the first to meet a full
// db does not wait either, and leaves nothing behind.
func TestFullStoreRefusesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &tampered{Store: memory(t)}
		f := newFixture(t, db, limits.Limits{})
		f.on(func(ctx context.Context, r *session.Run) error { return say(ctx, r, "m", root, "x") })
		turn := f.start(session.Request{})
		<-turn.Done()
		f.on(story)
		waiting := f.start(session.Request{})
		await(t, waiting.Watch(), isCall)
		before := logOf(t, db, waiting.SessionID())
		db.tamper(always(store.ErrFull))
		for what, req := range map[string]session.Request{
			"new session": {Agent: tree(), Prompt: "x"},
			"session":     {SessionID: turn.SessionID(), Prompt: "x"},
			"queue":       {SessionID: waiting.SessionID(), Prompt: "x", OnBusy: enqueue},
		} {
			if _, err := f.m.Start(t.Context(), req); code(err) != unavailable {
				t.Errorf("%s: %v", what, err)
			}
		}
		db.tamper(nil)
		if got := logOf(t, db, waiting.SessionID()); got != before {
			t.Errorf("the log of the session that waits is %s", got)
		}
		f.on(func(ctx context.Context, r *session.Run) error { return say(ctx, r, "m2", root, "y") })
		if got := follow(t, f.start(session.Request{SessionID: turn.SessionID()}).Watch()); texts(got)["root"] != "y" {
			t.Errorf("then: %v", got)
		}
	})
}

// TestCancelWhileTheStoreStalls (F17): the engine is canceled at once; the end is
// recorded when that is possible.
func TestCancelWhileTheStoreStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &tampered{Store: memory(t)}
		f := newFixture(t, db, limits.Limits{})
		var told time.Duration
		f.on(func(ctx context.Context, r *session.Run) error {
			if err := add(ctx, r, &record.Event{Path: root, Calls: []record.ToolCall{{ID: "c", Name: "tool", Path: root}}}); err != nil {
				return err
			}
			begun := time.Now()
			<-ctx.Done() // another branch, in a model call
			told = time.Since(begun)
			return context.Cause(ctx)
		})
		turn := f.start(session.Request{})
		w := turn.Watch()
		await(t, w, isCall)
		db.tamper(always(store.ErrFull))
		time.Sleep(time.Minute)
		if err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: "c", Output: new("x")}); err != nil {
			t.Errorf("answer: %v", err)
		}
		time.Sleep(time.Minute)
		turn.Cancel("enough")
		time.Sleep(time.Hour)
		select {
		case <-turn.Done():
			t.Error("the turn is over, and its end is not in the log")
		default:
		}
		db.tamper(nil)
		if e := end(t, follow(t, w)); e.Completed || e.GetReason() != "enough" {
			t.Errorf("end is %v", e)
		}
		if told != 2*time.Minute {
			t.Errorf("the engine was told after %v", told)
		}
		if got := logOf(t, db, turn.SessionID()); got != "turn_started event tool_result turn_ended" {
			t.Errorf("the log holds %s", got)
		}
	})
}

// TestFaultsThatPass (F19): an append that fails for no known reason, whether it was
// done or not, is retried, and is in the log once.
func TestFaultsThatPass(t *testing.T) {
	for name, done := range map[string]bool{"before": false, "after": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := &tampered{Store: memory(t)}
				f := newFixture(t, db, limits.Limits{StorePatience: 30 * time.Second})
				f.on(story)
				until := time.Now().Add(20 * time.Second)
				db.tamper(func(ctx context.Context, b store.Batch) error {
					if time.Now().After(until) {
						until = time.Now().Add(20 * time.Second)
						return db.Store.Append(ctx, b)
					}
					if done {
						if err := db.Store.Append(ctx, b); err != nil {
							return err
						}
					}
					return errBlip
				})
				turn := f.start(session.Request{}) // whose start is retried too
				w := turn.Watch()
				await(t, w, isCall)
				if err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: "c1", Output: new("fine")}); err != nil {
					t.Errorf("answer: %v", err)
				}
				if got := follow(t, w); !end(t, got).Completed || texts(got)["root"] != "it is fine" {
					t.Errorf("then: %v", got)
				}
				if got := logOf(t, db, turn.SessionID()); got != "turn_started event tool_result event turn_ended" {
					t.Errorf("the log holds %s", got)
				}
			})
		})
	}
}

// TestStallOfOneSession: while the appends of one session are retried, its own clients
// do not wait: the first result and the next are taken, and a prompt is refused;
// other sessions are not touched by a fault that has just begun.
func TestStallOfOneSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &tampered{Store: memory(t)}
		f := newFixture(t, db, limits.Limits{StorePatience: 30 * time.Second})
		f.on(func(ctx context.Context, r *session.Run) error {
			_, err := call(ctx, r, "a", "b", "c")
			return err
		})
		turn := f.start(session.Request{})
		w := turn.Watch()
		await(t, w, isCall)
		db.tamper(func(ctx context.Context, b store.Batch) error {
			if b.SessionID == turn.SessionID() {
				return errBlip
			}
			return db.Store.Append(ctx, b)
		})
		begun := time.Now()
		for _, id := range []string{"a", "b"} {
			if err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: id, Output: &id}); err != nil {
				t.Errorf("answer %s: %v", id, err)
			}
		}
		if err := turn.CancelCall(t.Context(), "c"); err != nil {
			t.Errorf("cancel: %v", err)
		}
		_, err := f.m.Start(t.Context(), session.Request{SessionID: turn.SessionID(), Prompt: "x", OnBusy: enqueue})
		if code(err) != unavailable {
			t.Errorf("a prompt that waits: %v", err)
		}
		f.start(session.Request{}).Cancel("")
		if took := time.Since(begun); took != 0 {
			t.Errorf("they waited for %v", took)
		}
		time.Sleep(500 * time.Millisecond)
		db.tamper(nil)
		if !end(t, follow(t, w)).Completed {
			t.Error("not completed")
		}
		if got := logOf(t, db, turn.SessionID()); got != "turn_started event tool_result tool_result tool_result turn_ended" {
			t.Errorf("the log holds %s", got)
		}
	})
}

// unreadable is a store whose reads fail on demand.
type unreadable struct {
	store.Store
	fails atomic.Bool
}

func (s *unreadable) Read(ctx context.Context, id string, after int64, limit int) ([]record.Record, error) {
	if s.fails.Load() {
		return nil, errBlip
	}
	return s.Store.Read(ctx, id, after, limit)
}

// TestLogThatCannotBeReadForAWhile (F19): a turn waits for a read that fails; one
// that has waited for too long has not failed, it resumes later.
func TestLogThatCannotBeReadForAWhile(t *testing.T) {
	for _, down := range []time.Duration{20 * time.Second, 5 * time.Minute} {
		t.Run(down.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &unreadable{Store: memory(t)}
				f := newFixture(t, store, limits.Limits{StorePatience: 30 * time.Second})
				f.on(story)
				store.fails.Store(true)
				time.AfterFunc(down, func() { store.fails.Store(false) })
				turn := f.start(session.Request{})
				if down > time.Minute {
					<-turn.Done()
					if got, err := followErr(t, turn.Watch()); code(err) != unavailable {
						t.Errorf("the watcher read %v, then %v", got, err)
					}
					if _, _, err := f.m.Attach(t.Context(), session.AttachRequest{SessionID: turn.SessionID()}); code(err) != unavailable || !strings.Contains(err.Error(), "cannot be read") {
						t.Errorf("attach: %v", err)
					}
					time.Sleep(down)
				}
				again, w := f.attach(session.AttachRequest{SessionID: turn.SessionID(), Tools: []string{"tool"}})
				await(t, w, isCall)
				if err := again.SubmitResult(t.Context(), session.ClientResult{CallID: "c1", Output: new("fine")}); err != nil {
					t.Errorf("answer: %v", err)
				}
				if !end(t, follow(t, w)).Completed {
					t.Error("not completed")
				}
			})
		})
	}
}

// TestPatienceEnds: a store that fails for no known reason for too long loses the
// session, which resumes from its log when a client comes.
func TestPatienceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &tampered{Store: memory(t)}
		f := newFixture(t, store, limits.Limits{StorePatience: 30 * time.Second})
		f.on(story)
		turn := f.start(session.Request{})
		w := turn.Watch()
		await(t, w, isCall)
		store.tamper(always(errBlip))
		begun := time.Now()
		if err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: "c1", Output: new("lost")}); err != nil {
			t.Errorf("answer: %v", err)
		}
		time.Sleep(5 * time.Second)
		_, err := f.m.Start(t.Context(), session.Request{Agent: tree(), Prompt: "x"})
		if code(err) != unavailable || !strings.Contains(err.Error(), "try again later") {
			t.Errorf("start: %v", err)
		}
		if got, err := followErr(t, w); code(err) != unavailable {
			t.Errorf("the watcher read %v, then %v", got, err)
		}
		if took := time.Since(begun); took < 30*time.Second || took > 40*time.Second {
			t.Errorf("given up after %v", took)
		}
		<-turn.Done()
		store.tamper(nil)
		again, w, err := f.m.Attach(t.Context(), session.AttachRequest{SessionID: turn.SessionID(), Tools: []string{"tool"}})
		if err != nil {
			t.Fatal(err)
		}
		await(t, w, isCall)
		if err := again.SubmitResult(t.Context(), session.ClientResult{CallID: "c1", Output: new("found")}); err != nil {
			t.Errorf("answer: %v", err)
		}
		if got := follow(t, w); !strings.HasSuffix(texts(got)["root"], "it is found") {
			t.Errorf("then: %v", got)
		}
	})
}

// TestAnotherWriterEndsItAtOnce: a conflict does not pass.
func TestAnotherWriterEndsItAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &tampered{Store: memory(t)}
		f := newFixture(t, db, limits.Limits{StorePatience: time.Hour})
		f.on(story)
		turn := f.start(session.Request{})
		w := turn.Watch()
		await(t, w, isCall)
		tries := 0
		db.tamper(func(context.Context, store.Batch) error { tries++; return store.ErrConflict })
		if err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: "c1", Output: new("late")}); code(err) != unavailable {
			t.Errorf("answer: %v", err)
		}
		if got, err := followErr(t, w); code(err) != unavailable || tries != 1 {
			t.Errorf("after %d tries the watcher read %v, then %v", tries, got, err)
		}
		<-turn.Done()
		db.tamper(nil)
	})
}

// TestShutdownWhileTheStoreStalls (F17): the server stops within its grace, the
// watchers are notified that the turn will continue, and it does on the next server.
func TestShutdownWhileTheStoreStalls(t *testing.T) {
	for name, how := range map[string]func(context.Context, store.Batch) error{
		"full":  always(store.ErrFull),
		"blips": always(errBlip),
		"hangs": func(ctx context.Context, _ store.Batch) error { <-ctx.Done(); return ctx.Err() },
	} {
		for _, where := range []string{"in the middle", "at the end"} {
			t.Run(name+" "+where, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := &tampered{Store: memory(t)}
					f := newFixture(t, store, limits.Limits{StorePatience: time.Hour})
					f.on(func(ctx context.Context, r *session.Run) error {
						if where == "at the end" {
							return nil
						}
						return story(ctx, r)
					})
					var turn *session.Turn
					var w *session.Watcher
					if where == "at the end" {
						hold := make(chan struct{})
						f.on(func(context.Context, *session.Run) error { <-hold; return nil })
						turn = f.start(session.Request{})
						w = turn.Watch()
						store.tamper(how)
						close(hold)
					} else {
						turn = f.start(session.Request{})
						w = turn.Watch()
						await(t, w, isCall)
						store.tamper(how)
						go func() {
							_ = turn.SubmitResult(context.Background(), session.ClientResult{CallID: "c1", Output: new("lost")})
						}()
					}
					time.Sleep(3 * time.Second) // a second try is under way when the grace is over
					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
					defer cancel()
					begun := time.Now()
					if err := f.m.Shutdown(ctx); err != nil {
						t.Errorf("shutdown: %v", err)
					}
					if took := time.Since(begun); took < 10*time.Second || took > 15*time.Second {
						t.Errorf("shutdown took %v", took)
					}
					if got, err := followErr(t, w); code(err) != unavailable || !strings.Contains(err.Error(), "attach again") {
						t.Errorf("the watcher read %v, then %v", got, err)
					}
					store.tamper(nil)
					if got := logOf(t, store, turn.SessionID()); strings.Contains(got, "ended") {
						t.Errorf("the log holds %s", got)
					}
					g := newFixture(t, store, limits.Limits{})
					g.on(func(ctx context.Context, r *session.Run) error { return say(ctx, r, "m9", root, "on") })
					_, w, err := g.m.Attach(t.Context(), session.AttachRequest{SessionID: turn.SessionID()})
					if err != nil {
						t.Fatal(err)
					}
					if got := follow(t, w); !end(t, got).Completed {
						t.Errorf("then: %v", got)
					}
				})
			})
		}
	}
}

// TestStoreThatHasFailed (F18): every turn is suspended, its watchers are notified,
// nothing new begins, nothing more is written, and the server's owner is notified
// once.
func TestStoreThatHasFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &tampered{Store: memory(t)}
		var told []error
		e := &engine{run: story}
		m, err := session.NewManager(session.Config{Store: db, Runner: e, OnFatal: func(err error) { told = append(told, err) }})
		if err != nil {
			t.Fatal(err)
		}
		f := &fixture{engine: e, t: t, store: db, m: m}
		var turns []*session.Turn
		var watchers []*session.Watcher
		for range 3 {
			turns = append(turns, f.start(session.Request{}))
			watchers = append(watchers, turns[len(turns)-1].Watch())
			await(t, watchers[len(turns)-1], isCall)
		}
		writes := 0
		db.tamper(func(context.Context, store.Batch) error {
			writes++
			return fmt.Errorf("fsync: %w", store.ErrFailed)
		})
		if err := turns[0].SubmitResult(t.Context(), session.ClientResult{CallID: "c1", Output: new("lost")}); code(err) != unavailable {
			t.Errorf("answer: %v", err)
		}
		for i, w := range watchers {
			if got, err := followErr(t, w); code(err) != unavailable {
				t.Errorf("watcher %d read %v, then %v", i, got, err)
			}
			<-turns[i].Done()
		}
		if len(told) != 1 || !errors.Is(told[0], store.ErrFailed) || writes != 1 {
			t.Errorf("the owner was told %v after %d writes", told, writes)
		}
		if _, err := m.Start(t.Context(), session.Request{Agent: tree(), Prompt: "x"}); code(err) != unavailable {
			t.Errorf("start: %v", err)
		}
		if err := m.Ready(t.Context()); !errors.Is(err, store.ErrFailed) {
			t.Errorf("ready: %v", err)
		}
		if err := m.Shutdown(t.Context()); err != nil {
			t.Errorf("shutdown: %v", err)
		}
	})
}
