package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/apzuk3/agentd/session/internal/tenant"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/internal/rules"
)

const rowColumns = `kind, session_id, id, turn_id, seq, created_at, status, data`

const rowQuery = `SELECT ` + rowColumns + ` FROM entries WHERE session_id = ? AND kind = ? AND id = ?`

const keyQuery = `SELECT scope, name, content, session_id, id FROM keys WHERE scope = ? AND name = ?`

// Row returns one row, or store.ErrNotFound. The caller owns the result.
func (s *Store) Row(ctx context.Context, kind store.RowKind, sessionID, id string) (store.Row, error) {
	row, err := view(ctx, s, func(ctx context.Context, r *reads) (store.Row, error) {
		return one(ctx, r.getRow, scanRow, store.ErrNotFound, sessionID, string(kind), id)
	})
	if err != nil {
		return store.Row{}, fmt.Errorf("sqlite: %s %q of session %q: %w", kind, id, sessionID, err)
	}
	return row, nil
}

// Rows returns at most q.Limit rows, the newest first; see store.Store. The caller owns the result. One
// condition selects the index that is read: the session if it is set, else the statuses, else the time. The
// other conditions filter the rows that this index returns, so each row that they drop costs a look.
func (s *Store) Rows(ctx context.Context, q store.RowQuery) ([]store.Row, error) {
	err := rules.CheckRowQuery(&q)
	var rows []store.Row
	if err == nil {
		text, args := rowsQuery(&q)
		rows, err = view(ctx, s, func(ctx context.Context, r *reads) ([]store.Row, error) {
			return someRows(ctx, r, text, args)
		})
	}
	if err != nil {
		return nil, fmt.Errorf("sqlite: rows of kind %q: %w", q.Kind, err)
	}
	return rows, nil
}

// Key returns a key with what was created under it, or store.ErrNotFound.
func (s *Store) Key(ctx context.Context, scope, name string) (store.Key, error) {
	key, err := view(ctx, s, func(ctx context.Context, r *reads) (store.Key, error) {
		return one(ctx, r.getKey, scanKey, store.ErrNotFound, scope, name)
	})
	if err != nil {
		return store.Key{}, fmt.Errorf("sqlite: key %q of %q: %w", name, scope, err)
	}
	return key, nil
}

// Unindexed returns the heads of at most limit sessions that have no index yet; see store.Store.
func (s *Store) Unindexed(ctx context.Context, after string, limit int) ([]store.Head, error) {
	heads, err := view(ctx, s, func(ctx context.Context, r *reads) ([]store.Head, error) {
		if err := rules.CheckLimit(limit); err != nil {
			return nil, err
		}
		return query(ctx, r.getUnindexed, scanHead, after, limit)
	})
	if err != nil {
		return nil, fmt.Errorf("sqlite: sessions without an index after %q: %w", after, err)
	}
	return heads, nil
}

// Index writes the rows, the usage and the last turn of a session; see store.Store. It reads SessionID,
// Rows, Usage, LastTurn and LastStatus of the batch.
func (s *Store) Index(ctx context.Context, b store.Batch, lastSeq int64) error {
	err := rules.CheckIndex(&b)
	var usage string
	if err == nil {
		usage, err = rules.UsageText(b.Usage)
	}
	if err == nil {
		rules.Own(&b)
		err = s.write(ctx, rules.Size(&b), func(tx *tx) (error, error) { return tx.index(&b, usage, lastSeq) })
	}
	if err != nil {
		return fmt.Errorf("sqlite: index session %q: %w", b.SessionID, err)
	}
	return nil
}

// rowsQuery names the index that has the rows in the order of the result. Rows of several statuses are as
// many lists, each in order, which SQLite merges.
func rowsQuery(q *store.RowQuery) (text string, args []any) {
	statuses := slices.Compact(slices.Sorted(slices.Values(q.Statuses)))
	var parts []string
	part := func(index, condition string, values ...any) {
		f := filter{}
		f.add("kind = ?", string(q.Kind))
		if condition != "" {
			f.add(condition, values...)
		}
		if q.Tenant != nil {
			f.add("tenant = ?", tenant.Prefix(*q.Tenant))
		}
		if q.TurnID != "" {
			f.add("turn_id = ?", q.TurnID)
		}
		f.times("created_at", q.CreatedFrom, q.CreatedBefore)
		if a := q.After; a != nil {
			f.add("(created_at, session_id, seq, id) < (?, ?, ?, ?)", a.CreatedAt.UnixMicro(), a.SessionID, a.Seq, a.ID)
		}
		parts = append(parts, "SELECT "+rowColumns+" FROM entries INDEXED BY "+index+f.where())
		args = append(args, f.args...)
	}
	switch {
	case q.SessionID != "" && len(statuses) > 0:
		in := "session_id = ? AND status IN (?" + strings.Repeat(", ?", len(statuses)-1) + ")"
		part("entries_of_session", in, append([]any{q.SessionID}, anys(statuses)...)...)
	case q.SessionID != "":
		part("entries_of_session", "session_id = ?", q.SessionID)
	case len(statuses) > 0:
		for _, status := range statuses {
			part("entries_by_status", "status = ?", status)
		}
	default:
		part("entries_by_time", "")
	}
	text = strings.Join(parts, " UNION ALL ") + " ORDER BY created_at DESC, session_id DESC, seq DESC, id DESC" + atMost
	return text, append(args, q.Limit)
}

func scanRow(rows *sql.Rows) (r store.Row, err error) {
	var created int64
	err = rows.Scan(&r.Kind, &r.SessionID, &r.ID, &r.TurnID, &r.Seq, &created, &r.Status, &r.Data)
	r.CreatedAt = time.UnixMicro(created).UTC()
	return r, err
}

// someRows reads rows until their data holds store.ReadBytes.
func someRows(ctx context.Context, r *reads, text string, args []any) (all []store.Row, err error) {
	rows, err := r.db.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for size := 0; size < store.ReadBytes && rows.Next(); {
		row, err := scanRow(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, row)
		size += len(row.Data)
	}
	return all, rows.Err()
}

func scanKey(rows *sql.Rows) (k store.Key, err error) {
	err = rows.Scan(&k.Scope, &k.Name, &k.Content, &k.SessionID, &k.ID)
	return k, err
}
