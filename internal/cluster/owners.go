package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/store"
)

var _ session.Owners = (*Member)(nil)

// ErrInDoubt is why a member claims nothing that may be dead to the others.
var ErrInDoubt = errors.New("cluster: this replica cannot reach the database")

// claimQuery claims a session that nobody owns, or a dead member, or this one already. It is due now, in the very
// moment of the statement, if the owner was dead.
const claimQuery = `UPDATE heads SET owner = $2, epoch = epoch + 1,
	due_at = CASE WHEN owner = ANY ($3) THEN now() ELSE due_at END
	WHERE id = $1 AND (owner IS NULL OR owner = $2 OR owner = ANY ($3))
	RETURNING epoch, last_seq, (SELECT archived FROM sessions s WHERE s.id = heads.id), coalesce(due_at = now(), false)`

// claimTries bounds how often a claim is tried that meets the change of an owner.
const claimTries = 8

// Claim implements session.Owners. It also returns ErrInDoubt.
func (m *Member) Claim(ctx context.Context, key string) (c session.Claim, err error) {
	for range claimTries {
		me, dead, err := m.mayClaim()
		if err != nil {
			return c, err
		}
		var tookOver bool
		err = m.cfg.DB.QueryRow(ctx, claimQuery, key, me, dead).Scan(&c.Epoch, &c.LastSeq, &c.Archived, &tookOver)
		if err == nil && tookOver {
			m.mu.Lock()
			m.tookOver++
			m.mu.Unlock()
		}
		if err == nil || !errors.Is(err, pgx.ErrNoRows) {
			return c, within(err, "claim session %q", key)
		}
		id, address, err := m.owner(ctx, key)
		if err != nil {
			return c, err
		}
		if id != 0 {
			return c, &session.Elsewhere{Address: address}
		}
	}
	return c, fmt.Errorf("cluster: claim session %q: its owner has changed %d times", key, claimTries)
}

// mayClaim returns this member, and those that are dead to it.
func (m *Member) mayClaim() (me int64, dead []int64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !time.Now().Before(m.doubtAtLocked()) {
		return 0, nil, ErrInDoubt
	}
	return m.id, append([]int64{}, m.deadLocked()...), nil
}

// Owner implements session.Owners.
func (m *Member) Owner(ctx context.Context, key string) (address string, err error) {
	id, address, err := m.owner(ctx, key)
	m.mu.Lock()
	defer m.mu.Unlock()
	if id == m.id || slices.Contains(m.deadLocked(), id) {
		return "", err
	}
	return address, err
}

// Standing implements session.Owners.
func (m *Member) Standing(ctx context.Context, key string) (last int64, owned, purged bool, err error) {
	err = m.cfg.DB.QueryRow(ctx, `SELECT last_seq, owner IS NOT NULL, purged > 0 AND purged = last_seq
		FROM heads WHERE id = $1`, key).Scan(&last, &owned, &purged)
	if errors.Is(err, pgx.ErrNoRows) {
		err = store.ErrNoSession
	}
	return last, owned, purged, within(err, "look at session %q", key)
}

// owner returns who owns a session, 0 for nobody.
func (m *Member) owner(ctx context.Context, key string) (id int64, address string, err error) {
	err = m.cfg.DB.QueryRow(ctx, `SELECT coalesce(r.id, 0), coalesce(r.address, '')
		FROM heads h LEFT JOIN replicas r ON r.id = h.owner WHERE h.id = $1`, key).Scan(&id, &address)
	if errors.Is(err, pgx.ErrNoRows) {
		err = store.ErrNoSession
	}
	return id, address, within(err, "look up the owner of session %q", key)
}

// Another implements session.Owners. Of several members it returns any, so that they share what a member that drains
// does not begin.
func (m *Member) Another() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	dead := m.deadLocked()
	others := slices.DeleteFunc(m.view.all(), func(r Replica) bool {
		return r.ID == m.id || r.Draining || slices.Contains(dead, r.ID)
	})
	if len(others) == 0 {
		return ""
	}
	return others[rand.IntN(len(others))].Address
}

// Release implements session.Owners.
func (m *Member) Release(ctx context.Context, key string, epoch int64, due time.Duration) error {
	_, err := m.cfg.DB.Exec(ctx, `UPDATE heads SET owner = NULL, due_at = CASE
			WHEN $4 THEN NULL WHEN $5 THEN due_at ELSE now() + $6::bigint * interval '1 microsecond' END
		WHERE id = $1 AND owner = $2 AND epoch = $3`,
		key, m.ID(), epoch, due == session.Never, due == session.SameDue, due.Microseconds())
	return within(err, "release session %q", key)
}

// A session that must go on without a caller: its owner is dead while a turn is open, or it is due.
const mustGoOn = `(owner = ANY ($1) AND open_turn <> '' OR owner IS NULL AND due_at <= now())`

// mostCounted bounds how many sessions Due counts to find its share.
const mostCounted = 10_000

// Due implements session.Owners. Of what there is a member gets the part that is its own by a hash of the ids, so that
// members that look at the same time find different ones; or, if that is less, a fair share, so that nothing waits for
// a member that takes none. It also gives back what dead members own without a turn, takes those off the list that own
// nothing, and removes void requests (see FeatureAsks). It returns none while the member drains.
func (m *Member) Due(ctx context.Context, most int) (keys []string, err error) {
	_, dead, err := m.mayClaim()
	if err != nil {
		return nil, err
	}
	if err := m.bury(ctx, dead); err != nil {
		return nil, err
	}
	if err := m.forget(ctx); err != nil {
		return nil, err
	}
	m.mu.Lock()
	place, of := m.view.place(m.id, dead)
	draining := m.draining
	m.mu.Unlock()
	if draining || most <= 0 {
		return nil, nil
	}
	rows, err := m.cfg.DB.Query(ctx, `WITH found AS (
			SELECT id, (hashtextextended(id, 0) & 65535) % $3 = $4 AS own FROM heads WHERE `+mustGoOn+` LIMIT $2)
		SELECT id FROM found ORDER BY own DESC, id
		LIMIT (SELECT least($5, greatest(count(*) FILTER (WHERE own), (count(*) + $3 - 1) / $3)) FROM found)`,
		dead, mostCounted, of, place, most)
	if err == nil {
		keys, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	return keys, within(err, "look for what must go on")
}

// mostBuried bounds how many sessions without a turn are given back at once.
const mostBuried = 1_000

// bury gives back what dead members own without an open turn, under a new epoch: they may wake up and begin a turn,
// which nobody would look for. It removes those that own nothing.
func (m *Member) bury(ctx context.Context, dead []int64) error {
	if len(dead) == 0 {
		return nil
	}
	_, err := m.cfg.DB.Exec(ctx, `WITH found AS (SELECT id FROM heads WHERE owner = ANY ($1) AND open_turn = ''
			LIMIT $2 FOR UPDATE SKIP LOCKED)
		UPDATE heads SET owner = NULL, epoch = epoch + 1 FROM found WHERE heads.id = found.id`,
		dead, mostBuried)
	if err == nil {
		_, err = m.cfg.DB.Exec(ctx, `DELETE FROM replicas r WHERE id = ANY ($1)
			AND NOT EXISTS (SELECT 1 FROM heads WHERE owner = r.id)`, dead)
	}
	return within(err, "give back what dead replicas own")
}

// within says what has failed.
func within(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("cluster: "+format+": %w", append(args, err)...)
}
