package storetest

import (
	"testing"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// epochTests are the promises about the owner that writes to a session.
var epochTests = []test{
	{"Epoch/AnOlderOwnerIsFenced", func(t *testing.T, s store.Store) {
		create(t, s, "a", "b")
		log := events(0, 4)
		add(t, s, owned(1, "a", log[0]))
		wantEpoch(t, s, "a", 1)
		add(t, s, owned(3, "a", log[1]))
		wantEpoch(t, s, "a", 3)
		for epoch := range int64(3) {
			next, repeat := owned(epoch, "a", log[2]), owned(epoch, "a", log[0])
			wantNamed(t, "Append of an older owner", s.Append(t.Context(), next), store.ErrFenced)
			wantNamed(t, "repeat of an older owner", s.Append(t.Context(), repeat), store.ErrFenced)
		}
		wantEpoch(t, s, "a", 3)
		add(t, s, owned(3, "a", log[1])) // its own repeat
		add(t, s, owned(3, "a", log[2]))
		add(t, s, owned(1<<62, "a", log[3]))
		wantEpoch(t, s, "a", 1<<62)
		wantRecords(t, all(t, s, "a"), log)
		add(t, s, batch("b", log[0])) // another session has owners of its own
		wantEpoch(t, s, "b", 0)
	}},
	{"Epoch/OfTheAppendThatCreates", func(t *testing.T, s store.Store) {
		b := owned(2, "a", events(0, 1)...)
		b.Create = new(fresh("a"))
		add(t, s, b)
		wantEpoch(t, s, "a", 2)
		add(t, s, b)
		b.Epoch = 1
		wantNamed(t, "repeat of an older owner", s.Append(t.Context(), b), store.ErrFenced)
	}},
	{"Epoch/OnlyAnAppendChangesIt", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		log := events(0, 2)
		add(t, s, owned(2, "a", log[0]))
		refused := owned(5, "a", log[0])
		refused.Records[0].Data = []byte(`"another"`)
		wantNamed(t, "Append of another record", s.Append(t.Context(), refused), store.ErrConflict)
		add(t, s, owned(5, "a", events(0, 1)...)) // a repeat writes nothing
		wantEpoch(t, s, "a", 2)
		if _, err := s.Update(t.Context(), "a", store.Change{Archived: new(true)}); err != nil {
			t.Fatalf("Update: %v", err)
		}
		if err := s.SetAttempts(t.Context(), "a", 1, true); err != nil {
			t.Fatalf("SetAttempts: %v", err)
		}
		wantRefused(t, "Index with an epoch", s.Index(t.Context(), store.Batch{SessionID: "a", Epoch: 2}, 1))
		if err := s.Index(t.Context(), store.Batch{SessionID: "a"}, 1); err != nil {
			t.Fatalf("Index: %v", err)
		}
		if err := s.Fork(t.Context(), store.Fork{From: "a", Seq: 1, Into: fresh("f")}); err != nil {
			t.Fatalf("Fork: %v", err)
		}
		wantEpoch(t, s, "f", 0)
		if err := s.Purge(t.Context(), "a", 1); err != nil {
			t.Fatalf("Purge: %v", err)
		}
		wantEpoch(t, s, "a", 2)
		wantNamed(t, "Append of an older owner", s.Append(t.Context(), owned(1, "a", log[1])), store.ErrFenced)
		wantRefused(t, "Append of a negative epoch", s.Append(t.Context(), owned(-1, "a", log[1])))
	}},
}

// owned is an append of the owner of an epoch.
func owned(epoch int64, id string, recs ...record.Record) store.Batch {
	b := batch(id, append([]record.Record(nil), recs...)...)
	b.Epoch = epoch
	return b
}

func wantEpoch(t testing.TB, s store.Store, id string, want int64) {
	t.Helper()
	head, err := s.Head(t.Context(), id)
	if err != nil {
		t.Fatalf("Head: %v", err)
	}
	info, err := s.Info(t.Context(), id)
	if err != nil {
		t.Fatalf("Info: %v", err)
	}
	if head.Epoch != want || info.Epoch != want {
		t.Fatalf("the epoch of %s is %d in Head, %d in Info, want %d", id, head.Epoch, info.Epoch, want)
	}
}
