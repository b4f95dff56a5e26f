package storetest

import (
	"testing"
	"time"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

var sessionTests = []test{
	{"Create/Empty", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		wantLog(t, s, "a", nil)
	}},
	{"Create/Exists", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		add(t, s, batch("a", started(1, "turn")))
		second := store.NewSession{ID: "a", CreatedAt: epoch.Add(time.Hour), ClientRef: "x"}
		wantErr(t, "second Create", s.Create(t.Context(), second, nil), store.ErrSessionExists)
		wantLog(t, s, "a", []record.Record{started(1, "turn")})
	}},
	{"Create/TimePrecision", func(t *testing.T, s store.Store) {
		zone := time.FixedZone("far east", 9*3600)
		for id, at := range times(zone) {
			if err := s.Create(t.Context(), store.NewSession{ID: id, CreatedAt: at}, nil); err != nil {
				t.Fatalf("Create: %v", err)
			}
			at = at.UTC().Truncate(time.Microsecond)
			wantHead(t, s, store.Head{ID: id, CreatedAt: at, UpdatedAt: at})
		}
	}},
	{"Create/IDsAreOpaque", func(t *testing.T, s store.Store) {
		ids := []string{"a", "A", "a ", " a", "á", "a\u0301", "日本", "a%", "a_", "a'b\"c", "a/b", "\U0001F600", "a\nb"}
		create(t, s, ids...)
		for i, id := range ids {
			add(t, s, batch(id, events(0, i+1)...))
		}
		for i, id := range ids {
			wantLog(t, s, id, events(0, i+1))
		}
	}},
	{"NoSession", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		_, err := s.Head(t.Context(), "b")
		wantErr(t, "Head", err, store.ErrNoSession)
		_, err = s.Read(t.Context(), "b", 0, 10)
		wantErr(t, "Read", err, store.ErrNoSession)
		wantErr(t, "Append", s.Append(t.Context(), batch("b", events(0, 1)...)), store.ErrNoSession)
		wantErr(t, "Append at a distance", s.Append(t.Context(), batch("b", events(7, 1)...)), store.ErrNoSession)
		_, err = s.Head(t.Context(), "b")
		wantErr(t, "Head after Append", err, store.ErrNoSession)
	}},
	{"Ping", func(t *testing.T, s store.Store) {
		for range 3 {
			if err := s.Ping(t.Context()); err != nil {
				t.Fatalf("Ping: %v", err)
			}
		}
		create(t, s, "a")
		wantLog(t, s, "a", nil)
	}},
}

// times are points in time that are easily spoilt.
func times(zone *time.Location) map[string]time.Time {
	return map[string]time.Time{
		"whole":       time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		"micro":       time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC),
		"one micro":   time.Date(2026, 1, 2, 3, 4, 5, 1000, time.UTC),
		"nano":        time.Date(2026, 1, 2, 3, 4, 5, 678901999, time.UTC),
		"elsewhere":   time.Date(2026, 1, 2, 3, 4, 5, 678901000, zone),
		"before 1970": time.Date(1969, 12, 31, 23, 59, 59, 999999999, time.UTC),
		"far":         time.Date(2999, 12, 31, 23, 59, 59, 999999000, time.UTC),
	}
}
