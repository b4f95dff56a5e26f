package mcpserve

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// maxHosts is how many hosts the handler of HTTP serves at once.
	maxHosts = 1024
	// forgotten ends the session of a host that asks for nothing and has not said that it is gone.
	forgotten = 24 * time.Hour
	// sessionHeader names the session of a request.
	sessionHeader = "Mcp-Session-Id"
)

// Handler serves hosts over streamable HTTP. Nothing authenticates them: what stands before it has to, or it is reached
// by this machine alone. It refuses web pages of other origins, and names of other hosts than this one.
func (s *Server) Handler() http.Handler {
	pick := func(*http.Request) *sdk.Server {
		n := 0
		for range s.sdk.Sessions() {
			n++
		}
		if n >= maxHosts {
			s.cfg.Note("a host is refused: %d are connected, which is the most", n)
			return nil
		}
		return s.sdk
	}
	next := sdk.NewStreamableHTTPHandler(pick, &sdk.StreamableHTTPOptions{
		EventStore:     sdk.NewMemoryEventStore(nil),
		SessionTimeout: forgotten,
	})
	return http.NewCrossOriginProtection().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(sessionHeader)
		if !s.knows(id) {
			next.ServeHTTP(w, r)
			return
		}
		if r.Method == http.MethodDelete { // the SDK waits for the session's calls
			s.presence.drop(id)
		} else {
			s.presence.comes(id)
			defer s.presence.goes(id)
		}
		next.ServeHTTP(w, r)
	}))
}

// Path is where Listen has the server.
const Path = "/mcp"

// Listen serves [Server.Handler] on a listener, until ctx ends. It returns when all turns are over.
func (s *Server) Listen(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.Handle(Path, s.Handler())
	front := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // of connections that break
	}
	failed := make(chan error, 1)
	go func() { failed <- front.Serve(l) }()
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	s.Close()
	return errors.Join(err, front.Close())
}

// knows reports whether there is a session of this id.
func (s *Server) knows(id string) bool {
	if id == "" {
		return false
	}
	for session := range s.sdk.Sessions() {
		if session.ID() == id {
			return true
		}
	}
	return false
}

var errGone = errors.New("the MCP host is gone")

// presence is which hosts have a request under way. Without one for the grace, the calls of a host end.
type presence struct {
	grace time.Duration

	mu    sync.Mutex // protects the field below
	hosts map[string]*guest
}

// guest is a host over HTTP.
type guest struct {
	requests int
	absent   *time.Timer // set while there are no requests
	gone     map[*call]func(error)
}

func (p *presence) atLocked(id string) *guest {
	g := p.hosts[id]
	if g == nil {
		g = &guest{gone: map[*call]func(error){}}
		p.hosts[id] = g
	}
	return g
}

// comes counts a request of a host, until goes.
func (p *presence) comes(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.atLocked(id)
	g.requests++
	if g.absent != nil {
		g.absent.Stop()
		g.absent = nil
	}
}

func (p *presence) goes(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.hosts[id]
	if g == nil {
		return // dropped
	}
	if g.requests--; g.requests > 0 {
		return
	}
	if len(g.gone) == 0 {
		delete(p.hosts, id)
		return
	}
	g.absent = time.AfterFunc(p.grace, func() { p.absent(id, g) })
}

// absent ends the calls of a host that has not come back.
func (p *presence) absent(id string, g *guest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hosts[id] == g && g.requests == 0 {
		p.dropLocked(id)
	}
}

// drop ends the calls of a host.
func (p *presence) drop(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropLocked(id)
}

func (p *presence) dropLocked(id string) {
	g := p.hosts[id]
	if g == nil {
		return
	}
	delete(p.hosts, id)
	if g.absent != nil {
		g.absent.Stop()
	}
	for _, end := range g.gone {
		end(errGone)
	}
}

// watch has a call of a host ended when the host is gone, until done. Hosts of a pipe have no id: its end says so.
func (p *presence) watch(c *call, end func(error)) (done func()) {
	id := c.host.ID()
	if id == "" {
		return func() {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	g := p.atLocked(id)
	g.gone[c] = end
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(g.gone, c)
		if p.hosts[id] == g && g.requests == 0 && len(g.gone) == 0 {
			p.dropLocked(id)
		}
	}
}
