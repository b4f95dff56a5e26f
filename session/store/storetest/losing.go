package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/apzuk3/agentd/session/store"
)

// write is a write, and what its repeat may return.
type write struct {
	name string
	run  func(ctx context.Context, s store.Store) error
	// done is the error of a repeat of what has happened; nil for a write that may be repeated.
	done error
	// want checks that it has happened once.
	want func(t *testing.T, s store.Store)
}

// runLosing checks what a store does that has lost the reply to a commit: the error has no name, since nobody knows
// what has happened, and the caller finds out by the same call.
func runLosing(t *testing.T, open func(t *testing.T) (s store.Store, loseNext func(persisted bool))) {
	for _, persisted := range []bool{false, true} {
		for _, w := range lostWrites() {
			t.Run(fmt.Sprintf("Lost/%s/persisted=%v", w.name, persisted), func(t *testing.T) {
				s, loseNext := open(t)
				defer closeStore(t, s)
				create(t, s, "a", "gone")
				add(t, s, batch("a", events(0, 2)...))
				loseNext(persisted)
				err := w.run(t.Context(), s)
				if err == nil {
					t.Fatal("a reply that was lost is no error")
				}
				for _, known := range []error{
					store.ErrNoSession, store.ErrSessionExists, store.ErrConflict, store.ErrMalformed,
					store.ErrKeyTaken, store.ErrNotFound, store.ErrFull, store.ErrDamaged, store.ErrFailed,
					context.Canceled, context.DeadlineExceeded,
				} {
					if errors.Is(err, known) {
						t.Fatalf("the outcome is not known, and the error is %v", err)
					}
				}
				err = w.run(t.Context(), s)
				for tries := 0; err != nil && !errors.Is(err, w.done) && tries < 10; tries++ {
					err = w.run(t.Context(), s) // other connections may be lost too
				}
				if err != nil && (!persisted || !errors.Is(err, w.done)) {
					t.Fatalf("the same call again: %v", err)
				}
				w.want(t, s)
				add(t, s, batch("a", events(mustHead(t, s, "a").LastSeq, 1)...)) // and the store goes on
			})
		}
	}
}

func mustHead(t *testing.T, s store.Store, id string) store.Head {
	t.Helper()
	head, err := s.Head(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return head
}

// lostWrites write to the session "a", which has two records, and to others.
func lostWrites() []write {
	next := spending(batch("a", events(2, 1)...), "acme", 20, 5, 7)
	next.Rows = []store.Row{row(turnRow, "a", "t", 3, "runs")}
	keyed := creating(fresh("made"))
	keyed.Key = &store.Key{Scope: "s", Name: "k", SessionID: "made", ID: "t"}
	keyed.Shared = []store.SharedValue{{Scope: "app", Key: "k", Value: []byte("1")}}
	wantSpentOnce := func(t *testing.T, s store.Store) {
		t.Helper()
		spent, err := s.Spent(t.Context(), "acme", 20, 20)
		if err != nil || spent.Tokens != 5 || spent.Cost != 7 {
			t.Errorf("%+v was spent, %v", spent, err)
		}
	}
	return []write{
		{"Append", func(ctx context.Context, s store.Store) error { return s.Append(ctx, next) }, nil,
			func(t *testing.T, s store.Store) {
				wantRecords(t, all(t, s, "a"), events(0, 3))
				wantRow(t, s, next.Rows[0])
				wantSpentOnce(t, s)
			}},
		{"AppendMany", func(ctx context.Context, s store.Store) error {
			return errors.Join(s.AppendMany(ctx, []store.Batch{next})...)
		}, nil, func(t *testing.T, s store.Store) {
			wantRecords(t, all(t, s, "a"), events(0, 3))
			wantSpentOnce(t, s)
		}},
		{"AppendThatCreates", func(ctx context.Context, s store.Store) error { return s.Append(ctx, keyed) }, nil,
			func(t *testing.T, s store.Store) {
				wantRecords(t, all(t, s, "made"), events(0, 1))
				wantKey(t, s, *keyed.Key)
				wantShared(t, s, "app", map[string]string{"k": "1"})
			}},
		{"Create", func(ctx context.Context, s store.Store) error { return s.Create(ctx, fresh("made"), nil) },
			store.ErrSessionExists, func(t *testing.T, s store.Store) { wantLog(t, s, "made", nil) }},
		{"Fork", func(ctx context.Context, s store.Store) error {
			return s.Fork(ctx, store.Fork{From: "a", Seq: 2, Into: fresh("f")})
		}, store.ErrSessionExists, func(t *testing.T, s store.Store) { wantRecords(t, all(t, s, "f"), events(0, 2)) }},
		{"Update", func(ctx context.Context, s store.Store) error {
			_, err := s.Update(ctx, "a", store.Change{Version: 1, ClientRef: new("ref")})
			return err
		}, store.ErrConflict, func(t *testing.T, s store.Store) {
			info, err := s.Info(t.Context(), "a")
			if err != nil || info.Version != 2 || info.ClientRef != "ref" {
				t.Errorf("Info: %+v, %v", info, err)
			}
		}},
		{"Delete", func(ctx context.Context, s store.Store) error { return s.Delete(ctx, "gone", 0) },
			store.ErrNoSession, func(t *testing.T, s store.Store) {
				wantErr(t, "Head of what was removed", headErr(t, s, "gone"), store.ErrNoSession)
			}},
		{"Purge", func(ctx context.Context, s store.Store) error { return s.Purge(ctx, "a", 2) }, nil,
			func(t *testing.T, s store.Store) {
				if head := mustHead(t, s, "a"); head.Purged != 2 {
					t.Errorf("Head: %+v", head)
				}
			}},
		{"SetShared", func(ctx context.Context, s store.Store) error {
			return s.SetShared(ctx, []store.SharedValue{{Scope: "app", Key: "k", Value: []byte("1")}})
		}, nil, func(t *testing.T, s store.Store) { wantShared(t, s, "app", map[string]string{"k": "1"}) }},
	}
}
