package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Times that a Config has unless it says others.
const (
	DefaultBeat    = time.Second
	DefaultTTL     = 15 * time.Second
	DefaultLockTTL = 2 * time.Second
)

// lockClass is the first key of the advisory lock of a member; the second one is its id.
const lockClass = 0x61676e74

// joinTimeout bounds a try to join, and a try to connect again.
const joinTimeout = 10 * time.Second

// leaveTimeout bounds what Leave writes.
const leaveTimeout = 2 * time.Second

// DB is what statements run on that are no beats: a pgxpool.Pool of the database of the sessions.
type DB interface {
	Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, query string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, query string, args ...any) pgx.Row
	SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults
}

// Config says what a member is.
type Config struct {
	// DB has the tables of package session/store/postgres.
	DB DB
	// Connect opens a connection to that database, which the member owns: for its beats and its lock.
	Connect func(ctx context.Context) (*pgx.Conn, error)
	// Name is what the operator calls the replica, Address the URL at which the others reach it.
	Name, Address string
	// Version is that of the program, Features what it understands beyond the first release that had replicas.
	Version  string
	Features []string
	// Beat, TTL and LockTTL are the times of the package doc; 0 is the default of each, for the beat a sixth of the TTL
	// if that is less. All members of a cluster have the same ones. LockTTL is at least twice the beat, the TTL five
	// times: looks that are a beat apart, and come late, are no gap.
	Beat, TTL, LockTTL time.Duration
	// OnGone is called when the row of the member is found gone, before it joins anew, on its goroutine. Nil is not
	// called.
	OnGone func()
	// OnLost is called when the row of the member was gone: it owns nothing but what it claims from then on. OnDoubt is
	// called when a doubt begins, and with false when it is over. Neither may wait for the member. Nil is not called.
	OnLost  func()
	OnDoubt func(doubt bool)
	// Held returns the sessions that the member owns, with their epochs, and OnTaken is called with those of them that
	// it does not own any more, which nobody has told it: it may have been dead to others for a while. Both are called
	// on the goroutine of the member. Nil is not called.
	Held    func() map[string]int64
	OnTaken func(claims map[string]int64)
	// Logger takes deaths, doubts and joins. Nil logs nothing.
	Logger *slog.Logger
}

func (c *Config) fill() error {
	if c.TTL == 0 {
		c.TTL = DefaultTTL
	}
	if c.Beat == 0 {
		c.Beat = min(DefaultBeat, c.TTL/6)
	}
	if c.LockTTL == 0 {
		c.LockTTL = DefaultLockTTL
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case c.Beat < 0 || c.LockTTL < 2*c.Beat:
		return fmt.Errorf("cluster: a lock TTL of %v with a beat of %v: want at least twice the beat",
			c.LockTTL, c.Beat)
	case c.TTL < 5*c.Beat || c.TTL < c.LockTTL:
		return fmt.Errorf("cluster: a TTL of %v with a beat of %v and a lock TTL of %v: "+
			"want at least five times the beat, and not less than the lock TTL", c.TTL, c.Beat, c.LockTTL)
	case c.Address == "":
		return errors.New("cluster: the replica has no address at which others reach it")
	}
	return nil
}

// Member is one process among those that share a database. It owns a goroutine, which Leave ends. Its methods may be
// called from any goroutine.
type Member struct {
	cfg   Config
	close context.CancelFunc
	over  chan struct{} // closed when the goroutine has ended
	conn  *pgx.Conn     // of the goroutine; nil while there is none

	mu       sync.Mutex // protects the fields below
	id       int64
	view     view
	good     time.Time // when the last good beat began
	broke    bool      // the connection broke since
	doubt    bool      // the member owns nothing: OnLost was called
	draining bool
	buried   map[int64]bool // whose death was logged
	checks   time.Time      // until when beats look for what was taken
	asked    []asked        // of the sessions of this member, by the last beat; not changed
	void     bool           // the last beat has seen void requests
	tookOver int64          // how many sessions of dead members it has claimed
}

