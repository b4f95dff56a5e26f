package daemon

import (
	"context"
	"net/http"
	"sync"
	"time"
)

const (
	// reachFor is how long it is remembered whether a replica was reached.
	reachFor = time.Second
	// reachKept is how many of these are remembered before all are dropped: they are not true for long.
	reachKept = 100
)

// reach finds out which replicas this one reaches. Its methods may be called from any goroutine.
type reach struct {
	client *http.Client

	mu    sync.Mutex          // protects the map
	known map[string]*reached // by address
}

// reached is what came of the last try to reach a replica.
type reached struct {
	mu sync.Mutex // held while it is tried
	at time.Time
	is bool
}

// reaches reports whether the replica at an address responds, after replicaPing at most for each who asks at once.
func (r *reach) reaches(ctx context.Context, address string) bool {
	last := r.of(address)
	last.mu.Lock()
	defer last.mu.Unlock()
	if time.Since(last.at) < reachFor {
		return last.is
	}
	is := r.try(ctx, address)
	if is || ctx.Err() == nil {
		last.at, last.is = time.Now(), is
	}
	return is
}

// of returns what is known of an address.
func (r *reach) of(address string) *reached {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known[address] == nil {
		if len(r.known) >= reachKept {
			clear(r.known)
		}
		if r.known == nil {
			r.known = map[string]*reached{}
		}
		r.known[address] = &reached{}
	}
	return r.known[address]
}

func (r *reach) try(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, replicaPing)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/healthz", nil)
	if err != nil {
		return false
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return true
}
