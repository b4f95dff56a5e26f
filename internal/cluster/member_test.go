package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/apzuk3/agentd/internal/test/link"
	"github.com/apzuk3/agentd/internal/test/pgserver"
	"github.com/apzuk3/agentd/internal/test/testmain"
	"github.com/apzuk3/agentd/session"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
	"github.com/apzuk3/agentd/session/store/postgres"
)

func TestMain(m *testing.M) { testmain.Run(m) }

// The times of members in tests: short, and long enough for a machine that does other things.
const (
	testBeat    = 300 * time.Millisecond
	testLockTTL = 3 * time.Second
	testTTL     = 9 * time.Second
)

// patience bounds what a test waits for.
const patience = 2 * time.Minute

// db is a database with the tables of sessions.
type db struct {
	t     *testing.T
	url   string
	pool  *pgxpool.Pool
	store store.Store
	owner atomic.Int64 // of what the store creates under an epoch
}

func newDB(t *testing.T, url string) *db {
	t.Helper()
	d := &db{t: t, url: url}
	s, err := postgres.Open(t.Context(), url, postgres.Config{Owner: d.owner.Load})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		pool.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	d.pool, d.store = pool, s
	return d
}

// sessions creates sessions of a name and a number, each with an open turn if told so.
func (d *db) sessions(n int, name string, open bool) (ids []string) {
	d.t.Helper()
	for i := range n {
		id := fmt.Sprintf("%s%03d", name, i)
		b := store.Batch{
			SessionID: id, Create: &store.NewSession{ID: id, CreatedAt: time.Now(), Creator: "local"},
			Records: []record.Record{{Seq: 1, TurnID: "t", Kind: record.KindTurnStarted, Time: time.Now(), Data: []byte("{}")}},
		}
		if !open {
			b.Records = append(b.Records, record.Record{Seq: 2, TurnID: "t", Kind: record.KindTurnEnded, Time: time.Now(), Data: []byte("{}")})
		}
		if err := d.store.Append(d.t.Context(), b); err != nil {
			d.t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

// member is a Member with what it was told.
type member struct {
	*Member
	t *testing.T

	mu     sync.Mutex // protects the fields below
	doubts []bool
	lost   int
	held   map[string]int64
	taken  []string
}

// join makes a member. Its connection goes to an address, if it is not empty; its statements go to the database itself.
func (d *db) join(name, address string) *member {
	d.t.Helper()
	m := &member{t: d.t}
	cfg := Config{
		DB: d.pool, Name: name, Address: "http://" + name, Version: "1", Features: []string{"f", FeatureAsks},
		Beat: testBeat, TTL: testTTL, LockTTL: testLockTTL,
		Connect: func(ctx context.Context) (*pgx.Conn, error) {
			c, err := pgx.ParseConfig(d.url)
			if err == nil && address != "" {
				c.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
					var d net.Dialer
					return d.DialContext(ctx, network, address)
				}
			}
			if err != nil {
				return nil, err
			}
			return pgx.ConnectConfig(ctx, c)
		},
		OnDoubt: func(doubt bool) { m.mu.Lock(); defer m.mu.Unlock(); m.doubts = append(m.doubts, doubt) },
		OnLost:  func() { m.mu.Lock(); defer m.mu.Unlock(); m.lost++ },
		Held:    func() map[string]int64 { m.mu.Lock(); defer m.mu.Unlock(); return maps.Clone(m.held) },
		OnTaken: func(claims map[string]int64) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.taken = slices.AppendSeq(m.taken, maps.Keys(claims))
			maps.DeleteFunc(m.held, func(key string, _ int64) bool { return claims[key] > 0 })
		},
	}
	var err error
	if m.Member, err = Join(d.t.Context(), cfg); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(m.kill)
	return m
}

// kill ends the member's goroutine and its connection, and writes nothing, as kill -9 does.
func (m *member) kill() {
	m.close()
	<-m.over
}

// told returns what the member was told of its doubts, and how often that it owns nothing.
func (m *member) told() (doubts []bool, lost int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.doubts), m.lost
}

