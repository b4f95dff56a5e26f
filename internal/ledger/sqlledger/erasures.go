package sqlledger

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/apzuk3/agentd/internal/ledger"
)

const erasureColumns = `id, tenant, name, trail, asked_at, ended_at, result`

// AddErasure implements ledger.Ledger.
func (s *store) AddErasure(ctx context.Context, e ledger.Erasure) (id int64, err error) {
	trail := 0
	if e.Trail {
		trail = 1
	}
	err = s.db.Transact(ctx, func(ctx context.Context, c *sql.Conn) error {
		return c.QueryRowContext(ctx, `INSERT INTO erasures (tenant, name, trail, asked_at, ended_at, result)
			VALUES ($1, $2, $3, $4, 0, '') RETURNING id`, e.Tenant, e.User, trail, nanos(e.Asked)).Scan(&id)
	})
	return id, within(err, "add an erasure")
}

// Erasure implements ledger.Ledger.
func (s *store) Erasure(ctx context.Context, id int64) (e ledger.Erasure, err error) {
	err = s.db.View(ctx, func(ctx context.Context, c *sql.Conn) (err error) {
		e, err = scanErasure(c.QueryRowContext(ctx, `SELECT `+erasureColumns+` FROM erasures WHERE id = $1`, id))
		if errors.Is(err, sql.ErrNoRows) {
			err = ledger.ErrNoErasure
		}
		return err
	})
	return e, within(err, "read erasure %d", id)
}

// OpenErasures implements ledger.Ledger.
func (s *store) OpenErasures(ctx context.Context, limit int) (all []ledger.Erasure, err error) {
	err = s.db.View(ctx, func(ctx context.Context, c *sql.Conn) (err error) {
		rows, err := c.QueryContext(ctx, `SELECT `+erasureColumns+` FROM erasures
			WHERE ended_at = 0 ORDER BY id LIMIT $1`, limit)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rows.Close()) }()
		for rows.Next() {
			e, err := scanErasure(rows)
			if err != nil {
				return err
			}
			all = append(all, e)
		}
		return rows.Err()
	})
	return all, within(err, "list the erasures")
}

func scanErasure(row interface{ Scan(...any) error }) (e ledger.Erasure, err error) {
	var trail int
	var asked, ended int64
	err = row.Scan(&e.ID, &e.Tenant, &e.User, &trail, &asked, &ended, &e.Result)
	e.Trail, e.Asked, e.Ended = trail == 1, timeOf(asked), timeOf(ended)
	return e, err
}

// EndErasure implements ledger.Ledger.
func (s *store) EndErasure(ctx context.Context, id int64, at time.Time, result string) error {
	_, err := s.count(ctx, `UPDATE erasures SET ended_at = $1, result = $2, tenant = '', name = '' WHERE id = $3`,
		nanos(at), result, id)
	return within(err, "end erasure %d", id)
}

// RemoveKeysOf implements ledger.Ledger.
func (s *store) RemoveKeysOf(ctx context.Context, tenant, user string) (int, error) {
	n, err := s.count(ctx, `DELETE FROM api_keys WHERE tenant = $1 AND ($2 = '' OR principal = $2)`, tenant, user)
	return n, within(err, "remove API keys")
}

// RemoveEntriesOf implements ledger.Ledger.
func (s *store) RemoveEntriesOf(ctx context.Context, tenant, user string, limit int) (int, error) {
	n, err := s.count(ctx, `DELETE FROM audit WHERE seq IN (SELECT seq FROM audit
		WHERE tenant = $1 AND ($2 = '' OR principal = $2) ORDER BY seq LIMIT $3)`, tenant, user, limit)
	return n, within(err, "remove entries of the audit trail")
}

// count runs a statement and returns how many rows it has changed.
func (s *store) count(ctx context.Context, query string, args ...any) (changed int, err error) {
	err = s.db.Transact(ctx, func(ctx context.Context, c *sql.Conn) error {
		result, err := c.ExecContext(ctx, query, args...)
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		changed = int(n)
		return err
	})
	return changed, err
}
