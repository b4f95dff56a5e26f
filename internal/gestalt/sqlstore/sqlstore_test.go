package sqlstore_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/apzuk3/agentd/internal/gestalt"
	"github.com/apzuk3/agentd/internal/gestalt/sqlstore"
	"github.com/apzuk3/agentd/internal/test/pgserver"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/postgres"
	"github.com/apzuk3/agentd/session/store/sqlite"
)

var start = time.Date(2026, 11, 27, 10, 0, 0, 5, time.UTC)

func open(t *testing.T, path string) gestalt.Store {
	t.Helper()
	db, err := sqlite.Open(t.Context(), path, sqlite.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return sqlstore.New(db)
}

func openPostgres(t *testing.T) gestalt.Store {
	t.Helper()
	db, err := postgres.Open(t.Context(), pgserver.URL(t), postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return sqlstore.New(db)
}

// each runs a test on a database on disk, on one in memory and on one of PostgreSQL.
func each(t *testing.T, f func(*testing.T, gestalt.Store)) {
	t.Run("file", func(t *testing.T) { f(t, open(t, filepath.Join(t.TempDir(), "a.db"))) })
	t.Run("memory", func(t *testing.T) { f(t, open(t, sqlite.Memory)) })
	t.Run("PostgreSQL", func(t *testing.T) { f(t, openPostgres(t)) })
}

func session(id, subject, key string) *gestalt.Session {
	return &gestalt.Session{
		ID: id, Subject: subject, Key: key, Content: "c-" + id, Request: []byte("request"), Created: start, Updated: start,
	}
}

func turn(id, sessionID, key string) *gestalt.Turn {
	return &gestalt.Turn{
		ID: id, SessionID: sessionID, Subject: "ann", Key: key, Content: "c-" + id, Request: []byte("request"), Trace: "trace",
		Tools: []byte{}, Phase: gestalt.Waiting, Created: start.Add(time.Second),
	}
}

func TestSessions(t *testing.T) {
	each(t, func(t *testing.T, s gestalt.Store) {
		ctx := t.Context()
		if _, err := s.Session(ctx, "a"); !errors.Is(err, gestalt.ErrNone) {
			t.Errorf("read %v", err)
		}
		for _, n := range []*gestalt.Session{session("a", "ann", "k"), session("b", "ann", ""), session("c", "bob", "k"), session("d", "ann", "")} {
			if known, err := s.AddSession(ctx, n); known != nil || err != nil {
				t.Fatalf("%v, %v", known, err)
			}
		}
		for _, again := range []*gestalt.Session{session("new", "ann", "k"), session("a", "bob", "other"), session("a", "ann", "")} {
			known, err := s.AddSession(ctx, again)
			if diff := cmp.Diff(session("a", "ann", "k"), known); diff != "" || err != nil {
				t.Errorf("%v\n%s", err, diff)
			}
		}
		if err := s.UpdateSession(ctx, "b", start.Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.AddTurn(ctx, turn("t", "a", ""), "", 10); err != nil {
			t.Fatal(err)
		}
		var ids []string
		for offset := 0; ; offset += 2 {
			list, err := s.Sessions(ctx, "ann", offset, 2)
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range list {
				ids = append(ids, one.ID)
			}
			if len(list) < 2 {
				break
			}
		}
		if diff := cmp.Diff([]string{"b", "a", "d"}, ids); diff != "" {
			t.Errorf("listed:\n%s", diff)
		}
		got, err := s.Session(ctx, "a")
		if err != nil || !got.Turned.Equal(start.Add(time.Second)) || !got.Updated.Equal(got.Turned) {
			t.Errorf("after a turn: %+v, %v", got, err)
		}
		if err := s.RemoveSession(ctx, "b"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Session(ctx, "b"); !errors.Is(err, gestalt.ErrNone) {
			t.Errorf("removed, and read with %v", err)
		}
	})
}

func TestTurns(t *testing.T) {
	each(t, func(t *testing.T, s gestalt.Store) {
		ctx := t.Context()
		a := turn("a", "s", "k")
		if known, err := s.AddTurn(ctx, a, "secret", 2); known != nil || err != nil || a.Queued {
			t.Fatalf("%v, %v, %v", known, err, a.Queued)
		}
		b := turn("b", "s", "")
		if _, err := s.AddTurn(ctx, b, "", 2); err != nil || !b.Queued {
			t.Fatalf("%v, queued %v", err, b.Queued)
		}
		if _, err := s.AddTurn(ctx, turn("c", "s", ""), "secret", 2); !errors.Is(err, gestalt.ErrTooMany) {
			t.Errorf("a third one: %v", err)
		}
		if known, err := s.AddTurn(ctx, turn("a", "elsewhere", "k"), "", 2); err != nil || known == nil || known.SessionID != "s" {
			t.Errorf("an id twice: %v, %v", known, err)
		}
		if known, err := s.SameTurn(ctx, turn("z", "s", "k")); err != nil || known.ID != "a" {
			t.Errorf("a key twice: %v, %v", known, err)
		}
		if _, err := s.SameTurn(ctx, turn("z", "elsewhere", "k")); !errors.Is(err, gestalt.ErrNone) {
			t.Errorf("the key of another session: %v", err)
		}
		if grant, err := s.Grant(ctx, "a"); grant != "secret" || err != nil {
			t.Errorf("grant %q, %v", grant, err)
		}
		if grant, err := s.Grant(ctx, "c"); grant != "" || err != nil {
			t.Errorf("the grant of a turn that was refused is %q, %v", grant, err)
		}
		if was, err := s.BeginTurn(ctx, "a", []byte("tools")); !was || err != nil {
			t.Fatal(was, err)
		}
		if was, err := s.BeginTurn(ctx, "a", []byte("others")); was || err != nil {
			t.Errorf("begun twice: %v, %v", was, err)
		}
		if others, err := s.OpenTurns(ctx, "elsewhere"); err != nil || len(others) > 0 {
			t.Errorf("open in another session: %v, %v", others, err)
		}
		open, err := s.OpenTurns(ctx, "")
		if err != nil || len(open) != 2 || string(open[0].Tools) != "tools" || open[0].Phase != gestalt.Running {
			t.Errorf("open: %+v, %v", open, err)
		}
		done := *a
		done.Phase, done.Message, done.Ended = gestalt.Failed, "why", start.Add(time.Hour)
		if was, err := s.EndTurn(ctx, &done, gestalt.Waiting, []gestalt.Event{{Seq: 1}}); was || err != nil {
			t.Errorf("ended in another phase: %v, %v", was, err)
		}
		if was, err := s.EndTurn(ctx, &done, gestalt.Running, []gestalt.Event{{Seq: 1, Data: []byte("e")}}); !was || err != nil {
			t.Fatal(was, err)
		}
		done.Tools = []byte("tools")
		got, err := s.Turn(ctx, "a")
		if diff := cmp.Diff(&done, got); diff != "" || err != nil {
			t.Errorf("%v\n%s", err, diff)
		}
		if grant, err := s.Grant(ctx, "a"); grant != "" || err != nil {
			t.Errorf("after its end the grant is %q, %v", grant, err)
		}
		list, err := s.Turns(ctx, "s", 0, 10)
		if err != nil || len(list) != 2 {
			t.Errorf("listed: %v, %v", list, err)
		}
		if events, err := s.Events(ctx, "a", 0, 10); err != nil || len(events) != 1 {
			t.Errorf("events: %v, %v", events, err)
		}
	})
}

func TestEvents(t *testing.T) {
	each(t, func(t *testing.T, s gestalt.Store) {
		ctx := t.Context()
		if _, err := s.AddTurn(ctx, turn("a", "s", ""), "", 2); err != nil {
			t.Fatal(err)
		}
		first := []gestalt.Event{{Seq: 1, Data: []byte("1")}, {Seq: 2, Message: "m", Data: []byte("2")}}
		if err := s.AddEvents(ctx, "a", 0, 7, first); err != nil {
			t.Fatal(err)
		}
		if err := s.AddEvents(ctx, "a", 0, 7, first); !errors.Is(err, gestalt.ErrMoved) {
			t.Errorf("added twice: %v", err)
		}
		if err := s.AddEvents(ctx, "a", 7, 9, first); err == nil { // numbers that there are
			t.Error("an event was replaced")
		}
		second := []gestalt.Event{{Seq: 3, Message: "n", Data: []byte("3")}, {Seq: 4, Message: "m", Data: []byte("4")}}
		if err := s.AddEvents(ctx, "a", 7, 9, second); err != nil {
			t.Fatal(err)
		}
		events, err := s.Events(ctx, "a", 1, 2)
		if diff := cmp.Diff([]gestalt.Event{first[1], second[0]}, events); diff != "" || err != nil {
			t.Errorf("%v\n%s", err, diff)
		}
		pieces, err := s.Pieces(ctx, "a", "m")
		if diff := cmp.Diff([]gestalt.Event{first[1], second[1]}, pieces); diff != "" || err != nil {
			t.Errorf("%v\n%s", err, diff)
		}
		if last, err := s.LastEvent(ctx, "a"); last != 4 || err != nil {
			t.Errorf("last %d, %v", last, err)
		}
		if last, err := s.LastEvent(ctx, "b"); last != 0 || err != nil {
			t.Errorf("last of none %d, %v", last, err)
		}
		got, err := s.Turn(ctx, "a")
		if err != nil || got.Position != 9 {
			t.Errorf("position %+v, %v", got, err)
		}
	})
}

// What the host has said of a session goes with the session.
func TestDeletedSession(t *testing.T) {
	t.Run("SQLite", func(t *testing.T) {
		db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "a.db"), sqlite.Config{})
		if err != nil {
			t.Fatal(err)
		}
		deletedSession(t, db, sqlstore.New(db))
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		db, err := postgres.Open(t.Context(), pgserver.URL(t), postgres.Config{})
		if err != nil {
			t.Fatal(err)
		}
		deletedSession(t, db, sqlstore.New(db))
	})
}

func deletedSession(t *testing.T, db store.Store, s gestalt.Store) {
	t.Helper()
	for _, id := range []string{"gone", "stays"} {
		if err := db.Create(t.Context(), store.NewSession{ID: id, CreatedAt: start}, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := s.AddSession(t.Context(), session(id, "ann", "")); err != nil {
			t.Fatal(err)
		}
		if _, err := s.AddTurn(t.Context(), turn("t-"+id, id, ""), "secret", 2); err != nil {
			t.Fatal(err)
		}
		if err := s.AddEvents(t.Context(), "t-"+id, 0, 1, []gestalt.Event{{Seq: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Delete(t.Context(), "gone", 0); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"gone", "stays"} {
		_, noSession := s.Session(t.Context(), id)
		_, noTurn := s.Turn(t.Context(), "t-"+id)
		grant, err := s.Grant(t.Context(), "t-"+id)
		events, failed := s.Events(t.Context(), "t-"+id, 0, 10)
		is := id == "stays"
		if (noSession == nil) != is || (noTurn == nil) != is || (grant != "") != is || len(events) > 0 != is || err != nil || failed != nil {
			t.Errorf("%s: %v, %v, %q, %v", id, noSession, noTurn, grant, events)
		}
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// Of those who number the same events at once one does.
func TestNumberedOnce(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "a.db"))
	if _, err := s.AddTurn(t.Context(), turn("a", "s", ""), "", 2); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	results := make(chan error, 8)
	for range cap(results) {
		wg.Go(func() {
			results <- s.AddEvents(context.WithoutCancel(t.Context()), "a", 0, 3, []gestalt.Event{{Seq: 1, Data: []byte("1")}})
		})
	}
	wg.Wait()
	close(results)
	won := 0
	for err := range results {
		if err == nil {
			won++
		} else if !errors.Is(err, gestalt.ErrMoved) {
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d have numbered the event", won)
	}
}

// A database that is closed is an error, not an absence.
func TestClosed(t *testing.T) {
	db, err := sqlite.Open(t.Context(), sqlite.Memory, sqlite.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := sqlstore.New(db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = s.Turn(t.Context(), "a")
	if err == nil || errors.Is(err, gestalt.ErrNone) {
		t.Error(fmt.Errorf("read from a closed database: %w", err))
	}
}
