package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/gestalt"
	"github.com/apzuk3/agentd/internal/gestalt/sqlstore"
	"github.com/apzuk3/agentd/internal/heap"
)

type gestaltCmd struct {
	Package string `noenv:"" placeholder:"DIR" help:"${gestalt_package}"`

	LogLevel  slog.Level `default:"info" help:"Least level to log: debug, info, warn or error."`
	LogFormat string     `default:"text" enum:"text,json" help:"Form of the log: text or json."`

	modelFlags `embed:""`
}

// Help is shown below the flags.
func (*gestaltCmd) Help() string {
	return `A Gestalt host starts this command; by hand it only writes a package, with --package. The host says in the
environment where to listen (GESTALT_PLUGIN_SOCKET), and then which agents there are and where the database is.
Keys of providers come from the env of the provider in the host's configuration.

SIGTERM and SIGINT suspend the turns and end the process within 1.5 s; so does the end of the host. The next start
goes on with them. docs/gestalt.md describes the rest.

Examples:

  agentd gestalt-provider --package=/opt/agentd-provider`
}

// Validate refuses limits that would mean a default or none.
func (c *gestaltCmd) Validate() error { return c.check() }

// Run serves a host until a signal, or until it is gone; or writes a package.
func (c *gestaltCmd) Run(p *process) error {
	if c.Package != "" {
		return c.pack(p)
	}
	env, err := gestalt.ReadEnvironment(p.getenv, os.ReadFile)
	if err != nil {
		return usage("%v; agentd gestalt-provider --package=DIR writes what a host needs", err)
	}
	dir, err := dataDir(runtime.GOOS, p.env)
	if err == nil {
		dir = filepath.Join(dir, "gestalt", filepath.Base(filepath.Clean("/"+env.Name)))
	}
	secrets := append(daemon.Secrets(daemon.Config{Getenv: p.getenv}), env.Token)
	log := daemon.NewLogger(p.stderr, daemon.LogConfig{
		Level: c.LogLevel, JSON: c.LogFormat == "json", Secrets: secrets,
	})
	daemon.OwnProcess(log)
	unpace := heap.Pace()
	defer unpace()
	rules, err := daemon.TreeRules()
	if err != nil {
		return err
	}
	provider, err := gestalt.New(gestalt.Config{
		Env: env, Version: thisRelease().version, DataDir: dir, Logger: log, Rules: rules,
		Open: func(ctx context.Context, dir string) (*gestalt.Backend, error) { return c.open(ctx, p, dir, log) },
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // ends with the command
		for {
			select {
			case s := <-p.signals:
				if s != syscall.SIGHUP {
					log.Info("stopping", slog.String("signal", s.String()))
					cancel()
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return provider.Serve(ctx)
}

const (
	// takeover bounds how long the database is waited for that another process has. A host that is killed and starts
	// again leaves one that ends within 2 s; it allows 30 s in all.
	takeover = 10 * time.Second
	// takeoverEvery is how often it is tried.
	takeoverEvery = 100 * time.Millisecond
)

// open starts the daemon of a provider, when the last process has left the database.
func (c *gestaltCmd) open(ctx context.Context, p *process, dir string, log *slog.Logger) (*gestalt.Backend, error) {
	limit, cancel := context.WithTimeout(ctx, takeover)
	defer cancel()
	for try := 0; ; try++ {
		b, err := c.openNow(ctx, p, dir, log)
		if !errors.Is(err, daemon.ErrInUse) {
			return b, err
		}
		if try == 0 {
			log.Info("another process has the database: waiting for its end", slog.String("data", dir),
				slog.Duration("most", takeover))
		}
		select {
		case <-time.After(takeoverEvery):
		case <-limit.Done():
			return nil, err
		}
	}
}

// openNow starts the daemon of a provider, which listens within the process alone.
func (c *gestaltCmd) openNow(ctx context.Context, p *process, dir string, log *slog.Logger) (*gestalt.Backend, error) {
	pipe := gestalt.NewPipe()
	cfg := daemon.Config{
		Listener: pipe, DataDir: dir, Getenv: p.getenv, Logger: slog.New(quietCalls{log.Handler()}),
		Version: thisRelease().version, NoReflection: true,
		Authenticate: func(r *http.Request) (daemon.Principal, error) {
			subject, err := gestalt.Subject(r.Header)
			if err != nil {
				return daemon.Principal{}, err
			}
			return daemon.NewPrincipal(subject, "", "caller")
		},
		Collector: daemon.Collector{
			Endpoint: p.getenv("OTEL_EXPORTER_OTLP_ENDPOINT"), Headers: p.getenv("OTEL_EXPORTER_OTLP_HEADERS"),
			TraceShare: 1,
		},
		// All clients are this process, which bounds its turns itself.
		MaxStreamsPerConn: gestalt.MaxTurns,
	}
	c.configure(&cfg)
	if p.adjust != nil {
		p.adjust(&cfg)
	}
	d, err := daemon.New(cfg)
	if err != nil {
		return nil, errors.Join(err, pipe.Close())
	}
	if err := d.Start(ctx); err != nil {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		return nil, errors.Join(err, d.Shutdown(now))
	}
	db, ok := d.Database().(sqlstore.DB)
	if !ok {
		return nil, errors.New("the database has no place for what a Gestalt host says")
	}
	return &gestalt.Backend{
		Dial: pipe.Dial, Store: sqlstore.New(db), Failed: d.Failed(), Shutdown: d.Shutdown,
	}, nil
}

// quietCalls leaves out of the log that of each request which has succeeded, unless all is logged: the requests are the
// program's own, and a host polls.
type quietCalls struct{ slog.Handler }

// Handle implements slog.Handler.
func (q quietCalls) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "call ended" && r.Level == slog.LevelInfo && !q.Enabled(ctx, slog.LevelDebug) {
		return nil
	}
	return q.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (q quietCalls) WithAttrs(attrs []slog.Attr) slog.Handler {
	return quietCalls{q.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (q quietCalls) WithGroup(name string) slog.Handler { return quietCalls{q.Handler.WithGroup(name)} }

// pack writes a folder that a host takes as the source of a provider: this program, its manifest, and the schema of its
// configuration.
func (c *gestaltCmd) pack(p *process) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("--package: find this program: %w", err)
	}
	if err := gestalt.WritePackage(c.Package, program, thisRelease().version); err != nil {
		return fmt.Errorf("--package: %w", err)
	}
	fmt.Fprintf(p.stdout, "source: %s\n", filepath.Join(c.Package, gestalt.ManifestFile))
	return nil
}
