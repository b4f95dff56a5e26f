package account_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/account"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

// books are what a store has of spending.
type books struct {
	mu    sync.Mutex // protects the fields below
	days  map[string]map[int64]record.Spent
	reads int
	err   error
}

func (b *books) append(batch store.Batch) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return b.err
	}
	if b.days == nil {
		b.days = map[string]map[int64]record.Spent{}
	}
	if b.days[batch.Payer] == nil {
		b.days[batch.Payer] = map[int64]record.Spent{}
	}
	day := b.days[batch.Payer][batch.PaidOn]
	b.days[batch.Payer][batch.PaidOn] = record.Spent{Tokens: day.Tokens + batch.Spent.Tokens, Cost: day.Cost + batch.Spent.Cost}
	return nil
}

func (b *books) spent(_ context.Context, tenant string, from, to int64) (sum record.Spent, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reads++
	for day, s := range b.days[tenant] {
		if day >= from && day <= to {
			sum.Tokens, sum.Cost = sum.Tokens+s.Tokens, sum.Cost+s.Cost
		}
	}
	return sum, b.err
}

// bank is accounts over books.
type bank struct {
	*account.Accounts
	books      *books
	now        time.Time
	day, month record.Budget
}

func newBank(day, month record.Budget) *bank {
	b := &bank{books: &books{}, now: time.Date(2026, 1, 30, 12, 0, 0, 0, time.UTC), day: day, month: month}
	b.Accounts = b.open()
	return b
}

func (b *bank) open() *account.Accounts {
	return account.New(account.Config{
		Spent:   b.books.spent,
		Budgets: func(string) (day, month record.Budget) { return b.day, b.month },
		Now:     func() time.Time { return b.now },
	})
}

// pay appends what a call has cost.
func (b *bank) pay(tenant string, tokens int64, cost record.NanoUSD) error {
	batch := store.Batch{Payer: tenant, PaidOn: account.Day(b.now), Spent: record.Spent{Tokens: tokens, Cost: cost}}
	return b.Append(&batch, func() error { return b.books.append(batch) })
}

func (b *bank) reserve(t rapid.TB, tenant string, tokens int64, cost record.NanoUSD) (func(), error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // waits for nothing
	release, refused, err := b.Reserve(ctx, tenant, func() record.Spent { return record.Spent{Tokens: tokens, Cost: cost} })
	if refused != nil {
		err = refused
	}
	return release, err
}

func tokens(n int64) record.Budget { return record.Budget{Tokens: n} }

// wantLimit checks a refusal by the budget.
func wantLimit(t rapid.TB, err error, name string, value, received int64) {
	t.Helper()
	e, ok := errors.AsType[*fault.Error](err)
	if !ok || e.Limit == nil || *e.Limit != (fault.Limit{Name: name, Value: value, Received: received}) {
		t.Errorf("got %v, want the limit %s of %d, received %d", err, name, value, received)
	}
}

func TestReservations(t *testing.T) {
	b := newBank(tokens(100), tokens(150))
	release, err := b.reserve(t, "acme", 60, 5)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.reserve(t, "acme", 50, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("beyond what is reserved: %v, want a wait", err)
	}
	if _, err := b.reserve(t, "umbrella", 100, 0); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	if err := b.pay("acme", 30, 2); err != nil {
		t.Fatal(err)
	}
	release()
	release()
	if _, err := b.reserve(t, "acme", 71, 0); err == nil {
		t.Error("what was spent is forgotten")
	} else {
		wantLimit(t, err, "tenant_day_tokens", 100, 101)
		if !strings.Contains(err.Error(), "30 of 100 tokens, and this call may take 71") || !strings.Contains(err.Error(), "2026-01-31T00:00:00Z") {
			t.Errorf("the refusal says %v", err)
		}
	}
	if release, err = b.reserve(t, "acme", 70, 0); err != nil {
		t.Fatalf("what is left: %v", err)
	}
	if err := b.pay("acme", 90, 0); err != nil { // more than was reserved
		t.Fatal(err)
	}
	release()
	_, err = b.reserve(t, "acme", 1, 0)
	wantLimit(t, err, "tenant_day_tokens", 100, 121)

	b.now = b.now.Add(24 * time.Hour) // another day of the month
	_, err = b.reserve(t, "acme", 31, 0)
	wantLimit(t, err, "tenant_month_tokens", 150, 151)
	if _, refused, err := b.open().Reserve(t.Context(), "acme", func() record.Spent { return record.Spent{Tokens: 31} }); refused == nil || err != nil {
		t.Error("another process has forgotten what was spent")
	}
	b.now = b.now.Add(24 * time.Hour) // another month
	if _, err = b.reserve(t, "acme", 100, 0); err != nil {
		t.Error(err)
	}
}

func TestCost(t *testing.T) {
	b := newBank(record.Budget{Cost: 1_000_000_000}, record.Budget{})
	if _, err := b.reserve(t, "acme", 1<<40, 1_000_000_000); err != nil {
		t.Error(err)
	}
	_, err := b.reserve(t, "acme", 0, 1_000_000_001)
	wantLimit(t, err, "tenant_day_cost_nano_usd", 1_000_000_000, 1_000_000_001)
}

