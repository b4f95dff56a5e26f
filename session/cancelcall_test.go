package session_test

import (
	"context"
	"fmt"
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

// bothCalls is a turn with two calls that says what came of them; it continues where
// its log ends.
func bothCalls(ctx context.Context, r *session.Run) error {
	events, err := eventsOf(ctx, r)
	if err != nil {
		return err
	}
	if events == 0 {
		ev := &record.Event{MessageID: "m1", Path: root, Usage: &record.Usage{Calls: 1}}
		for _, id := range []string{"c1", "c2"} {
			ev.Calls = append(ev.Calls, record.ToolCall{ID: id, Name: "tool", Input: []byte("{}"), Path: root})
		}
		if err := add(ctx, r, ev); err != nil {
			return err
		}
	}
	var said []string
	for _, id := range []string{"c1", "c2"} {
		res, err := r.Await(ctx, id)
		if err != nil {
			return err
		}
		said = append(said, fmt.Sprintf("%s %s", id, res.Outcome))
	}
	return say(ctx, r, "m2", root, strings.Join(said, ", "))
}

// cancelCall cancels a call as a client of SessionService does.
func (f *fixture) cancelCall(sessionID, turnID, callID string) error {
	return f.m.CancelCall(f.t.Context(), session.AttachRequest{SessionID: sessionID, TurnID: turnID}, callID)
}

// A call is cancelled while its turn runs; whatever comes after that changes
// nothing, also when the turn is over and the session has forgotten it.
func TestCancelCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(bothCalls)
		turn := f.start(session.Request{})
		id := turn.SessionID()
		w := turn.Watch()
		await(t, w, isCall)
		for _, turnID := range []string{turn.ID(), ""} {
			if err := f.cancelCall(id, turnID, "c1"); err != nil {
				t.Error(err)
			}
		}
		if err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: "c1", Output: new("late")}); code(err) != badRequest {
			t.Errorf("an answer to the cancelled call: %v", err)
		}
		if err := turn.SubmitResult(t.Context(), session.ClientResult{CallID: "c2", Output: new("x")}); err != nil {
			t.Fatal(err)
		}
		rest := follow(t, w)
		if got := texts(rest)["root"]; got != "c1 cancelled, c2 answered" || !end(t, rest).Completed {
			t.Errorf("said %q", got)
		}
		<-turn.Done()
		f.on(talk)
		<-f.start(session.Request{SessionID: id, Prompt: "another"}).Done()
		before := logOf(t, f.store, id)
		f.stop()
		g := f.newServer(limits.Limits{})
		for call, want := range map[string]agentdv1.ErrorCode{"c1": 0, "c2": 0, "c3": noSuch} {
			if err := g.cancelCall(id, turn.ID(), call); code(err) != want {
				t.Errorf("%s of a turn that is over: %v", call, err)
			}
		}
		if after := logOf(t, f.store, id); after != before {
			t.Errorf("the log was\n%s\nand is\n%s", before, after)
		}
	})
}

// A call is cancelled after a restart, when its turn runs nowhere, and the turn goes
// on without a client.
func TestCancelCallOfATurnThatRunsNowhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(bothCalls)
		turn := f.start(session.Request{})
		await(t, turn.Watch(), isCall)
		f.stop()
		g := f.newServer(limits.Limits{})
		g.on(bothCalls)
		for _, id := range []string{"c1", "c2"} {
			if err := g.cancelCall(turn.SessionID(), "", id); err != nil {
				t.Fatal(err)
			}
		}
		_, w := g.attach(session.AttachRequest{SessionID: turn.SessionID()})
		if all := follow(t, w); texts(all)["root"] != "c1 cancelled, c2 cancelled" || !end(t, all).Completed {
			t.Errorf("said %v", texts(all))
		}
	})
}

// A call for which a person is asked is cancelled like any other.
func TestCancelCallThatAsks(t *testing.T) {
	for _, restart := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, memory(t), limits.Limits{})
			f.on(careful)
			turn := f.start(session.Request{})
			await(t, turn.Watch(), isAsked)
			if restart {
				f.stop()
				f = f.newServer(limits.Limits{})
				f.on(careful)
			}
			for range 2 {
				if err := f.cancelCall(turn.SessionID(), turn.ID(), "q1"); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := f.m.Interaction(t.Context(), turn.SessionID(), "q1"); err != nil || got.Status != canceled {
				t.Errorf("the interaction is %v, %v", got, err)
			}
			_, w := f.attach(session.AttachRequest{SessionID: turn.SessionID()})
			if all := follow(t, w); texts(all)["root"] != "cancelled: cancelled by the client" {
				t.Errorf("said %v", texts(all))
			}
		})
	}
}

func TestCancelCallRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(bothCalls)
		turn := f.start(session.Request{})
		id := turn.SessionID()
		w := turn.Watch()
		await(t, w, isCall)
		queued := f.start(session.Request{SessionID: id, Prompt: "next", OnBusy: enqueue})
		for _, tc := range []struct {
			session, turn, call string
			code                agentdv1.ErrorCode
			says                string
		}{
			{"nobody", "", "c1", agentdv1.ErrorCode_ERROR_CODE_SESSION_NOT_FOUND, `"nobody"`},
			{id, "e-x", "c1", noSuch, `no turn "e-x"`},
			{id, turn.ID(), "c3", noSuch, `no call "c3"`},
			{id, "", "c3", noSuch, `no call "c3"`},
			{id, queued.ID(), "c1", noSuch, `no call "c1"`},
		} {
			if err := f.cancelCall(tc.session, tc.turn, tc.call); code(err) != tc.code || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%q of turn %q of session %q: %v", tc.call, tc.turn, tc.session, err)
			}
		}
		turn.Cancel("")
		follow(t, w)
	})
}

