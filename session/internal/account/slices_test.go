package account_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/apzuk3/agentd/internal/share"
	"github.com/apzuk3/agentd/session/internal/account"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// desk hands out slices as the database does, see package cluster, but takes no care of what it leaves for others.
type desk struct {
	books
	rows      map[int]map[string]share.Slice // by the life of a server and by tenant
	asked     int
	lose      func() (fails, done bool) // whether the next Slice fails, and whether it is done all the same
	meanwhile func()                    // what happens before and after a Slice is set
}

func newDesk() *desk { return &desk{rows: map[int]map[string]share.Slice{}} }

var errLost = errors.New("the connection broke")

// life is a server to a desk, until it is thought dead.
type life struct {
	*desk
	id *int
}

func (l life) Slice(_ context.Context, ask share.Ask) (got share.Slice, err error) {
	if l.meanwhile != nil {
		l.meanwhile()
		defer l.meanwhile()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rows[*l.id] == nil {
		return got, errors.New("dead to the others")
	}
	l.asked++
	var fails, done bool
	if l.lose != nil {
		fails, done = l.lose()
	}
	if fails && !done {
		return got, errLost
	}
	var day record.Spent
	for on, s := range l.days[ask.Tenant] {
		if on >= ask.Today {
			day.Tokens, day.Cost = max(day.Tokens, s.Tokens), max(day.Cost, s.Cost)
		}
		if on >= ask.First {
			got.Month = add(got.Month, s, 1)
		}
	}
	got.Today = day
	var others record.Spent
	for id, of := range l.rows {
		if id != *l.id {
			others = add(others, of[ask.Tenant].Slice, 1)
		}
	}
	rest := func(day, month, today, sum int64) int64 {
		out := int64(1 << 53)
		if day > 0 {
			out = min(out, day-today)
		}
		if month > 0 {
			out = min(out, month-sum)
		}
		return out
	}
	alone := record.Spent{
		Tokens: rest(ask.Day.Tokens, ask.Month.Tokens, day.Tokens, got.Month.Tokens),
		Cost:   record.NanoUSD(rest(int64(ask.Day.Cost), int64(ask.Month.Cost), int64(day.Cost), int64(got.Month.Cost))),
	}
	free := add(alone, others, -1)
	fits := func(a, b record.Spent) bool { return a.Tokens <= b.Tokens && a.Cost <= b.Cost }
	least := add(ask.Held, ask.Need, 1)
	got.Slice = ask.Held
	if got.Granted = fits(least, free); got.Granted {
		got.Slice = add(least, record.Spent{
			Tokens: min(ask.Spare.Tokens, free.Tokens-least.Tokens),
			Cost:   min(ask.Spare.Cost, free.Cost-least.Cost),
		}, 1)
	} else {
		got.Waits = fits(ask.Need, alone) && ask.Need != record.Spent{}
	}
	l.rows[*l.id][ask.Tenant] = got
	if fails {
		return share.Slice{}, errLost
	}
	return got, nil
}

func (l life) Wanted(context.Context) (tenants []string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, of := range l.rows {
		for tenant, s := range of {
			if id != *l.id && s.Waits {
				tenants = append(tenants, tenant)
			}
		}
	}
	return tenants, nil
}

// add returns a + n * b.
func add(a, b record.Spent, n int64) record.Spent {
	return record.Spent{Tokens: a.Tokens + n*b.Tokens, Cost: a.Cost + record.NanoUSD(n)*b.Cost}
}

// server is a bank at a desk.
type server struct {
	bank
	desk *desk
	life int
}

// server starts a server, under a life of its own.
func (d *desk) server(day, month record.Budget, now *time.Time) *server {
	s := &server{desk: d, bank: bank{books: &d.books, day: day, month: month}}
	s.live()
	s.Accounts = account.New(account.Config{
		Spent:   d.spent,
		Budgets: func(string) (day, month record.Budget) { return s.day, s.month },
		Now:     func() time.Time { return *now },
		Slices:  life{d, &s.life},
	})
	return s
}

// live begins a new life.
func (s *server) live() {
	s.life = len(s.desk.rows) + 1
	s.desk.rows[s.life] = map[string]share.Slice{}
}

// die ends a life: what it wrote under is fenced, and its slices are gone.
func (s *server) die() { s.desk.rows[s.life] = nil }

// spend appends what a call has cost.
func (s *server) spend(tenant string, day int64, spent record.Spent) error {
	batch := store.Batch{Payer: tenant, PaidOn: day, Spent: spent}
	return s.Append(&batch, func() error { return s.desk.append(batch) })
}

// TestSlices: several servers never spend more than a budget together, whatever the order of their calls, deaths and
// lost replies; and what is left of it may be spent by any of them.
func TestSlices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { rapid.Check(struct{ rapid.TB }{t}, slicesProperty) }) // a bubble has no deadline
}

