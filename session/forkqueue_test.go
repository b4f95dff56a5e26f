package session_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// A fork at the end of a turn behind which another one waited has no turn that
// waits, and starts none but those that it is asked for.
func TestForkBetweenTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(talk)
		a := f.start(session.Request{Prompt: "ask a"})
		wa := a.Watch()
		await(t, wa, isCall)
		b := f.start(session.Request{SessionID: a.SessionID(), Prompt: "b", OnBusy: enqueue})
		wb := b.Watch()
		answer(t, a)
		msgs := follow(t, wa)
		follow(t, wb)
		fork, err := f.m.ForkSession(t.Context(), session.ForkRequest{SessionID: a.SessionID(), At: &msgs[len(msgs)-1].Seq})
		if err != nil {
			t.Fatal(err)
		}
		if info, err := f.m.Turn(t.Context(), fork.ID, b.ID()); err != nil || info.Status != index.Stopped {
			t.Errorf("the prompt that waited: %+v, %v", info, err)
		}
		f.run(fork.ID, "c")
		synctest.Wait()
		turns, _, err := f.m.ListTurns(t.Context(), index.TurnQuery{SessionID: fork.ID}, "", 9)
		if err != nil || len(turns) != 3 {
			t.Fatalf("turns of the fork: %+v, %v", turns, err)
		}
		if turns[0].Prompt != "c" || turns[1].Started != (time.Time{}) || turns[1].Status != index.Stopped {
			t.Errorf("turns of the fork: %+v", turns)
		}
	})
}

// The time of a turn that a fork has inherited open is its parent's.
func TestForkCountsNoTimeOfItsParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{})
		f.on(talk)
		a := f.start(session.Request{Prompt: "ask a", SessionBudget: &record.Budget{Wall: time.Hour}})
		w := a.Watch()
		await(t, w, isCall)
		w.Close()
		time.Sleep(50 * time.Minute)
		fork, err := f.m.ForkSession(t.Context(), session.ForkRequest{SessionID: a.SessionID()})
		if err != nil {
			t.Fatal(err)
		}
		f.on(func(ctx context.Context, r *session.Run) error {
			select {
			case <-time.After(50 * time.Minute):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			done, err := r.BeginCall(ctx, record.ModelCall{}, nil)
			if err == nil {
				done(false)
			}
			return err
		})
		b := f.run(fork.ID, "b")
		if info, err := f.m.Turn(t.Context(), fork.ID, b.ID()); err != nil || info.Status != index.Succeeded {
			t.Errorf("a turn of the fork: %+v, %v", info, err)
		}
	})
}

// halfFork makes a fork whose inherited turns nobody has ended: the store is
// full when that is to be done.
func halfFork(t *testing.T, f *fixture, db *tampered) (id string) {
	t.Helper()
	a := f.start(session.Request{Prompt: "ask a"})
	await(t, a.Watch(), isCall)
	f.start(session.Request{SessionID: a.SessionID(), Prompt: "b", OnBusy: enqueue})
	db.tamper(always(store.ErrFull))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	begun := time.Now()
	if _, err := f.m.ForkSession(ctx, session.ForkRequest{SessionID: a.SessionID()}); code(err) != unavailable {
		t.Errorf("fork while the store is full: %v", err)
	}
	if took := time.Since(begun); took > time.Minute {
		t.Errorf("refused after %v", took)
	}
	list, _, err := f.m.ListSessions(t.Context(), index.SessionQuery{}, "", 9)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if s.ForkedFrom != "" {
			id = s.ID
		}
	}
	return id
}

