package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

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
	r := &recoding{s: s, c: c, ctx: ctx}
	for _, table := range []func() error{r.records, r.rows, r.shared, r.keys, r.infos} {
		if err := table(); err != nil {
			return r.changed, fmt.Errorf("sqlite: recode: %w", err)
		}
	}
	return r.changed, nil
}

type recoding struct {
	s       *Store
	c       recoder
	ctx     context.Context //nolint:containedctx // of one call
	changed int64
}

// update is a change of a value.
type update struct {
	stmt func(*tx) *sql.Stmt
	args []any
}

// run makes the change and returns how many values it has changed: none if somebody else did.
func (u *update) run(t *tx) (int64, error) {
	result, err := u.stmt(t).ExecContext(context.Background(), u.args...) //nolint:sqlclosecheck // prepareTx owns it
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// write makes changes in one transaction.
func (r *recoding) write(updates []update, shared bool) error {
	if len(updates) == 0 {
		return nil
	}
	n := int64(0)
	err := r.s.write(r.ctx, 0, func(tx *tx) (refusal, fault error) {
		n = 0
		tx.removed, tx.shared = true, tx.shared || shared
		for i := range updates {
			rows, err := updates[i].run(tx)
			if err != nil {
				return nil, err
			}
			n += rows
		}
		return nil, nil
	})
	if err == nil { // else n may still be written to
		r.changed += n
	}
	return err
}

// failed says whether an error of a value ends everything.
func (r *recoding) failed(err error) error {
	if err == nil || r.ctx.Err() != nil {
		return r.ctx.Err()
	}
	return r.c.Failed(err)
}

// pages reads a table page by page: next reads the one behind the last, of at most recodeValues, and returns changes,
// and how many values it has read.
func (r *recoding) pages(shared bool, next func() (updates []update, read int, err error)) error {
	for {
		updates, read, err := next()
		if err == nil {
			err = r.write(updates, shared)
		}
		if err != nil || read == 0 {
			return err
		}
	}
}

// some runs a query, and reads rows until they hold recodeBytes.
func some[T any](
	r *recoding, scan func(*sql.Rows) (T, error), size func(*T) int, text string, args ...any,
) ([]T, error) {
	return view(r.ctx, r.s, func(ctx context.Context, rd *reads) (all []T, err error) {
		rows, err := rd.db.QueryContext(ctx, text, append(args, recodeValues)...)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, rows.Close()) }()
		for n := 0; n < recodeBytes && rows.Next(); {
			v, err := scan(rows)
			if err != nil {
				return nil, err
			}
			all = append(all, v)
			n += size(&v)
		}
		return all, rows.Err()
	})
}

// storedRecord is a record of a session with its sum.
type storedRecord struct {
	record.Record
	session string
	sum     sql.NullInt64
}

func (r *recoding) records() error {
	session, seq := "", int64(0)
	return r.pages(false, func() (updates []update, read int, err error) {
		recs, err := some(r, scanStored, func(v *storedRecord) int { return len(v.Data) },
			`SELECT session_id, seq, turn_id, kind, time, data, sum FROM records
			WHERE (session_id, seq) > (?, ?) ORDER BY session_id, seq`+atMost, session, seq)
		for i := range recs {
			v := &recs[i]
			session, seq = v.session, v.Seq
			before := v.Data
			wrong := r.record(v)
			switch {
			case wrong != nil:
				if err := r.failed(wrong); err != nil {
					return nil, 0, err
				}
			case !bytes.Equal(before, v.Data):
				updates = append(updates, update{func(t *tx) *sql.Stmt { return t.recodeRecord },
					[]any{v.Data, sumOf(session, &v.Record), session, seq, blob(before)}})
			}
		}
		return updates, len(recs), err
	})
}

// record changes a record, unless it is damaged.
func (r *recoding) record(v *storedRecord) error {
	if v.sum.Valid && v.sum.Int64 != sumOf(v.session, &v.Record) {
		return fmt.Errorf("%w: %w", store.ErrDamaged, wrongSum(v.session, &v.Record, v.sum.Int64))
	}
	return r.c.Record(r.ctx, v.session, &v.Record)
}

