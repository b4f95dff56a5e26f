package share

import (
	"context"
	"math"
	"sync"
	"time"
)

// maxPaced is how many tenants have their leases in memory. One that is forgotten asks anew.
const maxPaced = 10_000

// Pace admits requests of tenants of a bound that holds for all servers together, out of leases of requests that the
// desk grants. A lease is for what came within the last second, so that a server keeps little from others.
//
// Its methods may be called from any goroutine.
type Pace struct {
	desk Desk

	mu       sync.Mutex // protects the fields below, and those of the leases
	byTenant map[string]*lease
}

// lease is what a tenant may ask of this server.
type lease struct {
	left    int
	since   time.Time // when it was asked for
	took    int       // of it, and of what was refused meanwhile
	waiters int
	asking  chan struct{} // closed when the desk has answered; nil if nobody asks
	// Until again the desk is not asked: it has granted less than was wanted, or failed with err.
	again time.Time
	err   error
}

// NewPace admits requests.
func NewPace(desk Desk) *Pace { return &Pace{desk: desk, byTenant: map[string]*lease{}} }

// Take admits a request of a tenant that may make perSecond requests a second at all servers. wait is 0 if it is
// admitted, and else when it may be tried again. It may wait for the desk. An error says that the lease of this server
// is used up, or a second old, and the desk cannot be asked; or that ctx has ended.
func (p *Pace) Take(ctx context.Context, tenant string, perSecond int) (wait time.Duration, err error) {
	for {
		l, asks, busy, wait, err := p.tryTake(tenant)
		switch {
		case asks:
			p.ask(ctx, tenant, l, perSecond)
		case busy == nil:
			return wait, err
		default:
			err := untilClosed(busy)(ctx)
			p.mu.Lock()
			l.waiters--
			p.mu.Unlock()
			if err != nil {
				return 0, err
			}
		}
	}
}

// tryTake takes of the lease. Else the caller asks for it; or waits for busy, and is counted; or is refused.
func (p *Pace) tryTake(tenant string) (
	l *lease, asks bool, busy <-chan struct{}, wait time.Duration, err error,
) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l = p.byTenant[tenant]
	if l == nil {
		p.shrinkLocked()
		l = &lease{}
		p.byTenant[tenant] = l
	}
	now := time.Now()
	switch {
	case l.left > 0 && now.Before(l.since.Add(LeaseTime)):
		l.left--
		l.took++
		return l, false, nil, 0, nil
	case l.asking != nil:
		l.waiters++
		return l, false, l.asking, 0, nil
	case now.Before(l.again):
		l.took++
		return l, false, nil, l.again.Sub(now), l.err
	}
	l.asking = make(chan struct{}) // ask closes it
	return l, true, nil, 0, nil
}

// ask leases anew. The caller has the right to: asking is its channel.
func (p *Pace) ask(ctx context.Context, tenant string, l *lease, perSecond int) {
	p.mu.Lock()
	began := time.Now()
	passed := max(began.Sub(l.since), LeaseTime/20).Seconds()
	recent := int(math.Min(float64(l.took)/passed*5/4, float64(perSecond)))
	ask := RequestsAsk{Tenant: tenant, PerSecond: perSecond, Want: max(min(1+l.waiters+recent, perSecond), 1)}
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askPatience) // others wait for the answer too
	defer cancel()
	got, err := p.desk.Requests(ctx, ask)
	p.mu.Lock()
	defer p.mu.Unlock()
	close(l.asking)
	l.asking, l.err, l.left, l.since, l.took = nil, err, got.Granted, began, 0
	now := time.Now()
	switch {
	case err != nil:
		l.left, l.again = 0, now.Add(askAgain)
	case got.Granted == 0:
		l.again = now.Add(min(max(got.Wait, askAgain/5), LeaseTime))
	case got.Granted < ask.Want:
		l.again = now.Add(askAgain / 5)
	default:
		l.again = time.Time{}
	}
}

// shrinkLocked forgets leases that are over, if there are too many.
func (p *Pace) shrinkLocked() {
	if len(p.byTenant) < maxPaced {
		return
	}
	now := time.Now()
	for tenant, l := range p.byTenant {
		if l.asking == nil && l.waiters == 0 && !now.Before(l.since.Add(LeaseTime)) && !now.Before(l.again) {
			delete(p.byTenant, tenant)
		}
	}
}
