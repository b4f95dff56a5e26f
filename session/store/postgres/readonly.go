package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

var errReadOnly = errors.New("store was opened for reading")

// snapshotOf is the key of the connection that holds a snapshot of a store, in the context of what reads from it.
type snapshotOf struct{ s *Store }

// Snapshot has the reads of f, those with the context that f gets, see one state, whatever is written meanwhile. One
// goroutine at a time reads, and nothing is written. For as long as f runs, vacuum keeps what was removed.
func (s *Store) Snapshot(ctx context.Context, f func(context.Context) error) error {
	var err error
	fault := s.View(ctx, func(ctx context.Context, c *sql.Conn) error {
		for _, text := range []string{
			"BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY",
			"SET LOCAL idle_in_transaction_session_timeout = 0", // f may be slow
			"SAVEPOINT intact",
		} {
			if _, err := c.ExecContext(ctx, text); err != nil {
				return errors.Join(err, end(ctx, c, false))
			}
		}
		err = f(context.WithValue(ctx, snapshotOf{s}, c))
		return end(ctx, c, false)
	})
	if fault != nil {
		fault = fmt.Errorf("postgres: snapshot: %w", fault)
	}
	return errors.Join(err, fault)
}

// snapshot returns the connection of the snapshot that a context belongs to, or nil.
func (s *Store) snapshot(ctx context.Context) *sql.Conn {
	c, _ := ctx.Value(snapshotOf{s}).(*sql.Conn)
	return c
}

// within reads in a snapshot. An error of the server leaves the snapshot as it was.
func within[T any](ctx context.Context, c *sql.Conn, f func(context.Context, *pgx.Conn) (T, error)) (out T, err error) {
	failed := c.Raw(func(raw any) error {
		conn := raw.(*stdlib.Conn).Conn()
		if out, err = f(ctx, conn); err != nil && codeOf(err) != "" {
			if _, lost := conn.Exec(ctx, "ROLLBACK TO intact"); lost != nil {
				return errors.Join(driver.ErrBadConn, lost)
			}
		}
		return nil
	})
	return out, errors.Join(err, failed)
}