// Join makes this process a member, and has it beat until Leave. It fails if the database cannot be reached.
func Join(ctx context.Context, cfg Config) (*Member, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	m := &Member{
		cfg: cfg, over: make(chan struct{}), view: view{ttl: cfg.TTL, lockTTL: cfg.LockTTL}, buried: map[int64]bool{},
	}
	try, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	err := m.connect(try)
	if err == nil {
		err = m.enter(try)
	}
	if err == nil {
		err = m.beat(try)
	}
	if err != nil {
		m.drop()
		return nil, fmt.Errorf("cluster: join: %w", err)
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	m.close = stop
	go m.live(life)
	return m, nil
}

// ID is that of this life of the process. It changes when the row of the member was gone.
func (m *Member) ID() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.id
}

// Replicas returns what was last seen of all members, this one included, and which of them are dead.
func (m *Member) Replicas() (all []Replica, dead []int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.view.all(), m.deadLocked()
}

// Lacking returns the members, as they were last seen, that do not list a feature and are not dead. What the feature
// brings is used when there are none.
func (m *Member) Lacking(feature string) []Replica {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.view.lacking(feature, m.deadLocked())
}

// InDoubt reports whether the member must reckon with being dead to the others. It claims nothing then.
func (m *Member) InDoubt() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.doubt || !time.Now().Before(m.doubtAtLocked())
}

// IsFirst reports whether no member with a lower id lives and takes sessions. It is for work that one member does and
// that a second one may do as well: two members may disagree for a while.
func (m *Member) IsFirst() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	place, _ := m.view.place(m.id, m.deadLocked())
	return place == 0 && time.Now().Before(m.doubtAtLocked())
}

// Drain says to the others that this member takes no more sessions. Due returns none from then on. It looks at the
// others too: whoever is to do what this member does not begin may have joined since the last beat.
func (m *Member) Drain(ctx context.Context) error {
	m.mu.Lock()
	m.draining = true
	id := m.id
	m.mu.Unlock()
	_, err := m.cfg.DB.Exec(ctx, `UPDATE replicas SET draining = true WHERE id = $1`, id)
	if err == nil {
		err = m.lookAgain(ctx)
	}
	if err != nil {
		return fmt.Errorf("cluster: drain: %w", err)
	}
	return nil
}

// lookAgain looks at all members between two beats.
func (m *Member) lookAgain(ctx context.Context) error {
	began := time.Now()
	rows, err := m.cfg.DB.Query(ctx, membersQuery, int64(lockClass))
	if err != nil {
		return err
	}
	all, err := pgx.CollectRows(rows, scanReplica)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if began.After(m.view.looked) {
		m.view.look(all, began, time.Now())
	}
	return nil
}

// Leave gives back all sessions, those with an open turn as due, and takes the member off the list. Where the database
// cannot be reached the others find it dead. It ends the member's goroutine.
func (m *Member) Leave(ctx context.Context) error {
	m.close()
	<-m.over
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	id := m.ID()
	_, err := m.cfg.DB.Exec(ctx, `UPDATE heads SET owner = NULL, epoch = epoch + 1,
		due_at = CASE WHEN open_turn = '' THEN due_at ELSE now() END WHERE owner = $1`, id)
	if err == nil {
		_, err = m.cfg.DB.Exec(ctx, `DELETE FROM replicas WHERE id = $1`, id)
	}
	if err != nil {
		return fmt.Errorf("cluster: leave: %w", err)
	}
	return nil
}

// live beats until its context ends.
func (m *Member) live(ctx context.Context) {
	defer close(m.over)
	defer m.drop()
	tick := time.NewTicker(m.cfg.Beat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := m.once(ctx); err != nil && ctx.Err() == nil {
			m.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "a beat of this replica has failed",
				slog.String("error", err.Error()))
		}
	}
}

// errGone is the error of a beat that finds no row.
var errGone = errors.New("the row of this replica is gone")

