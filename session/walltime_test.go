package session_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// After its time a turn begins no model call and waits for nothing; what is under way
// may finish, and a turn that needs no more completes. A model call of these takes
// ten seconds.
func TestWallTime(t *testing.T) {
	const minute = time.Minute
	waits := func(ctx context.Context, r *session.Run) error {
		_, err := call(ctx, r, "c1")
		return err
	}
	for name, tc := range map[string]struct {
		run    func(context.Context, *session.Run) error
		budget time.Duration
		ends   time.Duration // after the start
		calls  int32
		code   agentdv1.ErrorCode
	}{
		"the last call outlasts it": {run: calls(1), budget: 5 * time.Second, ends: 10 * time.Second, calls: 1},
		"the last call, and what comes after": {run: func(ctx context.Context, r *session.Run) error {
			if err := modelCall(ctx, r, "m1"); err != nil {
				return err
			}
			select {
			case <-time.After(5 * time.Second):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}, budget: 5 * time.Second, ends: 15 * time.Second, calls: 1},
		"a call before another": {run: calls(2), budget: 5 * time.Second, ends: 10 * time.Second, calls: 1, code: exhausted},
		"a call that asks for a tool": {run: func(ctx context.Context, r *session.Run) error {
			if err := modelCall(ctx, r, "m1"); err != nil {
				return err
			}
			return waits(ctx, r)
		}, budget: 5500 * time.Millisecond, ends: 10 * time.Second, calls: 1, code: exhausted},
		"an agent that calls, one that waits": {run: func(ctx context.Context, r *session.Run) error {
			var wg sync.WaitGroup
			errs := make([]error, 2)
			wg.Go(func() { errs[0] = waits(ctx, r) })
			wg.Go(func() {
				done, err := r.BeginCall(ctx, record.ModelCall{Path: root, Model: "m", MessageID: "m1"}, nil)
				if err == nil {
					time.Sleep(10 * time.Second)
					done(false)
				}
				errs[1] = err
			})
			wg.Wait()
			return errors.Join(errs...)
		}, budget: 5500 * time.Millisecond, ends: 10 * time.Second, code: exhausted},
		"a tool":   {run: waits, budget: minute / 2, ends: minute / 2, code: exhausted},
		"a person": {run: careful, budget: minute / 2, ends: minute / 2, calls: 1, code: exhausted},
	} {
		for _, whose := range []string{"turn", "session"} {
			t.Run(name+" of the "+whose, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFixture(t, memory(t), limits.Limits{})
					f.on(tc.run)
					req := session.Request{Budget: record.Budget{Wall: tc.budget}}
					if whose == "session" {
						req = session.Request{SessionBudget: &record.Budget{Wall: tc.budget}}
					}
					turn := f.start(req)
					msgs := follow(t, turn.Watch())
					e := end(t, msgs)
					if took := time.Since(session.Started(turn)); took != tc.ends || e.GetUsageSummary().GetLlmCalls() != tc.calls || errorOf(msgs) != tc.code {
						t.Errorf("after %v and %d calls %v: %v", took, e.GetUsageSummary().GetLlmCalls(), errorOf(msgs), e)
					}
					if e.GetCompleted() != (tc.code == 0) || tc.code != 0 && !strings.Contains(e.GetReason(), whose+"'s budget is used up") {
						t.Errorf("end is %v", e)
					}
				})
			})
		}
	}
}

func errorOf(msgs []*agentdv1.RunResponse) agentdv1.ErrorCode {
	for _, m := range msgs {
		if e := m.GetError(); e != nil {
			return e.GetCode()
		}
	}
	return 0
}

// The time in a queue is not a turn's.
func TestWallTimeInTheQueue(t *testing.T) {
	for name, tc := range map[string]struct {
		calls int
		code  agentdv1.ErrorCode
	}{"enough": {1, 0}, "too little": {2, exhausted}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, memory(t), limits.Limits{})
				f.on(calls(6))
				first := f.start(session.Request{})
				synctest.Wait() // it runs
				second := f.start(session.Request{SessionID: first.SessionID(), OnBusy: enqueue, Budget: record.Budget{Wall: 5 * time.Second}})
				f.on(calls(tc.calls))
				msgs := follow(t, second.Watch())
				if took := time.Since(session.Started(first)); took != 70*time.Second || errorOf(msgs) != tc.code || end(t, msgs).GetUsageSummary().GetLlmCalls() != 1 {
					t.Errorf("after %v: %v", took, msgs)
				}
			})
		})
	}
}