// claims expects a claim to succeed, and returns its epoch.
func (m *member) claims(key string) int64 {
	m.t.Helper()
	c, err := m.Claim(m.t.Context(), key)
	if err != nil {
		m.t.Fatalf("claim of %q: %v", key, err)
	}
	return c.Epoch
}

// meets expects a claim to meet an owner.
func (m *member) meets(key string, owner *member) {
	m.t.Helper()
	c, err := m.Claim(m.t.Context(), key)
	if at, ok := errors.AsType[*session.Elsewhere](err); !ok || at.Address != owner.cfg.Address {
		m.t.Fatalf("claim of %q: %+v, %v; want it to meet %q", key, c, err, owner.cfg.Name)
	}
}

// owned expects an owner.
func (m *member) owned(key, address string) {
	m.t.Helper()
	if got, err := m.Owner(m.t.Context(), key); err != nil || got != address {
		m.t.Errorf("%q is owned by %q, %v; want %q", key, got, err, address)
	}
}

// release releases a session, due after a time.
func (m *member) release(key string, epoch int64, due time.Duration) {
	m.t.Helper()
	if err := m.Release(m.t.Context(), key, epoch, due); err != nil {
		m.t.Fatal(err)
	}
}

// due returns what the member finds due, and claims it.
func (m *member) due(most int) (keys []string) {
	m.t.Helper()
	found, err := m.Due(m.t.Context(), most)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, key := range found {
		_, err := m.Claim(m.t.Context(), key)
		if _, ok := errors.AsType[*session.Elsewhere](err); ok {
			continue
		}
		if err != nil {
			m.t.Fatal(err)
		}
		keys = append(keys, key)
	}
	return keys
}

// await waits until something holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for limit := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// takes waits until a claim of another member's session succeeds, and returns how long that took.
func (m *member) takes(key string) time.Duration {
	m.t.Helper()
	start := time.Now()
	await(m.t, "claim of "+key, func() bool {
		_, err := m.Claim(m.t.Context(), key)
		if _, ok := errors.AsType[*session.Elsewhere](err); err != nil && !ok && !errors.Is(err, ErrInDoubt) {
			m.t.Fatal(err)
		}
		return err == nil
	})
	return time.Since(start)
}

// TestClaim: one owner at a time, under epochs that rise.
func TestClaim(t *testing.T) {
	t.Parallel()
	d := newDB(t, pgserver.URL(t))
	a, b := d.join("a", ""), d.join("b", "")
	id := d.sessions(1, "s", false)[0]
	if _, err := a.Claim(t.Context(), "none"); !errors.Is(err, store.ErrNoSession) {
		t.Errorf("claim of no session: %v", err)
	}
	if _, err := a.Owner(t.Context(), "none"); !errors.Is(err, store.ErrNoSession) {
		t.Errorf("owner of no session: %v", err)
	}
	a.owned(id, "")
	first := a.claims(id)
	a.owned(id, "")
	b.owned(id, "http://a")
	b.meets(id, a)
	again := a.claims(id)
	if again <= first {
		t.Errorf("claimed under epoch %d, and then under %d", first, again)
	}
	b.release(id, again, session.Never)
	a.release(id, first, session.Never)
	b.meets(id, a)
	a.release(id, again, session.Never)
	a.owned(id, "")
	b.owned(id, "")
	if second := b.claims(id); second != again+1 {
		t.Errorf("claimed under epoch %d, and by the next one under %d", again, second)
	}
	a.meets(id, b)
	c, err := b.Claim(t.Context(), id)
	if err != nil || c.LastSeq != 2 || c.Archived {
		t.Errorf("claimed %+v, %v", c, err)
	}
	if _, err := d.store.Update(t.Context(), id, store.Change{Archived: new(true)}); err != nil {
		t.Fatal(err)
	}
	if c, err = b.Claim(t.Context(), id); err != nil || !c.Archived {
		t.Errorf("claimed an archived session: %+v, %v", c, err)
	}
}