// once beats, within the time in which nobody may think the member dead, or else a third of the TTL. It connects again
// where there is no connection.
func (m *Member) once(ctx context.Context) error {
	m.judge()
	err := m.tryBeat(ctx)
	if errors.Is(err, errGone) {
		m.cfg.Logger.LogAttrs(ctx, slog.LevelError, "the other replicas took this one for dead; it joins anew",
			slog.Int64("replica", m.ID()))
		if m.cfg.OnGone != nil {
			m.cfg.OnGone()
		}
		if err = m.enterAnew(ctx); err == nil {
			err = m.tryBeat(ctx)
		}
	}
	if err != nil {
		m.mu.Lock()
		m.view.failed()
		m.mu.Unlock()
	}
	m.judge()
	return err
}

// tryBeat beats once. A query that does not end in time breaks the connection; while the member is not in doubt yet it
// may take until then.
func (m *Member) tryBeat(ctx context.Context) error {
	m.mu.Lock()
	most := max(time.Until(m.doubtAtLocked()), m.cfg.TTL/3)
	m.mu.Unlock()
	try, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	stop := m.watchDoubt()
	defer stop()
	if m.conn == nil {
		if err := m.connect(try); err != nil {
			return err
		}
	}
	err := m.beat(try)
	if err != nil && !errors.Is(err, errGone) {
		m.drop()
		m.mu.Lock()
		m.broke = true
		m.mu.Unlock()
	}
	return err
}

// watchDoubt has the member judged while a beat takes long. The returned function ends that, and waits for it.
func (m *Member) watchDoubt() (stop func()) {
	m.mu.Lock()
	wait := time.Until(m.doubtAtLocked())
	m.mu.Unlock()
	if wait <= 0 {
		return func() {}
	}
	done := make(chan struct{})
	timer := time.AfterFunc(wait, func() { defer close(done); m.judge() })
	return func() {
		if !timer.Stop() {
			<-done
		}
	}
}

// doubtAtLocked is when the member must reckon with being dead to the others.
func (m *Member) doubtAtLocked() time.Time {
	if m.broke {
		return m.good.Add(m.cfg.LockTTL * 3 / 4)
	}
	return m.good.Add(m.cfg.TTL * 4 / 5)
}

// judge tells whether the member is in doubt, if that has changed.
func (m *Member) judge() {
	m.mu.Lock()
	doubt := !time.Now().Before(m.doubtAtLocked())
	changed := doubt != m.doubt
	m.doubt = doubt
	m.mu.Unlock()
	if !changed {
		return
	}
	if doubt {
		m.cfg.Logger.Error("this replica cannot reach the database, and may be dead to the others")
	} else {
		m.cfg.Logger.Info("this replica reaches the database again")
	}
	if m.cfg.OnDoubt != nil {
		m.cfg.OnDoubt(doubt)
	}
}

func (m *Member) deadLocked() []int64 { return m.view.dead(time.Now()) }

// connect opens the connection of the member.
func (m *Member) connect(ctx context.Context) (err error) {
	m.conn, err = m.cfg.Connect(ctx)
	return err
}

// drop closes the connection, and its lock with it.
func (m *Member) drop() {
	if m.conn == nil {
		return
	}
	now, cancel := context.WithCancel(context.Background())
	cancel() // nobody waits for the server
	_ = m.conn.Close(now)
	m.conn = nil
}

// enter makes a new row.
func (m *Member) enter(ctx context.Context) error {
	m.mu.Lock()
	draining := m.draining
	m.mu.Unlock()
	var id int64
	err := m.conn.QueryRow(ctx, `INSERT INTO replicas (name, address, version, features, draining)
		VALUES ($1, $2, $3, $4, $5) RETURNING id`,
		m.cfg.Name, m.cfg.Address, m.cfg.Version, append([]string{}, m.cfg.Features...), draining).Scan(&id)
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.id = id
	m.mu.Unlock()
	return nil
}

// enterAnew makes a new row in place of one that is gone, and says so.
func (m *Member) enterAnew(ctx context.Context) error {
	try, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	// The lock of the old row goes with its connection.
	m.drop()
	err := m.connect(try)
	if err == nil {
		err = m.enter(try)
	}
	if err == nil && m.cfg.OnLost != nil {
		m.cfg.OnLost()
	}
	return err
}

