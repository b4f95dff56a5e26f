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
	// ledgerLock is the advisory lock of whoever writes beside the sessions: among all replicas there is one at a time, as
	// with SQLite. Without it two would pass the same check, and numbers would be committed out of their order, so that
	// who reads on behind the last one misses some.
	ledgerLock = 0x6167656e7464_01
	// ledgerIdle is how long a transaction may be idle before the server ends it: a replica that stands still in the middle
	// of one does not keep the others.
	ledgerIdle = 10 * time.Second
	// commitTimeout bounds a commit and its wait for a standby. Behind it the outcome is unknown.
	commitTimeout = time.Minute
)

// beside writes and reads what is beside the sessions, on connections of a pool.
type beside struct {
	db *sql.DB
	// turn is full while somebody writes, so that those who wait hold no connection.
	turn chan struct{}
}

func newBeside(pool *pgxpool.Pool) *beside {
	return &beside{db: stdlib.OpenDBFromPool(pool), turn: make(chan struct{}, 1)}
}

// close does not close the pool.
func (b *beside) close() error { return b.db.Close() }

// view calls f with a connection.
func (b *beside) view(ctx context.Context, f func(context.Context, *sql.Conn) error) error {
	conn, err := b.db.Conn(ctx)
	if err != nil {
		return err
	}
	return errors.Join(f(ctx, conn), conn.Close())
}

// transact calls f in a transaction that nobody else writes in beside.
func (b *beside) transact(ctx context.Context, f func(context.Context, *sql.Conn) error) error {
	select {
	case b.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-b.turn }()
	return b.view(ctx, func(ctx context.Context, c *sql.Conn) error {
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
		tag, err := conn.Exec(ctx, "COMMIT")
		if err == nil && tag.String() != "COMMIT" { // f has not returned the error of a statement
			err = pgx.ErrTxCommitRollback
		}
		return err
	})
}
