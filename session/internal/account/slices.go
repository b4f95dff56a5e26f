package account

import (
	"context"
	"time"

	"github.com/apzuk3/agentd/internal/share"
	"github.com/apzuk3/agentd/session/fault"
	"github.com/apzuk3/agentd/session/internal/lock"
	"github.com/apzuk3/agentd/session/record"
)

const (
	// TendEvery is how often Tend must be called.
	TendEvery = time.Second
	// idleTends is after how many calls of Tend without a call of a model a slice is given back.
	idleTends = 5
	// thriftyTends is for how many calls of Tend a server takes no spare after another one has found no room.
	thriftyTends = 5
	// spareCalls is how many times the need of a call a server takes as spare.
	spareCalls = 8
	// askAgain is how long a call that waits for other servers waits before it asks again.
	askAgain = 250 * time.Millisecond
)

// part is the slice of one account, with what it takes to keep it right while it is being set.
type part struct {
	slice   record.Spent // what of it is not spent; less than the store has
	charged record.Spent // all that was ever charged
	asked   budgets      // for which it was granted
	asking  chan struct{}
	set     bool         // the store may have one
	row     record.Spent // which is no more than this
	flagged bool         // the store says that a call of this server waits
	waiters int          // calls that wait for other servers
	again   time.Time    // when one of them may ask again
	idle    int          // calls of Tend since the last Reserve
	thrifty int          // calls of Tend that are left without a spare
}

func minus(a, b record.Spent) record.Spent {
	return record.Spent{Tokens: a.Tokens - b.Tokens, Cost: a.Cost - b.Cost}
}

func least(a, b record.Spent) record.Spent {
	return record.Spent{Tokens: min(a.Tokens, b.Tokens), Cost: min(a.Cost, b.Cost)}
}

// reserveSlice is Reserve within a slice.
func (a *Accounts) reserveSlice(
	ctx context.Context, tenant string, most func() record.Spent,
) (release func(), refused *fault.Error, err error) {
	var need *record.Spent
	var ends []func()
	defer func() {
		for _, end := range ends {
			end()
		}
	}()
	for {
		b := a.budgets(tenant)
		if b == (budgets{}) {
			return func() {}, nil, nil
		}
		if need == nil {
			need = new(most())
			need.Tokens = max(need.Tokens, 1) // what needs nothing asks for nothing
		}
		acc, release, busy := a.fromSlice(tenant, *need, b)
		switch {
		case release != nil:
			return release, nil, nil
		case busy == nil:
			var got share.Slice
			got, release, err = a.ask(ctx, tenant, acc, b, *need)
			switch {
			case err != nil || release != nil:
				return release, nil, err
			case !got.Granted && !got.Waits:
				return func() {}, refusedBy(b, Day(a.cfg.Now()), got, *need), nil
			case got.Waits && len(ends) == 0:
				ends = append(ends, a.waits(acc))
			}
			continue
		}
		if err := a.await(ctx, acc, busy); err != nil {
			return nil, nil, err
		}
	}
}

// refusedBy is why a call may not begin that would leave a budget by itself.
func refusedBy(b budgets, day int64, got share.Slice, need record.Spent) *fault.Error {
	if e := exhausted("day", day+1, b.day, got.Today, need); e != nil {
		return e
	}
	return exhausted("month", nextMonth(day), b.month, got.Month, need)
}

// fromSlice reserves without asking, if the slice suffices. Else the caller asks for the account; or, if busy is not
// nil, waits until that is closed or it is time to ask again.
func (a *Accounts) fromSlice(
	tenant string, need record.Spent, b budgets,
) (acc *account, release func(), busy <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	acc = a.byTenant[tenant]
	if acc == nil {
		a.shrinkLocked()
		acc = &account{}
		a.byTenant[tenant] = acc
	}
	acc.part.idle = 0
	switch {
	case acc.part.asking != nil:
		return acc, nil, acc.part.asking
	case acc.part.asked == b && covers(acc.part.slice, plus(acc.reserved, need)):
		return acc, a.reserveLocked(acc, need), nil
	case time.Now().Before(acc.part.again):
		if acc.freed == nil {
			acc.freed = make(chan struct{})
		}
		return acc, nil, acc.freed
	}
	acc.part.asking = make(chan struct{}) // ask closes it
	return acc, nil, nil
}

// unknown is more than any slice.
var unknown = record.Spent{Tokens: 1 << 62, Cost: 1 << 62}

// covers reports whether a slice has an amount.
func covers(slice, amount record.Spent) bool {
	return amount.Tokens <= slice.Tokens && amount.Cost <= slice.Cost
}

