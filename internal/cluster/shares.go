package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/apzuk3/agentd/internal/share"
)

var _ share.Desk = (*Member)(nil)

// placeClass is the first key of the advisory lock of a tenant's places; the second one is a hash of both.
const placeClass = 0x61676e76

// placeQuery sets a share. The statement before it has taken the lock, so it sees what others have committed.
const placeQuery = `WITH others AS (
		SELECT coalesce(sum(amount), 0)::bigint AS n FROM tenant_shares
		WHERE tenant = $1 AND kind = $2 AND replica <> $3),
	free AS (
		SELECT $4::bigint - n - $5::bigint - $6::bigint AS rest FROM others)
	INSERT INTO tenant_shares (tenant, kind, replica, amount, waits)
	SELECT $1, $2, $3, CASE WHEN rest >= 0 THEN $5 + $6 + least($7::bigint, rest / 4) ELSE $5 END, rest < 0
	FROM free
	ON CONFLICT (tenant, kind, replica) DO UPDATE SET amount = excluded.amount, waits = excluded.waits
	RETURNING amount, waits`

// Place implements share.Desk.
func (m *Member) Place(ctx context.Context, ask share.PlaceAsk) (got share.PlaceShare, err error) {
	me, _, err := m.mayClaim()
	if err != nil {
		return got, err
	}
	kind := string(ask.Kind)
	var batch pgx.Batch // which is one transaction
	batch.Queue(sliceLock, int64(placeClass), kind+" "+ask.Tenant).Exec(
		func(pgconn.CommandTag) error { return nil })
	switch {
	case ask.Need > 0:
		batch.Queue(placeQuery, ask.Tenant, kind, me, ask.Bound, ask.Held, ask.Need, ask.Spare).QueryRow(
			func(row pgx.Row) error { return row.Scan(&got.Share, &got.Waits) })
	case ask.Held > 0:
		got.Share = ask.Held
		batch.Queue(`INSERT INTO tenant_shares (tenant, kind, replica, amount, waits) VALUES ($1, $2, $3, $4, false)
			ON CONFLICT (tenant, kind, replica) DO UPDATE SET amount = excluded.amount, waits = false`,
			ask.Tenant, kind, me, ask.Held)
	default:
		batch.Queue(`DELETE FROM tenant_shares WHERE tenant = $1 AND kind = $2 AND replica = $3`, ask.Tenant, kind, me)
	}
	err = m.cfg.DB.SendBatch(ctx, &batch).Close()
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == foreignKeyViolation {
		err = errUnknown
	}
	return got, within(err, "set the share of the %s of tenant %q", kind, ask.Tenant)
}

// WantedPlaces implements share.Desk.
func (m *Member) WantedPlaces(ctx context.Context) (all []share.Wanted, err error) {
	rows, err := m.cfg.DB.Query(ctx,
		`SELECT DISTINCT kind, tenant FROM tenant_shares WHERE waits AND replica <> $1`, m.ID())
	if err == nil {
		all, err = pgx.CollectRows(rows, pgx.RowToStructByPos[share.Wanted])
	}
	return all, within(err, "look who waits for places of tenants")
}

// requestsQuery leases requests out of a bucket that $2 a second fill, and that has room for twice as many: half of
// what it has, at most $3. A clock that was set back gives nothing for the time that it repeats. What nobody has asked
// for is full.
const requestsQuery = `INSERT INTO tenant_requests AS t (tenant, level, at, granted)
	VALUES ($1, 2 * $2::float8 - least($3::float8, $2), now(), least($3, $2))
	ON CONFLICT (tenant) DO UPDATE SET (level, at, granted) = (
		SELECT free - n, f.at, n FROM (
			SELECT now() AS at,
				least(2 * $2, t.level + greatest(extract(epoch FROM now() - t.at)::float8, 0) * $2) AS free) AS f,
			LATERAL (SELECT CASE WHEN free < 1 THEN 0 ELSE least($3, ceil(floor(free) / 2)) END AS n) AS g)
	RETURNING granted, level`

// Requests implements share.Desk.
func (m *Member) Requests(ctx context.Context, ask share.RequestsAsk) (got share.RequestsLease, err error) {
	var level float64
	err = m.cfg.DB.QueryRow(ctx, requestsQuery, ask.Tenant,
		float64(ask.PerSecond), float64(ask.Want)).Scan(&got.Granted, &level)
	if got.Granted == 0 && err == nil {
		got.Wait = time.Duration((1 - level) / float64(ask.PerSecond) * float64(time.Second))
	}
	return got, within(err, "lease requests of tenant %q", ask.Tenant)
}

// Forget implements share.Desk. What it deletes is full by now.
func (m *Member) Forget(ctx context.Context) error {
	_, err := m.cfg.DB.Exec(ctx, `DELETE FROM tenant_requests WHERE at < now() - interval '1 minute'`)
	return within(err, "forget requests of tenants")
}