func slicesProperty(t *rapid.T) {
	now := time.Date(2026, 1, 30, 12, 0, 0, 0, time.UTC)
	d := newDesk()
	d.lose = func() (bool, bool) {
		n := rapid.IntRange(0, 999).Draw(t, "fault")
		return n > 900, n > 950
	}
	pick := func(name string, of ...int64) int64 { return rapid.SampledFrom(of).Draw(t, name) } // small ones are no likelier
	day := record.Budget{Tokens: pick("day", 0, 90, 150), Cost: record.NanoUSD(pick("cost", 0, 0, 50))}
	month := tokens(300)
	servers := []*server{d.server(day, month, &now), d.server(day, month, &now), d.server(day, month, &now)}
	type call struct {
		at     *server
		life   int
		tenant string
		most   record.Spent
		free   func()
	}
	var steps []string
	for step, n := range map[string]int{"day": 1, "kill": 1, "lost": 1, "tend": 3, "end": 30, "reserve": 30} {
		steps = append(steps, slices.Repeat([]string{step}, n)...)
	}
	slices.Sort(steps)
	var open []call
	end := func() {
		if len(open) == 0 {
			return
		}
		i := rapid.IntRange(0, len(open)-1).Draw(t, "call")
		c := open[i]
		open = append(open[:i], open[i+1:]...)
		if d.rows[c.life] != nil { // else the append is fenced
			used := record.Spent{
				Tokens: c.most.Tokens * pick("tokens", 0, 50, 100, 100) / 100,
				Cost:   c.most.Cost * record.NanoUSD(pick("paid", 0, 50, 100, 100)) / 100,
			}
			if err := c.at.spend(c.tenant, account.Day(now), used); err != nil {
				t.Fatal(err)
			}
		}
		c.free()
	}
	lost := func(s *server) { // it was thought dead, and lives
		s.die()
		s.live()
		s.LostAll()
	}
	d.meanwhile = func() {
		switch pick("meanwhile", 0, 1, 2, 3, 4, 5, 6, 7) {
		case 0:
			lost(rapid.SampledFrom(servers).Draw(t, "other"))
		case 1, 2:
			end()
		}
	}
	for range int(pick("steps", 50, 200)) {
		s := rapid.SampledFrom(servers).Draw(t, "server")
		switch step := rapid.SampledFrom(steps).Draw(t, "step"); step {
		case "day":
			now = now.Add(time.Duration(pick("hours", 1, 6, 20)) * time.Hour)
		case "kill": // and another one comes
			s.die()
			servers[slices.Index(servers, s)] = d.server(day, month, &now)
		case "lost":
			lost(s)
		case "tend":
			_ = s.Tend(t.Context())
		case "end":
			end()
		default:
			c := call{at: s, tenant: rapid.SampledFrom([]string{"a", "a", "b"}).Draw(t, "tenant"), most: record.Spent{
				Tokens: pick("most", 0, 3, 10, 20, 40), Cost: record.NanoUSD(pick("mostCost", 0, 1, 10, 20)),
			}}
			var err error
			if c.free, err = s.reserve(t, c.tenant, c.most.Tokens, c.most.Cost); err == nil {
				c.life = s.life
				open = append(open, c)
			}
		}
		for tenant, days := range d.days {
			months := map[time.Month]record.Spent{}
			for on, spent := range days {
				of := time.Unix(on*86400, 0).UTC().Month()
				months[of] = add(months[of], spent, 1)
				if over(spent, day) || over(months[of], month) {
					t.Fatalf("tenant %s has spent %+v on day %d, %+v in its month, of %+v a day and %+v a month",
						tenant, spent, on, months[of], day, month)
				}
			}
		}
	}
	// Nothing is stranded: when no call is under way, each server in turn may have all that is left.
	d.lose, d.meanwhile = nil, nil
	for _, c := range open {
		c.free()
	}
	for _, s := range servers {
		left := leftOf(d, "a", day, month, account.Day(now))
		if left.Tokens <= 0 || left.Cost < 0 {
			continue
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for ctx.Err() == nil {
				time.Sleep(account.TendEvery)
				for _, s := range servers {
					_ = s.Tend(ctx)
				}
			}
		}()
		free, refused, err := s.Reserve(ctx, "a", func() record.Spent { return left })
		if refused != nil || err != nil {
			t.Fatalf("%+v is left, of which a server gets nothing: %v %v; %+v", left, refused, err, d.rows)
		}
		free()
		stop()
		<-done
	}
}

