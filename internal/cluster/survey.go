package cluster

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// State is how a replica stands to who looks at the database from outside.
type State string

// The states of a replica.
const (
	Alive    State = "alive"
	Draining State = "draining" // alive, and takes no more sessions
	Silent   State = "silent"   // no beat was seen, and not for long enough to call it dead
	Dead     State = "dead"     // no beat was seen, and its lock is free; or none for a whole TTL
)

// Standing is a replica as Look has seen it.
type Standing struct {
	ID      int64  `json:"id"`
	Name    string `json:"name"`
	Address string `json:"address"`
	Version string `json:"version"`
	State   State  `json:"state"`
	// Beat is how often it has beaten in its life, Locked whether it holds its lock.
	Beat   int64 `json:"beat"`
	Locked bool  `json:"locked"`
	// Sessions are those that it owns, OpenTurns those of them with an open turn.
	Sessions  int64 `json:"sessions"`
	OpenTurns int64 `json:"open_turns"`
	// Takeovers are the sessions that it has taken over from dead replicas, LastTakeover is the time of the last one by
	// the clock of the database; nil for none.
	Takeovers    int64      `json:"takeovers"`
	LastTakeover *time.Time `json:"last_takeover,omitempty"`
}

// Lag is what must go on without a caller, and nobody has taken.
type Lag struct {
	// Due are the sessions whose time has come, of which OldestDue has waited for the longest.
	Due       int64         `json:"due"`
	OldestDue time.Duration `json:"oldest_due_ns"`
	// Orphans are sessions with an open turn of replicas that are dead.
	Orphans int64 `json:"orphans"`
}

// Survey is what the database says of all replicas.
type Survey struct {
	Replicas []Standing `json:"replicas"`
	Lag
}

// lookEvery is how long Look waits between two looks.
const lookEvery = 250 * time.Millisecond

const surveyQuery = `SELECT r.id, r.name, r.address, r.version, r.draining, r.beat, r.takeovers, r.took_over_at,
	coalesce(o.sessions, 0), coalesce(o.turns, 0),
	EXISTS (SELECT 1 FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
		AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND l.classid = $1 AND l.objid::bigint = r.id)
	FROM replicas r LEFT JOIN (SELECT owner, count(*) AS sessions, count(*) FILTER (WHERE open_turn <> '') AS turns
		FROM heads WHERE owner IS NOT NULL GROUP BY owner) o ON o.owner = r.id
	ORDER BY r.id`

const dueQuery = `SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(due_at)), 0)::float8
	FROM heads WHERE owner IS NULL AND due_at <= clock_timestamp()`

// Look watches the beats of all replicas until it has seen one of each, or for as long as watch, and then says how each
// stands. It writes nothing, and is no replica. One that beats more slowly than watch is silent.
func Look(ctx context.Context, db DB, watch time.Duration) (out Survey, err error) {
	first, began := map[int64]int64{}, time.Now()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		if out.Replicas, err = standings(ctx, db); err != nil {
			return Survey{}, err
		}
		quiet := time.Since(began)
		out.Orphans = 0
		waits := false
		for i := range out.Replicas {
			r := &out.Replicas[i]
			at, seen := first[r.ID]
			if !seen {
				first[r.ID], at = r.Beat, r.Beat
			}
			r.judge(r.Beat != at, quiet)
			waits = waits || r.State == Silent
			if r.State == Dead {
				out.Orphans += r.OpenTurns
			}
		}
		if !waits || quiet >= watch {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return Survey{}, context.Cause(ctx)
		}
	}
	out.Due, out.OldestDue, err = due(ctx, db)
	return out, err
}

// judge sets the state of a replica that was seen to beat, or was quiet for a time.
func (r *Standing) judge(beat bool, quiet time.Duration) {
	draining := r.State == Draining
	switch {
	case beat && draining:
	case beat:
		r.State = Alive
	case quiet >= DefaultTTL, quiet >= DefaultLockTTL && !r.Locked:
		r.State = Dead
	default:
		r.State = Silent
	}
}

func standings(ctx context.Context, db DB) ([]Standing, error) {
	rows, err := db.Query(ctx, surveyQuery, int64(lockClass))
	var all []Standing
	if err == nil {
		all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (r Standing, err error) {
			var draining bool
			err = row.Scan(&r.ID, &r.Name, &r.Address, &r.Version, &draining, &r.Beat, &r.Takeovers, &r.LastTakeover,
				&r.Sessions, &r.OpenTurns, &r.Locked)
			if draining {
				r.State = Draining
			}
			return r, err
		})
	}
	return all, within(err, "look at the replicas")
}

// due counts what is due and without an owner.
func due(ctx context.Context, db DB) (n int64, oldest time.Duration, err error) {
	var seconds float64
	err = db.QueryRow(ctx, dueQuery).Scan(&n, &seconds)
	return n, time.Duration(seconds * float64(time.Second)), within(err, "count what is due")
}

// Load is what a member sees of all, for its metrics.
type Load struct {
	// Alive, Draining and Dead are members to this one, itself among them.
	Alive, Draining, Dead int
	// Takeovers are the sessions that this process has taken over from dead members.
	Takeovers int64
	// Due and OldestDue are those of Lag.
	Due       int64
	OldestDue time.Duration
}

// Load counts what this member sees. After an error, of the database, all but Due and OldestDue is known.
func (m *Member) Load(ctx context.Context) (l Load, err error) {
	all, dead := m.Replicas()
	l.Dead = len(dead)
	gone := map[int64]bool{}
	for _, id := range dead {
		gone[id] = true
	}
	for i := range all {
		switch {
		case gone[all[i].ID]:
		case all[i].Draining:
			l.Draining++
		default:
			l.Alive++
		}
	}
	m.mu.Lock()
	l.Takeovers = m.tookOver
	m.mu.Unlock()
	l.Due, l.OldestDue, err = due(ctx, m.cfg.DB)
	return l, err
}
