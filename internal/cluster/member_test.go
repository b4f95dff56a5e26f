package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/apzuk3/agentd/internal/test/link"
	"github.com/apzuk3/agentd/internal/test/pgserver"
	"github.com/apzuk3/agentd/internal/test/testmain"
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
}

func newDB(t *testing.T, url string) *db {
	t.Helper()
	s, err := postgres.Open(t.Context(), url, postgres.Config{})
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
	return &db{t: t, url: url, pool: pool, store: s}
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
	wanted map[string]bool
}

// join makes a member. Its connection goes to an address, if it is not empty; its statements go to the database itself.
func (d *db) join(name, address string) *member {
	d.t.Helper()
	m := &member{t: d.t, wanted: map[string]bool{}}
	cfg := Config{
		DB: d.pool, Name: name, Address: "http://" + name, Version: "1", Features: []string{"f"},
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
		OnWanted: func(ids []string) {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, id := range ids {
				m.wanted[id] = true
			}
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

// told reports what the member was told.
func (m *member) told() (doubts []bool, lost int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.doubts), m.lost
}

// claims expects a claim to succeed, and returns its epoch.
func (m *member) claims(session string) int64 {
	m.t.Helper()
	c, err := m.Claim(m.t.Context(), session)
	if err != nil || c.Owner != nil {
		m.t.Fatalf("claim of %q: %+v, %v", session, c.Owner, err)
	}
	return c.Epoch
}

// meets expects a claim to meet an owner.
func (m *member) meets(session string, owner *member) {
	m.t.Helper()
	c, err := m.Claim(m.t.Context(), session)
	if err != nil || c.Owner == nil || c.Owner.ID != owner.ID() || c.Owner.Address != owner.cfg.Address {
		m.t.Fatalf("claim of %q: %+v, %v; want it to meet %q", session, c, err, owner.cfg.Name)
	}
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
func (m *member) takes(session string) time.Duration {
	m.t.Helper()
	start := time.Now()
	await(m.t, "claim of "+session, func() bool {
		c, err := m.Claim(m.t.Context(), session)
		if err != nil && !errors.Is(err, ErrInDoubt) {
			m.t.Fatal(err)
		}
		return err == nil && c.Owner == nil
	})
	return time.Since(start)
}

// TestClaim: one owner at a time, whose epochs rise.
func TestClaim(t *testing.T) {
	d := newDB(t, pgserver.URL(t))
	a, b := d.join("a", ""), d.join("b", "")
	id := d.sessions(1, "s", false)[0]
	if _, err := a.Claim(t.Context(), "none"); !errors.Is(err, store.ErrNoSession) {
		t.Errorf("claim of no session: %v", err)
	}
	first := a.claims(id)
	if again := a.claims(id); again != first || first == 0 {
		t.Errorf("claimed under epoch %d, and then %d", first, again)
	}
	b.meets(id, a)
	for _, wrong := range []func() error{
		func() error { return b.Release(t.Context(), id, first, time.Time{}) },
		func() error { return a.Release(t.Context(), id, first-1, time.Time{}) },
	} {
		if err := wrong(); err != nil {
			t.Fatal(err)
		}
		b.meets(id, a)
	}
	if err := a.Release(t.Context(), id, first, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if owner, err := b.Owner(t.Context(), id); owner != nil || err != nil {
		t.Errorf("the owner of what was released is %+v, %v", owner, err)
	}
	if second := b.claims(id); second <= first {
		t.Errorf("claimed under epoch %d, and by the next one under %d", first, second)
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

// TestOneOfManyClaims: of members that claim a session at the same time one gets it, and the others meet that one.
func TestOneOfManyClaims(t *testing.T) {
	d := newDB(t, pgserver.URL(t))
	members := []*member{d.join("a", ""), d.join("b", ""), d.join("c", ""), d.join("d", "")}
	for _, id := range d.sessions(20, "s", false) {
		got := make([]Claim, len(members))
		var all sync.WaitGroup
		for i, m := range members {
			all.Go(func() {
				var err error
				if got[i], err = m.Claim(t.Context(), id); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		var owner int64
		for i, c := range got {
			if c.Owner == nil && owner != 0 {
				t.Fatalf("%q has two owners", id)
			} else if c.Owner == nil {
				owner = members[i].ID()
			}
		}
		for _, c := range got {
			if c.Owner != nil && c.Owner.ID != owner {
				t.Errorf("%q is owned by %d, and one that claimed it met %d", id, owner, c.Owner.ID)
			}
		}
	}
}

// TestKilled: what a killed member owned is claimed soon after its lock is free, and not before the lock TTL.
func TestKilled(t *testing.T) {
	d := newDB(t, pgserver.URL(t))
	a, b := d.join("a", ""), d.join("b", "")
	id := d.sessions(1, "s", false)[0]
	first := a.claims(id)
	await(t, "b sees the lock of a", func() bool { return b.sees(a.ID(), func(s *seen) bool { return s.wasHeld }) })
	b.meets(id, a)
	a.kill()
	if took := b.takes(id); took < testLockTTL-2*testBeat || took >= testTTL {
		t.Errorf("taken after %v, want about %v", took, testLockTTL)
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

// TestCut: a member behind a network that loses everything is in doubt before the others take what it owned, and joins
// anew when the network is back.
func TestCut(t *testing.T) {
	server := pgserver.Start(t, pgserver.Options{})
	d := newDB(t, server.URL(t))
	wire := link.New(t, server.Addr())
	a, b := d.join("a", wire.Addr()), d.join("b", "")
	id := d.sessions(1, "s", false)[0]
	a.claims(id)
	old := a.ID()
	wire.Hold()
	doubted := make(chan struct{})
	go func() {
		defer close(doubted)
		await(t, "a is in doubt", a.InDoubt)
	}()
	b.takes(id)
	select {
	case <-doubted:
	default:
		t.Error("a does not doubt, and b has taken what it owned")
	}
	<-doubted
	if _, err := a.Claim(t.Context(), id); !errors.Is(err, ErrInDoubt) {
		t.Errorf("claim of a member in doubt: %v", err)
	}
	await(t, "b removes a", func() bool {
		if _, err := b.Sweep(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		all, _ := b.Replicas()
		return len(all) == 1
	})
	wire.Heal()
	await(t, "a joins anew", func() bool { return a.ID() != old && !a.InDoubt() })
	await(t, "a is told", func() bool {
		doubts, lost := a.told()
		return lost == 1 && slices.Equal(doubts, []bool{true, false})
	})
	a.meets(id, b)
	if doubts, lost := b.told(); doubts != nil || lost != 0 {
		t.Errorf("b was told of %v and %d", doubts, lost)
	}
}

// TestDatabaseStops: a database that freezes for longer than the TTL, or is killed and started again, makes no member
// look dead.
func TestDatabaseStops(t *testing.T) {
	for name, stop := range map[string]func(s *pgserver.Server){
		"frozen": func(s *pgserver.Server) { s.Freeze(); time.Sleep(testTTL + testLockTTL); s.Thaw() },
		"killed": func(s *pgserver.Server) { s.Kill(); time.Sleep(testLockTTL); s.Restart() },
	} {
		t.Run(name, func(t *testing.T) {
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

// TestSweep: what must go on is shared among the members, and what is due later, open without an owner, or without a
// turn, is left.
func TestSweep(t *testing.T) {
	d := newDB(t, pgserver.URL(t))
	dead := d.join("dead", "")
	for _, id := range slices.Concat(d.sessions(60, "open", true), d.sessions(5, "idle", false)) {
		dead.claims(id)
	}
	parked := d.sessions(3, "parked", true)
	members := []*member{d.join("a", ""), d.join("b", ""), d.join("c", "")}
	for _, id := range d.sessions(30, "due", true) {
		epoch := members[0].claims(id)
		if err := members[0].Release(t.Context(), id, epoch, time.Now().Add(-time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	later := d.sessions(1, "later", true)[0]
	epoch := members[0].claims(later)
	if err := members[0].Release(t.Context(), later, epoch, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	for _, m := range members {
		await(t, "all see the dead one's lock", func() bool { return m.sees(dead.ID(), func(s *seen) bool { return s.wasHeld }) })
	}
	if got, err := members[0].Sweep(t.Context(), 8); err != nil || len(got) != 8 {
		t.Errorf("swept %v, %v; want 8", got, err)
	}
	dead.kill()
	for _, m := range members {
		await(t, "the dead one is dead to all", func() bool { _, ids := m.Replicas(); return slices.Contains(ids, dead.ID()) })
	}
	taken := map[string]bool{}
	for i, want := range []int{28, 18, 12} { // a third of what there is left each time: 82, 54, 36
		got, err := members[i].Sweep(t.Context(), 1000)
		if err != nil || len(got) != want {
			t.Errorf("swept %d, %v; want %d", len(got), err, want)
		}
		for _, id := range got {
			if taken[id] {
				t.Errorf("%q is taken twice", id)
			}
			taken[id] = true
		}
	}
	for range 20 {
		for _, m := range members {
			got, err := m.Sweep(t.Context(), 1000)
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range got {
				taken[id] = true
			}
		}
	}
	if len(taken) != 82 {
		t.Errorf("%d were taken, want 82", len(taken))
	}
	for _, id := range append(parked, later) {
		if owner, err := members[0].Owner(t.Context(), id); owner != nil || err != nil || taken[id] {
			t.Errorf("%q is owned by %+v, %v", id, owner, err)
		}
	}
	await(t, "the dead one is off the list", func() bool {
		all, _ := members[0].Replicas()
		return len(all) == 3
	})
}

// TestWokenUp: one that was dead to others and wakes up is fenced from what it owned without a turn.
func TestWokenUp(t *testing.T) {
	server := pgserver.Start(t, pgserver.Options{})
	d := newDB(t, server.URL(t))
	wire := link.New(t, server.Addr())
	a, b := d.join("a", wire.Addr()), d.join("b", "")
	id := d.sessions(1, "s", false)[0]
	epoch := a.claims(id)
	wire.Hold()
	await(t, "a is dead to b", func() bool { _, ids := b.Replicas(); return slices.Contains(ids, a.ID()) })
	if _, err := b.Sweep(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	begins := store.Batch{SessionID: id, After: 2, Epoch: epoch, Records: []record.Record{
		{Seq: 3, TurnID: "u", Kind: record.KindTurnStarted, Time: time.Now(), Data: []byte("{}")},
	}}
	if err := d.store.Append(t.Context(), begins); !errors.Is(err, store.ErrFenced) {
		t.Errorf("a turn of a dead owner begins: %v", err)
	}
}

// TestDrain: who drains claims nothing new, keeps what it has, and gives all back when it leaves: due, if a turn is open.
func TestDrain(t *testing.T) {
	d := newDB(t, pgserver.URL(t))
	a, b := d.join("a", ""), d.join("b", "")
	open, idle, other := d.sessions(1, "open", true)[0], d.sessions(1, "idle", false)[0], d.sessions(1, "other", true)[0]
	a.claims(open)
	a.claims(idle)
	if err := a.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Claim(t.Context(), other); !errors.Is(err, ErrDraining) {
		t.Errorf("claim while draining: %v", err)
	}
	a.claims(open)
	await(t, "b sees that a drains", func() bool { return b.sees(a.ID(), func(s *seen) bool { return s.Draining }) })
	if err := a.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Sweep(t.Context(), 10); err != nil || !slices.Equal(got, []string{open}) {
		t.Errorf("swept %v, %v; want %q", got, err, open)
	}
	b.claims(idle)
}

// TestWant: an owner is told which of its sessions others would like to have, until it releases them.
func TestWant(t *testing.T) {
	d := newDB(t, pgserver.URL(t))
	a, b := d.join("a", ""), d.join("b", "")
	id := d.sessions(1, "s", true)[0]
	epoch := a.claims(id)
	if err := errors.Join(a.Want(t.Context(), id), b.Want(t.Context(), id)); err != nil {
		t.Fatal(err)
	}
	await(t, "a is told", func() bool { a.mu.Lock(); defer a.mu.Unlock(); return a.wanted[id] })
	if err := a.Release(t.Context(), id, epoch, time.Time{}); err != nil {
		t.Fatal(err)
	}
	b.claims(id)
	if err := b.Want(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	beat := func() (beat int64) {
		b.Member.mu.Lock()
		defer b.Member.mu.Unlock()
		return b.view.members[b.id].beat
	}
	for last := beat() + 2; beat() < last; time.Sleep(testBeat) {
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.wanted[id] {
		t.Error("b wants what it has")
	}
}
