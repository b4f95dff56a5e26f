package cluster

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/apzuk3/agentd/internal/share"
	"github.com/apzuk3/agentd/session/record"
)

var _ share.Budgets = (*Member)(nil)

// errUnknown is the error of what a replica asks for whose row is gone. It joins anew.
var errUnknown = errors.New("cluster: the others took this replica for dead; it joins anew")

// budgetClass is the first key of the advisory lock of a tenant's budget; the second one is a hash of the tenant.
const budgetClass = 0x61676e75

// sliceLock has those wait that set slices of the same tenant. The statement behind it sees what they have committed,
// and all spending that was committed before.
const sliceLock = `SELECT pg_advisory_xact_lock($1::int, hashtext($2))`

// sliceQuery sets a slice. A NULL is no bound, and least ignores it; free is what the slice may be.
const sliceQuery = `WITH day AS (
		SELECT coalesce(max(tokens), 0) AS tokens, coalesce(max(cost), 0) AS cost FROM spent
		WHERE tenant = $1 AND day >= $3),
	month AS (
		SELECT coalesce(sum(tokens), 0)::bigint AS tokens, coalesce(sum(cost), 0)::bigint AS cost FROM spent
		WHERE tenant = $1 AND day >= $4),
	others AS (
		SELECT coalesce(sum(tokens), 0)::bigint AS tokens, coalesce(sum(cost), 0)::bigint AS cost FROM budget_slices
		WHERE tenant = $1 AND replica <> $2),
	rest AS (
		SELECT least($5::bigint - day.tokens, $7::bigint - month.tokens) AS tokens,
			least($6::bigint - day.cost, $8::bigint - month.cost) AS cost FROM day, month),
	free AS (
		SELECT coalesce(rest.tokens - others.tokens, 1::bigint << 53) AS tokens,
			coalesce(rest.cost - others.cost, 1::bigint << 53) AS cost,
			coalesce(rest.tokens >= $11::bigint, true) AND coalesce(rest.cost >= $12::bigint, true) AS alone
		FROM rest, others),
	granted AS (
		SELECT free.tokens >= $9::bigint + $11 AND free.cost >= $10::bigint + $12 AS granted FROM free),
	slice AS (
		INSERT INTO budget_slices (tenant, replica, tokens, cost, waits)
		SELECT $1, $2,
			CASE WHEN granted THEN $9 + $11 + least($13::bigint, (free.tokens - $9 - $11) / 4) ELSE $9 END,
			CASE WHEN granted THEN $10 + $12 + least($14::bigint, (free.cost - $10 - $12) / 4) ELSE $10 END,
			NOT granted AND alone AND ($11 > 0 OR $12 > 0)
		FROM free, granted
		ON CONFLICT (tenant, replica) DO UPDATE
		SET tokens = excluded.tokens, cost = excluded.cost, waits = excluded.waits
		RETURNING tokens, cost, waits)
	SELECT slice.tokens, slice.cost, slice.waits, granted, day.tokens, day.cost, month.tokens, month.cost
	FROM slice, granted, day, month`

// Slice implements share.Budgets.
func (m *Member) Slice(ctx context.Context, ask share.Ask) (got share.Slice, err error) {
	me, _, err := m.mayClaim()
	if err != nil {
		return got, err
	}
	var none record.Spent
	if ask.Held == none && ask.Need == none {
		_, err = m.cfg.DB.Exec(ctx, `DELETE FROM budget_slices WHERE tenant = $1 AND replica = $2`, ask.Tenant, me)
		got.Granted = true
		return got, within(err, "give back a slice of the budget of tenant %q", ask.Tenant)
	}
	var batch pgx.Batch // which is one transaction
	batch.Queue(sliceLock, int64(budgetClass), ask.Tenant).Exec(func(pgconn.CommandTag) error { return nil })
	batch.Queue(sliceQuery, ask.Tenant, me, ask.Today, ask.First,
		bound(ask.Day.Tokens), bound(int64(ask.Day.Cost)), bound(ask.Month.Tokens), bound(int64(ask.Month.Cost)),
		ask.Held.Tokens, int64(ask.Held.Cost), ask.Need.Tokens, int64(ask.Need.Cost),
		ask.Spare.Tokens, int64(ask.Spare.Cost),
	).QueryRow(func(row pgx.Row) error {
		return row.Scan(&got.Slice.Tokens, &got.Slice.Cost, &got.Waits, &got.Granted,
			&got.Today.Tokens, &got.Today.Cost, &got.Month.Tokens, &got.Month.Cost)
	})
	err = m.cfg.DB.SendBatch(ctx, &batch).Close()
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == foreignKeyViolation {
		err = errUnknown
	}
	return got, within(err, "set the slice of the budget of tenant %q", ask.Tenant)
}

// foreignKeyViolation is the code of an INSERT that names a replica that is gone.
const foreignKeyViolation = "23503"

// bound is a part of a budget, nil if it has none.
func bound(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}

// Wanted implements share.Budgets.
func (m *Member) Wanted(ctx context.Context) (tenants []string, err error) {
	rows, err := m.cfg.DB.Query(ctx,
		`SELECT DISTINCT tenant FROM budget_slices WHERE waits AND replica <> $1`, m.ID())
	if err == nil {
		tenants, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	return tenants, within(err, "look who waits for budgets")
}
