// Package agentdhost runs a daemon within a program of yours, so that it can have
// what the agentd command cannot: model providers of your own. Each provider is
// a package that calls model.Register in its init; the program imports it and
// serves:
//
//	import _ "example.com/acme" // the models "acme/…"
//
//	func main() {
//		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
//		defer stop()
//		if err := agentdhost.Serve(ctx, agentdhost.Config{Addr: "127.0.0.1:8080"}); err != nil {
//			log.Fatal(err)
//		}
//	}
//
// The package imports the daemon.
package agentdhost

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/apzuk3/agentd/internal/daemon"
)

// Config is what a daemon can be told; the zero value serves on port 8080 with
// everything in memory. What is not here has the defaults of agentd serve.
type Config struct {
	// Addr is where to listen, as host:port; no host means all addresses. Default
	// ":8080".
	Addr string
	// Listener is used in place of Addr. Serve closes it.
	Listener net.Listener
	// DataDir is the folder of the database; it is made if there is none. Default
	// ":memory:", which is none.
	DataDir string
	// ScriptsDir holds scripts for the models "scripted/…". Default none.
	ScriptsDir string
	// Prices is a file with a table of what models cost and can do, laid over the
	// built-in one; see package catalog. Default none.
	Prices string
	// RecordTo is a file to which each model call is appended. Default none.
	RecordTo string
	// Getenv reads the environment, where providers find their keys and addresses.
	// Default os.Getenv.
	Getenv func(name string) string
	// Logger receives what is worth knowing, and no keys, prompts or payloads.
	// Default: text on standard error.
	Logger *slog.Logger
	// ShutdownGrace is how long running turns are waited for when ctx ends; later
	// ones go on after the next start. Default 30 s.
	ShutdownGrace time.Duration
}

// Serve serves until ctx ends, or until serving fails, which is its error. Turns
// that have not ended by then go on when a daemon of the same DataDir starts.
func Serve(ctx context.Context, cfg Config) error {
	if cfg.Getenv == nil {
		cfg.Getenv = os.Getenv
	}
	if cfg.Logger == nil {
		cfg.Logger = daemon.NewLogger(os.Stderr, daemon.LogConfig{Secrets: daemon.Secrets(cfg.Getenv)})
	}
	d, err := daemon.New(daemon.Config{
		Addr: cfg.Addr, Listener: cfg.Listener, DataDir: cfg.DataDir, ScriptsDir: cfg.ScriptsDir, Prices: cfg.Prices, RecordTo: cfg.RecordTo,
		Getenv: cfg.Getenv, Logger: cfg.Logger,
	})
	if err != nil {
		return err
	}
	failed := d.Start(ctx)
	if failed == nil {
		select {
		case <-ctx.Done():
		case failed = <-d.Failed():
		}
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), cmp.Or(cfg.ShutdownGrace, 30*time.Second))
	defer cancel()
	return errors.Join(failed, d.Shutdown(grace))
}
