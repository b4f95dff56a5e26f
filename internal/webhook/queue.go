package webhook

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// DB is a database with the table of notices.
type DB interface {
	// Transact calls f with a connection in a transaction, which it commits unless f fails. There is one such
	// transaction at a time, whichever server asks for it.
	Transact(ctx context.Context, f func(context.Context, *sql.Conn) error) error
	// View calls f with a connection that reads.
	View(ctx context.Context, f func(context.Context, *sql.Conn) error) error
}

// state is what becomes of a notice.
type state int

const (
	waiting state = iota // it is to be sent
	dead                 // it was given up
	sent                 // it was received, and is kept so that it is not made again
)

// delivery is a notice as it is in the table.
type delivery struct {
	store.Notice
	session, tenant string
	attempts        int64
	due, since      time.Time
	err             string
}

// made is a notice that no append writes.
type made struct {
	tenant string
	store.Notice
}

// queue is the table of notices. Its statements are those that SQLite and PostgreSQL have in common.
type queue struct{ db DB }

const columns = `id, hook, event, session_id, tenant, turn_id, subject, seq, at, attempts, due, since, error`

func scan(rows *sql.Rows) (d delivery, err error) {
	var at, due, since int64
	err = rows.Scan(&d.ID, &d.Hook, &d.Event, &d.session, &d.tenant, &d.TurnID, &d.Subject, &d.Seq, &at, &d.attempts,
		&due, &since, &d.err)
	d.At, d.due, d.since = time.UnixMicro(at).UTC(), time.UnixMicro(due).UTC(), time.UnixMicro(since).UTC()
	return d, err
}

