package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// What follows is for what a server keeps in the same database beside its sessions; see package ledger.

const (
	// ledgerLock is the advisory lock of whoever writes beside the sessions: among all replicas there is one at a
	// time, as with SQLite. Without it two would pass the same check, and numbers would be committed out of their
	// order, so that who reads on behind the last one misses some.
	ledgerLock = 0x6167656e7464_01
	// ledgerIdle is how long a transaction may be idle before the server ends it: a replica that stands still in the
	// middle of one does not keep the others.
	ledgerIdle = 10 * time.Second
	// commitTimeout bounds a commit and its wait for a standby. Behind it the outcome is unknown.
	commitTimeout = time.Minute
)

// beside writes and reads what is beside the sessions.
type beside struct {
	db *sql.DB // the connections of Store.pool
	// turn is full while somebody writes, so that those who wait hold no connection.
	turn chan struct{}
}

func newBeside(pool *pgxpool.Pool) beside {
	return beside{db: stdlib.OpenDBFromPool(pool), turn: make(chan struct{}, 1)}
}

// View calls f with a connection that reads, which f may use until it returns.
func (s *Store) View(ctx context.Context, f func(context.Context, *sql.Conn) error) error {
	if c := s.snapshot(ctx); c != nil {
		return named(ctx, f(ctx, c))
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return errClosed
	}
	conn, err := s.beside.db.Conn(ctx)
	if err == nil {
		err = errors.Join(f(ctx, conn), conn.Close())
	}
	return named(ctx, err)
}

// Transact calls f with a connection, in a transaction that is committed when f returns nil. f may use the connection
// until it returns, and must neither begin nor end transactions. There is one such transaction at a time, whichever
// process asks for it.
func (s *Store) Transact(ctx context.Context, f func(context.Context, *sql.Conn) error) error {
	if s.only {
		return errReadOnly
	}
	select {
	case s.beside.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-s.beside.turn }()
	return s.View(ctx, func(ctx context.Context, c *sql.Conn) error {
		if _, err := c.ExecContext(ctx, "BEGIN"); err != nil {
			return err
		}
		_, err := c.ExecContext(ctx,
			"SELECT set_config('idle_in_transaction_session_timeout', $1, true), pg_advisory_xact_lock($2)",
			fmt.Sprint(ledgerIdle.Milliseconds()), int64(ledgerLock))
		if err == nil {
			err = f(ctx, c)
		}
		return errors.Join(err, end(ctx, c, err == nil))
	})
}

// Erase is Transact: what f removes is in the files of the database until PostgreSQL has overwritten it, see the
// package doc.
func (s *Store) Erase(ctx context.Context, f func(context.Context, *sql.Conn) error) error {
	return s.Transact(ctx, f)
}

// end commits a transaction, or undoes it; what it cannot undo ends with the connection.
func end(ctx context.Context, c *sql.Conn, commit bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	return c.Raw(func(driver any) error {
		conn := driver.(*stdlib.Conn).Conn()
		if !commit {
			_, _ = conn.Exec(ctx, "ROLLBACK")
			return nil
		}
		forgetWarning(conn)
		tag, err := conn.Exec(ctx, "COMMIT")
		switch {
		case err != nil:
			return err
		case tag.String() != "COMMIT": // f has not returned the error of a statement
			return pgx.ErrTxCommitRollback
		case warned(conn):
			return errUnreplicated
		}
		return nil
	})
}
