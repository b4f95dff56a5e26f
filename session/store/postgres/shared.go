package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/internal/rules"
)

// Shared returns all keys of a scope. The caller owns the result.
func (s *Store) Shared(ctx context.Context, scope string) (map[string]json.RawMessage, error) {
	values, err := view(ctx, s, func(ctx context.Context, c *pgx.Conn) ([]store.SharedValue, error) {
		rows, err := c.Query(ctx, `SELECT key, value FROM shared WHERE scope = $1`, scope)
		return collect(rows, err, func(row pgx.CollectableRow) (v store.SharedValue, err error) {
			return v, row.Scan(&v.Key, (*[]byte)(&v.Value))
		})
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: shared values of %q: %w", scope, err)
	}
	m := make(map[string]json.RawMessage, len(values))
	for _, v := range values {
		m[v.Key] = v.Value
	}
	return m, nil
}

// scopesQuery steps from one scope to the next: it reads as many rows as it returns.
const scopesQuery = `WITH RECURSIVE s AS (
		(SELECT scope FROM shared WHERE scope > $1 ORDER BY scope LIMIT 1)
		UNION ALL
		SELECT (SELECT scope FROM shared WHERE scope > s.scope ORDER BY scope LIMIT 1) FROM s WHERE s.scope IS NOT NULL
	) SELECT scope FROM s WHERE scope IS NOT NULL LIMIT $2`

// Scopes returns the names of scopes; see store.Store.
func (s *Store) Scopes(ctx context.Context, after string, limit int) ([]string, error) {
	err := rules.CheckLimit(limit)
	var names []string
	if err == nil {
		names, err = view(ctx, s, func(ctx context.Context, c *pgx.Conn) ([]string, error) {
			rows, err := c.Query(ctx, scopesQuery, after, limit)
			return collect(rows, err, pgx.RowTo[string])
		})
	}
	if err != nil {
		return nil, fmt.Errorf("postgres: scopes of shared values: %w", err)
	}
	return names, nil
}

// SetShared writes shared values outside an append; see store.Store.
func (s *Store) SetShared(ctx context.Context, values []store.SharedValue) error {
	err := rules.CheckShared(values)
	if err == nil {
		err = s.write(ctx, func(t *tx) error {
			b := &pgx.Batch{}
			share(b, values)
			return t.all(b)
		})
	}
	if err != nil {
		return fmt.Errorf("postgres: set shared values: %w", err)
	}
	return nil
}

// share writes shared values, and removes those that have none, in one order: transactions that write the same ones do
// not wait for each other in a circle. The last value of a key stands.
func share(b *pgx.Batch, values []store.SharedValue) {
	values = slices.SortedStableFunc(slices.Values(values), func(a, b store.SharedValue) int {
		return cmp.Or(cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Key, b.Key))
	})
	for i := range values {
		v := &values[i]
		if v.Value == nil {
			b.Queue(`DELETE FROM shared WHERE scope = $1 AND key = $2`, v.Scope, v.Key)
		} else {
			b.Queue(`INSERT INTO shared (scope, key, value) VALUES ($1, $2, $3)
				ON CONFLICT (scope, key) DO UPDATE SET value = excluded.value`, v.Scope, v.Key, []byte(v.Value))
		}
	}
}

// Spent returns what a tenant has spent from a day to another; see store.Store.
func (s *Store) Spent(ctx context.Context, tenant string, from, to int64) (record.Spent, error) {
	out, err := view(ctx, s, func(ctx context.Context, c *pgx.Conn) (out record.Spent, err error) {
		var cost int64
		err = c.QueryRow(ctx, `SELECT coalesce(sum(tokens), 0)::bigint, coalesce(sum(cost), 0)::bigint
			FROM spent WHERE tenant = $1 AND day BETWEEN $2 AND $3`, tenant, from, to).Scan(&out.Tokens, &cost)
		out.Cost = record.NanoUSD(cost)
		return out, err
	})
	if err != nil {
		return record.Spent{}, fmt.Errorf("postgres: spending of tenant %q: %w", tenant, err)
	}
	return out, nil
}