// While the store is full a fork is refused, and so is all that would have to end
// what it has inherited; nothing waits for space. Afterwards what it has inherited
// never runs.
func TestForkWhileTheStoreIsFull(t *testing.T) {
	for name, does := range map[string]func(t *testing.T, f *fixture, id string){
		"start": func(t *testing.T, f *fixture, id string) { f.run(id, "c") },
		"attach": func(t *testing.T, f *fixture, id string) {
			_, w := f.attach(session.AttachRequest{SessionID: id})
			follow(t, w)
		},
		"recover": func(t *testing.T, f *fixture, _ string) {
			f.stop()
			g := newFixture(t, f.store, limits.Limits{})
			g.on(talk)
			f.m = g.m
			if err := f.m.Recover(t.Context()); err != nil {
				t.Error(err)
			}
		},
		"delete": func(t *testing.T, f *fixture, id string) {
			if err := f.m.DeleteSession(t.Context(), id); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &tampered{Store: memory(t)}
				f := newFixture(t, store, limits.Limits{})
				f.on(talk)
				id := halfFork(t, f, store)
				if id == "" {
					t.Fatal("there is no fork")
				}
				f.stop()
				g := newFixture(t, store, limits.Limits{})
				g.on(func(ctx context.Context, r *session.Run) error {
					if r.SessionID() == id && r.Spec().Prompt != "c" {
						t.Errorf("turn %q of the parent runs in the fork", r.Spec().Prompt)
					}
					return talk(ctx, r)
				})
				begun := time.Now()
				if err := g.m.Recover(t.Context()); err != nil {
					t.Error(err)
				}
				if took := time.Since(begun); took > time.Second {
					t.Errorf("recovery took %v", took)
				}
				store.tamper(nil)
				time.Sleep(time.Minute)
				does(t, g, id)
				synctest.Wait()
				turns, _, err := g.m.ListTurns(t.Context(), index.TurnQuery{SessionID: id}, "", 9)
				if name == "delete" {
					if code(err) != noSession {
						t.Errorf("turns of the fork: %v", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				for _, turn := range turns {
					if want := turn.Prompt == "c"; (turn.Status == index.Succeeded) != want || (turn.Status == index.Stopped) == want {
						t.Errorf("turn %q of the fork is %v", turn.Prompt, turn.Status)
					}
				}
			})
		})
	}
}

// A fork at the end of a turn behind which another one waited has no open turn by
// which a recovery finds it. What it has inherited is dropped nevertheless, when the
// server starts and when the store has space later.
func TestForkBetweenTurnsWhileTheStoreIsFull(t *testing.T) {
	for _, restart := range []bool{true, false} {
		t.Run(map[bool]string{true: "restart", false: "sweep"}[restart], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := &tampered{Store: memory(t)}
				f := newFixture(t, db, limits.Limits{})
				f.on(talk)
				if err := f.m.Recover(t.Context()); err != nil {
					t.Fatal(err)
				}
				a := f.start(session.Request{Prompt: "ask a"})
				wa := a.Watch()
				await(t, wa, isCall)
				b := f.start(session.Request{SessionID: a.SessionID(), Prompt: "b", OnBusy: enqueue})
				wb := b.Watch()
				answer(t, a)
				msgs := follow(t, wa)
				follow(t, wb)
				db.tamper(always(store.ErrFull))
				at := msgs[len(msgs)-1].Seq
				if _, err := f.m.ForkSession(t.Context(), session.ForkRequest{SessionID: a.SessionID(), At: &at}); err == nil {
					t.Fatal("the fork was made while the store was full")
				}
				waiting := func(m *session.Manager) (ids []string) {
					q := index.TurnQuery{Statuses: []index.Status{index.Pending}}
					turns, _, err := m.ListTurns(t.Context(), q, "", 9)
					if err != nil {
						t.Error(err)
					}
					for _, turn := range turns {
						ids = append(ids, turn.ID)
					}
					return ids
				}
				if got := waiting(f.m); len(got) != 1 || got[0] != b.ID() {
					t.Fatalf("%q wait in the fork that is not closed yet, want %s", got, b.ID())
				}
				m := f.m
				if restart {
					f.stop()
					db.tamper(nil)
					g := newFixture(t, db, limits.Limits{})
					g.on(talk)
					if m = g.m; m.Recover(t.Context()) != nil {
						t.Fatal("no recovery")
					}
				} else {
					db.tamper(nil)
					time.Sleep(limits.Limits{}.WithDefaults().Retention / 12)
				}
				synctest.Wait()
				if got := waiting(m); len(got) > 0 {
					t.Errorf("%q wait for ever", got)
				}
			})
		})
	}
}

// Ending what runs nowhere is no turn more.
func TestEndingTurnsWhereNoMoreMayRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, memory(t), limits.Limits{MaxTurns: 1})
		f.on(talk)
		aside := f.start(session.Request{Prompt: "ask a"})
		w := aside.Watch()
		await(t, w, isCall)
		w.Close()
		<-aside.Done()
		await(t, f.start(session.Request{Prompt: "ask b"}).Watch(), isCall)
		if fork, err := f.m.ForkSession(t.Context(), session.ForkRequest{SessionID: aside.SessionID()}); err != nil || fork.LastIs != index.Stopped {
			t.Errorf("fork: %+v, %v", fork, err)
		}
		if err := f.m.CancelTurn(t.Context(), aside.SessionID(), aside.ID(), "enough"); err != nil {
			t.Errorf("cancel: %v", err)
		}
		if err := f.m.DeleteSession(t.Context(), aside.SessionID()); err != nil {
			t.Errorf("delete: %v", err)
		}
	})
}
