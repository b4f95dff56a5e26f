package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// tries is how often a transaction is run that loses a race.
const tries = 4

// Errors within this package.
var (
	// errRaced means that another transaction has made, since this one looked, what it was about to make.
	errRaced = errors.New("another write came between")
	// errUnreplicated means that the commit has happened here, and perhaps not on a standby.
	errUnreplicated = errors.New("the commit was not confirmed by the synchronous standbys")
)

// answered is a refusal that may be the answer to a repeat: it is confirmed by a commit, see the package doc.
type answered struct{ error }

func (a answered) Unwrap() error { return a.error }

// tx is a transaction. Its methods return a refusal, which package store has a name for, or a fault; either undoes it.
type tx struct {
	pgx.Tx
	ctx   context.Context //nolint:containedctx // of one transaction
	owner int64           // of a session that it creates, 0 for nobody
}

// transact runs f in a transaction and commits it. It calls f again, in a new one, if the transaction lost a race.
func transact(ctx context.Context, conn *pgx.Conn, f func(*tx) error) error {
	var err error
	for range tries {
		if err = attempt(ctx, conn, f); !errors.Is(err, errRaced) && !passes(err) {
			break
		}
	}
	return err
}

func attempt(ctx context.Context, conn *pgx.Conn, f func(*tx) error) (err error) {
	forgetWarning(conn)
	raw, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	t := &tx{Tx: raw, ctx: ctx}
	refusal := f(t)
	if _, isAnswer := errors.AsType[answered](refusal); isAnswer {
		if err := t.confirm(); err != nil {
			return errors.Join(err, t.undo())
		}
	} else if refusal != nil {
		return errors.Join(refusal, t.undo())
	}
	if err := raw.Commit(ctx); err != nil {
		return err
	}
	if warned(conn) {
		return errUnreplicated
	}
	return refusal
}

// undo rolls back. Its own error is of no interest: the connection is closed then.
func (t *tx) undo() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), 5*time.Second)
	defer cancel()
	if t.Rollback(ctx) != nil {
		_ = t.Conn().Close(ctx)
	}
	return nil
}

// confirm has the commit write something, so that it waits for what others have committed before.
func (t *tx) confirm() error { return t.exec(`SELECT pg_logical_emit_message(true, 'agentd', '')`) }

// exec runs a statement.
func (t *tx) exec(text string, args ...any) error {
	_, err := t.Exec(t.ctx, text, args...)
	return err
}

// all runs statements in one round trip.
func (t *tx) all(b *pgx.Batch) error {
	if b.Len() == 0 {
		return nil
	}
	return t.SendBatch(t.ctx, b).Close()
}

// warningKey is the place of what the server warned of, in the data of a connection.
const warningKey = "agentd.warned"

// heed keeps a warning of the server: it warns of a commit that was not replicated.
func heed(conn *pgconn.PgConn, n *pgconn.Notice) {
	if severity((*pgconn.PgError)(n)) == "WARNING" && n.Code == warningCode {
		conn.CustomData()[warningKey] = true
	}
}

func forgetWarning(conn *pgx.Conn) { delete(conn.PgConn().CustomData(), warningKey) }

func warned(conn *pgx.Conn) bool {
	_, is := conn.PgConn().CustomData()[warningKey]
	return is
}

// collect reads rows with scan.
func collect[T any](rows pgx.Rows, err error, scan func(pgx.CollectableRow) (T, error)) ([]T, error) {
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scan)
}

// one returns the only row, or the error none if there is none.
func one[T any](rows pgx.Rows, err error, scan func(pgx.CollectableRow) (T, error), none error) (T, error) {
	var zero T
	all, err := collect(rows, err, scan)
	switch {
	case err != nil:
		return zero, err
	case len(all) == 0:
		return zero, none
	}
	return all[0], nil
}
