package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

var contextTests = []test{
	{"Context/HasEnded", func(t *testing.T, s store.Store) {
		create(t, s, "a")
		add(t, s, batch("a", started(1, "turn")))
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		late, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
		defer cancel()
		for _, ctx := range []context.Context{canceled, late} {
			for what, call := range calls("b", "a", events(1, 1)) {
				wantNamed(t, what, call(ctx, s), ctx.Err())
			}
		}
		// Nothing stays behind that would keep the next from being done.
		if _, err := s.Head(t.Context(), "b"); err != nil && !errors.Is(err, store.ErrNoSession) {
			t.Fatalf("Head: %v", err)
		}
		create(t, s, "c")
		add(t, s, batch("a", events(1, 1)...)) // it may have happened: a repeat
		wantLog(t, s, "a", append([]record.Record{started(1, "turn")}, events(1, 1)...))
	}},
	{"Context/EndsMeanwhile", func(t *testing.T, s store.Store) {
		// Wherever the end of the context hits, the append has happened or not.
		create(t, s, "a")
		var n int64
		for i := range 200 {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Duration(i)*2*time.Microsecond, cancel)
			for what, call := range calls("", "a", events(n, 2)) {
				err := call(ctx, s)
				once := what == "Create" || what == "Fork" // a repeat of them fails
				if !once && err != nil && !errors.Is(err, context.Canceled) {
					t.Fatalf("%s: error is %v, want %v or none", what, err, context.Canceled)
				}
			}
			cancel()
			add(t, s, batch("a", events(n, 2)...))
			n += 2
		}
		wantLog(t, s, "a", events(0, int(n)))
	}},
}

func ignoring(err, known error) error {
	if errors.Is(err, known) {
		return nil
	}
	return err
}

// calls are all methods that take a context. Create is of made, Append of recs to id. None of them takes
// anything away.
func calls(made, id string, recs []record.Record) map[string]func(context.Context, store.Store) error {
	return map[string]func(context.Context, store.Store) error{
		"Create": func(ctx context.Context, s store.Store) error { return s.Create(ctx, fresh(made), nil) },
		"Append": func(ctx context.Context, s store.Store) error { return s.Append(ctx, batch(id, recs...)) },
		"AppendMany": func(ctx context.Context, s store.Store) error {
			return errors.Join(s.AppendMany(ctx, []store.Batch{batch(id, recs...)})...)
		},
		"Ping": func(ctx context.Context, s store.Store) error { return s.Ping(ctx) },
		"Head": func(ctx context.Context, s store.Store) error {
			_, err := s.Head(ctx, id)
			return err
		},
		"Read": func(ctx context.Context, s store.Store) error {
			_, err := s.Read(ctx, id, 0, 10)
			return err
		},
		"Shared": func(ctx context.Context, s store.Store) error {
			_, err := s.Shared(ctx, "app")
			return err
		},
		"OpenTurns": func(ctx context.Context, s store.Store) error {
			_, err := s.OpenTurns(ctx, "", 10)
			return err
		},
		"Idle": func(ctx context.Context, s store.Store) error {
			_, err := s.Idle(ctx, epoch, 10)
			return err
		},
		"Info": func(ctx context.Context, s store.Store) error {
			_, err := s.Info(ctx, id)
			return err
		},
		"Sessions": func(ctx context.Context, s store.Store) error {
			_, err := s.Sessions(ctx, store.InfoQuery{Limit: 10})
			return err
		},
		"Row": func(ctx context.Context, s store.Store) error {
			_, err := s.Row(ctx, turnRow, id, "t")
			return ignoring(err, store.ErrNotFound)
		},
		"Rows": func(ctx context.Context, s store.Store) error {
			_, err := s.Rows(ctx, store.RowQuery{Kind: turnRow, Limit: 10})
			return err
		},
		"Key": func(ctx context.Context, s store.Store) error {
			_, err := s.Key(ctx, "s", "k")
			return ignoring(err, store.ErrNotFound)
		},
		"Unindexed": func(ctx context.Context, s store.Store) error {
			_, err := s.Unindexed(ctx, "", 10)
			return err
		},
		"Update": func(ctx context.Context, s store.Store) error {
			_, err := s.Update(ctx, id, store.Change{Labels: map[string]string{"k": "v"}})
			return err
		},
		"Fork": func(ctx context.Context, s store.Store) error {
			return s.Fork(ctx, store.Fork{From: id, Into: fresh(made + "fork")})
		},
		"Index": func(ctx context.Context, s store.Store) error {
			return ignoring(s.Index(ctx, store.Batch{SessionID: id}, recs[0].Seq-1), store.ErrConflict)
		},
		"Delete": func(ctx context.Context, s store.Store) error {
			return ignoring(s.Delete(ctx, id, 1<<40), store.ErrConflict)
		},
		"SetAttempts": func(ctx context.Context, s store.Store) error {
			return s.SetAttempts(ctx, id, 0, false)
		},
		"SetShared": func(ctx context.Context, s store.Store) error {
			return s.SetShared(ctx, []store.SharedValue{{Scope: "app", Key: made, Value: []byte("1")}})
		},
		"Purge": func(ctx context.Context, s store.Store) error {
			return ignoring(s.Purge(ctx, id, 1<<40), store.ErrConflict)
		},
	}
}
