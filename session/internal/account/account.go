// Package account keeps what tenants may spend on model calls: what they have spent today and this month, and what
// the calls that are under way may still cost.
//
// The most that a call can cost is reserved before it begins, so that calls at the same time do not spend more than
// there is, and what it did not cost is given back. What it costs beyond is charged as well.
//
// Where several servers share a store, a call is reserved within the slice of the budget that its server holds, see
// package share.
//
// It knows neither sessions nor models.
package account

import (
	"context"
	"fmt"
	"sync"
	"time"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/internal/share"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

const codeBudget = agentdv1.ErrorCode_ERROR_CODE_BUDGET_EXHAUSTED

// maxAccounts is how many accounts stay in memory while nothing is reserved of them.
const maxAccounts = 10_000

// plus adds tokens and costs.
func plus(a, b record.Spent) record.Spent {
	return record.Spent{Tokens: a.Tokens + b.Tokens, Cost: a.Cost + b.Cost}
}

// within reports whether an amount leaves a budget; a zero part of a budget has no bound.
func within(a record.Spent, b record.Budget) bool {
	return (b.Tokens == 0 || a.Tokens <= b.Tokens) && (b.Cost == 0 || a.Cost <= b.Cost)
}

// Config says where accounts are kept.
type Config struct {
	// Spent reads what a tenant has spent from a day to another; see store.Store.
	Spent func(ctx context.Context, tenant string, from, to int64) (record.Spent, error)
	// Budgets returns what a tenant may spend in a day and in a month of UTC, in tokens and money.
	Budgets func(tenant string) (day, month record.Budget)
	// Now is the clock.
	Now func() time.Time
	// Slices divide the budgets among several servers over one store. nil: this server is alone.
	Slices share.Budgets
}

// Accounts are those of all tenants. Its methods may be called from any goroutine.
type Accounts struct {
	cfg Config

	// charging is held for reading from before an append that charges until the account knows, and for writing while an
	// account is read: else what is appended meanwhile might count twice, or not at all.
	charging sync.RWMutex

	mu       sync.Mutex // protects the fields below, and those of the accounts
	byTenant map[string]*account
	lost     int // calls of LostAll
}

// account is what a tenant has spent and may yet spend.
type account struct {
	day, month int64 // since 1970, of the sums
	today, sum record.Spent
	reserved   record.Spent
	calls      int           // that have something reserved
	freed      chan struct{} // closed when something is given back; nil if nobody waits
	part       part          // with Slices, in the place of the sums
}

// New returns accounts.
func New(cfg Config) *Accounts { return &Accounts{cfg: cfg, byTenant: map[string]*account{}} }

// Day returns the day of UTC of a time, counted from 1970-01-01.
func Day(at time.Time) int64 {
	return at.UTC().Truncate(24*time.Hour).Unix() / 86400
}

// monthOf returns the first day of the month of a day, and a number of the month that rises.
func monthOf(day int64) (first, month int64) {
	at := time.Unix(day*86400, 0).UTC()
	first = Day(time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC))
	return first, int64(at.Year())*12 + int64(at.Month())
}

// nextMonth returns the first day of the month after that of a day.
func nextMonth(day int64) int64 {
	at := time.Unix(day*86400, 0).UTC()
	return Day(time.Date(at.Year(), at.Month()+1, 1, 0, 0, 0, 0, time.UTC))
}

// turnTo begins another day.
func (a *account) turnTo(day int64) {
	if day <= a.day {
		return // also when the clock was set back: what was spent stays spent
	}
	a.day, a.today = day, record.Spent{}
	if _, month := monthOf(day); month != a.month {
		a.month, a.sum = month, record.Spent{}
	}
}

// Append runs write, which appends a batch, and notes what that charges if it succeeds.
func (a *Accounts) Append(b *store.Batch, write func() error) error {
	if b.Spent == (record.Spent{}) {
		return write()
	}
	a.charging.RLock()
	defer a.charging.RUnlock()
	err := write()
	if err == nil {
		a.charge(b.Payer, b.PaidOn, b.Spent)
	}
	return err
}

// charge notes what was spent. An account that is not in memory is read with it.
func (a *Accounts) charge(tenant string, day int64, spent record.Spent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	acc := a.byTenant[tenant]
	if acc == nil {
		return
	}
	if a.cfg.Slices != nil {
		acc.part.slice, acc.part.charged = minus(acc.part.slice, spent), plus(acc.part.charged, spent)
		return
	}
	acc.turnTo(day)
	if day == acc.day {
		acc.today = plus(acc.today, spent)
	}
	if _, month := monthOf(day); month == acc.month {
		acc.sum = plus(acc.sum, spent)
	}
}

// Bounds reports whether a tenant has a budget.
func (a *Accounts) Bounds(tenant string) bool { return a.budgets(tenant) != (budgets{}) }

func (a *Accounts) budgets(tenant string) (b budgets) {
	b.day, b.month = a.cfg.Budgets(tenant)
	return b
}