// membersQuery lists all members, and whether the lock of each is held.
const membersQuery = `SELECT r.id, r.name, r.address, r.version, r.features, r.draining, r.beat,
	EXISTS (SELECT 1 FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
		AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND l.classid = $1 AND l.objid::bigint = r.id)
	FROM replicas r ORDER BY r.id`

// beat counts up, takes the lock unless it has it, and looks at all members, in one round trip.
func (m *Member) beat(ctx context.Context) error {
	id, began := m.ID(), time.Now()
	m.mu.Lock()
	took := m.tookOver
	m.mu.Unlock()
	var batch pgx.Batch
	var beats int64
	var all []Replica
	var asks requests
	held := m.held(began)
	batch.Queue(`UPDATE replicas SET beat = beat + 1, takeovers = $2,
		took_over_at = CASE WHEN takeovers < $2 THEN now() ELSE took_over_at END
		WHERE id = $1`, id, took).Exec(func(t pgconn.CommandTag) error {
		beats = t.RowsAffected()
		return nil
	})
	// Not taken: the connection has it, or the server has not noticed yet that the one before is gone.
	batch.Queue(`SELECT pg_try_advisory_lock($1::int, $2::int) WHERE NOT EXISTS (SELECT 1 FROM pg_locks
		WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND classid = $1::bigint AND objid::bigint = $2)`,
		int64(lockClass), id).Exec(func(pgconn.CommandTag) error { return nil })
	batch.Queue(membersQuery, int64(lockClass)).Query(func(rows pgx.Rows) (err error) {
		all, err = pgx.CollectRows(rows, scanReplica)
		return err
	})
	batch.Queue(asksQuery, id, mostAsked).Query(asks.read)
	if len(held) > 0 {
		batch.Queue(`SELECT id, epoch FROM heads WHERE owner = $1`, id).Query(func(rows pgx.Rows) error {
			var key string
			var epoch int64
			_, err := pgx.ForEachRow(rows, []any{&key, &epoch}, func() error {
				if held[key] == epoch {
					delete(held, key)
				}
				return nil
			})
			return err
		})
	}
	if err := m.conn.SendBatch(ctx, &batch).Close(); err != nil {
		return err
	}
	if beats == 0 {
		return errGone
	}
	m.seen(all, asks, began)
	if len(held) > 0 {
		m.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "others have taken sessions of this replica while it was away",
			slog.Int("sessions", len(held)))
		m.cfg.OnTaken(held)
	}
	return nil
}

// held returns what the member owns, if others may have taken some of it: it was away for so long that it may have been
// dead to them, or was until a moment ago, since they act upon what they have seen for a third of the TTL.
func (m *Member) held(now time.Time) map[string]int64 {
	m.mu.Lock()
	if now.Sub(m.good) > m.cfg.LockTTL-m.cfg.Beat {
		m.checks = now.Add(m.cfg.TTL/3 + 2*m.cfg.Beat)
	}
	may := now.Before(m.checks)
	m.mu.Unlock() // Held may take locks of its own
	if !may || m.cfg.Held == nil || m.cfg.OnTaken == nil {
		return nil
	}
	return m.cfg.Held()
}

func scanReplica(row pgx.CollectableRow) (r Replica, err error) {
	err = row.Scan(&r.ID, &r.Name, &r.Address, &r.Version, &r.Features, &r.Draining, &r.beat, &r.held)
	return r, err
}

// seen takes what a good beat has read, and logs deaths.
func (m *Member) seen(all []Replica, asks requests, began time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked, m.void = asks.own, asks.void
	m.view.look(all, began, time.Now())
	m.good, m.broke = began, false
	dead := map[int64]bool{}
	for _, id := range m.deadLocked() {
		dead[id] = true
		if r := m.view.members[id]; !m.buried[id] {
			m.cfg.Logger.LogAttrs(context.Background(), slog.LevelWarn, "a replica is dead",
				slog.Int64("replica", id), slog.String("name", r.Name), slog.String("address", r.Address))
		}
	}
	m.buried = dead
}
