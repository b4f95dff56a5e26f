package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// awaitTimeout bounds Await, awaitEvery is how often it looks.
const (
	awaitTimeout = 20 * time.Second
	awaitEvery   = 100 * time.Millisecond
)

// Seals implements sealed.Peers.
func (m *Member) Seals(ctx context.Context, key uint32) error {
	tag, err := m.cfg.DB.Exec(ctx, `UPDATE replicas SET data_key = $2 WHERE id = $1`, m.ID(), int64(key))
	if err == nil && tag.RowsAffected() == 0 {
		err = errUnknown
	}
	return within(err, "say which data key this replica seals with")
}

// Await implements sealed.Peers. The row of a dead replica is removed when the store refuses what it appends. What is
// under way then is in the database, or undone, when the transactions have ended that had begun.
func (m *Member) Await(ctx context.Context, key uint32) error {
	ctx, cancel := context.WithTimeout(ctx, awaitTimeout)
	defer cancel()
	for {
		names, err := m.sealsOlder(ctx, key)
		if err == nil && len(names) == 0 {
			break
		}
		if err == nil && wait(ctx) != nil {
			err = fmt.Errorf("replicas seal with a data key before %d: %s; "+
				"each must run, and have the same master keys", key, strings.Join(names, ", "))
		}
		if err != nil {
			return within(err, "wait for the other replicas")
		}
	}
	var now uint64
	err := m.cfg.DB.QueryRow(ctx, `SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint`).Scan(&now)
	for over := false; err == nil && !over; {
		err = m.cfg.DB.QueryRow(ctx, `SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint >= $1`, now).
			Scan(&over)
		if err == nil && !over && wait(ctx) != nil {
			err = errors.New("a transaction that has begun before does not end")
		}
	}
	return within(err, "wait for what the other replicas write")
}

// sealsOlder returns the names of the others that may seal with an older data key.
func (m *Member) sealsOlder(ctx context.Context, key uint32) (names []string, err error) {
	rows, err := m.cfg.DB.Query(ctx, `SELECT name FROM replicas WHERE data_key < $1 AND id <> $2`, int64(key), m.ID())
	if err == nil {
		names, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	return names, err
}

// wait waits until it is time to look again.
func wait(ctx context.Context) error {
	again := time.NewTimer(awaitEvery)
	defer again.Stop()
	select {
	case <-again.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
