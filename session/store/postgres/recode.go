package postgres

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

const (
	// recodeValues and recodeBytes are how much Recode reads and writes at once, so that appends wait for
	// milliseconds.
	recodeValues = 64
	recodeBytes  = 256 << 10
)

// recoder changes values to another form that says the same. A method changes nothing for a value that has that form.
// After an error the value stays as it is.
type recoder = interface {
	Record(ctx context.Context, sessionID string, r *record.Record) error
	Row(ctx context.Context, r *store.Row) error
	Shared(ctx context.Context, v *store.SharedValue) error
	Key(ctx context.Context, k *store.Key) error
	// Info changes the metadata of a session, which has some; of i only that and ID are set.
	Info(ctx context.Context, i *store.Info) error
	// Failed is called with each error of the other methods; what it returns ends Recode.
	Failed(err error) error
}

// Recode gives each value that the database has to c, in no order: the data of records and rows, shared values, the
// contents of keys and the metadata of sessions, also those that are written meanwhile. A value that somebody else
// changes at the same time stays as that one wrote it. What was there before is removed as by Delete. It may be
// repeated.
func (s *Store) Recode(ctx context.Context, c recoder) (changed int64, err error) {
	r := &recoding{s: s, c: c}
	for _, table := range []func(context.Context) error{r.records, r.rows, r.shared, r.keys, r.infos} {
		if err := table(ctx); err != nil {
			return r.changed, fmt.Errorf("postgres: recode: %w", err)
		}
	}
	return r.changed, nil
}

type recoding struct {
	s       *Store
	c       recoder
	changed int64
}

// recoded is a value of a row: what it is, the other form that it gets, and the places of the row.
type recoded struct {
	before []byte
	change func() ([]byte, error)
	place  []any
}

// recodedTable is a table with values. Its texts are of the arguments that a place has: read selects rows behind a
// place, update has the new value before the place and the old one behind it.
type recodedTable struct {
	read, update string
	first        []any // a place before all others
	scan         func(pgx.Rows) (recoded, error)
}

// pages changes the values of a table, page by page.
func (r *recoding) pages(ctx context.Context, t *recodedTable) error {
	for last := t.first; ; {
		page, err := view(ctx, r.s, func(ctx context.Context, conn *pgx.Conn) (page []recoded, err error) {
			rows, err := conn.Query(ctx, fmt.Sprintf("%s LIMIT %d", t.read, recodeValues), last...)
			if err != nil {
				return nil, err
			}
			defer rows.Close()
			for size := 0; size < recodeBytes && rows.Next(); {
				v, err := t.scan(rows)
				if err != nil {
					return nil, err
				}
				page, size = append(page, v), size+len(v.before)
			}
			rows.Close()
			return page, rows.Err()
		})
		if err != nil || len(page) == 0 {
			return err
		}
		last = page[len(page)-1].place
		if err := r.page(ctx, t.update, page); err != nil {
			return err
		}
	}
}

// page changes values in one transaction.
func (r *recoding) page(ctx context.Context, update string, page []recoded) error {
	var changes [][]any
	for i := range page {
		v := &page[i]
		now, err := v.change()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			if err := r.c.Failed(err); err != nil {
				return err
			}
		case !bytes.Equal(now, v.before):
			changes = append(changes, append(append([]any{blob(now)}, v.place...), blob(v.before)))
		}
	}
	if len(changes) == 0 {
		return nil
	}
	n := int64(0)
	err := r.s.write(ctx, func(t *tx) error {
		n = 0
		batch := &pgx.Batch{}
		for _, args := range changes {
			batch.Queue(update, args...)
		}
		results := t.SendBatch(ctx, batch)
		for range changes {
			tag, err := results.Exec()
			if err != nil {
				_ = results.Close() // the error is that of Exec
				return err
			}
			n += tag.RowsAffected()
		}
		return results.Close()
	})
	if err == nil {
		r.changed += n
	}
	return err
}

