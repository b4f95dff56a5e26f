// Package agentdtest starts real agentd daemons for tests.
//
// A daemon of this package is the one that the command runs, with its data in
// memory and, unless asked otherwise, its connections too: real HTTP/2 over
// pipes, which also works inside a testing/synctest bubble, where an hour of
// waiting takes no time. Models are scripts, see Config.Scripts, or any
// model.Provider; none of them needs a key or a network.
//
//	d := agentdtest.Start(t, agentdtest.Config{
//		Scripts: map[string]string{"hello": `answers: [{text: "Hello!"}]`}, // "scripted/hello"
//	})
//	clnt := d.Client()
//	for event, err := range clnt.Run(t.Context(), agent, "Hi") { … }
//
// The package exposes package client and package model, and nothing else of agentd.
package agentdtest

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/model"
)

// Daemon is a running daemon. Its methods may be called from any goroutine.
type Daemon struct {
	// URL is what clients dial, with the transport of HTTPClient.
	URL string

	d         *daemon.Daemon
	transport *http.Transport
	grace     time.Duration
	endFront  func() error // nil without testdaemon.WithFront
}

// Config says how a daemon is started. The zero value starts one with its data and its connections
// in memory, which has the models of every daemon and no keys.
type Config struct {
	// Scripts are the models "scripted/<name>" by name: each is a script, YAML or JSON in the form
	// that docs/scripts.md describes.
	Scripts map[string]string
	// ScriptsDir is a folder; each script and each file of recorded calls in it is a model
	// "scripted/<name>" too. Default none.
	ScriptsDir string
	// RecordTo is a file to which the daemon appends each model call; a daemon with its folder as
	// ScriptsDir can replay it once this one has ended. Default none.
	RecordTo string
	// Providers are served besides the built-in ones, or in place of those of the same name. No two
	// of them may have the same name.
	Providers []model.Provider
	// Getenv reads the environment, from which the built-in providers take their keys and
	// addresses; os.Getenv has the daemon call real models. Default: an empty environment.
	Getenv func(name string) string

	// DataDir is the folder of the database, where a later daemon finds the data. A daemon with one
	// does not work inside a synctest bubble. Default: the data is in memory.
	DataDir string
	// Addr is the address to listen on, so that other processes can connect: "127.0.0.1:0" is a free
	// port. Default: pipes in memory, which the clients of Daemon know.
	Addr string
	// Logger receives the daemon's log. Default: Start writes to the log of the test, New nowhere.
	Logger *slog.Logger
	// Grace is how long Close waits for running turns before it suspends them. Default 0.
	Grace time.Duration
	// LeakCheck fails the test of Start when goroutines that the daemon started are left after its
	// end. It is neither for tests that run in parallel nor for bubbles, which check it themselves.
	LeakCheck bool
}

// Start starts a daemon that ends with the test. The test fails if the daemon does not start, or
// does not end cleanly. Options are for the tests of agentd itself: others cannot make one.
func Start(t testing.TB, cfg Config, opts ...testdaemon.Option) *Daemon {
	t.Helper()
	if cfg.LeakCheck {
		before := goleak.IgnoreCurrent()
		t.Cleanup(func() { goleak.VerifyNone(t, before) }) // runs after the daemon has ended
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	d, err := New(cfg, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("agentdtest: %v", err)
		}
	})
	return d
}

// New starts a daemon for a program that is no test. The caller ends it with Close. Options are as
// in Start.
func New(cfg Config, opts ...testdaemon.Option) (*Daemon, error) {
	c := testdaemon.Config{Daemon: daemon.Config{
		Scripts: cfg.Scripts, ScriptsDir: cfg.ScriptsDir, RecordTo: cfg.RecordTo,
		ExtraProviders: cfg.Providers, Getenv: cfg.Getenv,
		DataDir: cfg.DataDir, Addr: cfg.Addr, Logger: cfg.Logger,
		ModelRetry:   modelcall.Retry{Base: time.Millisecond, MaxWait: time.Millisecond},
		ModelBreaker: modelcall.BreakerConfig{Failures: -1},
	}}
	for _, opt := range opts {
		opt(&c)
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	protocols.SetHTTP2(true)
	out := &Daemon{transport: &http.Transport{Protocols: protocols}, grace: cfg.Grace}
	if cfg.Addr == "" {
		l := testdaemon.NewListener()
		c.Daemon.Listener = l
		out.transport = l.Transport()
		out.URL = l.URL()
	}
	d, err := daemon.New(c.Daemon)
	if err != nil {
		return nil, err
	}
	out.d = d
	if err := d.Start(context.Background()); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	if cfg.Addr != "" {
		out.URL = d.URL()
	}
	if c.Front != nil {
		if err := out.stepBehind(c.Front, cfg.Addr != ""); err != nil {
			return nil, errors.Join(err, out.Close())
		}
	}
	return out, nil
}

// HTTPClient returns a client that reaches the daemon over HTTP/2.
func (d *Daemon) HTTPClient() *http.Client { return &http.Client{Transport: d.transport} }

// Client returns a client of the daemon.
func (d *Daemon) Client(opts ...client.Option) *client.Client {
	return client.New(d.URL, append([]client.Option{client.WithHTTPClient(d.HTTPClient())}, opts...)...)
}

// Shutdown ends the daemon. It waits for running turns until ctx ends. It may be called more than
// once.
func (d *Daemon) Shutdown(ctx context.Context) error {
	done := make(chan struct{})
	var closer sync.WaitGroup
	closer.Go(func() { d.closeIdle(done) })
	err := d.d.Shutdown(ctx)
	close(done)
	closer.Wait()
	if d.endFront != nil {
		err = errors.Join(err, d.endFront())
	}
	d.transport.CloseIdleConnections()
	return err
}

// closeIdle closes the clients' connections, until done, as soon as they carry nothing: the daemon waits a second for
// that when it stops.
func (d *Daemon) closeIdle(done <-chan struct{}) {
	for wait := time.Millisecond; ; wait = min(2*wait, 200*time.Millisecond) {
		d.transport.CloseIdleConnections()
		select {
		case <-done:
			return
		case <-time.After(wait):
		}
	}
}

// Close ends the daemon. It suspends running turns after Config.Grace. It may be called
// more than once.
func (d *Daemon) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), d.grace)
	defer cancel()
	return d.Shutdown(ctx)
}
