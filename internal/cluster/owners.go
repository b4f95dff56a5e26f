package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/apzuk3/agentd/session/store"
)

// ErrDraining is why a member that drains claims nothing.
var ErrDraining = errors.New("cluster: this replica is draining")

// ErrInDoubt is why a member claims nothing that may be dead to the others.
var ErrInDoubt = errors.New("cluster: this replica cannot reach the database")

// Claim is what a member has claimed, or who has it.
type Claim struct {
	// Epoch is the fencing token of what this member writes to the session.
	Epoch int64
	// LastSeq and Archived are those of the session, as of the claim.
	LastSeq  int64
	Archived bool
	// Owner is the member that owns the session if this one does not: nothing was claimed then.
	Owner *Replica
}

// claimQuery claims a session that this member owns already, or, unless it drains, that nobody owns, or a dead member.
const claimQuery = `UPDATE heads SET owner = $2, epoch = epoch + CASE WHEN owner = $2 THEN 0 ELSE 1 END,
	due_at = NULL, wanted_by = NULL
	WHERE id = $1 AND (owner = $2 OR NOT $4 AND (owner IS NULL OR owner = ANY ($3)))
	RETURNING epoch, last_seq, (SELECT archived FROM sessions s WHERE s.id = heads.id)`

// ownerQuery says who owns a session.
const ownerQuery = `SELECT r.id, r.name, r.address, r.version, r.features, r.draining, 0::bigint, false
	FROM heads h LEFT JOIN replicas r ON r.id = h.owner WHERE h.id = $1`

// claimTries bounds how often a claim is tried that meets the change of an owner.
const claimTries = 8

// Claim makes this member the owner of a session, or says who owns it. A member may claim what it owns. It returns
// store.ErrNoSession, ErrDraining for a session of nobody, and ErrInDoubt.
func (m *Member) Claim(ctx context.Context, session string) (Claim, error) {
	for range claimTries {
		c, err := m.claim(ctx, session)
		if !errors.Is(err, errFree) {
			return c, err
		}
	}
	return Claim{}, fmt.Errorf("cluster: claim session %q: its owner has changed %d times", session, claimTries)
}

// errFree is the error of a claim that has met an owner, who has left meanwhile.
var errFree = errors.New("nobody owns it")

func (m *Member) claim(ctx context.Context, session string) (Claim, error) {
	id, dead, draining, err := m.mayClaim()
	if err != nil {
		return Claim{}, err
	}
	var c Claim
	err = m.cfg.DB.QueryRow(ctx, claimQuery, session, id, dead, draining).Scan(&c.Epoch, &c.LastSeq, &c.Archived)
	if err == nil || !errors.Is(err, pgx.ErrNoRows) {
		return c, within(err, "claim session %q", session)
	}
	owner, err := m.Owner(ctx, session)
	switch {
	case err != nil:
		return Claim{}, err
	case owner == nil && draining:
		return Claim{}, ErrDraining
	case owner == nil:
		return Claim{}, errFree
	}
	return Claim{Owner: owner}, nil
}

// mayClaim returns what a claim needs.
func (m *Member) mayClaim() (id int64, dead []int64, draining bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.doubt || !time.Now().Before(m.doubtAtLocked()) {
		return 0, nil, false, ErrInDoubt
	}
	return m.id, append([]int64{}, m.deadLocked()...), m.draining, nil
}

// Owner returns who owns a session, nil if nobody does. The owner may be dead.
func (m *Member) Owner(ctx context.Context, session string) (*Replica, error) {
	rows, err := m.cfg.DB.Query(ctx, ownerQuery, session)
	if err != nil {
		return nil, within(err, "look up the owner of session %q", session)
	}
	found, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (*Replica, error) {
		var id *int64
		var name, address, version *string
		var features []string
		var draining, held *bool
		var beat int64
		err := row.Scan(&id, &name, &address, &version, &features, &draining, &beat, &held)
		if err != nil || id == nil {
			return nil, err
		}
		return &Replica{
			ID: *id, Name: *name, Address: *address, Version: *version, Features: features, Draining: *draining,
		}, nil
	})
	if err == nil && len(found) == 0 {
		err = store.ErrNoSession
	}
	if err != nil {
		return nil, within(err, "look up the owner of session %q", session)
	}
	return found[0], nil
}