func scanStored(rows *sql.Rows) (r storedRecord, err error) {
	var at int64
	err = rows.Scan(&r.session, &r.Seq, &r.TurnID, &r.Kind, &at, &r.Data, &r.sum)
	r.Time = time.UnixMicro(at).UTC()
	return r, err
}

func (r *recoding) rows() error {
	var last store.Row
	return r.pages(false, func() (updates []update, read int, err error) {
		rows, err := some(r, scanRow, func(v *store.Row) int { return len(v.Data) },
			`SELECT `+rowColumns+` FROM entries
			WHERE (session_id, kind, id) > (?, ?, ?) ORDER BY session_id, kind, id`+atMost,
			last.SessionID, string(last.Kind), last.ID)
		for i := range rows {
			v := &rows[i]
			last = *v
			before := v.Data
			if err := r.c.Row(r.ctx, v); err != nil {
				if err := r.failed(err); err != nil {
					return nil, 0, err
				}
				continue
			}
			if !bytes.Equal(before, v.Data) {
				updates = append(updates, update{func(t *tx) *sql.Stmt { return t.recodeRow },
					[]any{v.Data, v.SessionID, string(v.Kind), v.ID, blob(before)}})
			}
		}
		return updates, len(rows), err
	})
}

func (r *recoding) shared() error {
	var last store.SharedValue
	return r.pages(true, func() (updates []update, read int, err error) {
		values, err := some(r, func(rows *sql.Rows) (v store.SharedValue, err error) {
			return v, rows.Scan(&v.Scope, &v.Key, (*[]byte)(&v.Value))
		}, func(v *store.SharedValue) int { return len(v.Value) },
			`SELECT scope, key, value FROM shared
			WHERE (scope, key) > (?, ?) ORDER BY scope, key`+atMost, last.Scope, last.Key)
		for i := range values {
			v := &values[i]
			last = *v
			before := []byte(v.Value)
			if err := r.c.Shared(r.ctx, v); err != nil {
				if err := r.failed(err); err != nil {
					return nil, 0, err
				}
				continue
			}
			if !bytes.Equal(before, v.Value) {
				updates = append(updates, update{func(t *tx) *sql.Stmt { return t.recodeShared },
					[]any{[]byte(v.Value), v.Scope, v.Key, blob(before)}})
			}
		}
		return updates, len(values), err
	})
}

func (r *recoding) keys() error {
	var last store.Key
	return r.pages(false, func() (updates []update, read int, err error) {
		keys, err := some(r, scanKey, func(v *store.Key) int { return len(v.Content) },
			`SELECT scope, name, content, session_id, id FROM keys
			WHERE (scope, name) > (?, ?) ORDER BY scope, name`+atMost, last.Scope, last.Name)
		for i := range keys {
			v := &keys[i]
			last = *v
			if err := r.c.Key(r.ctx, v); err != nil {
				if err := r.failed(err); err != nil {
					return nil, 0, err
				}
				continue
			}
			if last.Content != v.Content {
				updates = append(updates, update{func(t *tx) *sql.Stmt { return t.recodeKey },
					[]any{v.Content, v.Scope, v.Name, last.Content}})
			}
		}
		return updates, len(keys), err
	})
}

func (r *recoding) infos() error {
	last := ""
	return r.pages(false, func() (updates []update, read int, err error) {
		infos, err := some(r, func(rows *sql.Rows) (i store.Info, err error) {
			return i, rows.Scan(&i.ID, &i.Metadata)
		}, func(i *store.Info) int { return len(i.Metadata) },
			`SELECT id, metadata FROM sessions WHERE metadata <> '' AND id > ? ORDER BY id`+atMost, last)
		for i := range infos {
			v := &infos[i]
			last = v.ID
			before := v.Metadata
			if err := r.c.Info(r.ctx, v); err != nil {
				if err := r.failed(err); err != nil {
					return nil, 0, err
				}
				continue
			}
			if before != v.Metadata {
				updates = append(updates, update{func(t *tx) *sql.Stmt { return t.recodeInfo },
					[]any{v.Metadata, v.ID, before}})
			}
		}
		return updates, len(infos), err
	})
}
