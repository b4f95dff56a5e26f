package daemon

import (
	"context"
	"net"
	"net/http"
	"sync"

	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
)

// arrivals are the connections over which no request has come yet: whoever has opened one is about to send its first. A
// replica that stops waits for those requests, since a client whose turn it refuses may know of no other replica. The
// zero value has none. Its methods may be called from any goroutine.
type arrivals struct {
	mu    sync.Mutex
	fresh map[net.Conn]struct{} // as many as there are connections, at most
}

type connKey struct{}

// watch has a server that does not serve yet say which connections there are.
func (a *arrivals) watch(s *http.Server) {
	a.fresh = map[net.Conn]struct{}{}
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.fresh[c] = struct{}{}
		return context.WithValue(ctx, connKey{}, sync.OnceFunc(func() { a.remove(c) }))
	}
	s.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateClosed || state == http.StateHijacked {
			a.remove(c)
		}
	}
}

func (a *arrivals) remove(c net.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.fresh, c)
}

// count is how many there are.
func (a *arrivals) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.fresh)
}

// counted is called when the stream of a request is among those of the server.
func (a *arrivals) counted(ctx context.Context) {
	if come, ok := ctx.Value(connKey{}).(func()); ok {
		come()
	}
}

// guard has h serve requests. One that opens a stream has come when the stream is counted, or the request is over.
func (a *arrivals) guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		come, ok := r.Context().Value(connKey{}).(func())
		switch {
		case !ok:
		case r.URL.Path != agentdv1connect.AgentdRunProcedure:
			come()
		default:
			defer come()
		}
		h.ServeHTTP(w, r)
	})
}
