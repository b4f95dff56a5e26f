package cluster

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/apzuk3/agentd/session/store"
)

// What members that do not reach the owner of a session ask of it is in the table asks, of which the owner sees its
// part with each beat. A request counts for 5 s, by the database's clock; whoever goes on asking says so again each
// second.

// asked is a request of a session of the member, see session.Owners.Asked.
type asked struct {
	key     string
	follows bool
	settled int64
	wants   string
}

// FeatureAsks is what members list in Config.Features that hear what others ask. Nobody asks while one lives that does
// not.
const FeatureAsks = "asks"

// mostAsked bounds how many requests a beat reads.
const mostAsked = 1_000

// asksQuery lists requests, those of sessions of the member $1 first, and says of each whether it is of such a session,
// and whether it is void.
const asksQuery = `SELECT a.session_id, coalesce(h.owner = $1, false) AS own,
		coalesce(a.followed_at > now() - interval '5 seconds', false),
		CASE WHEN a.epoch = h.epoch THEN a.settled ELSE 0 END, coalesce(r.address, ''),
		coalesce(greatest(a.followed_at, a.wanted_at) < now() - interval '1 minute', true)
	FROM asks a JOIN heads h ON h.id = a.session_id
	LEFT JOIN replicas r ON r.id = a.wanted_by AND r.id <> $1 AND a.wanted_at > now() - interval '5 seconds'
	ORDER BY own DESC LIMIT $2`

// What is asked is written once a second at most.
const (
	followQuery = `INSERT INTO asks (session_id, followed_at) VALUES ($1, now())
		ON CONFLICT (session_id) DO UPDATE SET followed_at = now()
		WHERE asks.followed_at IS NULL OR asks.followed_at < now() - interval '1 second'`
	wantQuery = `INSERT INTO asks (session_id, wanted_by, wanted_at) VALUES ($1, $2, now())
		ON CONFLICT (session_id) DO UPDATE SET wanted_by = $2, wanted_at = now()
		WHERE asks.wanted_at IS NULL OR asks.wanted_at < now() - interval '1 second'`
	settledQuery = `SELECT coalesce((SELECT a.settled FROM asks a WHERE a.session_id = h.id AND a.epoch = h.epoch), 0)
		FROM heads h WHERE h.id = $1`
)

// Ask implements session.Owners.
func (m *Member) Ask(ctx context.Context, key string, wants bool) (settled int64, heard bool, err error) {
	if len(m.Lacking(FeatureAsks)) > 0 {
		return 0, false, nil
	}
	var batch pgx.Batch
	if wants {
		batch.Queue(wantQuery, key, m.ID())
	} else {
		batch.Queue(followQuery, key)
	}
	batch.Queue(settledQuery, key).QueryRow(func(row pgx.Row) error { return row.Scan(&settled) })
	err = m.cfg.DB.SendBatch(ctx, &batch).Close()
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == foreignKeyViolation {
		err = store.ErrNoSession
	}
	return settled, true, within(err, "ask the owner of session %q", key)
}

// Asked implements session.Owners. It returns what the last beat has read.
func (m *Member) Asked(f func(key string, follows bool, settled int64, wants string)) {
	m.mu.Lock()
	all := m.asked
	m.mu.Unlock()
	for _, a := range all {
		f(a.key, a.follows, a.settled, a.wants)
	}
}

// Settle implements session.Owners.
func (m *Member) Settle(ctx context.Context, key string, epoch, settled int64) error {
	_, err := m.cfg.DB.Exec(ctx, `UPDATE asks SET settled = $4, epoch = $3
		WHERE session_id = $1 AND EXISTS (SELECT FROM heads WHERE id = $1 AND owner = $2 AND epoch = $3)`,
		key, m.ID(), epoch, settled)
	return within(err, "answer those that follow session %q", key)
}

// requests is what a beat has read of what is asked.
type requests struct {
	own  []asked
	void bool // there are void ones
}

func (q *requests) read(rows pgx.Rows) error {
	var a asked
	var own, void bool
	_, err := pgx.ForEachRow(rows, []any{&a.key, &own, &a.follows, &a.settled, &a.wants, &void}, func() error {
		if q.void = q.void || void; own && !void {
			q.own = append(q.own, a)
		}
		return nil
	})
	return err
}

// forget removes void requests, if this member has seen some and lives the longest.
func (m *Member) forget(ctx context.Context) error {
	m.mu.Lock()
	void := m.void
	m.void = false
	m.mu.Unlock()
	if !void || !m.IsFirst() {
		return nil
	}
	_, err := m.cfg.DB.Exec(ctx, `DELETE FROM asks WHERE session_id IN (SELECT session_id FROM asks
		WHERE coalesce(greatest(followed_at, wanted_at) < now() - interval '1 minute', true) FOR UPDATE SKIP LOCKED)`)
	return within(err, "forget what was asked")
}
