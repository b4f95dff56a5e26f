package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/apzuk3/agentd/session/store"
)

// hasRoom refuses a session of which its tenant has as many as it may.
func (t *tx) hasRoom(n *store.NewSession) (refusal, fault error) {
	tenant, _, ok := strings.Cut(n.ID, "/")
	if !ok || n.MaxOfTenant == 0 {
		return nil, nil
	}
	var sessions int64
	err := t.getCount.QueryRowContext(context.Background(), tenant).Scan(&sessions)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, err
	}
	return n.TooMany(sessions), nil
}

// count adds to the sessions of the tenant of one that was made, or removed. A tenant without sessions leaves no name.
func (t *tx) count(id string, sessions int) error {
	tenant, _, ok := strings.Cut(id, "/")
	if !ok {
		return nil
	}
	err := write(t.addCount, tenant, sessions)
	if err == nil && sessions < 0 {
		err = write(t.deleteCount, tenant)
	}
	return err
}

// miscountedQuery names tenants of which there are other sessions than are counted.
const miscountedQuery = `SELECT
		'the tenant ' || coalesce(c.tenant, s.tenant) || ' has ' || coalesce(s.n, 0) || ' sessions, and '
		|| coalesce(c.sessions, 0) || ' are counted'
	FROM session_counts c
	FULL OUTER JOIN (SELECT tenant, count(*) AS n FROM sessions WHERE tenant <> '' GROUP BY tenant) s
		ON s.tenant = c.tenant
	WHERE coalesce(s.n, 0) <> coalesce(c.sessions, 0) LIMIT ?`