// The time in which the store does not take a queued turn's start is not the turn's.
func TestWallTimeBeginsWithTheStartOnDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &tampered{Store: memory(t)}
		f := newFixture(t, db, limits.Limits{})
		f.on(calls(1))
		first := f.start(session.Request{})
		synctest.Wait() // it runs
		second := f.start(session.Request{
			SessionID: first.SessionID(), OnBusy: enqueue, Budget: record.Budget{Wall: 25 * time.Second},
		})
		w := second.Watch()
		db.tamper(func(ctx context.Context, b store.Batch) error {
			if slices.ContainsFunc(b.Records, func(r record.Record) bool { return r.Kind == record.KindTurnEnded }) {
				return store.ErrFull
			}
			return db.Store.Append(ctx, b)
		})
		time.Sleep(time.Hour)
		db.tamper(nil)
		msgs := follow(t, w)
		if e := end(t, msgs); !e.GetCompleted() || e.GetUsageSummary().GetLlmCalls() != 1 || errorOf(msgs) != 0 {
			t.Errorf("a turn of ten seconds: %v", e)
		}
		info, err := f.m.Turn(t.Context(), first.SessionID(), second.ID())
		if err != nil || !info.Started.Equal(session.Started(second)) {
			t.Errorf("started at %v, by the log %+v, %v", session.Started(second), info, err)
		}
	})
}

// The time of a session is that of all its turns, and the time between them is not.
func TestWallTimeOfASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(calls(1))
		var codes []agentdv1.ErrorCode
		id := ""
		for range 4 {
			turn := f.start(session.Request{SessionID: id, SessionBudget: &record.Budget{Wall: 25 * time.Second}})
			id = turn.SessionID()
			codes = append(codes, errorOf(follow(t, turn.Watch())))
			time.Sleep(time.Hour)
			f.stop()
			f = newFixture(t, f.store, limits.Limits{})
			f.on(calls(1))
		}
		if !slices.Equal(codes, []agentdv1.ErrorCode{0, 0, 0, exhausted}) {
			t.Errorf("the turns ended with %v", codes)
		}
	})
}

// The time counts while no server runs. A turn that then needs a model gets none, a turn
// that waits ends when it comes back.
func TestWallTimeOverARestart(t *testing.T) {
	for name, tc := range map[string]struct {
		run   func(context.Context, *session.Run) error
		calls int32
		code  agentdv1.ErrorCode
	}{
		"a call is cut off": {calls(3), 1, exhausted},
		"a person":          {careful, 1, exhausted},
		"a tool": {func(ctx context.Context, r *session.Run) error {
			for rec, err := range r.Records(ctx, r.StartSeq()) {
				if err == nil && rec.Kind == record.KindEvent { // it has run before
					_, err = r.Await(ctx, "c1")
				}
				if err != nil {
					return err
				}
			}
			_, err := call(ctx, r, "c1")
			return err
		}, 0, exhausted},
		"nothing": {func(ctx context.Context, r *session.Run) error {
			for _, err := range r.Records(ctx, r.StartSeq()) {
				return err // it has run before
			}
			if err := modelCall(ctx, r, "m1"); err != nil {
				return err
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, memory(t), limits.Limits{})
				f.on(tc.run)
				turn := f.start(session.Request{Budget: record.Budget{Wall: 25 * time.Second}})
				time.Sleep(15 * time.Second)
				f.stop()
				time.Sleep(time.Hour)
				f = newFixture(t, f.store, limits.Limits{})
				f.on(tc.run)
				if err := f.m.Recover(t.Context()); err != nil {
					t.Fatal(err)
				}
				back := time.Now()
				_, w := f.attach(session.AttachRequest{SessionID: turn.SessionID()})
				msgs := follow(t, w)
				e := end(t, msgs)
				if took := time.Since(back); took != 0 || e.GetUsageSummary().GetLlmCalls() != tc.calls || errorOf(msgs) != tc.code {
					t.Errorf("after %v: %v", took, msgs)
				}
			})
		})
	}
}
