// Package testdaemon has the options of agentdtest that show what is within a daemon: its store,
// its limits, its retries. They are for the tests of agentd itself.
package testdaemon

import (
	"net/http"
	"time"

	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/session/limits"
	"github.com/apzuk3/agentd/session/principal"
	"github.com/apzuk3/agentd/session/store"
)

// Config is what package agentdtest has made of its own Config.
type Config struct {
	Daemon daemon.Config
	Front  func(hc *http.Client, url string) http.Handler
}

// Option changes a Config.
type Option func(*Config)

// WithStore keeps the data in a store of the caller's, which the daemon's Close closes.
func WithStore(s store.Store) Option { return func(c *Config) { c.Daemon.Store = s } }

// WithTurnLimits bounds turns, their tool calls and sizes.
func WithTurnLimits(l limits.Limits) Option { return func(c *Config) { c.Daemon.Turns = l } }

// WithRetry says how often, and after which waits, failed model calls are made
// again. The default differs from the daemon's in its waits, which take a
// millisecond where the provider does not ask for more.
func WithRetry(r modelcall.Retry) Option { return func(c *Config) { c.Daemon.ModelRetry = r } }

// WithBreaker says when the calls of a model that keeps failing are suspended. The
// default, unlike the daemon's, is never.
func WithBreaker(c modelcall.BreakerConfig) Option {
	return func(cfg *Config) { cfg.Daemon.ModelBreaker = c }
}

// WithModelTimeouts bounds one try of a model call, and the silence within it; 0
// means the daemon's default.
func WithModelTimeouts(total, idle time.Duration) Option {
	return func(c *Config) { c.Daemon.ModelTimeout, c.Daemon.ModelIdleTimeout = total, idle }
}

// WithTimeouts sets how long a stream may be silent, and how long a message may
// wait for a client that does not read; 0 means the daemon's default.
func WithTimeouts(idle, write time.Duration) Option {
	return func(c *Config) { c.Daemon.IdleTimeout, c.Daemon.WriteTimeout = idle, write }
}

// WithFront puts a handler, such as a proxy, between clients and the daemon.
// front is called once the daemon runs, with a client of it and its address.
func WithFront(front func(hc *http.Client, url string) http.Handler) Option {
	return func(c *Config) { c.Front = front }
}

// WithAuthentication says who makes a request; see daemon.Config.
func WithAuthentication(f func(*http.Request) (principal.Principal, error)) Option {
	return func(c *Config) { c.Daemon.Authenticate = f }
}