// list returns what a query of columns selects.
func list(ctx context.Context, c *sql.Conn, query string, args ...any) (out []delivery, err error) {
	rows, err := c.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		d, err := scan(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, rows.Err()
}

// next is when a notice of a hook is due first; false if none waits.
func (q queue) next(ctx context.Context, hook string) (at time.Time, is bool, err error) {
	err = q.db.View(ctx, func(ctx context.Context, c *sql.Conn) error {
		var due sql.NullInt64
		err := c.QueryRowContext(ctx, `SELECT min(due) FROM notices WHERE hook = $1 AND state = 0`, hook).Scan(&due)
		at, is = time.UnixMicro(due.Int64), due.Valid
		return err
	})
	return at, is, within(err, "look for notices of hook %q", hook)
}

// lease is who has notices from a time until another one.
type lease struct {
	holder    string
	at, until time.Time
}

// take gives at most n notices of a hook that are due to a holder.
func (q queue) take(ctx context.Context, hook string, n int, l lease) (out []delivery, err error) {
	err = q.db.Transact(ctx, func(ctx context.Context, c *sql.Conn) error {
		out, err = list(ctx, c, `SELECT `+columns+` FROM notices WHERE hook = $1 AND state = 0 AND due <= $2
			ORDER BY due, id LIMIT $3`, hook, l.at.UnixMicro(), n)
		for i := range out {
			d := &out[i]
			d.attempts++
			if err == nil {
				_, err = c.ExecContext(ctx, `UPDATE notices SET attempts = $2, due = $3, holder = $4 WHERE id = $1`,
					d.ID, d.attempts, l.until.UnixMicro(), l.holder)
			}
		}
		return err
	})
	return out, within(err, "take notices of hook %q", hook)
}

// outcome is what becomes of a notice that was taken.
type outcome struct {
	state state
	gone  bool // the row is removed
	back  bool // nothing was tried
	due   time.Time
	err   string
}

// end notes what has become of a notice that a holder has, unless that has lost it meanwhile.
func (q queue) end(ctx context.Context, d *delivery, holder string, at time.Time, o outcome) error {
	err := q.db.Transact(ctx, func(ctx context.Context, c *sql.Conn) error {
		if o.gone {
			_, err := c.ExecContext(ctx, `DELETE FROM notices WHERE id = $1 AND holder = $2 AND attempts = $3`,
				d.ID, holder, d.attempts)
			return err
		}
		attempts, since := d.attempts, d.since
		if o.back {
			attempts--
		}
		if o.state != waiting {
			since = at
		}
		_, err := c.ExecContext(ctx, `UPDATE notices SET state = $4, attempts = $5, due = $6, since = $7, error = $8,
			holder = '' WHERE id = $1 AND holder = $2 AND attempts = $3`,
			d.ID, holder, d.attempts, int(o.state), attempts, o.due.UnixMicro(), since.UnixMicro(), o.err)
		return err
	})
	return within(err, "note what has become of notice %q", d.ID)
}

// free has what others have taken be due now: nobody else is alive.
func (q queue) free(ctx context.Context, at time.Time) error {
	err := q.db.Transact(ctx, func(ctx context.Context, c *sql.Conn) error {
		_, err := c.ExecContext(ctx, `UPDATE notices SET due = $1, holder = '' WHERE state = 0 AND holder <> ''`,
			at.UnixMicro())
		return err
	})
	return within(err, "take over notices")
}

// add adds notices that no append writes, unless they are there.
func (q queue) add(ctx context.Context, all []made) error {
	if len(all) == 0 {
		return nil
	}
	err := q.db.Transact(ctx, func(ctx context.Context, c *sql.Conn) error {
		for i := range all {
			n := &all[i]
			_, err := c.ExecContext(ctx, `INSERT INTO notices
				(id, hook, event, session_id, tenant, turn_id, subject, seq, at, due, since)
				VALUES ($1, $2, $3, '', $4, '', $5, 0, $6, $7, $8) ON CONFLICT (id) DO NOTHING`,
				n.ID, n.Hook, n.Event, n.tenant, n.Subject, n.At.UnixMicro(), n.At.UnixMicro(), n.At.UnixMicro())
			if err != nil {
				return err
			}
		}
		return nil
	})
	return within(err, "add notices")
}

// spent is what each tenant that has spent something has spent from a day to another, both included.
func (q queue) spent(ctx context.Context, from, to int64) (out map[string]record.Spent, err error) {
	out = map[string]record.Spent{}
	err = q.db.View(ctx, func(ctx context.Context, c *sql.Conn) (err error) {
		rows, err := c.QueryContext(ctx, `SELECT tenant, CAST(sum(tokens) AS bigint),
			CAST(sum(cost) AS bigint) FROM spent WHERE day BETWEEN $1 AND $2 AND tenant <> '' GROUP BY tenant`,
			from, to)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rows.Close()) }()
		for rows.Next() {
			var tenant string
			var tokens, cost int64
			if err := rows.Scan(&tenant, &tokens, &cost); err != nil {
				return err
			}
			out[tenant] = record.Spent{Tokens: tokens, Cost: record.NanoUSD(cost)}
		}
		return rows.Err()
	})
	return out, within(err, "read what tenants have spent")
}

// bound holds a hook to its bounds: of more than most that wait the oldest become dead, and of more dead ones the
// oldest are removed, at most batch of each at a time. It returns how many became dead.
func (q queue) bound(ctx context.Context, hook string, most, batch int, at time.Time) (died int64, err error) {
	n, err := q.count(ctx, hook)
	if err != nil || n[waiting] <= int64(most) && n[dead] <= int64(most) {
		return 0, err
	}
	err = q.db.Transact(ctx, func(ctx context.Context, c *sql.Conn) error {
		// In SQLite as in PostgreSQL the rows behind the newest ones are the oldest.
		_, err := c.ExecContext(ctx, `DELETE FROM notices WHERE id IN (SELECT id FROM notices
			WHERE hook = $1 AND state = 1 ORDER BY since DESC, id LIMIT $2 OFFSET $3)`, hook, batch, most)
		if err != nil {
			return err
		}
		done, err := c.ExecContext(ctx, `UPDATE notices SET state = 1, since = $4, error = $5, holder = ''
			WHERE id IN (SELECT id FROM notices WHERE hook = $1 AND state = 0 AND holder = ''
				ORDER BY at DESC, id LIMIT $2 OFFSET $3)`,
			hook, batch, most, at.UnixMicro(), fmt.Sprintf("more than %d notices wait for this hook", most))
		if err == nil {
			died, err = done.RowsAffected()
		}
		return err
	})
	return died, within(err, "bound the notices of hook %q", hook)
}