// A cancel that succeeds is durable: a store that takes no writes refuses it, and a store
// that fails for a while has it when the cancel returns.
func TestCancelCallIsDurable(t *testing.T) {
	for name, fault := range map[string]error{"full": store.ErrFull, "away for a while": errBlip} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := &tampered{Store: memory(t)}
				f := newFixture(t, db, limits.Limits{StorePatience: 30 * time.Second})
				f.on(bothCalls)
				turn := f.start(session.Request{})
				w := turn.Watch()
				await(t, w, isCall)
				db.tamper(func(context.Context, store.Batch) error { return fault })
				timer := time.AfterFunc(5*time.Second, func() { db.tamper(nil) })
				defer timer.Stop()
				err := f.cancelCall(turn.SessionID(), "", "c1")
				recorded := strings.Contains(logOf(t, db, turn.SessionID()), "tool_result")
				if recorded != (err == nil) || err != nil && code(err) != unavailable {
					t.Errorf("the cancel returns %v, and is recorded: %v", err, recorded)
				}
				time.Sleep(time.Minute)
				for _, id := range []string{"c1", "c2"} {
					if err := f.cancelCall(turn.SessionID(), "", id); err != nil {
						t.Error(err)
					}
				}
				if got := texts(follow(t, w))["root"]; got != "c1 cancelled, c2 cancelled" {
					t.Errorf("said %q", got)
				}
			})
		})
	}
}

// Of a result and cancels at the same time one wins, and all agree which.
func TestCancelCallWhileItIsAnswered(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{})
	f.on(func(ctx context.Context, r *session.Run) error {
		results, err := call(ctx, r, "c1")
		if err != nil {
			return err
		}
		return say(ctx, r, "m2", root, string(results["c1"].Outcome))
	})
	for range 50 {
		turn := f.start(session.Request{})
		w := turn.Watch()
		await(t, w, isCall)
		_, other := f.attach(session.AttachRequest{SessionID: turn.SessionID()})
		var refused error
		var both sync.WaitGroup
		both.Go(func() {
			errs, err := f.m.SubmitResults(t.Context(), session.AttachRequest{SessionID: turn.SessionID()}, []session.ClientResult{{CallID: "c1", Output: new("x")}})
			if err != nil {
				t.Error(err)
				return
			}
			refused = errs[0]
		})
		for range 2 {
			both.Go(func() {
				if err := f.cancelCall(turn.SessionID(), turn.ID(), "c1"); err != nil {
					t.Error(err)
				}
				recs, err := f.store.Read(t.Context(), turn.SessionID(), 0, 1000)
				if err != nil || !slices.ContainsFunc(recs, func(rec record.Record) bool { return rec.Kind == record.KindToolResult }) {
					t.Errorf("when the cancel has returned no result is recorded (%v)", err)
				}
			})
		}
		both.Wait()
		want := record.Returned
		if refused != nil {
			want = record.Cancelled
			if code(refused) != badRequest {
				t.Errorf("the answer is refused with %v", refused)
			}
		}
		for _, w := range []*session.Watcher{w, other} {
			if got := texts(follow(t, w))["root"]; got != string(want) {
				t.Errorf("a watcher reads %q, want %q", got, want)
			}
		}
	}
}

// A call is cancelled while the end of its turn, which runs nowhere, is written: the
// end counts. If the end cannot be written, the turn continues.
func TestCancelCallOfATurnThatEnds(t *testing.T) {
	for name, fault := range map[string]error{"written": nil, "refused": store.ErrFull} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := &tampered{Store: memory(t)}
				f := newFixture(t, db, limits.Limits{})
				f.on(bothCalls)
				turn := f.start(session.Request{})
				await(t, turn.Watch(), isCall)
				f.stop()
				g := f.newServer(limits.Limits{})
				g.on(bothCalls)
				written := make(chan struct{})
				db.tamper(func(ctx context.Context, b store.Batch) error {
					<-written
					db.tamper(nil)
					if fault != nil {
						return fault
					}
					return db.Store.Append(ctx, b)
				})
				ended, cancelled := make(chan error, 1), make(chan error, 1)
				go func() { ended <- g.m.CancelTurn(t.Context(), turn.SessionID(), "", "enough") }()
				synctest.Wait()
				go func() { cancelled <- g.cancelCall(turn.SessionID(), "", "c1") }()
				synctest.Wait()
				close(written)
				if err := <-ended; (err != nil) != (fault != nil) {
					t.Errorf("the turn was cancelled: %v", err)
				}
				if err := <-cancelled; err != nil {
					t.Errorf("the call was cancelled: %v", err)
				}
				if fault == nil {
					return
				}
				if err := g.cancelCall(turn.SessionID(), "", "c2"); err != nil {
					t.Error(err)
				}
				_, w := g.attach(session.AttachRequest{SessionID: turn.SessionID()})
				if got := texts(follow(t, w))["root"]; got != "c1 cancelled, c2 cancelled" {
					t.Errorf("said %q", got)
				}
			})
		})
	}
}
