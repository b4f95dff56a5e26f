package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// durableTests open the store as often as they like, one at a time.
var durableTests = []struct {
	name string
	run  func(t *testing.T, open func() store.Store)
}{
	{"Reopen/KeepsEverything", func(t *testing.T, open func() store.Store) {
		var log []record.Record
		for round := range 4 {
			s := open()
			if round == 0 {
				create(t, s, "a", "empty")
			}
			wantLog(t, s, "a", log)
			more := events(int64(len(log)), 50)
			more[0] = started(more[0].Seq, fmt.Sprintf("t%d", round))
			more[1].Data = []byte{0, 0xff, byte(round)}
			if round < 3 {
				more[49] = ended(more[49].Seq, fmt.Sprintf("t%d", round))
			}
			b := batch("a", more...)
			b.Shared = []store.SharedValue{{Scope: "app", Key: "round", Value: fmt.Append(nil, round)}}
			add(t, s, b)
			log = append(log, more...)
			closeStore(t, s)
		}
		s := open()
		defer closeStore(t, s)
		wantLog(t, s, "a", log)
		wantLog(t, s, "empty", nil)
		wantShared(t, s, "app", map[string]string{"round": "3"})
		wantOpen(t, s, "", 10, store.Head{
			ID:        "a",
			CreatedAt: epoch,
			LastSeq:   200,
			OpenTurn:  "t3",
			UpdatedAt: log[199].Time,
		})
		wantErr(t, "Create of a session from before", s.Create(t.Context(), fresh("a"), nil), store.ErrSessionExists)
	}},
	{"Reopen/KeepsTheBound", func(t *testing.T, open func() store.Store) {
		s := open()
		wantMade(t, s.Create(t.Context(), ofAtMost("acme/a", 2), nil), true)
		wantMade(t, s.Append(t.Context(), creating(ofAtMost("acme/b", 2))), true)
		closeStore(t, s)
		s = open()
		defer closeStore(t, s)
		wantMade(t, s.Create(t.Context(), ofAtMost("acme/c", 2), nil), false)
		if err := s.Delete(t.Context(), "acme/a", 0); err != nil {
			t.Fatal(err)
		}
		wantMade(t, s.Create(t.Context(), ofAtMost("acme/c", 2), nil), true)
		wantMade(t, s.Create(t.Context(), ofAtMost("acme/d", 2), nil), false)
	}},
	{"Reopen/KeepsTheEpoch", func(t *testing.T, open func() store.Store) {
		s := open()
		create(t, s, "a", "b")
		wantNoErrors(t, s.AppendMany(t.Context(), []store.Batch{
			owned(2, "a", events(0, 1)...),
			owned(3, "b", events(0, 1)...),
		}), 2)
		closeStore(t, s)
		s = open()
		defer closeStore(t, s)
		wantEpoch(t, s, "a", 2)
		wantEpoch(t, s, "b", 3)
		older := owned(2, "b", events(1, 1)...)
		wantNamed(t, "Append of an older owner", s.Append(t.Context(), older), store.ErrFenced)
		wantRecords(t, all(t, s, "b"), events(0, 1))
	}},
	{"Reopen/KeepsTheIndex", func(t *testing.T, open func() store.Store) {
		s := open()
		log := parent(t, s, 2)
		f := forkOf("f", 3)
		f.Rows = []store.Row{row(turnRow, "f", "t", 1, "stopped")}
		f.Key = &store.Key{Scope: "s", Name: "fork", SessionID: "f"}
		mustFork(t, s, f)
		create(t, s, "gone")
		if err := s.Delete(t.Context(), "gone", 0); err != nil {
			t.Fatalf("Delete: %v", err)
		}
		want, err := s.Update(t.Context(), "a", store.Change{
			Labels:   map[string]string{"l": "w"},
			Archived: new(true),
			At:       epoch.Add(time.Hour),
		})
		if err != nil {
			t.Fatalf("Update: %v", err)
		}
		closeStore(t, s)

		s = open()
		defer closeStore(t, s)
		wantInfo(t, s, want)
		wantInfo(t, s, forkInfo(f))
		wantRecords(t, all(t, s, "f"), log[:3])
		wantRow(t, s, f.Rows[0])
		wantRow(t, s, row(askRow, "a", "i", 2, "asks"))
		wantKey(t, s, *f.Key)
		wantSessions(t, s, store.InfoQuery{}, "f", "a")
		wantSessions(t, s, store.InfoQuery{Labels: map[string]string{"l": "w"}}, "a")
		wantNamed(t, "the same Fork again", s.Fork(t.Context(), f), store.ErrSessionExists)
	}},
	{"Reopen/RepeatAndConflict", func(t *testing.T, open func() store.Store) {
		s := open()
		create(t, s, "a")
		add(t, s, batch("a", started(1, "turn"), events(1, 1)[0]))
		closeStore(t, s)

		s = open()
		defer closeStore(t, s)
		add(t, s, batch("a", started(1, "turn"), events(1, 1)[0]))
		other := events(1, 1)
		other[0].Data = []byte(`"another"`)
		wantNamed(t, "Append of another record 2", s.Append(t.Context(), batch("a", other...)), store.ErrConflict)
		wantRefused(t, "start of a second turn", s.Append(t.Context(), batch("a", started(3, "t2"))))
		add(t, s, batch("a", ended(3, "turn")))
		wantLog(t, s, "a", []record.Record{started(1, "turn"), events(1, 1)[0], ended(3, "turn")})
	}},
}

func closeStore(t testing.TB, s store.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}
