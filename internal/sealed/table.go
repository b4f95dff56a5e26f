package sealed

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// DB is a database with the tables of data keys.
type DB interface {
	// Transact calls f with a connection in a transaction, which it commits unless f fails.
	Transact(ctx context.Context, f func(context.Context, *sql.Conn) error) error
	// View calls f with a connection that reads.
	View(ctx context.Context, f func(context.Context, *sql.Conn) error) error
}

// table keeps data keys, wrapped. Its statements are those that SQLite and PostgreSQL have in common.
type table struct{ db DB }

// wrappedKey is a row of the table.
type wrappedKey struct {
	id             uint32
	master         string
	wrapped, proof []byte
	used           int64
	created        time.Time
}

// all returns the keys in the order in which they were made.
func (t table) all(ctx context.Context) (keys []wrappedKey, err error) {
	err = t.db.View(ctx, func(ctx context.Context, c *sql.Conn) (err error) {
		keys = nil
		rows, err := c.QueryContext(ctx, `SELECT id, master, wrapped, proof FROM data_keys ORDER BY id`)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rows.Close()) }()
		for rows.Next() {
			var k wrappedKey
			if err := rows.Scan(&k.id, &k.master, &k.wrapped, &k.proof); err != nil {
				return err
			}
			keys = append(keys, k)
		}
		return rows.Err()
	})
	return keys, within(err, "read the data keys")
}

// last is the number of the key that was made last, 0 for none.
func (t table) last(ctx context.Context) (id uint32, err error) {
	err = t.db.View(ctx, func(ctx context.Context, c *sql.Conn) error {
		return c.QueryRowContext(ctx, `SELECT coalesce(max(id), 0) FROM data_keys`).Scan(&id)
	})
	return id, within(err, "look for a data key")
}

// use counts n values more of a key, unless these are more than most; ok is false then.
func (t table) use(ctx context.Context, id uint32, n, most int64) (ok bool, err error) {
	err = t.db.Transact(ctx, func(ctx context.Context, c *sql.Conn) error {
		result, err := c.ExecContext(ctx,
			`UPDATE data_keys SET used = used + $1 WHERE id = $2 AND used + $1 <= $3`, n, id, most)
		if err != nil {
			return err
		}
		changed, err := result.RowsAffected()
		ok = changed > 0
		return err
	})
	return ok && err == nil, within(err, "count the values of data key %d", id)
}

// add adds a key. prove returns the proof of the key, whose number it is told.
func (t table) add(ctx context.Context, w *wrappedKey, prove func(id int64) ([]byte, error)) error {
	err := t.db.Transact(ctx, func(ctx context.Context, c *sql.Conn) error {
		var id int64
		err := c.QueryRowContext(ctx, `INSERT INTO data_keys (master, wrapped, proof, used, created_at)
			VALUES ($1, $2, $3, $4, $5) RETURNING id`,
			w.master, w.wrapped, []byte{}, w.used, w.created.UnixNano()).Scan(&id)
		if err != nil {
			return err
		}
		proof, err := prove(id)
		if err == nil {
			_, err = c.ExecContext(ctx, `UPDATE data_keys SET proof = $1 WHERE id = $2`, proof, id)
		}
		return err
	})
	return within(err, "add a data key")
}

// rewrap replaces what the keys are wrapped to, and by whom.
func (t table) rewrap(ctx context.Context, keys []wrappedKey) error {
	err := t.db.Transact(ctx, func(ctx context.Context, c *sql.Conn) error {
		for i := range keys {
			k := &keys[i]
			_, err := c.ExecContext(ctx, `UPDATE data_keys SET master = $1, wrapped = $2 WHERE id = $3`,
				k.master, k.wrapped, k.id)
			if err != nil {
				return err
			}
		}
		return nil
	})
	return within(err, "wrap %d data keys anew", len(keys))
}

// removeBefore removes the keys that were made before one.
func (t table) removeBefore(ctx context.Context, id uint32) (n int64, err error) {
	err = t.db.Transact(ctx, func(ctx context.Context, c *sql.Conn) error {
		result, err := c.ExecContext(ctx, `DELETE FROM data_keys WHERE id < $1`, id)
		if err == nil {
			n, err = result.RowsAffected()
		}
		return err
	})
	return n, within(err, "remove old data keys")
}

// within says what has failed; err may be nil.
func within(err error, format string, args ...any) error {
	if err != nil {
		err = fmt.Errorf(format+": %w", append(args, err)...)
	}
	return err
}