// ask sets the slice of an account, of which the caller has the right to ask: asking is its channel. It reserves a need
// that is not zero, if it is granted.
func (a *Accounts) ask(
	ctx context.Context, tenant string, acc *account, b budgets, need record.Spent,
) (got share.Slice, release func(), err error) {
	ask, charged, lost := a.prepare(tenant, acc, b, need)
	got, err = a.cfg.Slices.Slice(ctx, ask)
	a.mu.Lock()
	defer a.mu.Unlock()
	p := &acc.part
	p.askedLocked()
	if err != nil || a.lost != lost {
		return got, nil, err // what prepare has left is right in any case, or LostAll has taken it
	}
	p.slice, p.asked = minus(got.Slice, minus(p.charged, charged)), b
	p.row, p.set, p.flagged = got.Slice, got.Waits || got.Slice != (record.Spent{}), got.Waits
	if got.Waits {
		p.again = time.Now().Add(askAgain)
	}
	if need != (record.Spent{}) && got.Granted {
		release = a.reserveLocked(acc, need)
	}
	return got, release, nil
}

// askedLocked lets others ask.
func (p *part) askedLocked() {
	close(p.asking)
	p.asking = nil
}

// prepare makes what to ask for. Until the answer is there, the slice is what it will be at least.
func (a *Accounts) prepare(
	tenant string, acc *account, b budgets, need record.Spent,
) (ask share.Ask, charged record.Spent, lost int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := &acc.part
	today := Day(a.cfg.Now())
	first, _ := monthOf(today)
	p.slice, p.row, p.set = least(p.slice, acc.reserved), unknown, true
	ask = share.Ask{
		Tenant: tenant, Day: b.day, Month: b.month, Today: today, First: first, Held: acc.reserved, Need: need,
	}
	if p.thrifty == 0 {
		ask.Spare = record.Spent{Tokens: spareCalls * need.Tokens, Cost: spareCalls * need.Cost}
	}
	return ask, p.charged, a.lost
}

// reserveLocked reserves what the caller has found room for.
func (a *Accounts) reserveLocked(acc *account, need record.Spent) (release func()) {
	acc.reserved = plus(acc.reserved, need)
	acc.calls++
	var done bool
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if !done {
			done = true
			a.releaseLocked(acc, need)
		}
	}
}

// waits notes a call that waits for other servers, until end is called.
func (a *Accounts) waits(acc *account) (end func()) {
	lock.Do(&a.mu, func() { acc.part.waiters++ })
	return func() { lock.Do(&a.mu, func() { acc.part.waiters-- }) }
}

// await waits until a channel is closed, or it is time to ask again.
func (a *Accounts) await(ctx context.Context, acc *account, busy <-chan struct{}) error {
	left := lock.Get(&a.mu, func() time.Duration {
		if acc.part.asking != nil {
			return askAgain
		}
		return time.Until(acc.part.again)
	})
	again := time.NewTimer(left)
	defer again.Stop()
	select {
	case <-busy:
		return nil
	case <-again.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Tend gives back what this server does not need of its slices. It is called every TendEvery, by one goroutine. Without
// Slices, and while there is no slice, it does nothing.
func (a *Accounts) Tend(ctx context.Context) error {
	if a.cfg.Slices == nil || !a.hasSlices() {
		return nil
	}
	wanted, err := a.cfg.Slices.Wanted(ctx)
	if err != nil {
		return err
	}
	for tenant, acc := range a.toTend(wanted) {
		if err != nil { // the next call does the rest
			lock.Do(&a.mu, acc.part.askedLocked)
			continue
		}
		_, _, err = a.ask(ctx, tenant, acc, a.budgets(tenant), record.Spent{})
	}
	return err
}

func (a *Accounts) hasSlices() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, acc := range a.byTenant {
		if acc.part.set {
			return true
		}
	}
	return false
}

// toTend returns the accounts whose slices are to be set, which the caller must do: their asking is its.
func (a *Accounts) toTend(wanted []string) map[string]*account {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, tenant := range wanted {
		if acc := a.byTenant[tenant]; acc != nil {
			acc.part.thrifty = thriftyTends + 1
		}
	}
	out := map[string]*account{}
	for tenant, acc := range a.byTenant {
		p := &acc.part
		first := p.thrifty > thriftyTends
		p.thrifty = max(p.thrifty-1, 0)
		p.idle++
		spares := !covers(acc.reserved, p.row)
		idle := p.idle > idleTends && (spares || acc.calls == 0)
		if p.set && p.asking == nil && (idle || first && spares || p.flagged && p.waiters == 0) {
			p.asking = make(chan struct{})
			out[tenant] = acc
		}
	}
	return out
}

// LostAll says that the slices of this server are no longer its own: it asks anew, also for what calls have reserved
// that are under way.
func (a *Accounts) LostAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lost++
	for _, acc := range a.byTenant {
		acc.part.slice, acc.part.asked, acc.part.flagged = record.Spent{}, budgets{}, false
	}
}
