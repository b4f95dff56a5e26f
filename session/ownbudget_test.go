package session_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// bounded makes a session with a budget of its own.
func (f *fixture) bounded(b record.Budget) string {
	f.t.Helper()
	info, err := f.m.CreateSession(f.t.Context(), session.Names{}, b, session.Once{})
	if err != nil || info.Budget != b {
		f.t.Fatalf("create with %+v: %+v, %v", b, info.Budget, err)
	}
	return info.ID
}

// rebudget gives a session another budget.
func (f *fixture) rebudget(id string, b record.Budget) {
	f.t.Helper()
	info, err := f.m.UpdateSession(f.t.Context(), id, store.Change{Budget: &b})
	if err != nil || info.Budget != b {
		f.t.Fatalf("update to %+v: %+v, %v", b, info.Budget, err)
	}
}

// spends runs a turn of a session and holds it to its number of model calls, and to the
// limit that has ended it: "session_model_calls 4 4", or "" if it completes.
func (f *fixture) spends(req session.Request, calls int, limit string) {
	f.t.Helper()
	f.spent(f.start(req).Watch(), calls, limit)
}

func (f *fixture) spent(w *session.Watcher, calls int, limit string) {
	f.t.Helper()
	msgs := follow(f.t, w)
	e, got := end(f.t, msgs), ""
	for _, m := range msgs {
		if failure := m.GetError(); failure != nil {
			if failure.GetCode() != exhausted {
				f.t.Errorf("the turn failed with %v", failure)
			}
			l := failure.GetLimit()
			got = fmt.Sprint(l.GetName(), " ", l.GetValue(), " ", l.GetReceived())
		}
	}
	if int(e.GetUsageSummary().GetLlmCalls()) != calls || got != limit || e.GetCompleted() != (limit == "") {
		f.t.Errorf("%d model calls, ended by %q: %v; want %d and %q", e.GetUsageSummary().GetLlmCalls(), got, e, calls, limit)
	}
}

// TestBudgetOfTheSessionsOwn: set when the session is made, tightened by a request for its
// turn alone, lifted by none, raised and taken away by updates; and the same after a
// restart at any of these points.
func TestBudgetOfTheSessionsOwn(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		t.Run(fmt.Sprintf("restarts=%v", restarts), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, memory(t), limits.Limits{})
				next := func(n int) {
					if restarts {
						f.stop()
						f = newFixture(t, f.store, limits.Limits{})
					}
					f.on(calls(n))
				}
				next(3)
				id := f.bounded(record.Budget{ModelCalls: 5})
				ask := func(b *record.Budget) session.Request {
					return session.Request{SessionID: id, Agent: tree(), SessionBudget: b}
				}
				next(3)
				f.spends(ask(&record.Budget{ModelCalls: 1}), 1, "session_model_calls 1 1")
				next(3)
				f.spends(ask(&record.Budget{ModelCalls: 100, Tokens: 15}), 2, "session_tokens 15 15")
				next(3)
				f.spends(ask(nil), 2, "session_model_calls 5 5") // the requests before have left nothing
				next(3)
				f.spends(ask(&record.Budget{}), 0, "session_model_calls 5 5")
				next(2)
				f.rebudget(id, record.Budget{ModelCalls: 7})
				next(2)
				f.spends(ask(nil), 2, "")
				next(1)
				f.spends(ask(nil), 0, "session_model_calls 7 7")
				f.rebudget(id, record.Budget{Tokens: 30, Wall: time.Hour}) // replaces the whole
				next(3)
				f.spends(ask(nil), 0, "session_tokens 30 35")
				f.rebudget(id, record.Budget{})
				next(3)
				f.spends(ask(&record.Budget{}), 3, "")
				next(3)
				f.spends(ask(&record.Budget{ModelCalls: 12}), 2, "session_model_calls 12 12")
				next(1)
				f.spends(ask(nil), 0, "session_model_calls 12 12") // as ever without one of its own
			})
		})
	}
}

// TestBudgetOfTheServerAndTheSession: the smaller one of each amount holds.
func TestBudgetOfTheServerAndTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{SessionBudget: record.Budget{ModelCalls: 2}})
		f.on(calls(3))
		id := f.bounded(record.Budget{ModelCalls: 9, Wall: 10 * time.Second})
		f.spends(session.Request{SessionID: id, Agent: tree()}, 1, "session_wall_time_ms 10000 10000")
		f.rebudget(id, record.Budget{ModelCalls: 9})
		f.spends(session.Request{SessionID: id, Agent: tree()}, 1, "session_model_calls 2 2")
	})
}

// TestBudgetOfATurnThatRuns: an update holds at once, up and down, also for a turn that
// waits and for one that waits for it in the queue.
func TestBudgetOfATurnThatRuns(t *testing.T) {
	for name, tc := range map[string]struct {
		first, then record.Budget
		calls       int
		limit       string
	}{
		"raised":     {record.Budget{ModelCalls: 2}, record.Budget{ModelCalls: 4}, 4, "session_model_calls 4 4"},
		"lowered":    {record.Budget{ModelCalls: 9}, record.Budget{Tokens: 5}, 2, "session_tokens 5 10"},
		"taken away": {record.Budget{Wall: 15 * time.Second}, record.Budget{}, 5, ""},
		"set":        {record.Budget{}, record.Budget{Cost: 20_000_000}, 2, "session_cost_nano_usd 20000000 20000000"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, memory(t), limits.Limits{})
				f.on(calls(5))
				id := f.bounded(tc.first)
				turn := f.start(session.Request{SessionID: id, Agent: tree()})
				time.Sleep(11 * time.Second)
				f.rebudget(id, tc.then)
				f.spent(turn.Watch(), tc.calls, tc.limit)
			})
		})
	}
}

func TestBudgetOfATurnThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(talk)
		id := f.bounded(record.Budget{Wall: time.Minute})
		turn := f.start(session.Request{SessionID: id, Prompt: "ask", Agent: tree(), Tools: tools()})
		w := turn.Watch()
		queued := f.start(session.Request{SessionID: id, Prompt: "ask", OnBusy: enqueue, SessionBudget: &record.Budget{Wall: time.Hour}})
		time.Sleep(30 * time.Second)
		f.rebudget(id, record.Budget{Wall: 2 * time.Minute})
		time.Sleep(60 * time.Second)
		f.rebudget(id, record.Budget{Wall: 100 * time.Second})
		e := end(t, follow(t, w))
		if took := time.Since(session.Started(turn)); took != 100*time.Second || !strings.Contains(e.GetReason(), "1m40s of 1m40s") {
			t.Errorf("after %v: %v", took, e)
		}
		// The one behind it waits already, and is over with no time of its own.
		e = end(t, follow(t, queued.Watch()))
		if took := time.Since(session.Started(queued)); took != 0 || !strings.Contains(e.GetReason(), "1m40s of 1m40s") {
			t.Errorf("the queued turn ended after %v: %v", took, e)
		}
		f.rebudget(id, record.Budget{Wall: 110 * time.Second})
		synctest.Wait() // the session is free a moment after its watchers read the end
		again := f.start(session.Request{SessionID: id, Prompt: "ask"})
		time.Sleep(5 * time.Second)
		f.rebudget(id, record.Budget{Wall: 104 * time.Second}) // less than has gone by
		e = end(t, follow(t, again.Watch()))
		if took := time.Since(session.Started(again)); took != 5*time.Second || !strings.Contains(e.GetReason(), "1m45s of 1m44s") {
			t.Errorf("the third turn ended after %v: %v", took, e)
		}
	})
}

// TestBudgetOfAQueuedTurn: what a request tightens holds when its turn starts, under the
// session's budget of then.
func TestBudgetOfAQueuedTurn(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart=%v", restart), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, memory(t), limits.Limits{})
				f.on(calls(3))
				id := f.bounded(record.Budget{ModelCalls: 4})
				f.start(session.Request{SessionID: id, Agent: tree()})
				var queued []*session.Turn
				for _, b := range []*record.Budget{{ModelCalls: 5}, nil} {
					queued = append(queued, f.start(session.Request{SessionID: id, OnBusy: enqueue, SessionBudget: b}))
				}
				f.rebudget(id, record.Budget{ModelCalls: 7})
				if restart {
					time.Sleep(11 * time.Second)
					f.stop()
					f = newFixture(t, f.store, limits.Limits{})
					f.on(calls(3))
					if err := f.m.Recover(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				for i, want := range []struct {
					calls int
					limit string
				}{{2, "session_model_calls 5 5"}, {2, "session_model_calls 7 7"}} {
					w := queued[i].Watch()
					if restart {
						synctest.Wait() // until then the session may be starting it
						_, w = f.attach(session.AttachRequest{SessionID: id, TurnID: queued[i].ID()})
					}
					f.spent(w, want.calls, want.limit)
				}
			})
		})
	}
}

// TestBudgetOfAFork: the fork has the parent's budget of now and has spent nothing of it.
func TestBudgetOfAFork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(calls(3))
		id := f.bounded(record.Budget{ModelCalls: 9})
		f.spends(session.Request{SessionID: id, Agent: tree()}, 3, "")
		f.rebudget(id, record.Budget{ModelCalls: 2})
		fork, err := f.m.ForkSession(t.Context(), session.ForkRequest{SessionID: id})
		if err != nil || fork.Budget != (record.Budget{ModelCalls: 2}) {
			t.Fatalf("the fork has %+v, %v", fork.Budget, err)
		}
		f.spends(session.Request{SessionID: id}, 0, "session_model_calls 2 3")
		f.spends(session.Request{SessionID: fork.ID}, 2, "session_model_calls 2 2")
		f.rebudget(fork.ID, record.Budget{ModelCalls: 3})
		if parent, err := f.m.Session(t.Context(), id); err != nil || parent.Budget != (record.Budget{ModelCalls: 2}) {
			t.Errorf("the parent has %+v, %v", parent.Budget, err)
		}
	})
}

func TestBudgetOfASessionMustBeAnAmount(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{})
	for name, b := range map[string]record.Budget{"calls": {ModelCalls: -1}, "tokens": {Tokens: -1}, "cost": {Cost: -1}, "time": {Wall: -1}} {
		if _, err := f.m.CreateSession(t.Context(), session.Names{}, b, session.Once{}); code(err) != badRequest {
			t.Errorf("create, %s: %v", name, err)
		}
		id := f.bounded(record.Budget{Tokens: 1})
		if _, err := f.m.UpdateSession(t.Context(), id, store.Change{Budget: &b, ClientRef: new("x")}); code(err) != badRequest {
			t.Errorf("update, %s: %v", name, err)
		}
		if info, err := f.m.Session(t.Context(), id); err != nil || info.Budget.Tokens != 1 || info.ClientRef != "" || info.Version != 1 {
			t.Errorf("a refused update has changed %+v, %v", info, err)
		}
	}
}
