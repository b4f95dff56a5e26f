// Package agentdtest starts real agentd daemons for tests.
//
// A daemon of this package is the one that the command runs, with its data in
// memory and, unless asked otherwise, its connections too: real HTTP/2 over
// pipes, which also works inside a testing/synctest bubble, where an hour of
// waiting takes no time. Models are scripts, see WithScript, or any
// model.Provider; none of them needs a key or a network.
//
//	d := agentdtest.Start(t, agentdtest.WithScript("hello", `answers: [{text: "Hello!"}]`))
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
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/session"
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

// Option configures a daemon.
type Option = testdaemon.Option

// WithScript adds the model "scripted/<name>", which follows a script, YAML or JSON in the form
// that docs/scripts.md describes.
func WithScript(name, script string) Option {
	return func(c *testdaemon.Config) {
		if c.Daemon.Scripts == nil {
			c.Daemon.Scripts = map[string]string{}
		}
		c.Daemon.Scripts[name] = script
	}
}

// WithProvider adds a model provider, or replaces the built-in one of its name.
func WithProvider(p model.Provider) Option {
	return func(c *testdaemon.Config) { c.Daemon.ExtraProviders = append(c.Daemon.ExtraProviders, p) }
}

// WithScriptsDir adds a model "scripted/<name>" for each script and each file of recorded calls in
// a folder.
func WithScriptsDir(dir string) Option {
	return func(c *testdaemon.Config) { c.Daemon.ScriptsDir = dir }
}

// WithRecordTo appends each model call to a file. WithScriptsDir can replay it once the daemon has
// ended.
func WithRecordTo(file string) Option { return func(c *testdaemon.Config) { c.Daemon.RecordTo = file } }

// WithGemini sets the daemon's key for Gemini and the provider's address, such as that of a fake.
func WithGemini(key, baseURL string) Option {
	return func(c *testdaemon.Config) {
		c.Daemon.Providers.GeminiAPIKey, c.Daemon.Providers.GeminiBaseURL = session.Secret(key), baseURL
	}
}

// WithAnthropic is WithGemini for Anthropic.
func WithAnthropic(key, baseURL string) Option {
	return func(c *testdaemon.Config) {
		c.Daemon.Providers.AnthropicAPIKey, c.Daemon.Providers.AnthropicBaseURL = session.Secret(key), baseURL
	}
}

// WithOpenAI is WithGemini for OpenAI.
func WithOpenAI(key, baseURL string) Option {
	return func(c *testdaemon.Config) {
		c.Daemon.Providers.OpenAIAPIKey, c.Daemon.Providers.OpenAIBaseURL = session.Secret(key), baseURL
	}
}

// WithDataDir keeps the data in a folder, where a later daemon finds it. Such a daemon does not
// work inside a synctest bubble.
func WithDataDir(dir string) Option {
	return func(c *testdaemon.Config) { c.Daemon.DataDir = dir }
}

// WithLoopback listens on a free port of 127.0.0.1 in place of pipes, so that other processes can
// connect.
func WithLoopback() Option { return func(c *testdaemon.Config) { c.Loopback = true } }

// WithAddr listens on an address, such as that of a daemon that has stopped.
func WithAddr(addr string) Option {
	return func(c *testdaemon.Config) { c.Loopback, c.Daemon.Addr = true, addr }
}

// WithLogger sets the daemon's logger. By default Start writes to the test's log.
func WithLogger(l *slog.Logger) Option { return func(c *testdaemon.Config) { c.Daemon.Logger = l } }

// WithGrace sets how long Close waits for running turns before it suspends them. Default 0.
func WithGrace(d time.Duration) Option { return func(c *testdaemon.Config) { c.Grace = d } }

// WithLeakCheck fails the test of Start when goroutines that the daemon started are left after its
// end. It is neither for tests that run in parallel nor for bubbles, which check it themselves.
func WithLeakCheck() Option { return func(c *testdaemon.Config) { c.Leaks = true } }

// Start starts a daemon that ends with the test. The test fails if the daemon does not start, or
// does not end cleanly.
func Start(t testing.TB, opts ...Option) *Daemon {
	t.Helper()
	var c testdaemon.Config
	for _, opt := range opts {
		opt(&c)
	}
	if c.Leaks {
		before := goleak.IgnoreCurrent()
		t.Cleanup(func() { goleak.VerifyNone(t, before) }) // runs after the daemon has ended
	}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	d, err := New(append([]Option{WithLogger(log)}, opts...)...)
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

// New starts a daemon for a program that is no test. The caller ends it with Close.
func New(opts ...Option) (*Daemon, error) {
	c := testdaemon.Config{Daemon: daemon.Config{
		ModelRetry:   modelcall.Retry{Base: time.Millisecond, MaxWait: time.Millisecond},
		ModelBreaker: modelcall.BreakerConfig{Failures: -1},
	}}
	for _, opt := range opts {
		opt(&c)
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	protocols.SetHTTP2(true)
	out := &Daemon{transport: &http.Transport{Protocols: protocols}, grace: c.Grace}
	if c.Loopback {
		if c.Daemon.Addr == "" {
			c.Daemon.Addr = "127.0.0.1:0"
		}
	} else {
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
	if c.Loopback {
		out.URL = d.URL()
	}
	if c.Front != nil {
		if err := out.stepBehind(c.Front, c.Loopback); err != nil {
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
	err := d.d.Shutdown(ctx)
	if d.endFront != nil {
		err = errors.Join(err, d.endFront())
	}
	d.transport.CloseIdleConnections()
	return err
}

// Close ends the daemon. It suspends running turns after the grace of WithGrace. It may be called
// more than once.
func (d *Daemon) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), d.grace)
	defer cancel()
	return d.Shutdown(ctx)
}
