package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/apzuk3/agentd/session/internal/tenant"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/internal/rules"
)

const rowColumns = `kind, session_id, id, turn_id, seq, created_at, status, data`

// rowOrder is the order of lists.
const rowOrder = ` ORDER BY created_at DESC, session_id DESC, seq DESC, id DESC`

const rowQuery = `SELECT ` + rowColumns + ` FROM entries WHERE session_id = $1 AND kind = $2 AND id = $3`

const keyQuery = `SELECT scope, name, content, session_id, id FROM keys WHERE scope = $1 AND name = $2`

// Row returns one row, or store.ErrNotFound. The caller owns the result.
func (s *Store) Row(ctx context.Context, kind store.RowKind, sessionID, id string) (store.Row, error) {
	row, err := view(ctx, s, func(ctx context.Context, c *pgx.Conn) (store.Row, error) {
		rows, err := c.Query(ctx, rowQuery, sessionID, string(kind), id)
		return one(rows, err, scanRow, store.ErrNotFound)
	})
	if err != nil {
		return store.Row{}, fmt.Errorf("postgres: %s %q of session %q: %w", kind, id, sessionID, err)
	}
	return row, nil
}

// Rows returns at most q.Limit rows, the newest first; see store.Store. The caller owns the result.
func (s *Store) Rows(ctx context.Context, q store.RowQuery) ([]store.Row, error) {
	err := rules.CheckRowQuery(&q)
	var rows []store.Row
	if err == nil {
		text, args := rowsQuery(&q)
		rows, err = view(ctx, s, func(ctx context.Context, c *pgx.Conn) ([]store.Row, error) {
			rows, err := c.Query(ctx, text, args...)
			return collect(rows, err, scanRow)
		})
	}
	if err != nil {
		return nil, fmt.Errorf("postgres: rows of kind %q: %w", q.Kind, err)
	}
	return rows, nil
}

// rowsQuery reads rows along an index that has them in the order of the result. Rows of several statuses are as many
// lists, each in order, which the server merges. It ends the page at store.ReadBytes.
func rowsQuery(q *store.RowQuery) (text string, args []any) {
	statuses := slices.Compact(slices.Sorted(slices.Values(q.Statuses)))
	f := filter{}
	var parts []string
	part := func(condition string, values ...any) {
		f.conditions = nil
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
		parts = append(parts, "SELECT "+rowColumns+" FROM entries"+f.where())
	}
	switch {
	case q.SessionID != "" && len(statuses) > 0:
		part("session_id = ? AND status = ANY(?::text[])", q.SessionID, statuses)
	case q.SessionID != "":
		part("session_id = ?", q.SessionID)
	case len(statuses) > 0:
		for _, status := range statuses {
			part("status = ?", status)
		}
	default:
		part("")
	}
	text = "SELECT " + rowColumns + " FROM (SELECT *, sum(octet_length(data)) OVER (" + strings.TrimSpace(rowOrder) +
		" ROWS UNBOUNDED PRECEDING) - octet_length(data) AS before FROM (" +
		strings.Join(parts, " UNION ALL ") + rowOrder + " LIMIT " + f.arg(q.Limit) +
		") AS r) AS p WHERE before < " + f.arg(store.ReadBytes) + rowOrder
	return text, f.args
}

func scanRow(row pgx.CollectableRow) (r store.Row, err error) {
	var created int64
	err = row.Scan(&r.Kind, &r.SessionID, &r.ID, &r.TurnID, &r.Seq, &created, &r.Status, &r.Data)
	r.CreatedAt = time.UnixMicro(created).UTC()
	return r, err
}

// Key returns a key with what was created under it, or store.ErrNotFound.
func (s *Store) Key(ctx context.Context, scope, name string) (store.Key, error) {
	key, err := view(ctx, s, func(ctx context.Context, c *pgx.Conn) (store.Key, error) {
		rows, err := c.Query(ctx, keyQuery, scope, name)
		return one(rows, err, scanKey, store.ErrNotFound)
	})
	if err != nil {
		return store.Key{}, fmt.Errorf("postgres: key %q of %q: %w", name, scope, err)
	}
	return key, nil
}

func scanKey(row pgx.CollectableRow) (k store.Key, err error) {
	err = row.Scan(&k.Scope, &k.Name, &k.Content, &k.SessionID, &k.ID)
	return k, err
}

// keyOf returns the stored key with the scope and the name of k, or nil.
func (t *tx) keyOf(k *store.Key) (*store.Key, error) {
	rows, err := t.Query(t.ctx, keyQuery, k.Scope, k.Name)
	key, err := one(rows, err, scanKey, store.ErrNotFound)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &key, nil
}

// keyIsFree refuses a key that exists; k may be nil.
func (t *tx) keyIsFree(k *store.Key) error {
	if k == nil {
		return nil
	}
	other, err := t.keyOf(k)
	if other == nil || err != nil {
		return err
	}
	return taken(other)
}

func taken(k *store.Key) error {
	return answered{fmt.Errorf("%w: %q names %q of session %q", store.ErrKeyTaken, k.Name, k.ID, k.SessionID)}
}

// key writes a key that was free when the transaction looked; k may be nil.
func (t *tx) key(k *store.Key) error {
	if k == nil {
		return nil
	}
	tag, err := t.Exec(t.ctx, `INSERT INTO keys (scope, name, content, session_id, id) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (scope, name) DO NOTHING`, k.Scope, k.Name, k.Content, k.SessionID, k.ID)
	if err == nil && tag.RowsAffected() == 0 {
		err = errRaced
	}
	return err
}
