package server

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"

	"github.com/apzuk3/agentd/session/fault"
)

// maxPaced is how many tenants have their pace in memory. One that is forgotten begins anew.
const maxPaced = 10_000

// tenants, of a server that is alone, bounds what the callers of one tenant take of the server, so that it leaves
// something for others. Callers without a tenant share the bounds of the server.
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
	return tooMany(wait, perSecond)
}

// tooMany refuses a request.
func tooMany(wait time.Duration, perSecond int) *fault.Error {
	return fault.Errorf(codeRate, "the tenant makes more than %d requests a second, its limit; try again later",
		perSecond).After(max(wait, 100*time.Millisecond)).Over("tenant_requests_per_second", perSecond, perSecond+1)
}

// request counts a request of a tenant, here or with the other servers, and refuses one that is too many. It may wait
// for the others.
func (s *Server) request(ctx context.Context, tenant string) *fault.Error {
	now := s.now()
	switch {
	case tenant == "":
		return nil
	case now.Requests == nil:
		return s.tenants.request(tenant, now.TenantRequestsPerSecond)
	}
	wait, err := now.Requests.Take(ctx, tenant, now.TenantRequestsPerSecond)
	if err != nil {
		return s.untold(err)
	}
	if wait > 0 {
		return tooMany(wait, now.TenantRequestsPerSecond)
	}
	return nil
}

// untold refuses what the server cannot count, since it does not reach what it shares with the others.
func (s *Server) untold(err error) *fault.Error {
	s.log.Warn("what tenants may have cannot be asked for", slog.String("error", err.Error()))
	return fault.Errorf(codeUnavailable,
		"the server cannot tell now what the tenant has at other servers; try again later").After(retryLater)
}

// enterTenant counts a stream of a tenant, here or with the other servers. The caller calls leave, once, also when it
// is refused. It may wait for the others.
func (s *Server) enterTenant(ctx context.Context, tenant string) (leave func(), refused *fault.Error) {
	now := s.now()
	if now.Streams == nil {
		return func() { s.tenants.leave(tenant) }, s.tenants.enter(tenant, now.MaxTenantStreams)
	}
	took, err := now.Streams.Take(ctx, tenant, now.MaxTenantStreams)
	switch {
	case err != nil:
		return func() {}, s.untold(err)
	case !took:
		return func() {}, fault.Errorf(codeUnavailable,
			"the tenant has %d open streams at all servers, its limit; try again later", now.MaxTenantStreams).
			After(retryLater).Over("tenant_streams", now.MaxTenantStreams, now.MaxTenantStreams+1)
	}
	return func() { now.Streams.Leave(tenant) }, nil
}

// enter counts a stream of a tenant, also one that it refuses.
func (t *tenants) enter(tenant string, most int) *fault.Error {
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
