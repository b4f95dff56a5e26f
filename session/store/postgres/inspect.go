package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/apzuk3/agentd/session/store"
)

// What follows is for checks of a database: what it holds that no session needs to ask for.

// mostProblems is how many problems of each kind are reported.
const mostProblems = 100

// IDs returns the ids of at most limit sessions above after, in their order.
func (s *Store) IDs(ctx context.Context, after string, limit int) ([]string, error) {
	ids, err := look(ctx, s, pgx.RowTo[string],
		`SELECT id FROM sessions WHERE id > $1 ORDER BY id LIMIT $2`, after, limit)
	if err != nil {
		return nil, fmt.Errorf("postgres: sessions after %q: %w", after, err)
	}
	return ids, nil
}

// Extent returns the first and the last record that a session has, and how many; 0 for none.
func (s *Store) Extent(ctx context.Context, id string) (first, last, records int64, err error) {
	extents, err := look(ctx, s, func(row pgx.CollectableRow) (e [3]int64, err error) {
		return e, row.Scan(&e[0], &e[1], &e[2])
	}, `SELECT coalesce(min(seq), 0), coalesce(max(seq), 0), count(*) FROM records WHERE session_id = $1`, id)
	if err != nil {
		return 0, 0, 0, fmt.Errorf("postgres: records of session %q: %w", id, err)
	}
	return extents[0][0], extents[0][1], extents[0][2], nil
}

// Keys returns at most limit keys of a session whose (scope, name) is above that of after, in that order.
func (s *Store) Keys(ctx context.Context, sessionID string, after store.Key, limit int) ([]store.Key, error) {
	keys, err := look(ctx, s, scanKey, `SELECT scope, name, content, session_id, id FROM keys
		WHERE session_id = $1 AND (scope, name) > ($2, $3) ORDER BY scope, name LIMIT $4`,
		sessionID, after.Scope, after.Name, limit)
	if err != nil {
		return nil, fmt.Errorf("postgres: keys of session %q: %w", sessionID, err)
	}
	return keys, nil
}

// Orphans calls report for each session that does not exist and that a table has rows of.
func (s *Store) Orphans(ctx context.Context, report func(table, sessionID string, rows int64)) error {
	type orphan struct {
		session string
		rows    int64
	}
	for _, table := range []string{"records", "entries", "labels", "keys"} {
		orphans, err := look(ctx, s, func(row pgx.CollectableRow) (o orphan, err error) {
			return o, row.Scan(&o.session, &o.rows)
		}, `SELECT session_id, count(*) FROM `+table+` t
			WHERE NOT EXISTS (SELECT 1 FROM sessions WHERE id = t.session_id)
			GROUP BY session_id ORDER BY session_id LIMIT 1000`)
		if err != nil {
			return fmt.Errorf("postgres: rows without a session: %w", err)
		}
		for _, o := range orphans {
			report(table, o.session, o.rows)
		}
	}
	return nil
}

// problemQueries have a line for each thing that is wrong with what two tables or two rows say of each other. The limit
// is $1.
var problemQueries = []string{
	`SELECT 'index ' || c.relname || ' is not valid: REINDEX INDEX makes it so'
		FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid
		WHERE NOT (i.indisvalid AND i.indisready) AND t.oid = ANY (ARRAY['sessions', 'heads', 'records', 'labels',
			'entries', 'shared', 'keys']::regclass[]) ORDER BY 1 LIMIT $1`,
	`SELECT CASE WHEN s.id IS NULL THEN 'there is a head of session "' || h.id || '", and no session'
			ELSE 'session "' || s.id || '" has no head' END
		FROM sessions s FULL JOIN heads h ON h.id = s.id WHERE s.id IS NULL OR h.id IS NULL ORDER BY 1 LIMIT $1`,
	`SELECT 'session "' || s.id || '" was created at ' || s.created_at || ', its head says at ' || h.created_at
		FROM sessions s JOIN heads h ON h.id = s.id WHERE s.created_at <> h.created_at ORDER BY 1 LIMIT $1`,
	`SELECT 'tenant "' || coalesce(c.tenant, n.tenant) || '" is counted to have ' || coalesce(c.sessions, 0) ||
			' sessions, it has ' || coalesce(n.sessions, 0)
		FROM session_counts c FULL JOIN (SELECT tenant, count(*) AS sessions FROM sessions
			WHERE tenant <> '' GROUP BY tenant) n ON n.tenant = c.tenant
		WHERE coalesce(c.sessions, 0) <> coalesce(n.sessions, 0) ORDER BY 1 LIMIT $1`,
	`SELECT 'record ' || seq || ' of session "' || session_id || '" has epoch ' || epoch ||
			', the one before it ' || before
		FROM (SELECT session_id, seq, epoch, lag(epoch) OVER (PARTITION BY session_id ORDER BY seq) AS before
			FROM records) r
		WHERE epoch < before ORDER BY session_id, seq LIMIT $1`,
	`SELECT 'session "' || h.id || '" is of epoch ' || h.epoch || ', its last record of epoch ' || r.epoch
		FROM heads h JOIN records r ON r.session_id = h.id AND r.seq = h.last_seq
		WHERE r.epoch > h.epoch ORDER BY 1 LIMIT $1`,
}

// Integrity returns what is wrong with the database as a whole, at most 100 problems of each kind: indexes that are not
// valid, sessions without a head and the reverse, sessions of tenants that are not counted right, and epochs that fall
// within a log. It reads all rows, and none of what they say.
func (s *Store) Integrity(ctx context.Context) (problems []string, err error) {
	for _, text := range problemQueries {
		lines, err := look(ctx, s, pgx.RowTo[string], text, mostProblems)
		if err != nil {
			return nil, fmt.Errorf("postgres: check the database: %w", err)
		}
		problems = append(problems, lines...)
	}
	return problems, nil
}

// look runs a query.
func look[T any](
	ctx context.Context, s *Store, scan func(pgx.CollectableRow) (T, error), text string, args ...any,
) ([]T, error) {
	return view(ctx, s, func(ctx context.Context, c *pgx.Conn) ([]T, error) {
		rows, err := c.Query(ctx, text, args...)
		return collect(rows, err, scan)
	})
}
