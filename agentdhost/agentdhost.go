// Package agentdhost runs a daemon within your program, with what the agentd command cannot have:
// model providers of your own, and a server of your own around it. Providers are values:
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
// The package imports the daemon, package model, the faces of package server, and the principals of package session.
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
	"github.com/apzuk3/agentd/server"
	"github.com/apzuk3/agentd/session/principal"
)

// Config configures a host; the zero value serves on port 8080 of 127.0.0.1 and keeps everything in
// memory. Settings that are not here have the defaults of agentd serve.
type Config struct {
	// Addr is the address to listen on, as host:port; port 0 is any free one, see Host.Addr.
	// Default "127.0.0.1:8080". Other machines reach a host on any address that is not a loopback
	// address: New refuses such an address without Authenticate or Insecure.
	Addr string
	// Listener replaces Addr, under the same rule. The host closes it, also when New fails.
	Listener net.Listener
	// HandlerOnly makes a host that does not listen: a server of yours serves its Handler and
	// decides who may call. Not with Addr or Listener.
	HandlerOnly bool
	// Authenticate returns who makes a request, by its headers or its connection. It must not read
	// the body; several goroutines may call it at once. Its error refuses the request before
	// anything of it is read (UNAUTHENTICATED); the host logs the error and does not send it.
	// Health checks are not authenticated. Default: everybody who reaches the host is its operator.
	Authenticate func(*http.Request) (Principal, error)
	// Insecure allows an address that other machines reach without Authenticate: everybody who
	// reaches it can run agents at your cost.
	Insecure bool

	// AllowedHosts are the names by which clients may call the host over a loopback address,
	// besides localhost and addresses, such as the name of a proxy on this machine that passes it
	// on. The host refuses other names, since a web page may point its name at this machine.
	// Default none.
	AllowedHosts []string

	// Faces serve other protocols beside agentd's, on routes of their own. Default none.
	Faces []server.Face

	// Providers are served besides the built-in ones, or in place of those of the same name. No two
	// of them may have the same name, or claim the same models.
	Providers []model.Provider
	// Getenv reads the environment, from which the built-in providers take their keys and
	// addresses. Default os.Getenv.
	Getenv func(name string) string
	// ScriptsDir holds scripts for the models "scripted/…". Default none.
	ScriptsDir string
	// Prices is a file of what models cost and can do, which overrides the built-in table;
	// docs/providers.md describes the form. Default none.
	Prices string

	// Webhooks is a file that names servers that are told what happens; docs/webhooks.md describes the form. Default
	// none.
	Webhooks string

	// DataDir is the folder of the database; the host creates it. Default ":memory:", which keeps
	// nothing.
	DataDir string
	// RecordTo is a file to which the host appends each model call. Default none.
	RecordTo string
	// Logger receives log lines without keys, prompts and payloads. Default: text on standard
	// error.
	Logger *slog.Logger
}

// Principal is who makes a request: an ID that is not empty, a Tenant, "" for none, and a Role. The
// ID names the owner of sessions, prompts, results and resolutions (created_by, resolved_by).
type Principal = principal.Principal

// Role is what a principal may do.
type Role = principal.Role

// The roles.
const (
	// Caller starts turns, sends results and resolves interactions. It is the zero value.
	Caller = principal.Caller
	// Observer only reads.
	Observer = principal.Observer
	// Operator does what a caller does, sets the state that all sessions share, and reads the
	// host's own instruction.
	Operator = principal.Operator
)

// Host is a running daemon. Its methods may be called from any goroutine.
type Host struct{ d *daemon.Daemon }

// New starts a host: it opens the store, resumes the turns that the last daemon of the same DataDir
// left open, and listens, unless it is HandlerOnly. The caller ends it with Shutdown. When New
// fails, nothing of the host runs.
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
			daemon.LogConfig{Secrets: daemon.Secrets(daemon.Config{Getenv: cfg.Getenv, ExtraProviders: cfg.Providers})})
	}
	d, err := daemon.New(daemon.Config{
		Addr: cfg.addr(), Listener: cfg.Listener, HandlerOnly: cfg.HandlerOnly, Authenticate: cfg.Authenticate,
		AllowedHosts: cfg.AllowedHosts, Insecure: true, // check has refused what is not
		Faces:   cfg.Faces,
		DataDir: cfg.DataDir, ScriptsDir: cfg.ScriptsDir, Prices: cfg.Prices, Webhooks: cfg.Webhooks,
		RecordTo: cfg.RecordTo,
		Getenv:   cfg.Getenv, ExtraProviders: cfg.Providers, Logger: cfg.Logger,
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

// check refuses settings that contradict each other, and addresses that other machines reach.
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

// Handler serves every request of the protocol, as soon as New returns; after Shutdown it responds
// 503. A server that serves it has to speak HTTP/2 for the method Run, also in cleartext if it has
// no TLS (http.Server.Protocols), and must have neither ReadTimeout nor WriteTimeout, which would
// end streams.
func (h *Host) Handler() http.Handler { return h.d.Handler() }

// Addr returns the address that the host listens on; nil if it is HandlerOnly.
func (h *Host) Addr() net.Addr { return h.d.Addr() }

// Failed receives an error when the listener fails, or when the store fails for good: shut the host
// down then. It is never closed, and receives nothing on Shutdown.
func (h *Host) Failed() <-chan error { return h.d.Failed() }

// Shutdown ends the host. It waits for running turns until ctx ends; those that still run resume
// when a daemon of the same DataDir starts. It returns when nothing of the host runs, or an error
// that names what still does. It may be called more than once, and from several goroutines.
func (h *Host) Shutdown(ctx context.Context) error { return h.d.Shutdown(ctx) }
