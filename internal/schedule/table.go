package schedule

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// DB is a database with the table of schedules.
type DB interface {
	// Transact calls f with a connection in a transaction, which it commits unless f fails. There is one such
	// transaction at a time, whichever server asks for it.
	Transact(ctx context.Context, f func(context.Context, *sql.Conn) error) error
	// View calls f with a connection that reads.
	View(ctx context.Context, f func(context.Context, *sql.Conn) error) error
}

// timesKept is what the table keeps of a time.
const timesKept = time.Microsecond

// row is a schedule as it is in the table. Zero times are none.
type row struct {
	tenant, id, maker, session string
	timing                     timing
	created                    time.Time
	next, due, last            time.Time // due is when the next run is tried
	turn, err                  string
	runs                       int64
}

// Errors of a table.
var (
	errNone    = errors.New("there is no such schedule")
	errExists  = errors.New("there is a schedule of this id")
	errTooMany = errors.New("there are as many schedules as there may be")
)

// table has the rows. Its statements are those that SQLite and PostgreSQL have in common.
type table struct{ db DB }

const columns = `tenant, id, maker, session_id, timing, created_at, next_at, due, last_at, last_turn, last_error, runs`

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func ofMicros(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(n).UTC()
}

func scan(from interface{ Scan(...any) error }) (r row, err error) {
	var timing string
	var created, next, due, last int64
	err = from.Scan(&r.tenant, &r.id, &r.maker, &r.session, &timing, &created, &next, &due, &last, &r.turn, &r.err,
		&r.runs)
	r.created, r.next, r.due, r.last = ofMicros(created), ofMicros(next), ofMicros(due), ofMicros(last)
	if err == nil {
		err = json.Unmarshal([]byte(timing), &r.timing)
	}
	return r, err
}

// list returns the rows that a query of columns selects.
func (t table) list(ctx context.Context, query string, args ...any) (out []row, err error) {
	err = t.db.View(ctx, func(ctx context.Context, c *sql.Conn) (err error) {
		out = nil
		rows, err := c.QueryContext(ctx, query, args...)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rows.Close()) }()
		for rows.Next() {
			r, err := scan(rows)
			if err != nil {
				return err
			}
			out = append(out, r)
		}
		return rows.Err()
	})
	return out, within(err, "list schedules")
}

// get returns a schedule, or errNone.
func (t table) get(ctx context.Context, tenant, id string) (row, error) {
	all, err := t.list(ctx, `SELECT `+columns+` FROM schedules WHERE tenant = $1 AND id = $2`, tenant, id)
	if err == nil && len(all) == 0 {
		err = errNone
	}
	if err != nil {
		return row{}, err
	}
	return all[0], nil
}

// page returns at most limit schedules of a tenant behind an id, by their ids.
func (t table) page(ctx context.Context, tenant, after string, limit int) ([]row, error) {
	return t.list(ctx, `SELECT `+columns+` FROM schedules WHERE tenant = $1 AND id > $2 ORDER BY id LIMIT $3`,
		tenant, after, limit)
}

// soonest returns at most limit schedules that have another run, by when it is due.
func (t table) soonest(ctx context.Context, limit int) ([]row, error) {
	return t.list(ctx, `SELECT `+columns+` FROM schedules WHERE due > 0 ORDER BY due, tenant, id LIMIT $1`, limit)
}

// add adds a schedule, of which a tenant has at most most, or returns errExists or errTooMany.
func (t table) add(ctx context.Context, r *row, most int) error {
	text, err := json.Marshal(r.timing)
	if err != nil {
		return err
	}
	err = t.db.Transact(ctx, func(ctx context.Context, c *sql.Conn) error {
		var all, same int
		err := c.QueryRowContext(ctx, `SELECT count(*), count(CASE WHEN id = $1 THEN 1 END) FROM schedules
			WHERE tenant = $2`, r.id, r.tenant).Scan(&all, &same)
		switch {
		case err != nil:
			return err
		case same > 0:
			return errExists
		case all >= most:
			return errTooMany
		}
		_, err = c.ExecContext(ctx, `INSERT INTO schedules (`+columns+`)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`,
			r.tenant, r.id, r.maker, r.session, string(text), micros(r.created), micros(r.next), micros(r.due),
			micros(r.last), r.turn, r.err, r.runs)
		return err
	})
	return within(err, "add schedule %q", r.id)
}

// set notes how a schedule is after a run, if it is as it was before.
func (t table) set(ctx context.Context, before, after *row) error {
	err := t.db.Transact(ctx, func(ctx context.Context, c *sql.Conn) error {
		_, err := c.ExecContext(ctx, `UPDATE schedules SET next_at = $1, due = $2, last_at = $3, last_turn = $4,
			last_error = $5, runs = $6 WHERE tenant = $7 AND id = $8 AND created_at = $9 AND next_at = $10`,
			micros(after.next), micros(after.due), micros(after.last), after.turn, after.err, after.runs,
			before.tenant, before.id, micros(before.created), micros(before.next))
		return err
	})
	return within(err, "note a run of schedule %q", before.id)
}

// remove removes a schedule, or returns errNone.
func (t table) remove(ctx context.Context, tenant, id string) error {
	err := t.db.Transact(ctx, func(ctx context.Context, c *sql.Conn) error {
		done, err := c.ExecContext(ctx, `DELETE FROM schedules WHERE tenant = $1 AND id = $2`, tenant, id)
		if err != nil {
			return err
		}
		n, err := done.RowsAffected()
		if err == nil && n == 0 {
			err = errNone
		}
		return err
	})
	return within(err, "remove schedule %q", id)
}

// removeOf removes the schedules of a tenant, or those that its user has made if that is not "".
func (t table) removeOf(ctx context.Context, tenant, user string) (n int64, err error) {
	err = t.db.Transact(ctx, func(ctx context.Context, c *sql.Conn) error {
		done, err := c.ExecContext(ctx, `DELETE FROM schedules WHERE tenant = $1 AND ($2 = '' OR maker = $3)`,
			tenant, user, user)
		if err == nil {
			n, err = done.RowsAffected()
		}
		return err
	})
	return n, within(err, "remove the schedules of tenant %q", tenant)
}

// within says what has failed; err may be nil.
func within(err error, format string, args ...any) error {
	if err != nil {
		err = fmt.Errorf("schedule: "+format+": %w", append(args, err)...)
	}
	return err
}
