// Package agentdhost runs a daemon within a program of yours, so that it can have
// what the agentd command cannot: model providers of your own, and a server of your
// own around it. Providers are values:
//
//	host, err := agentdhost.New(agentdhost.Config{
//		Providers: []model.Provider{acme.New(url, key)}, // the models "acme/…"
//	})
//	if err != nil {
//		return err
//	}
//	select {
//	case <-ctx.Done():
//	case err = <-host.Failed():
//	}
//	return errors.Join(err, host.Shutdown(grace))
//
// With HandlerOnly a host listens to nothing, and you serve its Handler.
//
// The package imports the daemon, the model seam, and of package session the principals.
package agentdhost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"

	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/session"
)

// Config is what a host can be told; the zero value serves on port 8080 of 127.0.0.1
// with everything in memory. What is not here has the defaults of agentd serve.
type Config struct {
	// Addr is where to listen, as host:port; port 0 is any free one, see Host.Addr.
	// Default "127.0.0.1:8080". Other machines reach a host on any other than a loopback
	// address, so that it is refused without Authenticate or Insecure.
	Addr string
	// Listener is used in place of Addr, under the same rule. The host closes it, also
	// when New fails.
	Listener net.Listener
	// HandlerOnly makes a host that does not listen: a server of the caller's serves its
	// Handler, and that server says who may call. Not with Addr or Listener.
	HandlerOnly bool
	// Authenticate finds out who makes a request, by its headers or its connection; it
	// must not read the body, and may be called from several goroutines at once. Its
	// error refuses the request before anything of it is read (UNAUTHENTICATED); it is
	// logged and not told. The checks of health ask nobody. Default: whoever reaches the
	// host is its operator.
	Authenticate func(*http.Request) (Principal, error)
	// Insecure allows an address that other machines reach without Authenticate: whoever
	// reaches it can run agents at your cost.
	Insecure bool

	// AllowedHosts are names by which the host may be called over a loopback address,
	// besides localhost and addresses, such as that of a proxy on this machine which
	// passes its own name on. Other names are refused, since a web page may have its name
	// lead to this machine. Default none.
	AllowedHosts []string

	// Providers are served besides the built-in ones, or in place of those of the same
	// name. Their names, and the models that they claim, must be their own.
	Providers []model.Provider
	// Getenv reads the environment, where the built-in providers find their keys and
	// addresses. Default os.Getenv.
	Getenv func(name string) string
	// ScriptsDir holds scripts for the models "scripted/…". Default none.
	ScriptsDir string
	// Prices is a file with a table of what models cost and can do, laid over the
	// built-in one; docs/providers.md describes the form. Default none.
	Prices string

	// DataDir is the folder of the database; it is made if there is none. Default
	// ":memory:", which is none.
	DataDir string
	// RecordTo is a file to which each model call is appended. Default none.
	RecordTo string
	// Logger receives what is worth knowing, and no keys, prompts or payloads.
	// Default: text on standard error.
	Logger *slog.Logger
}

// Principal is who makes a request, as Authenticate has found out: an ID that is not
// empty, a Tenant, "" for none, and a Role. Sessions, prompts, answers and resolutions
// say whose they are by the ID (created_by, resolved_by).
type Principal = session.Principal

// Role is what a principal may do.
type Role = session.Role

// The roles.
const (
	// Caller starts turns, answers and resolves. It is the zero value.
	Caller = session.Caller
	// Observer only reads.
	Observer = session.Observer
	// Operator does what a caller does, sets the state that all sessions share, and
	// reads the host's own instruction.
	Operator = session.Operator
)

// Host is a running daemon. Its methods may be called from any goroutine.
type Host struct{ d *daemon.Daemon }

// New starts a host: it opens the store, resumes the turns that were open when the last
// daemon of the same DataDir ended, and listens, unless it is HandlerOnly. The caller
// ends it with Shutdown. When New fails, nothing of the host runs any more.
func New(cfg Config) (*Host, error) {
	if err := cfg.check(); err != nil {
		if cfg.Listener != nil {
			err = errors.Join(err, cfg.Listener.Close())
		}
		return nil, err
	}
	if cfg.Getenv == nil {
		cfg.Getenv = os.Getenv
	}
	if cfg.Logger == nil {
		cfg.Logger = daemon.NewLogger(os.Stderr,
			daemon.LogConfig{Secrets: daemon.Secrets(cfg.Getenv, cfg.Providers...)})
	}
	d, err := daemon.New(daemon.Config{
		Addr: cfg.addr(), Listener: cfg.Listener, HandlerOnly: cfg.HandlerOnly, Authenticate: cfg.Authenticate,
		AllowedHosts: cfg.AllowedHosts,
		DataDir:      cfg.DataDir, ScriptsDir: cfg.ScriptsDir, Prices: cfg.Prices, RecordTo: cfg.RecordTo,
		Getenv: cfg.Getenv, ExtraProviders: cfg.Providers, Logger: cfg.Logger,
	})
	if err != nil {
		if cfg.Listener != nil {
			err = errors.Join(err, cfg.Listener.Close())
		}
		return nil, err
	}
	if err := d.Start(context.Background()); err != nil {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		return nil, errors.Join(err, d.Shutdown(now))
	}
	return &Host{d}, nil
}

func (c *Config) addr() string { return cmp.Or(c.Addr, "127.0.0.1:8080") }

// check refuses what contradicts itself, and what others reach.
func (c *Config) check() error {
	switch {
	case c.HandlerOnly && (c.Addr != "" || c.Listener != nil):
		return errors.New("agentdhost: a host that is HandlerOnly has neither Addr nor Listener")
	case c.HandlerOnly || c.Insecure || c.Authenticate != nil:
		return nil
	case c.Listener != nil:
		if a, ok := c.Listener.Addr().(*net.TCPAddr); ok && !a.IP.IsLoopback() {
			return exposed(a.String())
		}
		return nil
	}
	host, _, err := net.SplitHostPort(c.addr())
	if err != nil {
		return fmt.Errorf("agentdhost: address %q: want host:port, such as 127.0.0.1:8080: %w", c.Addr, err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return exposed(c.Addr)
	}
	return nil
}

func exposed(addr string) error {
	return fmt.Errorf("agentdhost: other machines reach %q, and nothing authenticates callers: "+
		"listen on 127.0.0.1, set Authenticate, or set Insecure if whoever reaches it may run agents at your cost",
		addr)
}

// Handler answers every request of the protocol, from New on; once Shutdown is over it
// answers 503. A server of the caller's that serves it has to speak HTTP/2 for the method
// Run, in cleartext too where there is no TLS (http.Server.Protocols), and must not have
// ReadTimeout or WriteTimeout, which would end streams.
func (h *Host) Handler() http.Handler { return h.d.Handler() }

// Addr is where the host listens; nil for one that is HandlerOnly.
func (h *Host) Addr() net.Addr { return h.d.Addr() }

// Failed receives an error when the listener has failed or the store has failed for
// good. The host is then of no use and has to be shut down. It is never closed, and
// receives nothing upon a Shutdown.
func (h *Host) Failed() <-chan error { return h.d.Failed() }

// Shutdown ends the host. It waits for running turns until ctx ends; later ones resume
// when a daemon of the same DataDir starts. It returns when nothing of the host runs
// any more, or names what still does. It may be called again, and from several
// goroutines.
func (h *Host) Shutdown(ctx context.Context) error { return h.d.Shutdown(ctx) }
