// Package sqlstore is a part of agentd, not an API: it keeps what a Gestalt host says of sessions and turns in tables
// of the database of the sessions.
//
// It knows neither the host nor the daemon.
package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/apzuk3/agentd/internal/gestalt"
)

// DB is a database with the tables.
type DB interface {
	// Transact calls f with a connection in a transaction, which it commits unless f fails.
	Transact(ctx context.Context, f func(context.Context, *sql.Conn) error) error
	// Erase is Transact for what must not be found in the files of the database afterwards.
	Erase(ctx context.Context, f func(context.Context, *sql.Conn) error) error
	// View calls f with a connection that reads.
	View(ctx context.Context, f func(context.Context, *sql.Conn) error) error
}

// New returns the store in a database.
func New(db DB) gestalt.Store { return &store{db} }

type store struct{ db DB }

const sessionColumns = `id, subject, key, content, request, created_at, updated_at, turned_at`

func scanSession(row interface{ Scan(...any) error }) (*gestalt.Session, error) {
	s := &gestalt.Session{}
	var created, updated, turned int64
	err := row.Scan(&s.ID, &s.Subject, &s.Key, &s.Content, &s.Request, &created, &updated, &turned)
	s.Created, s.Updated, s.Turned = timeOf(created), timeOf(updated), timeOf(turned)
	return s, orNone(err)
}

// AddSession implements gestalt.Store.
func (s *store) AddSession(ctx context.Context, n *gestalt.Session) (known *gestalt.Session, err error) {
	err = s.db.Transact(ctx, func(ctx context.Context, c *sql.Conn) error {
		known, err = scanSession(c.QueryRowContext(ctx, `SELECT `+sessionColumns+` FROM gestalt_sessions
			WHERE key <> '' AND subject = $1 AND key = $2`, n.Subject, n.Key))
		if errors.Is(err, gestalt.ErrNone) {
			known, err = sessionOf(ctx, c, n.ID)
		}
		if !errors.Is(err, gestalt.ErrNone) {
			return err
		}
		known = nil
		_, err = c.ExecContext(ctx, `INSERT INTO gestalt_sessions (`+sessionColumns+`)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
			n.ID, n.Subject, n.Key, n.Content, blob(n.Request), nanos(n.Created), nanos(n.Updated), nanos(n.Turned))
		return err
	})
	return known, within(err, "add session %q", n.ID)
}

func sessionOf(ctx context.Context, c *sql.Conn, id string) (*gestalt.Session, error) {
	return scanSession(c.QueryRowContext(ctx,
		`SELECT `+sessionColumns+` FROM gestalt_sessions WHERE id = $1`, id))
}

// Session implements gestalt.Store.
func (s *store) Session(ctx context.Context, id string) (found *gestalt.Session, err error) {
	err = s.db.View(ctx, func(ctx context.Context, c *sql.Conn) (err error) {
		found, err = sessionOf(ctx, c, id)
		return err
	})
	return found, within(err, "read session %q", id)
}

// Sessions implements gestalt.Store.
func (s *store) Sessions(ctx context.Context, subject string, offset, limit int) ([]*gestalt.Session, error) {
	list, err := listed(ctx, s.db, scanSession, `SELECT `+sessionColumns+` FROM gestalt_sessions WHERE subject = $1
		ORDER BY CASE turned_at WHEN 0 THEN updated_at ELSE turned_at END DESC, id LIMIT $2 OFFSET $3`,
		subject, limit, offset)
	return list, within(err, "list sessions")
}

// UpdateSession implements gestalt.Store.
func (s *store) UpdateSession(ctx context.Context, id string, at time.Time) error {
	_, err := s.changed(ctx, s.db.Transact,
		`UPDATE gestalt_sessions SET updated_at = $1 WHERE id = $2`, nanos(at), id)
	return within(err, "change session %q", id)
}

// RemoveSession implements gestalt.Store.
func (s *store) RemoveSession(ctx context.Context, id string) error {
	_, err := s.changed(ctx, s.db.Transact, `DELETE FROM gestalt_sessions WHERE id = $1`, id)
	return within(err, "remove session %q", id)
}

// transaction is Transact, or Erase, of a DB.
type transaction func(ctx context.Context, f func(context.Context, *sql.Conn) error) error

// changed runs a statement and reports whether it has changed a row.
func (s *store) changed(ctx context.Context, in transaction, query string, args ...any) (changed bool, err error) {
	err = in(ctx, func(ctx context.Context, c *sql.Conn) (err error) {
		changed, err = exec(ctx, c, query, args...)
		return err
	})
	return changed, err
}

func exec(ctx context.Context, c *sql.Conn, query string, args ...any) (changed bool, err error) {
	result, err := c.ExecContext(ctx, query, args...)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}

// listed reads all rows of a query.
func listed[T any](
	ctx context.Context, db DB, scan func(interface{ Scan(...any) error }) (T, error), query string, args ...any,
) (all []T, err error) {
	err = db.View(ctx, func(ctx context.Context, c *sql.Conn) (err error) {
		rows, err := c.QueryContext(ctx, query, args...)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rows.Close()) }()
		for rows.Next() {
			one, err := scan(rows)
			if err != nil {
				return err
			}
			all = append(all, one)
		}
		return rows.Err()
	})
	return all, err
}

// orNone is gestalt.ErrNone for a query without rows.
func orNone(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return gestalt.ErrNone
	}
	return err
}

// blob is not NULL.
func blob(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// nanos is a time as the database has it: in nanoseconds since 1970, 0 for none.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func timeOf(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

// within says what has failed.
func within(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("gestalt: "+format+": %w", append(args, err)...)
}
