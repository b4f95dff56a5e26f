package session_test

import (
	"context"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/index"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

// A watcher of a session that is deleted meanwhile receives an error that says so.
func TestWatchingASessionThatIsDeleted(t *testing.T) {
	f := newFixture(t, memory(t), limits.Limits{})
	f.on(talk)
	turn := f.run("", "hi")
	w := turn.Watch()
	info, err := f.m.Turn(t.Context(), turn.SessionID(), turn.ID())
	if err != nil {
		t.Fatal(err)
	}
	if err := f.m.DeleteSession(t.Context(), turn.SessionID()); err != nil {
		t.Fatal(err)
	}
	if _, err := f.m.Said(t.Context(), &info); code(err) != noSession {
		t.Errorf("the parts of its prompt: %v", err)
	}
	if got, err := followErr(t, w); code(err) != noSession {
		t.Errorf("the watcher read %v, then %v", got, err)
	}
}

// A session can be deleted while the store is full: that makes space.
func TestDeletingMakesSpace(t *testing.T) {
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "db"), sqlite.Config{MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	f := newFixture(t, db, limits.Limits{})
	f.on(talk)
	old := f.run("", strings.Repeat("x", 100<<10))
	asks := f.start(session.Request{Prompt: "ask"})
	w := asks.Watch()
	await(t, w, isCall)
	var enough atomic.Bool
	f.on(func(ctx context.Context, r *session.Run) error {
		for !enough.Load() {
			if err := say(ctx, r, "m", root, strings.Repeat("y", 30<<10)); err != nil {
				return err
			}
		}
		<-ctx.Done()
		return ctx.Err()
	})
	full := f.start(session.Request{})
	for { // until the turn waits for space
		if _, err := f.m.UpdateSession(t.Context(), old.SessionID(), store.Change{}); code(err) == unavailable {
			break
		}
		time.Sleep(time.Millisecond)
	}
	enough.Store(true) // What is made free stays so.
	if err := f.m.DeleteSession(t.Context(), asks.SessionID()); code(err) != unavailable {
		t.Errorf("a session that runs: %v", err)
	}
	if err := f.m.DeleteSession(t.Context(), old.SessionID()); err != nil {
		t.Errorf("an old session: %v", err)
	}
	full.Cancel("")
	asks.Cancel("")
	follow(t, w)
}

// blocked is a store that does not give a session away.
type blocked struct {
	store.Store
	id         atomic.Value
	at         chan struct{}
	resumeLast chan struct{}
}

func (s *blocked) Read(ctx context.Context, id string, after int64, limit int) ([]record.Record, error) {
	if s.id.CompareAndSwap(id, "") {
		close(s.at)
		<-s.resumeLast
	}
	return s.Store.Read(ctx, id, after, limit)
}

// A session that takes long to be read keeps no other from being changed.
func TestUpdateBesideASlowSession(t *testing.T) {
	db := &blocked{Store: memory(t), at: make(chan struct{}), resumeLast: make(chan struct{})}
	f := newFixture(t, db, limits.Limits{})
	f.on(talk)
	slow, other := f.run("", "hi").SessionID(), f.create(session.Names{}).ID
	g := newFixture(t, db, limits.Limits{})
	g.on(talk)
	db.id.Store(slow)
	started, changed := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := g.m.Start(t.Context(), session.Request{SessionID: slow, Prompt: "hi"})
		started <- err
	}()
	<-db.at
	go func() {
		_, err := g.m.UpdateSession(t.Context(), slow, store.Change{Archived: new(true)})
		changed <- err
	}()
	for { // until the first change waits for the session
		if info, err := db.Info(t.Context(), slow); err != nil || info.Archived {
			break
		}
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := g.m.UpdateSession(ctx, other, store.Change{ClientRef: new("x")})
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("another session: %v", err)
		}
	case <-ctx.Done():
		t.Error("another session cannot be changed")
	}
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if _, err := g.m.UpdateSession(ctx, slow, store.Change{}); err == nil {
		t.Error("the same session was changed by who does not want to wait")
	}
	close(db.resumeLast)
	if err := <-changed; err != nil {
		t.Errorf("the slow session: %v", err)
	}
	if err := <-started; err != nil && code(err) != precondition { // it came before the change, or after
		t.Errorf("the start: %v", err)
	}
	if _, err := g.m.Start(t.Context(), session.Request{SessionID: slow, Prompt: "hi"}); code(err) != precondition {
		t.Errorf("a turn of an archived session: %v", err)
	}
}

// reluctant is a store whose first Delete fails on demand.
type reluctant struct {
	store.Store
	did      atomic.Bool
	at, fail chan struct{}
}

func (s *reluctant) Delete(ctx context.Context, id string, lastSeq int64) error {
	if s.did.Swap(true) {
		return s.Store.Delete(ctx, id, lastSeq)
	}
	close(s.at)
	<-s.fail
	return store.ErrFull
}

// Who asks for a session while it is about to be deleted, and it is not after all,
// has it.
func TestStartBesideADeletionThatFails(t *testing.T) {
	store := &reluctant{Store: memory(t), at: make(chan struct{}), fail: make(chan struct{})}
	f := newFixture(t, store, limits.Limits{})
	f.on(talk)
	id := f.run("", "hi").SessionID()
	deleted := make(chan error, 1)
	go func() { deleted <- f.m.DeleteSession(t.Context(), id) }()
	<-store.at
	started := make(chan error, 8)
	for range cap(started) {
		go func() {
			_, err := f.m.Start(t.Context(), session.Request{SessionID: id, Prompt: "hi", OnBusy: enqueue})
			started <- err
		}()
	}
	close(store.fail)
	if err := <-deleted; code(err) != unavailable {
		t.Errorf("delete: %v", err)
	}
	for range cap(started) {
		if err := <-started; err != nil {
			t.Errorf("start: %v", err)
		}
	}
}

// A session whose log cannot be read does not keep others from being listed.
func TestListBesideALogThatCannotBeRead(t *testing.T) {
	t.Parallel() // it waits
	f := newFixture(t, memory(t), limits.Limits{})
	f.on(busy)
	w := f.start(session.Request{Prompt: "st"}).Watch()
	await(t, w, isCall)
	over := f.run("", "s")
	f.stop()
	m, err := session.NewManager(session.Config{Store: f.store, Runner: illiterate{f.engine}})
	if err != nil {
		t.Fatal(err)
	}
	turns, _, err := m.ListTurns(t.Context(), index.TurnQuery{}, "", 9)
	if err != nil || len(turns) != 2 || turns[0].ID != over.ID() || turns[1].Prompt != "st" || turns[1].Status != index.WaitingForClient {
		t.Errorf("listed %+v, %v", turns, err)
	}
	if err := m.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}
