package share

import (
	"context"
	"math"
	"sync"
	"time"
)

// Places counts what tenants have at this server of a bound that holds for all servers together: it takes a place
// within its share without asking, and asks the desk for more when that is used up. What was taken stays taken when
// the desk is away. nil is that of a server that is alone, which bounds nothing.
//
// Its methods may be called from any goroutine. It has those tenants in memory that have something at this server, or
// had a few seconds ago.
type Places struct {
	kind Kind
	desk Desk

	mu       sync.Mutex // protects the fields below, and those of the counts
	byTenant map[string]*count
	lost     int // calls of LostAll
}

// count is what a tenant has here.
type count struct {
	used   int
	share  int           // what may be used; no more than the desk has
	row    int           // what the desk has at most
	set    bool          // the desk may have one
	asking chan struct{} // closed when the desk has answered; nil if nobody asks
	// Until again the desk is not asked: it has refused, or failed with err.
	again time.Time
	err   error
	// Before patient a Take waits until again. It is zero if the last answer was no refusal.
	patient time.Time
	idle    int // calls of Tend since the last Take
	thrifty int // calls of Tend that are left without a spare
	flag    int // calls of Tend until the desk no longer says that this server waits; 0 if it does not
}

// NewPlaces counts places of a kind.
func NewPlaces(kind Kind, desk Desk) *Places {
	return &Places{kind: kind, desk: desk, byTenant: map[string]*count{}}
}

// Take takes a place of a tenant, of which all servers have at most most, until Leave. It reports whether there was
// one. It may wait for the desk, and for a little more than a second for what other servers can spare. An error says
// that the share of this server is used up and the desk cannot be asked, or that ctx has ended.
func (p *Places) Take(ctx context.Context, tenant string, most int) (took bool, err error) {
	for p != nil {
		c, wait, took, err := p.tryTake(tenant, most)
		switch {
		case c != nil:
			_ = p.ask(ctx, tenant, c, most, 1) // the next try knows
		case wait == nil:
			return took, err
		default:
			if err := wait(ctx); err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// tryTake takes a place without asking. Else the caller asks for the count it returns, or waits and tries again, or it
// is refused.
func (p *Places) tryTake(tenant string, most int) (
	ask *count, wait func(context.Context) error, took bool, err error,
) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.countLocked(tenant)
	c.idle = 0
	now := time.Now()
	switch {
	case c.used < min(c.share, most):
		c.used++
		return nil, nil, true, nil
	case c.used >= most:
		return nil, nil, false, nil
	case c.asking != nil:
		return nil, untilClosed(c.asking), false, nil
	case now.Before(c.again) && c.err == nil && now.Before(c.patient):
		return nil, untilTime(c.again), false, nil
	case now.Before(c.again):
		return nil, nil, false, c.err
	}
	c.asking = make(chan struct{}) // ask closes it
	return c, nil, false, nil
}

func (p *Places) countLocked(tenant string) *count {
	c := p.byTenant[tenant]
	if c == nil {
		c = &count{}
		p.byTenant[tenant] = c
	}
	return c
}

func untilClosed(done <-chan struct{}) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func untilTime(at time.Time) func(context.Context) error {
	return func(ctx context.Context) error {
		timer := time.NewTimer(time.Until(at))
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Hold takes a place also where there is none: what it is for goes on in any case. The next call of Tend tells the
// desk.
func (p *Places) Hold(tenant string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.countLocked(tenant).used++
}

// Leave gives back what Take or Hold has taken.
func (p *Places) Leave(tenant string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byTenant[tenant].used--
}

// ask sets the share of a count, of which the caller has the right to ask: asking is its channel.
func (p *Places) ask(ctx context.Context, tenant string, c *count, most, need int) error {
	ask, lost := p.prepare(tenant, c, most, need)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askPatience) // others wait for the answer too
	defer cancel()
	got, err := p.desk.Place(ctx, ask)
	p.mu.Lock()
	defer p.mu.Unlock()
	close(c.asking)
	c.asking, c.err = nil, err
	c.row, c.set = math.MaxInt, true // as far as is known
	switch {
	case err != nil:
		c.again = time.Now().Add(askAgain)
		return err
	case p.lost != lost:
		return nil
	}
	c.share, c.row, c.set = got.Share, got.Share, got.Waits || got.Share > 0
	switch now := time.Now(); {
	case got.Waits:
		c.again = now.Add(askAgain)
		if c.flag == 0 {
			c.patient = now.Add(givenBack)
		}
		c.flag = flagTends
	default:
		c.again, c.patient, c.flag = time.Time{}, time.Time{}, 0
	}
	return nil
}

// prepare makes what to ask for. Until the answer is there, the share is what it will be at least.
func (p *Places) prepare(tenant string, c *count, most, need int) (ask PlaceAsk, lost int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.share = min(c.share, c.used)
	ask = PlaceAsk{Kind: p.kind, Tenant: tenant, Bound: most, Held: c.used, Need: need}
	if need > 0 && c.thrifty == 0 {
		ask.Spare = sparePlaces
	}
	return ask, p.lost
}

// inUse reports whether there is something to tend.
func (p *Places) inUse() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.byTenant) > 0
}

// Tend gives back what this server can spare of its shares: what others want at once, the rest after a while; and
// tells the desk what is held beyond them. One goroutine calls it, again after an error.
func (p *Places) Tend(ctx context.Context, wanted []Wanted) (err error) {
	for tenant, c := range p.toTend(wanted) {
		if err != nil { // the next call does the rest
			p.mu.Lock()
			close(c.asking)
			c.asking = nil
			p.mu.Unlock()
			continue
		}
		err = p.ask(ctx, tenant, c, 0, 0)
	}
	return err
}

// toTend returns the counts whose shares are to be set, which the caller must do: their asking is its.
func (p *Places) toTend(wanted []Wanted) map[string]*count {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked := map[string]bool{}
	for _, w := range wanted {
		asked[w.Tenant] = asked[w.Tenant] || w.Kind == p.kind
	}
	out := map[string]*count{}
	for tenant, c := range p.byTenant {
		c.idle++
		c.thrifty = max(c.thrifty-1, 0)
		if asked[tenant] {
			c.thrifty = thriftyTends
		}
		flagged := c.flag > 0
		c.flag = max(c.flag-1, 0)
		spares := c.set && c.row > c.used
		switch {
		case c.asking != nil:
		case spares && (asked[tenant] || c.idle > idleTends), flagged && c.flag == 0, c.used > c.row:
			c.asking = make(chan struct{})
			out[tenant] = c
		case c.used == 0 && !c.set && time.Now().After(c.again):
			delete(p.byTenant, tenant)
		}
	}
	return out
}

// LostAll says that the shares of this server are no longer its own. The next call of Tend asks for what is used.
func (p *Places) LostAll() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost++
	for _, c := range p.byTenant {
		c.share, c.row, c.set, c.flag = 0, 0, false, 0
	}
}
