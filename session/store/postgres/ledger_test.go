package postgres

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/apzuk3/agentd/internal/test/pgserver"
)

// TestTransact: what a failed transaction has written is undone, also if it does not say that it has failed.
func TestTransact(t *testing.T) {
	t.Parallel()
	s := openAt(t, pgserver.URL(t))
	insert := func(ctx context.Context, c *sql.Conn, key string) error {
		_, err := c.ExecContext(ctx, `INSERT INTO shared (scope, key, value) VALUES ('x', $1, '\x00')`, key)
		return err
	}
	for what, f := range map[string]func(context.Context, *sql.Conn) error{
		"its own error": func(ctx context.Context, c *sql.Conn) error {
			return errors.Join(insert(ctx, c, "a"), errors.New("own"))
		},
		"an error that it ignores": func(ctx context.Context, c *sql.Conn) error {
			err := insert(ctx, c, "b")
			_, _ = c.ExecContext(ctx, `INSERT INTO nonsense VALUES (1)`)
			return err
		},
		"a context that has ended": func(ctx context.Context, c *sql.Conn) error {
			ctx, cancel := context.WithCancel(ctx)
			err := insert(ctx, c, "c")
			cancel()
			_, failed := c.ExecContext(ctx, `SELECT 1`)
			return errors.Join(err, failed)
		},
	} {
		if err := s.Transact(t.Context(), f); err == nil {
			t.Errorf("%s: it was committed", what)
		}
	}
	if err := s.Transact(t.Context(), func(ctx context.Context, c *sql.Conn) error { return insert(ctx, c, "d") }); err != nil {
		t.Error(err)
	}
	keys := ""
	err := s.View(t.Context(), func(ctx context.Context, c *sql.Conn) error {
		return c.QueryRowContext(ctx, `SELECT string_agg(key, ' ') FROM shared WHERE scope = 'x'`).Scan(&keys)
	})
	if err != nil || keys != "d" {
		t.Errorf("written were %q, %v", keys, err)
	}
	mustClose(t, s)
	if err := s.Transact(t.Context(), func(context.Context, *sql.Conn) error { return nil }); !errors.Is(err, errClosed) {
		t.Errorf("a closed store: %v", err)
	}
}

// TestTransactStandsStill: a process that stands still in a transaction does not keep others from theirs.
func TestTransactStandsStill(t *testing.T) {
	t.Parallel()
	url := pgserver.URL(t)
	still, other := openAt(t, url), openAt(t, url)
	defer mustClose(t, still)
	defer mustClose(t, other)
	err := still.Transact(t.Context(), func(context.Context, *sql.Conn) error {
		return other.Transact(t.Context(), func(context.Context, *sql.Conn) error { return nil })
	})
	if err == nil {
		t.Error("what stood still was committed")
	}
}

func mustClose(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}
