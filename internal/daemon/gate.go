package daemon

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// gate counts the requests that a handler serves, and keeps others out once it is
// closed. The zero value is open. Its methods may be called from any goroutine.
type gate struct {
	mu     sync.Mutex // protects the fields below
	within map[*visit]struct{}
	closed bool
	empty  chan struct{} // closed when a closed gate has nobody within; nil while it is open
}

// visit is a request that is being served.
type visit struct{ cancel context.CancelFunc }

// guard lets h serve requests while the gate is open.
func (g *gate) guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, r := newVisit(r)
		defer v.cancel()
		if !g.enter(v) {
			http.Error(w, "this server has stopped", http.StatusServiceUnavailable)
			return
		}
		defer g.leave(v)
		h.ServeHTTP(w, r)
	})
}

// newVisit returns the visit of a request, and the request that it can cancel.
func newVisit(r *http.Request) (*visit, *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	return &visit{cancel}, r.WithContext(ctx)
}

func (g *gate) enter(v *visit) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	if g.within == nil {
		g.within = map[*visit]struct{}{}
	}
	g.within[v] = struct{}{}
	return true
}

func (g *gate) leave(v *visit) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.within, v)
	if g.closed && len(g.within) == 0 {
		close(g.empty)
	}
}

// inside is how many requests are being served.
func (g *gate) inside() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.within)
}

// hurry ends the contexts of the requests that are being served.
func (g *gate) hurry() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for v := range g.within {
		v.cancel()
	}
}

// close keeps further requests out and waits, bounded, for those that are being
// served. It returns how many are left. It may be called again.
func (g *gate) close(longest time.Duration) int {
	g.mu.Lock()
	if !g.closed {
		g.closed, g.empty = true, make(chan struct{})
		if len(g.within) == 0 {
			close(g.empty)
		}
	}
	g.mu.Unlock()
	g.hurry()
	wait := time.NewTimer(longest)
	defer wait.Stop()
	select {
	case <-g.empty:
	case <-wait.C:
	}
	return g.inside()
}