func (r *recoding) records(ctx context.Context) error {
	return r.pages(ctx, &recodedTable{
		read: `SELECT session_id, seq, turn_id, kind, time, data FROM records
			WHERE (session_id, seq) > ($1, $2) ORDER BY session_id, seq`,
		update: `UPDATE records SET data = $1 WHERE session_id = $2 AND seq = $3 AND data = $4`,
		first:  []any{"", int64(0)},
		scan: func(rows pgx.Rows) (recoded, error) {
			var session string
			var v record.Record
			var at int64
			err := rows.Scan(&session, &v.Seq, &v.TurnID, &v.Kind, &at, &v.Data)
			v.Time = time.UnixMicro(at).UTC()
			return recoded{v.Data, func() ([]byte, error) {
				err := r.c.Record(ctx, session, &v)
				return v.Data, err
			}, []any{session, v.Seq}}, err
		},
	})
}

func (r *recoding) rows(ctx context.Context) error {
	return r.pages(ctx, &recodedTable{
		read: `SELECT ` + rowColumns + ` FROM entries
			WHERE (session_id, kind, id) > ($1, $2, $3) ORDER BY session_id, kind, id`,
		update: `UPDATE entries SET data = $1 WHERE session_id = $2 AND kind = $3 AND id = $4 AND data = $5`,
		first:  []any{"", "", ""},
		scan: func(rows pgx.Rows) (recoded, error) {
			v, err := scanRow(rows)
			return recoded{v.Data, func() ([]byte, error) {
				err := r.c.Row(ctx, &v)
				return v.Data, err
			}, []any{v.SessionID, string(v.Kind), v.ID}}, err
		},
	})
}

func (r *recoding) shared(ctx context.Context) error {
	return r.pages(ctx, &recodedTable{
		read:   `SELECT scope, key, value FROM shared WHERE (scope, key) > ($1, $2) ORDER BY scope, key`,
		update: `UPDATE shared SET value = $1 WHERE scope = $2 AND key = $3 AND value = $4`,
		first:  []any{"", ""},
		scan: func(rows pgx.Rows) (recoded, error) {
			v := store.SharedValue{}
			var value []byte
			err := rows.Scan(&v.Scope, &v.Key, &value)
			v.Value = json.RawMessage(value)
			return recoded{value, func() ([]byte, error) {
				err := r.c.Shared(ctx, &v)
				return v.Value, err
			}, []any{v.Scope, v.Key}}, err
		},
	})
}

func (r *recoding) keys(ctx context.Context) error {
	return r.pages(ctx, &recodedTable{
		read: `SELECT scope, name, content, session_id, id FROM keys
			WHERE (scope, name) > ($1, $2) ORDER BY scope, name`,
		update: `UPDATE keys SET content = convert_from($1, 'UTF8')
			WHERE scope = $2 AND name = $3 AND content = convert_from($4, 'UTF8')`,
		first: []any{"", ""},
		scan: func(rows pgx.Rows) (recoded, error) {
			k := store.Key{}
			err := rows.Scan(&k.Scope, &k.Name, &k.Content, &k.SessionID, &k.ID)
			return recoded{[]byte(k.Content), func() ([]byte, error) {
				err := r.c.Key(ctx, &k)
				return []byte(k.Content), err
			}, []any{k.Scope, k.Name}}, err
		},
	})
}

func (r *recoding) infos(ctx context.Context) error {
	return r.pages(ctx, &recodedTable{
		read: `SELECT id, metadata FROM sessions WHERE metadata <> '' AND id > $1 ORDER BY id`,
		update: `UPDATE sessions SET metadata = convert_from($1, 'UTF8')
			WHERE id = $2 AND metadata = convert_from($3, 'UTF8')`,
		first: []any{""},
		scan: func(rows pgx.Rows) (recoded, error) {
			i := store.Info{}
			err := rows.Scan(&i.ID, &i.Metadata)
			return recoded{[]byte(i.Metadata), func() ([]byte, error) {
				err := r.c.Info(ctx, &i)
				return []byte(i.Metadata), err
			}, []any{i.ID}}, err
		},
	})
}