func over(s record.Spent, b record.Budget) bool {
	return b.Tokens > 0 && s.Tokens > b.Tokens || b.Cost > 0 && s.Cost > b.Cost
}

// leftOf is what a tenant may spend yet, a little where there is no bound.
func leftOf(d *desk, tenant string, day, month record.Budget, today int64) record.Spent {
	left := record.Spent{Tokens: 1000, Cost: 1000}
	spent, _ := d.spent(context.Background(), tenant, today, today)
	at := time.Unix(today*86400, 0).UTC()
	sum, _ := d.spent(context.Background(), tenant, today-int64(at.Day())+1, today)
	if day.Tokens > 0 {
		left.Tokens = min(left.Tokens, day.Tokens-spent.Tokens)
	}
	if month.Tokens > 0 {
		left.Tokens = min(left.Tokens, month.Tokens-sum.Tokens)
	}
	if day.Cost > 0 {
		left.Cost = min(left.Cost, day.Cost-spent.Cost)
	}
	return left
}

// As long as a slice suffices, nobody is asked.
func TestSliceSuffices(t *testing.T) {
	now := time.Date(2026, 1, 30, 12, 0, 0, 0, time.UTC)
	d := newDesk()
	s := d.server(tokens(1_000_000), record.Budget{}, &now)
	for range 1000 {
		free, err := s.reserve(t, "acme", 100, 10)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.spend("acme", account.Day(now), record.Spent{Tokens: 50, Cost: 5}); err != nil {
			t.Fatal(err)
		}
		free()
	}
	if d.asked > 100 {
		t.Errorf("%d asks for 1000 calls", d.asked)
	}
}

// A call waits for what other servers have reserved, and what is too much for the budget alone is refused at once.
func TestSliceWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Date(2026, 1, 30, 12, 0, 0, 0, time.UTC)
		d := newDesk()
		one, other := d.server(tokens(100), record.Budget{}, &now), d.server(tokens(100), record.Budget{}, &now)
		free, err := one.reserve(t, "acme", 80, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = other.reserve(t, "acme", 101, 0)
		wantLimit(t, err, "tenant_day_tokens", 100, 101)
		if _, err := other.reserve(t, "acme", 50, 0); !errors.Is(err, context.Canceled) {
			t.Errorf("a call that has to wait: %v", err)
		}
		got := make(chan error, 1)
		go func() {
			_, refused, err := other.Reserve(t.Context(), "acme", func() record.Spent { return record.Spent{Tokens: 50} })
			if refused != nil {
				err = refused
			}
			got <- err
		}()
		synctest.Wait()
		if err := one.spend("acme", account.Day(now), record.Spent{Tokens: 10}); err != nil {
			t.Fatal(err)
		}
		free()
		time.Sleep(time.Minute)
		select {
		case err := <-got:
			t.Fatalf("the other server has not given back its slice: %v", err)
		default:
		}
		if err := one.Tend(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-got; err != nil {
			t.Error(err)
		}
	})
}