// Release gives a session back that this member owns under an epoch. With a due time, some member's sweep claims it
// then, or later; the time is one of the database's clock, which nothing but the start of that work depends on. A
// release of what the member does not own any more does nothing.
func (m *Member) Release(ctx context.Context, session string, epoch int64, due time.Time) error {
	var at *time.Time
	if !due.IsZero() {
		at = &due
	}
	_, err := m.cfg.DB.Exec(ctx, `UPDATE heads SET owner = NULL, wanted_by = NULL, due_at = $4
		WHERE id = $1 AND owner = $2 AND epoch = $3`, session, m.ID(), epoch, at)
	return within(err, "release session %q", session)
}

// Want asks the owner of a session to give it back: see Config.OnWanted. It does nothing for a session of this member,
// or of nobody.
func (m *Member) Want(ctx context.Context, session string) error {
	_, err := m.cfg.DB.Exec(ctx, `UPDATE heads SET wanted_by = $2 WHERE id = $1 AND owner <> $2`, session, m.ID())
	return within(err, "want session %q", session)
}

// A session that must go on without a caller: its owner is dead while a turn is open, or it is due.
const mustGoOn = `(owner = ANY ($1) AND open_turn <> '' OR owner IS NULL AND due_at <= now())`

// mostCounted bounds how many sessions a sweep counts to find its share.
const mostCounted = 10_000

// Sweep claims sessions that must go on without a caller: at most room of them, and at most a fair share of all there
// are. It returns their ids. It also gives back what dead members own without a turn, and takes members off the list
// that are dead and own nothing. It claims nothing while the member drains.
func (m *Member) Sweep(ctx context.Context, room int) ([]string, error) {
	id, dead, draining, err := m.mayClaim()
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	takers := m.view.takers(dead)
	m.mu.Unlock()
	if err := m.bury(ctx, dead); err != nil {
		return nil, err
	}
	if draining || room <= 0 {
		return nil, nil
	}
	var n int
	err = m.cfg.DB.QueryRow(ctx, `SELECT count(*) FROM (SELECT 1 FROM heads WHERE `+mustGoOn+` LIMIT $2) s`,
		dead, mostCounted).Scan(&n)
	if err != nil || n == 0 {
		return nil, within(err, "count what must go on")
	}
	rows, err := m.cfg.DB.Query(ctx, `WITH found AS (SELECT id FROM heads WHERE `+mustGoOn+`
			LIMIT $2 FOR UPDATE SKIP LOCKED)
		UPDATE heads SET owner = $3, epoch = epoch + 1, due_at = NULL, wanted_by = NULL
		FROM found WHERE heads.id = found.id RETURNING heads.id`, dead, min(room, (n+takers-1)/takers), id)
	if err != nil {
		return nil, within(err, "claim what must go on")
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return ids, within(err, "claim what must go on")
}

// mostBuried bounds how many sessions without a turn a sweep gives back.
const mostBuried = 1_000

// bury gives back what dead members own without an open turn, under a new epoch: they may wake up and begin a turn,
// which nobody would sweep. It removes those that own nothing.
func (m *Member) bury(ctx context.Context, dead []int64) error {
	if len(dead) == 0 {
		return nil
	}
	_, err := m.cfg.DB.Exec(ctx, `WITH found AS (SELECT id FROM heads WHERE owner = ANY ($1) AND open_turn = ''
			LIMIT $2 FOR UPDATE SKIP LOCKED)
		UPDATE heads SET owner = NULL, epoch = epoch + 1, wanted_by = NULL FROM found WHERE heads.id = found.id`,
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
