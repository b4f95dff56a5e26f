package storetest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

var turnTests = []test{
	{"OpenTurn/FollowsTheLog", func(t *testing.T, s store.Store) {
		create(t, s, "a", "b")
		log := []record.Record{
			started(1, "t1"), events(1, 1)[0], ended(3, "t1"),
			started(4, "t2"), ended(5, "t2"), started(6, "t1"),
		}
		for i, r := range log {
			add(t, s, batch("a", r))
			wantLog(t, s, "a", log[:i+1])
		}
		wantOpen(t, s, "", 10, store.Head{ID: "a", CreatedAt: epoch, LastSeq: 6, OpenTurn: "t1", UpdatedAt: epoch})
		add(t, s, batch("a", ended(7, "t1")))
		wantOpen(t, s, "", 10)
	}},
	{"OpenTurn/WithinOneBatch", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		log := []record.Record{started(1, "t1"), ended(2, "t1"), started(3, "t2")}
		add(t, s, batch("a", log...))
		wantLog(t, s, "a", log)
		more := []record.Record{ended(4, "t2"), started(5, "t3"), ended(6, "t3")}
		add(t, s, batch("a", more...))
		wantLog(t, s, "a", append(log, more...))
		wantOpen(t, s, "", 10)
	}},
	{"OpenTurn/OneAtATime", func(t *testing.T, s store.Store) {
		create(t, s, "a", "b")
		add(t, s, batch("a", started(1, "t1")))
		wantRefused(t, "start of a second turn", s.Append(t.Context(), batch("a", started(2, "t2"))))
		wantRefused(t, "second start of a turn", s.Append(t.Context(), batch("a", started(2, "t1"))))
		wantRefused(t, "end of another turn", s.Append(t.Context(), batch("a", ended(2, "t2"))))
		wantLog(t, s, "a", []record.Record{started(1, "t1")})
		add(t, s, batch("b", started(1, "t2"))) // another session's turns are no matter
		add(t, s, batch("a", ended(2, "t1")))
		wantRefused(t, "second end of a turn", s.Append(t.Context(), batch("a", ended(3, "t1"))))
		wantLog(t, s, "a", []record.Record{started(1, "t1"), ended(2, "t1")})
	}},
	{"OpenTurns/Paging", func(t *testing.T, s store.Store) {
		// In byte order; every third has no turn, every other third an ended one.
		ids := []string{"A", "B", "Z", "a", "a!", "a1", "a10", "a2", "ab", "b", "z", "á", "é", "日", "\U0001F600"}
		if !slices.IsSorted(ids) {
			t.Fatal("the ids are not in order of their bytes")
		}
		var want []store.Head
		for i, id := range ids {
			create(t, s, id)
			turn := fmt.Sprintf("t%d", i)
			switch i % 3 {
			case 0:
				add(t, s, batch(id, started(1, turn), ended(2, turn)))
			case 1:
				add(t, s, batch(id, started(1, turn)))
				want = append(want, store.Head{ID: id, CreatedAt: epoch, LastSeq: 1, OpenTurn: turn, UpdatedAt: epoch})
			}
		}
		for limit := range len(want) + 1 {
			limit++
			var got []store.Head
			for after := ""; ; after = got[len(got)-1].ID {
				page, err := s.OpenTurns(t.Context(), after, limit)
				if err != nil {
					t.Fatalf("OpenTurns(%q, %d): %v", after, limit, err)
				}
				if len(page) > limit {
					t.Fatalf("OpenTurns(%q, %d) returned %d heads", after, limit, len(page))
				}
				got = append(got, page...)
				if len(page) < limit {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("pages of %d are %v, want %v", limit, got, want)
			}
		}
		wantOpen(t, s, "a1", 1, want[2])
		wantOpen(t, s, "zz", 10, want[4])
		_, err := s.OpenTurns(t.Context(), "", 0)
		wantRefused(t, "OpenTurns with limit 0", err)
	}},
}

func wantOpen(t testing.TB, s store.Store, after string, limit int, want ...store.Head) {
	t.Helper()
	got, err := s.OpenTurns(t.Context(), after, limit)
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("OpenTurns(%q, %d) = %+v, %v, want %+v", after, limit, got, err, want)
	}
}