// Reserve reserves the most that a call can cost, until the caller calls release, which may be called again. While
// other calls have reserved what is missing, it waits for them; when ctx ends first, it returns the cause. refused is
// why the budget does not allow the call, BUDGET_EXHAUSTED; release then does nothing.
func (a *Accounts) Reserve(
	ctx context.Context, tenant string, most func() record.Spent,
) (release func(), refused *fault.Error, err error) {
	if a.cfg.Slices != nil {
		return a.reserveSlice(ctx, tenant, most)
	}
	var need *record.Spent
	for {
		b := a.budgets(tenant)
		if b == (budgets{}) {
			return func() {}, nil, nil
		}
		if need == nil {
			need = new(most())
		}
		if err := a.load(ctx, tenant); err != nil {
			return nil, nil, err
		}
		release, refused, freed := a.try(tenant, *need, b)
		if freed == nil {
			return release, refused, nil
		}
		if err := lock.Wait(ctx, freed); err != nil {
			return nil, nil, err
		}
	}
}

type budgets struct{ day, month record.Budget }

// allow reports whether something more may be spent.
func (b budgets) allow(acc *account, more record.Spent) bool {
	return within(plus(acc.today, more), b.day) && within(plus(acc.sum, more), b.month)
}

// try reserves, or returns what is closed when it may be tried again.
func (a *Accounts) try(
	tenant string, most record.Spent, b budgets,
) (release func(), refused *fault.Error, freed <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	acc := a.byTenant[tenant]
	if acc == nil { // forgotten since it was read
		again := make(chan struct{})
		close(again)
		return nil, nil, again
	}
	acc.turnTo(Day(a.cfg.Now()))
	switch with := plus(most, acc.reserved); {
	case b.allow(acc, with):
		acc.reserved = with
		acc.calls++
		return sync.OnceFunc(func() { a.release(acc, most) }), nil, nil
	case acc.calls > 0 && b.allow(acc, most):
		if acc.freed == nil {
			acc.freed = make(chan struct{})
		}
		return nil, nil, acc.freed
	}
	refused = exhausted("day", acc.day+1, b.day, acc.today, most)
	if refused == nil {
		refused = exhausted("month", nextMonth(acc.day), b.month, acc.sum, most)
	}
	return func() {}, refused, nil
}

// load reads an account, with all that was appended before and nothing that is appended later.
func (a *Accounts) load(ctx context.Context, tenant string) error {
	if a.has(tenant) {
		return nil
	}
	a.charging.Lock()
	defer a.charging.Unlock()
	if a.has(tenant) {
		return nil
	}
	day := Day(a.cfg.Now())
	first, month := monthOf(day)
	today, err := a.cfg.Spent(ctx, tenant, day, day)
	if err != nil {
		return err
	}
	sum, err := a.cfg.Spent(ctx, tenant, first, day)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.shrinkLocked()
	a.byTenant[tenant] = &account{day: day, month: month, today: today, sum: sum}
	return nil
}

func (a *Accounts) has(tenant string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.byTenant[tenant] != nil
}

func (a *Accounts) release(acc *account, most record.Spent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.releaseLocked(acc, most)
}

func (a *Accounts) releaseLocked(acc *account, most record.Spent) {
	acc.reserved = minus(acc.reserved, most)
	acc.calls--
	acc.part.again = time.Time{}
	if acc.freed != nil {
		close(acc.freed)
		acc.freed = nil
	}
}

// shrinkLocked forgets accounts of which nothing is reserved, if there are too many. They are read again.
func (a *Accounts) shrinkLocked() {
	if len(a.byTenant) < maxAccounts {
		return
	}
	for tenant, acc := range a.byTenant {
		if acc.calls == 0 && !acc.part.set && acc.part.asking == nil {
			delete(a.byTenant, tenant)
		}
	}
}

// exhausted is why a call may not begin, nil if a budget allows it. The next period begins on the day next.
func exhausted(period string, next int64, b record.Budget, spent, most record.Spent) *fault.Error {
	all := plus(spent, most)
	var limit fault.Limit
	var text string
	switch {
	case b.Tokens > 0 && all.Tokens > b.Tokens:
		limit = fault.Limit{Name: "tenant_" + period + "_tokens", Value: b.Tokens, Received: all.Tokens}
		text = fmt.Sprintf("%d of %d tokens, and this call may take %d", spent.Tokens, b.Tokens, most.Tokens)
	case b.Cost > 0 && all.Cost > b.Cost:
		limit = fault.Limit{Name: "tenant_" + period + "_cost_nano_usd", Value: int64(b.Cost),
			Received: int64(all.Cost)}
		text = fmt.Sprintf("%v of %v US dollars, and this call may cost %v", spent.Cost, b.Cost, most.Cost)
	default:
		return nil
	}
	e := fault.Errorf(codeBudget, "the tenant has spent of its budget for the %s %s; the next %s begins at %s", period,
		text, period, time.Unix(next*86400, 0).UTC().Format(time.RFC3339))
	e.Limit = &limit
	return e
}
