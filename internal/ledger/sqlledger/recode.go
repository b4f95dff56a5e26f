package sqlledger

import (
	"bytes"
	"context"
	"database/sql"
	"errors"

	"github.com/apzuk3/agentd/internal/ledger"
)

const (
	// recodeValues and recodeBytes are how much Recode reads and writes at once, so that others wait for milliseconds.
	recodeValues = 64
	recodeBytes  = 256 << 10
)

// Eraser is a database whose bytes are gone from its files soon after they are replaced.
type Eraser interface {
	// Erase is Transact for an f that removes what must not be found in the files of the database either.
	Erase(ctx context.Context, f func(context.Context, *sql.Conn) error) error
	// View calls f with a connection that reads.
	View(ctx context.Context, f func(context.Context, *sql.Conn) error) error
}

// Recode gives the content of each version of an agent, and the data of each object, of all tenants, to c, also those
// that are written meanwhile. c may put another form of it in its place that says the same. A value that somebody else
// changes at the same time stays as that one wrote it, and so does one with an error, which is for c.Failed: what that
// returns ends Recode. It may be repeated.
func Recode(ctx context.Context, db Eraser, c interface {
	Agent(ctx context.Context, a *ledger.Agent) error
	Object(ctx context.Context, o *ledger.Object) error
	Failed(err error) error
},
) (changed int64, err error) {
	r := &recoding{db: db, failed: c.Failed}
	last := ledger.Agent{}
	err = r.pages(ctx, func(ctx context.Context) (values []recoded, err error) {
		err = r.some(ctx, `SELECT `+agentColumns+agentTables+`
			WHERE (v.tenant, v.name, v.version) > ($1, $2, $3) ORDER BY v.tenant, v.name, v.version LIMIT $4`,
			[]any{last.Tenant, last.Name, last.Version, recodeValues}, func(rows *sql.Rows) (int, error) {
				a, err := scanAgent(rows)
				values, last = append(values, recoded{
					value: a.Content, change: func() ([]byte, error) { err := c.Agent(ctx, &a); return a.Content, err },
					text: `UPDATE agent_versions SET content = $1
						WHERE tenant = $2 AND name = $3 AND version = $4 AND content = $5`,
					args: []any{a.Tenant, a.Name, a.Version},
				}), a
				return len(a.Content), err
			})
		return values, err
	})
	if err != nil {
		return r.changed, within(err, "recode agents")
	}
	at := ledger.Object{}
	err = r.pages(ctx, func(ctx context.Context) (values []recoded, err error) {
		err = r.some(ctx, `SELECT `+objectColumns+` FROM objects
			WHERE (tenant, face, kind, id) > ($1, $2, $3, $4) ORDER BY tenant, face, kind, id LIMIT $5`,
			[]any{at.Tenant, at.Face, at.Kind, at.ID, recodeValues}, func(rows *sql.Rows) (int, error) {
				o, err := scanObject(rows)
				values, at = append(values, recoded{
					value: o.Data, change: func() ([]byte, error) { err := c.Object(ctx, &o); return o.Data, err },
					text: `UPDATE objects SET data = $1
						WHERE tenant = $2 AND face = $3 AND kind = $4 AND id = $5 AND data = $6`,
					args: []any{o.Tenant, o.Face, o.Kind, o.ID},
				}), o
				return len(o.Data), err
			})
		return values, err
	})
	return r.changed, within(err, "recode objects")
}

type recoding struct {
	db      Eraser
	failed  func(error) error
	changed int64
}

// recoded is a value, what changes it, and the statement that writes it, with the new value before args and the old
// one behind them.
type recoded struct {
	value  []byte
	change func() ([]byte, error)
	text   string
	args   []any
}

// some runs a query, and has scan take rows until they hold recodeBytes.
func (r *recoding) some(
	ctx context.Context, text string, args []any, scan func(*sql.Rows) (bytes int, err error),
) error {
	return r.db.View(ctx, func(ctx context.Context, c *sql.Conn) (err error) {
		rows, err := c.QueryContext(ctx, text, args...)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rows.Close()) }()
		for size := 0; size < recodeBytes && rows.Next(); {
			n, err := scan(rows)
			if err != nil {
				return err
			}
			size += n
		}
		return rows.Err()
	})
}

// pages changes values page by page: next reads the page behind the last one.
func (r *recoding) pages(ctx context.Context, next func(context.Context) ([]recoded, error)) error {
	for {
		values, err := next(ctx)
		if err != nil || len(values) == 0 {
			return err
		}
		var changes []recoded
		for _, v := range values {
			now, err := v.change()
			switch {
			case err != nil && ctx.Err() != nil:
				return context.Cause(ctx)
			case err != nil:
				if err := r.failed(err); err != nil {
					return err
				}
			case !bytes.Equal(now, v.value):
				v.args = append(append([]any{now}, v.args...), append([]byte{}, v.value...)) // never NULL
				changes = append(changes, v)
			}
		}
		if err := r.write(ctx, changes); err != nil {
			return err
		}
	}
}

// write makes changes in one transaction.
func (r *recoding) write(ctx context.Context, changes []recoded) error {
	if len(changes) == 0 {
		return nil
	}
	n := int64(0)
	err := r.db.Erase(ctx, func(ctx context.Context, c *sql.Conn) error {
		n = 0
		for i := range changes {
			result, err := c.ExecContext(ctx, changes[i].text, changes[i].args...)
			if err != nil {
				return err
			}
			rows, err := result.RowsAffected()
			if err != nil {
				return err
			}
			n += rows
		}
		return nil
	})
	if err == nil {
		r.changed += n
	}
	return err
}