// TestMade: a session that an append makes under an epoch is owned by who makes it, and one without an epoch by nobody.
// An append by a replica that is gone makes nothing.
func TestMade(t *testing.T) {
	t.Parallel()
	d := newDB(t, pgserver.URL(t))
	a, b := d.join("a", ""), d.join("b", "")
	d.owner.Store(a.ID())
	free := d.sessions(1, "free", true)[0]
	b.claims(free)
	made := func(id string) store.Batch {
		return store.Batch{
			SessionID: id, Create: &store.NewSession{ID: id, CreatedAt: time.Now(), Creator: "local"}, Epoch: 1,
			Records: []record.Record{{Seq: 1, TurnID: "t", Kind: record.KindTurnStarted, Time: time.Now(), Data: []byte("{}")}},
		}
	}
	batch := made("s")
	for range 2 { // a repeat changes nothing
		if err := d.store.Append(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		b.meets("s", a)
	}
	if epoch := a.claims("s"); epoch != 2 {
		t.Errorf("claimed under epoch %d, want 2", epoch)
	}
	d.owner.Store(1 << 40)
	if err := d.store.Append(t.Context(), made("other")); err == nil {
		t.Error("a replica that there is not has made a session")
	}
	if _, err := b.Claim(t.Context(), "other"); !errors.Is(err, store.ErrNoSession) {
		t.Errorf("claim of what was not made: %v", err)
	}
}

// TestOneOfManyClaims: of members that claim a session at the same time one gets it, and the others meet that one.
func TestOneOfManyClaims(t *testing.T) {
	t.Parallel()
	d := newDB(t, pgserver.URL(t))
	members := []*member{d.join("a", ""), d.join("b", ""), d.join("c", ""), d.join("d", "")}
	for _, id := range d.sessions(20, "s", false) {
		met := make([]string, len(members)) // "" of who owns it
		var all sync.WaitGroup
		for i, m := range members {
			all.Go(func() {
				_, err := m.Claim(t.Context(), id)
				if at, ok := errors.AsType[*session.Elsewhere](err); ok {
					met[i] = at.Address
				} else if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		owner := slices.Index(met, "")
		for i, at := range met {
			if owner < 0 || i != owner && at != members[owner].cfg.Address {
				t.Fatalf("those that claimed %q met %q", id, met)
			}
		}
	}
}

// TestKilled: what a killed member owned is claimed soon after its lock is free, and not before the lock TTL.
func TestKilled(t *testing.T) {
	t.Parallel()
	d := newDB(t, pgserver.URL(t))
	a, b := d.join("a", ""), d.join("b", "")
	id := d.sessions(1, "s", false)[0]
	first := a.claims(id)
	await(t, "b sees the lock of a", func() bool { return b.sees(a.ID(), func(s *seen) bool { return s.wasHeld }) })
	b.meets(id, a)
	a.kill()
	if took := b.takes(id); took < testLockTTL-2*testBeat {
		t.Errorf("taken after %v, want at least about %v", took, testLockTTL)
	}
	if !b.sees(a.ID(), func(s *seen) bool { return s.wasHeld && !s.held }) {
		t.Error("the lock of a dead member is held")
	}
	if epoch := b.claims(id); epoch <= first {
		t.Errorf("taken under epoch %d, after %d", epoch, first)
	}
}

// sees reports whether the member has seen another one that is so.
func (m *member) sees(id int64, so func(*seen) bool) bool {
	m.Member.mu.Lock()
	defer m.Member.mu.Unlock()
	s := m.view.members[id]
	return s != nil && so(s)
}

// TestCut: a member behind a network that loses everything is in doubt before the others take what it owns, and joins
// anew when the network is back.
func TestCut(t *testing.T) {
	t.Parallel()
	server := pgserver.Start(t, pgserver.Options{})
	d := newDB(t, server.URL(t))
	wire := link.New(t, server.Addr())
	a, b := d.join("a", wire.Addr()), d.join("b", "")
	id := d.sessions(1, "s", false)[0]
	a.claims(id)
	old := a.ID()
	wire.Hold()
	await(t, "a is told of its doubt", func() bool { doubts, _ := a.told(); return len(doubts) == 1 })
	b.meets(id, a) // it is dead to nobody yet
	if _, err := a.Claim(t.Context(), id); !errors.Is(err, ErrInDoubt) {
		t.Errorf("claim of a member in doubt: %v", err)
	}
	b.takes(id)
	await(t, "b removes a", func() bool {
		b.due(0)
		all, _ := b.Replicas()
		return len(all) == 1
	})
	wire.Heal()
	await(t, "a joins anew", func() bool { return a.ID() != old && !a.InDoubt() })
	await(t, "a is told", func() bool {
		doubts, lost := a.told()
		return lost == 1 && slices.Equal(doubts, []bool{true, false})
	})
	if doubts, lost := b.told(); doubts != nil || lost != 0 {
		t.Errorf("b was told of %v and %d", doubts, lost)
	}
	a.meets(id, b)
}

// TestRowGone: a member that others have taken off the list without its noticing owns nothing, and joins anew.
func TestRowGone(t *testing.T) {
	t.Parallel()
	d := newDB(t, pgserver.URL(t))
	a := d.join("a", "")
	old := a.ID()
	if _, err := d.pool.Exec(t.Context(), `DELETE FROM replicas WHERE id = $1`, old); err != nil {
		t.Fatal(err)
	}
	await(t, "a joins anew", func() bool { _, lost := a.told(); return a.ID() != old && lost == 1 })
	a.claims(d.sessions(1, "s", false)[0])
}

// TestShortCut: a member whose connection breaks, and that connects again, loses nothing.
func TestShortCut(t *testing.T) {
	t.Parallel()
	server := pgserver.Start(t, pgserver.Options{})
	d := newDB(t, server.URL(t))
	wire := link.New(t, server.Addr())
	a, b := d.join("a", wire.Addr()), d.join("b", "")
	id := d.sessions(1, "s", false)[0]
	a.claims(id)
	for range 3 {
		await(t, "b sees the lock of a", func() bool { return b.sees(a.ID(), func(s *seen) bool { return s.held }) })
		wire.Break()
		for last := a.beats() + 2; a.beats() < last; time.Sleep(testBeat) {
		}
		b.meets(id, a)
	}
	if _, lost := a.told(); lost != 0 {
		t.Error("a has lost its row")
	}
}

// beats returns the last beat of the member that it has seen.
func (m *member) beats() (n int64) {
	m.sees(m.ID(), func(s *seen) bool { n = s.beat; return true })
	return n
}

// TestDatabaseStops: a database that freezes for longer than the TTL, or is killed and started again, makes no member
// look dead.
func TestDatabaseStops(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(s *pgserver.Server){
		"frozen": func(s *pgserver.Server) { s.Freeze(); time.Sleep(testTTL + testLockTTL); s.Thaw() },
		"killed": func(s *pgserver.Server) { s.Kill(); time.Sleep(testLockTTL); s.Restart() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := pgserver.Start(t, pgserver.Options{})
			d := newDB(t, server.URL(t))
			a, b := d.join("a", ""), d.join("b", "")
			id := d.sessions(1, "s", false)[0]
			a.claims(id)
			await(t, "b sees the lock of a", func() bool { return b.sees(a.ID(), func(s *seen) bool { return s.wasHeld }) })
			stop(server)
			await(t, "both reach the database", func() bool { return !a.InDoubt() && !b.InDoubt() })
			for limit := time.Now().Add(testTTL); time.Now().Before(limit); time.Sleep(testBeat) {
				_, deadToA := a.Replicas()
				_, deadToB := b.Replicas()
				if len(deadToA)+len(deadToB) > 0 {
					t.Fatalf("a takes %v for dead, and b %v", deadToA, deadToB)
				}
			}
			b.meets(id, a)
			if _, lost := a.told(); lost != 0 {
				t.Error("a has lost its row")
			}
		})
	}
}

// TestDue: what must go on is shared among the members, and what is due later, open without an owner, or without a
// turn, is left.
func TestDue(t *testing.T) {
	t.Parallel()
	d := newDB(t, pgserver.URL(t))
	dead := d.join("dead", "")
	for _, id := range slices.Concat(d.sessions(60, "open", true), d.sessions(5, "idle", false)) {
		dead.claims(id)
	}
	left := d.sessions(3, "parked", true)
	members := []*member{d.join("a", ""), d.join("b", ""), d.join("c", "")}
	first := members[0]
	for _, id := range d.sessions(30, "due", true) {
		first.release(id, first.claims(id), 0)
	}
	later := d.sessions(2, "later", true)
	first.release(later[0], first.claims(later[0]), time.Hour)
	first.release(later[1], first.claims(later[1]), 0)
	first.release(later[1], first.claims(later[1]), session.Never)
	left = append(left, later...)
	for _, m := range members {
		await(t, "all see the dead one's lock", func() bool { return m.sees(dead.ID(), func(s *seen) bool { return s.wasHeld }) })
	}
	kept := first.due(4)
	if len(kept) != 4 {
		t.Errorf("due are %q, want 4", kept)
	}
	first.release(kept[0], first.claims(kept[0]), session.SameDue) // it is due as before
	dead.kill()
	for _, m := range members {
		await(t, "the dead one is dead to all", func() bool { _, ids := m.Replicas(); return slices.Contains(ids, dead.ID()) })
	}
	taken := map[string]bool{}
	for _, id := range kept[1:] {
		taken[id] = true
	}
	take := func(m *member, share int) {
		got := m.due(1000)
		if len(got) > share {
			t.Errorf("took %d, want at most %d", len(got), share)
		}
		for _, id := range got {
			if taken[id] {
				t.Errorf("%q is taken twice", id)
			}
			taken[id] = true
		}
	}
	// All look before one claims: each finds about a third of 87, and they are all of them.
	var found [][]string
	for _, m := range members {
		var keys []string
		await(t, "about 29 are due", func() (ok bool) { // fewer are while the member has not looked for long
			var err error
			if keys, err = m.Due(t.Context(), 1000); err != nil && !errors.Is(err, ErrInDoubt) {
				t.Fatal(err)
			}
			return len(keys) >= 29
		})
		if len(keys) > 50 {
			t.Fatalf("due are %d, want about 29", len(keys))
		}
		found = append(found, keys)
	}
	all := slices.Sorted(slices.Values(slices.Concat(found...)))
	if distinct := len(slices.Compact(all)); distinct != 87 {
		t.Errorf("three members found %d of 87 sessions", distinct)
	}
	take(members[1], len(found[1]))
	for range 20 { // the others take none
		take(members[1], 29)
	}
	if len(taken) != 90 {
		t.Errorf("%d were taken, want 90", len(taken))
	}
	for _, id := range left {
		if first.owned(id, ""); taken[id] {
			t.Errorf("%q is taken", id)
		}
	}
	await(t, "the dead one is off the list", func() bool {
		all, _ := first.Replicas()
		return len(all) == 3
	})
}

// TestWokenUp: one that was dead to others and wakes up is fenced from what it owned without a turn.
func TestWokenUp(t *testing.T) {
	t.Parallel()
	server := pgserver.Start(t, pgserver.Options{})
	d := newDB(t, server.URL(t))
	wire := link.New(t, server.Addr())
	a, b := d.join("a", wire.Addr()), d.join("b", "")
	id := d.sessions(1, "s", false)[0]
	epoch := a.claims(id)
	wire.Hold()
	await(t, "a is dead to b", func() bool { _, ids := b.Replicas(); return slices.Contains(ids, a.ID()) })
	b.due(0)
	begins := store.Batch{SessionID: id, After: 2, Epoch: epoch, Records: []record.Record{
		{Seq: 3, TurnID: "u", Kind: record.KindTurnStarted, Time: time.Now(), Data: []byte("{}")},
	}}
	if err := d.store.Append(t.Context(), begins); !errors.Is(err, store.ErrFenced) {
		t.Errorf("a turn of a dead owner begins: %v", err)
	}
}

// TestSomeTaken: one that was away finds out what of its sessions others have taken meanwhile, and what they take right
// after it is back. It keeps the rest.
func TestSomeTaken(t *testing.T) {
	t.Parallel()
	server := pgserver.Start(t, pgserver.Options{})
	d := newDB(t, server.URL(t))
	wire := link.New(t, server.Addr())
	a, b := d.join("a", wire.Addr()), d.join("b", "")
	a.mu.Lock()
	a.held = map[string]int64{}
	a.mu.Unlock()
	keys := append(d.sessions(3, "open", true), d.sessions(1, "idle", false)...)
	for _, key := range keys {
		epoch := a.claims(key)
		a.mu.Lock()
		a.held[key] = epoch
		a.mu.Unlock()
	}
	has := func(want ...string) func() bool {
		return func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			slices.Sort(a.taken)
			return slices.Equal(a.taken, want)
		}
	}
	wire.Hold()
	await(t, "a is dead to b", func() bool { _, ids := b.Replicas(); return slices.Contains(ids, a.ID()) })
	b.claims(keys[0])
	b.due(0) // gives back what is idle
	wire.Heal()
	await(t, "a knows what was taken", has(keys[3], keys[0]))
	a.Member.mu.Lock()
	a.checks = time.Now().Add(patience) // however busy the machine is
	a.Member.mu.Unlock()
	if _, err := d.pool.Exec(t.Context(), `UPDATE heads SET owner = $2, epoch = epoch + 1 WHERE id = $1`, keys[1], b.ID()); err != nil {
		t.Fatal(err) // as b may do that looked before
	}
	await(t, "a knows what was taken late", has(keys[3], keys[0], keys[1]))
	a.owned(keys[2], "")
	if _, lost := a.told(); lost > 0 {
		t.Error("a was told that it owns nothing")
	}
}

// TestDrain: who drains finds nothing due, and gives all back when it leaves: due, if a turn is open.
func TestDrain(t *testing.T) {
	t.Parallel()
	d := newDB(t, pgserver.URL(t))
	a, b := d.join("a", ""), d.join("b", "")
	open, idle := d.sessions(1, "open", true)[0], d.sessions(1, "idle", false)[0]
	other := d.sessions(1, "other", true)[0]
	b.release(other, b.claims(other), 0)
	a.claims(open)
	a.claims(idle)
	if err := a.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := a.due(10); got != nil {
		t.Errorf("due are %q to one that drains", got)
	}
	await(t, "b sees that a drains", func() bool { return b.sees(a.ID(), func(s *seen) bool { return s.Draining }) })
	if got := b.due(10); !slices.Equal(got, []string{other}) {
		t.Errorf("due are %q, want %q", got, other)
	}
	if err := a.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := b.due(10); !slices.Equal(got, []string{open}) {
		t.Errorf("due are %q, want %q", got, open)
	}
	b.claims(idle)
}

// TestIsFirst: the oldest member that lives is the first, and then the next one.
func TestIsFirst(t *testing.T) {
	t.Parallel()
	d := newDB(t, pgserver.URL(t))
	a := d.join("a", "")
	b := d.join("b", "")
	if !a.IsFirst() || b.IsFirst() {
		t.Errorf("a is the first: %t, b: %t", a.IsFirst(), b.IsFirst())
	}
	if err := a.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, "b is the first", b.IsFirst)
}
