package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

var purgeTests = []test{
	{"Purge/LeavesTheHead", func(t *testing.T, s store.Store) {
		create(t, s, "a", "b")
		log := []record.Record{started(1, "t1"), events(1, 1)[0], ended(3, "t1")}
		b := batch("a", log...)
		b.Shared = []store.SharedValue{{Scope: "app", Key: "k", Value: []byte("1")}}
		add(t, s, b)
		add(t, s, batch("b", log...))
		for range 2 {
			if err := s.Purge(t.Context(), "a", 3); err != nil {
				t.Fatalf("Purge: %v", err)
			}
			wantRecords(t, all(t, s, "a"), nil)
			wantHead(t, s, store.Head{ID: "a", CreatedAt: epoch, LastSeq: 3, UpdatedAt: epoch, Purged: 3})
		}
		wantShared(t, s, "app", map[string]string{"k": "1"})
		wantLog(t, s, "b", log)
		wantErr(t, "Create of a purged session", s.Create(t.Context(), fresh("a"), nil), store.ErrSessionExists)
	}},
	{"Purge/AppendGoesOn", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		add(t, s, batch("a", events(0, 5)...))
		if err := s.Purge(t.Context(), "a", 5); err != nil {
			t.Fatalf("Purge: %v", err)
		}
		wantErr(t, "a repeat of what is gone", s.Append(t.Context(), batch("a", events(0, 5)...)), store.ErrConflict)
		first := batch("a", events(0, 1)...)
		wantErr(t, "an append from the beginning", s.Append(t.Context(), first), store.ErrConflict)
		more := events(5, 2)
		add(t, s, batch("a", more...))
		add(t, s, batch("a", more...)) // a repeat of what is there
		wantRecords(t, all(t, s, "a"), more)
		wantHead(t, s, store.Head{ID: "a", CreatedAt: epoch, LastSeq: 7, UpdatedAt: more[1].Time, Purged: 5})
	}},
	{"Purge/Refused", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		log := []record.Record{started(1, "t1"), events(1, 1)[0]}
		add(t, s, batch("a", log...))
		wantErr(t, "Purge of an open turn", s.Purge(t.Context(), "a", 2), store.ErrConflict)
		log = append(log, ended(3, "t1"))
		add(t, s, batch("a", log[2]))
		wantErr(t, "Purge of a log that has moved on", s.Purge(t.Context(), "a", 2), store.ErrConflict)
		wantErr(t, "Purge of what is to come", s.Purge(t.Context(), "a", 4), store.ErrConflict)
		wantErr(t, "Purge of no session", s.Purge(t.Context(), "b", 0), store.ErrNoSession)
		wantLog(t, s, "a", log)
	}},
	{"Idle/LongestFirst", func(t *testing.T, s store.Store) {
		create(t, s, "late", "new", "early", "open", "empty", "purged", "early2")
		at := func(id string, minute int, recs ...record.Record) {
			recs = slices.Clone(recs)
			recs[len(recs)-1].Time = epoch.Add(time.Duration(minute) * time.Minute)
			add(t, s, batch(id, recs...))
		}
		turn := []record.Record{started(1, "t"), ended(2, "t")}
		at("late", 30, turn...)
		at("new", 60, turn...)
		at("early", 10, turn...)
		at("early2", 10, turn...)
		at("open", 5, started(1, "t"))
		at("purged", 1, turn...)
		if err := s.Purge(t.Context(), "purged", 2); err != nil {
			t.Fatalf("Purge: %v", err)
		}
		for limit, want := range [][]string{
			nil,
			{"early"},
			{"early", "early2"},
			{"early", "early2", "late"},
			{"early", "early2", "late"},
		} {
			if limit == 0 {
				continue
			}
			heads, err := s.Idle(t.Context(), epoch.Add(time.Hour), limit)
			var got []string
			for _, h := range heads {
				got = append(got, h.ID)
			}
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("Idle, limit %d: %v, %v, want %v", limit, got, err, want)
			}
		}
		heads, err := s.Idle(t.Context(), epoch.Add(11*time.Minute), 1)
		want := store.Head{ID: "early", CreatedAt: epoch, LastSeq: 2, UpdatedAt: epoch.Add(10 * time.Minute)}
		if err != nil || len(heads) != 1 || heads[0] != want {
			t.Fatalf("Idle: %+v, %v, want %+v", heads, err, want)
		}
		_, err = s.Idle(t.Context(), epoch, 0)
		wantErr(t, "Idle without a limit", err, store.ErrMalformed)
	}},
}