// expire removes what has been as it is since before a time, whatever it is.
func (q queue) expire(ctx context.Context, before time.Time) error {
	err := q.db.Transact(ctx, func(ctx context.Context, c *sql.Conn) error {
		_, err := c.ExecContext(ctx, `DELETE FROM notices WHERE since < $1`, before.UnixMicro())
		return err
	})
	return within(err, "remove old notices")
}

// removeOf removes what no session has of a tenant.
func (q queue) removeOf(ctx context.Context, tenant string) error {
	err := q.db.Transact(ctx, func(ctx context.Context, c *sql.Conn) error {
		_, err := c.ExecContext(ctx, `DELETE FROM notices WHERE tenant = $1`, tenant)
		return err
	})
	return within(err, "remove the notices of tenant %q", tenant)
}

// count is how many notices of a hook have each state.
func (q queue) count(ctx context.Context, hook string) (n [3]int64, err error) {
	all, err := q.counts(ctx)
	if s, is := all[hook]; is {
		n = s.n
	}
	return n, err
}

// standing is how the notices of a hook are.
type standing struct {
	n      [3]int64 // by state
	oldest time.Time
}

// counts are the standings of all hooks that have notices.
func (q queue) counts(ctx context.Context) (out map[string]standing, err error) {
	out = map[string]standing{}
	err = q.db.View(ctx, func(ctx context.Context, c *sql.Conn) (err error) {
		rows, err := c.QueryContext(ctx, `SELECT hook, state, count(*), min(at) FROM notices GROUP BY hook, state`)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rows.Close()) }()
		for rows.Next() {
			var hook string
			var is int
			var n, at int64
			if err := rows.Scan(&hook, &is, &n, &at); err != nil {
				return err
			}
			s := out[hook]
			if is >= 0 && is < len(s.n) {
				s.n[is] = n
			}
			if state(is) == waiting {
				s.oldest = time.UnixMicro(at).UTC()
			}
			out[hook] = s
		}
		return rows.Err()
	})
	return out, within(err, "count notices")
}

// dead are dead letters, the newest first, of a hook or of all; before is the last one of the page before.
func (q queue) dead(ctx context.Context, hook string, before *delivery, limit int) (out []delivery, err error) {
	since, id := int64(1)<<62, ""
	if before != nil {
		since, id = before.since.UnixMicro(), before.ID
	}
	err = q.db.View(ctx, func(ctx context.Context, c *sql.Conn) error {
		out, err = list(ctx, c, `SELECT `+columns+` FROM notices WHERE state = 1 AND ($1 = '' OR hook = $2)
			AND (since < $3 OR since = $4 AND id > $5) ORDER BY since DESC, id LIMIT $6`,
			hook, hook, since, since, id, limit)
		return err
	})
	return out, within(err, "list dead letters")
}

// retry has dead letters be sent again: one of an id, or all of a hook if that is not "". It returns how many.
func (q queue) retry(ctx context.Context, id, hook string, at time.Time) (n int64, err error) {
	err = q.db.Transact(ctx, func(ctx context.Context, c *sql.Conn) error {
		done, err := c.ExecContext(ctx, `UPDATE notices SET state = 0, attempts = 0, due = $3, since = $4, error = ''
			WHERE state = 1 AND (id = $1 OR hook = $2 AND $5 <> '')`, id, hook, at.UnixMicro(), at.UnixMicro(), hook)
		if err == nil {
			n, err = done.RowsAffected()
		}
		return err
	})
	return n, within(err, "send dead letters again")
}

// within says what has failed; err may be nil.
func within(err error, format string, args ...any) error {
	if err != nil {
		err = fmt.Errorf("webhook: "+format+": %w", append(args, err)...)
	}
	return err
}
