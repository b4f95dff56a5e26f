package server

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"

	"github.com/apzuk3/agentd/session/fault"
)

// maxPaced is how many tenants have their pace in memory. One that is forgotten begins anew.
const maxPaced = 10_000

// tenants bounds what the callers of one tenant take of the server, so that it leaves something for others. Callers
// without a tenant share the bounds of the server.
type tenants struct {
	mu      sync.Mutex // protects the fields below
	paces   *simplelru.LRU[string, *rate.Limiter]
	streams map[string]int
}

func newTenants() *tenants {
	paces, _ := simplelru.NewLRU[string, *rate.Limiter](maxPaced, nil) // fails for no size alone
	return &tenants{paces: paces, streams: map[string]int{}}
}

// request counts a request of a tenant, and refuses it when there are more than perSecond; twice as many may come at
// once.
func (t *tenants) request(tenant string, perSecond int) *fault.Error {
	if tenant == "" {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	pace, ok := t.paces.Get(tenant)
	if !ok {
		pace = rate.NewLimiter(rate.Limit(perSecond), 2*perSecond)
		t.paces.Add(tenant, pace)
	}
	if pace.Limit() != rate.Limit(perSecond) { // it was reloaded
		pace.SetLimit(rate.Limit(perSecond))
		pace.SetBurst(2 * perSecond)
	}
	r := pace.Reserve()
	wait := r.Delay()
	if wait == 0 {
		return nil
	}
	r.Cancel()
	return fault.Errorf(codeRate, "the tenant makes more than %d requests a second, its limit; try again later",
		perSecond).After(max(wait, 100*time.Millisecond)).Over("tenant_requests_per_second", perSecond, perSecond+1)
}

// enter counts a stream of a tenant, also one that it refuses.
func (t *tenants) enter(tenant string, most int) *fault.Error {
	if tenant == "" {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.streams[tenant]++; t.streams[tenant] > most {
		return fault.Errorf(codeUnavailable, "the tenant has %d open streams, its limit; try again later", most).
			After(retryLater).Over("tenant_streams", most, t.streams[tenant])
	}
	return nil
}

func (t *tenants) leave(tenant string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.streams[tenant]--; t.streams[tenant] <= 0 {
		delete(t.streams, tenant)
	}
}
