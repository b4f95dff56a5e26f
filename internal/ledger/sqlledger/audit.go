package sqlledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/apzuk3/agentd/internal/ledger"
)

const entryColumns = `time, tenant, principal, role, via, origin, action, session_id, turn_id, subject, outcome`

// AddEntries implements ledger.Ledger.
func (s *store) AddEntries(ctx context.Context, entries []ledger.Entry) error {
	err := s.db.Transact(ctx, func(ctx context.Context, c *sql.Conn) error {
		for i := range entries {
			e := &entries[i]
			_, err := c.ExecContext(ctx, `INSERT INTO audit (`+entryColumns+`)
				VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
				nanos(e.Time), e.Tenant, e.Principal, e.Role.String(), e.Via, e.From, e.Action, e.Session,
				e.Turn, e.Subject, e.Outcome)
			if err != nil {
				return err
			}
		}
		return nil
	})
	return within(err, "add %d entries to the audit trail", len(entries))
}

// Entries implements ledger.Ledger.
func (s *store) Entries(ctx context.Context, q ledger.EntryQuery) (entries []ledger.Entry, err error) {
	all := 0
	if q.AllTenants {
		all = 1
	}
	err = s.db.View(ctx, func(ctx context.Context, c *sql.Conn) (err error) {
		rows, err := c.QueryContext(ctx, `SELECT seq, `+entryColumns+` FROM audit
			WHERE seq > $1 AND ($2 = 1 OR tenant = $3) AND ($4 = '' OR session_id = $4) AND ($5 = '' OR principal = $5)
			AND time >= $6 ORDER BY seq LIMIT $7`,
			q.After, all, q.Tenant, q.Session, q.Principal, nanos(q.Since), q.Limit)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rows.Close()) }()
		for rows.Next() {
			e, err := scanEntry(rows)
			if err != nil {
				return err
			}
			entries = append(entries, e)
		}
		return rows.Err()
	})
	return entries, within(err, "read the audit trail")
}

func scanEntry(rows *sql.Rows) (e ledger.Entry, err error) {
	var at int64
	var role string
	err = rows.Scan(&e.Seq, &at, &e.Tenant, &e.Principal, &role, &e.Via, &e.From, &e.Action, &e.Session, &e.Turn,
		&e.Subject, &e.Outcome)
	if err != nil {
		return e, err
	}
	e.Time = timeOf(at)
	if err := e.Role.UnmarshalText([]byte(role)); err != nil {
		return e, fmt.Errorf("entry %d: %w", e.Seq, err)
	}
	return e, nil
}

// RemoveEntries implements ledger.Ledger.
func (s *store) RemoveEntries(ctx context.Context, before time.Time, limit int) (removed int, err error) {
	removed, err = s.count(ctx, `DELETE FROM audit WHERE seq IN (SELECT seq FROM audit
		WHERE time < $1 ORDER BY seq LIMIT $2)`, nanos(before), limit)
	return removed, within(err, "remove entries of the audit trail")
}