// Without a budget nothing is read and nothing is reserved; one that is set later knows what was spent before.
func TestBudgetLater(t *testing.T) {
	b := newBank(record.Budget{}, record.Budget{})
	for range 3 {
		release, _, err := b.Reserve(t.Context(), "acme", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.pay("acme", 40, 0); err != nil {
			t.Fatal(err)
		}
		release()
	}
	if b.books.reads > 0 {
		t.Errorf("%d reads without a budget", b.books.reads)
	}
	b.day = tokens(150)
	_, err := b.reserve(t, "acme", 31, 0)
	wantLimit(t, err, "tenant_day_tokens", 150, 151)
}

// A store that cannot be read refuses the call, and is asked again.
func TestUnreadable(t *testing.T) {
	b := newBank(tokens(10), record.Budget{})
	b.books.err = errors.New("the disk is gone")
	if _, _, err := b.Reserve(t.Context(), "acme", func() record.Spent { return record.Spent{} }); !errors.Is(err, b.books.err) {
		t.Errorf("got %v", err)
	}
	b.books.err = nil
	if _, err := b.reserve(t, "acme", 10, 0); err != nil {
		t.Error(err)
	}
}

// What waits for others gets what they give back.
func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBank(tokens(100), record.Budget{})
		var now, most sync.Map
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				release, refused, err := b.Reserve(t.Context(), "acme", func() record.Spent { return record.Spent{Tokens: 10} })
				if err != nil || refused != nil {
					t.Error(err, refused)
					return
				}
				now.Store(i, true)
				n := 0
				now.Range(func(any, any) bool { n++; return true })
				most.Store(n, true)
				time.Sleep(time.Second)
				if err := b.pay("acme", 1, 0); err != nil {
					t.Error(err)
				}
				now.Delete(i)
				release()
			})
		}
		wg.Wait()
		most.Range(func(n, _ any) bool {
			if n.(int) > 10 {
				t.Errorf("%v calls at once", n)
			}
			return true
		})
	})
}

// Whatever the order: what is spent and reserved never leaves the budget, as long as no call costs more than it
// reserved, and the accounts say what the store says.
func TestProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBank(record.Budget{Tokens: rapid.Int64Range(0, 300).Draw(t, "day"), Cost: 200}, tokens(500))
		type call struct {
			tenant string
			tokens int64
			cost   record.NanoUSD
			free   func()
		}
		var open []call
		reserved := map[string]record.Spent{}
		names := []string{"", "a", "b"}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				b.now = b.now.Add(time.Duration(rapid.IntRange(0, 60).Draw(t, "hours")) * time.Hour)
			case 1: // another process; what was reserved is over
				b.Accounts, open = b.open(), nil
				clear(reserved)
			case 2, 3, 4:
				if len(open) == 0 {
					continue
				}
				i := rapid.IntRange(0, len(open)-1).Draw(t, "call")
				c := open[i]
				open = append(open[:i], open[i+1:]...)
				if err := b.pay(c.tenant, rapid.Int64Range(0, c.tokens).Draw(t, "tokens"), c.cost/2); err != nil {
					t.Fatal(err)
				}
				c.free()
				r := reserved[c.tenant]
				reserved[c.tenant] = record.Spent{Tokens: r.Tokens - c.tokens, Cost: r.Cost - c.cost}
			default:
				c := call{tenant: rapid.SampledFrom(names).Draw(t, "tenant"), tokens: rapid.Int64Range(0, 120).Draw(t, "most"), cost: 30}
				free, err := b.reserve(t, c.tenant, c.tokens, c.cost)
				r := reserved[c.tenant]
				day := account.Day(b.now)
				today, _ := b.books.spent(context.Background(), c.tenant, day, day)
				month, _ := b.books.spent(context.Background(), c.tenant, day-int64(b.now.Day())+1, day)
				fits := (b.day.Tokens == 0 || today.Tokens+r.Tokens+c.tokens <= b.day.Tokens) &&
					today.Cost+r.Cost+c.cost <= b.day.Cost && month.Tokens+r.Tokens+c.tokens <= b.month.Tokens
				if fits != (err == nil) {
					t.Fatalf("%+v of %+v, reserved %+v, today %+v, month %+v: %v", c, b.day, r, today, month, err)
				}
				if err == nil {
					c.free = free
					open = append(open, c)
					reserved[c.tenant] = record.Spent{Tokens: r.Tokens + c.tokens, Cost: r.Cost + c.cost}
				}
			}
		}
	})
}

// Accounts of which nothing is reserved do not stay for ever.
func TestManyTenants(t *testing.T) {
	b := newBank(tokens(10), record.Budget{})
	for i := range 25_000 {
		free, err := b.reserve(t, fmt.Sprint(i), 10, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.pay(fmt.Sprint(i), 10, 0); err != nil {
			t.Fatal(err)
		}
		free()
	}
	if n := b.Len(); n > 10_000 {
		t.Errorf("%d accounts", n)
	}
	if _, err := b.reserve(t, "7", 1, 0); err == nil {
		t.Error("what a forgotten account has spent is forgotten")
	}
}
