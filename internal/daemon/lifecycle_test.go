package daemon_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apzuk3/agentd/agentdtest"
	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/internal/test/testdaemon"
	"github.com/apzuk3/agentd/session/limits"
)

func TestConfigsThatAreRefused(t *testing.T) {
	cert, key, _ := certificate(t)
	notAFolder := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(notAFolder, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	taken := t.TempDir()
	start(t, daemon.Config{DataDir: taken})
	for name, tc := range map[string]struct {
		cfg  daemon.Config
		text string
	}{
		"certificate alone":     {daemon.Config{TLSCertFile: cert}, "both a certificate and a key"},
		"key for certificate":   {daemon.Config{TLSCertFile: key, TLSKeyFile: key}, "TLS certificate"},
		"no file":               {daemon.Config{TLSCertFile: "missing.pem", TLSKeyFile: key}, "missing.pem"},
		"address without port":  {daemon.Config{Addr: "localhost"}, "want host:port"},
		"negative limit":        {daemon.Config{MaxConns: -1}, "MaxConns"},
		"negative message size": {daemon.Config{MaxMessageBytes: -1}, "MaxMessageBytes"},
		"negative cool-down":    {daemon.Config{ModelBreaker: modelcall.BreakerConfig{CoolDown: -1}}, "ModelBreaker.CoolDown"},
		"negative timeout":      {daemon.Config{IdleTimeout: -1}, "IdleTimeout"},
		"data in a file":        {daemon.Config{DataDir: notAFolder}, notAFolder},
		"data in use":           {daemon.Config{DataDir: taken}, "in use"},
		"broken script":         {daemon.Config{Scripts: map[string]string{"x": "answers: 7"}}, `script "x"`},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := daemon.New(tc.cfg)
			if err == nil {
				stop(t, d)
				t.Fatal("want an error")
			}
			if !strings.Contains(err.Error(), tc.text) {
				t.Errorf("got %q, want %q in it", err, tc.text)
			}
		})
	}
}

func TestStart(t *testing.T) {
	d := start(t, daemon.Config{})
	if err := d.Start(t.Context()); err == nil {
		t.Error("a second start must fail")
	}
	other, err := daemon.New(daemon.Config{Addr: d.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	if other.Addr() != nil || other.URL() != "" {
		t.Error("no address before Start")
	}
	if err := other.Start(t.Context()); err == nil || !strings.Contains(err.Error(), d.Addr().String()) {
		t.Errorf("got %v, want the taken address named", err)
	}
	stop(t, other)
	stop(t, other)
	if err := other.Start(t.Context()); err == nil {
		t.Error("start after shutdown must fail")
	}
}

func TestWarnings(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg            daemon.Config
		noKey, exposed bool
	}{
		"loopback without keys": {daemon.Config{Addr: "127.0.0.1:0"}, true, false},
		"everywhere with a key": {daemon.Config{Addr: ":0", Insecure: true, Providers: daemon.Providers{OpenAIAPIKey: "k"}}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			var log buffer
			tc.cfg.Logger = daemon.NewLogger(&log, daemon.LogConfig{})
			d := start(t, tc.cfg)
			if !strings.HasPrefix(d.URL(), "http://127.0.0.1:") {
				t.Errorf("URL %q", d.URL())
			}
			if got := strings.Contains(log.String(), "GEMINI_API_KEY"); got != tc.noKey {
				t.Errorf("warned of no key: %v, want %v: %s", got, tc.noKey, log.String())
			}
			if got := strings.Contains(log.String(), "without authentication"); got != tc.exposed {
				t.Errorf("warned of an open port: %v, want %v: %s", got, tc.exposed, log.String())
			}
		})
	}
}

// TestOpenNeverListens: an open daemon is refused an address that other machines reach before it listens there. Nobody
// here has this one, so that listening fails otherwise.
func TestOpenNeverListens(t *testing.T) {
	t.Parallel()
	for addr, refused := range map[string]bool{"192.0.2.1:8080": true, "[2001:db8::1]:8080": true, "127.0.0.1:0": false, "localhost:0": false} {
		d, err := daemon.New(daemon.Config{Addr: addr})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Start(t.Context()); errors.Is(err, daemon.ErrOpen) != refused || err != nil && (!refused || !strings.Contains(err.Error(), addr)) {
			t.Errorf("%s: %v", addr, err)
		}
		stop(t, d)
	}
}

// slow is a script whose one response takes a minute.
const slow = `answers: [{text: "part one, part two", chunk_delay: 30s}]`

// A turn that ends within the grace ends naturally; new ones are refused.
func TestSoftShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := agentdtest.Start(t, agentdtest.Config{Scripts: map[string]string{"slow": slow}})
		events := make(chan *client.Event)
		go func() {
			defer close(events)
			for ev, err := range d.Client().Run(t.Context(), llm("root", "scripted/slow"), "go") {
				if err != nil {
					t.Error(err)
					return
				}
				events <- ev
			}
		}()
		if ev := <-events; as[*client.TurnStarted](ev) == nil {
			t.Fatalf("got %v, want the start", ev)
		}
		synctest.Wait() // until its model responds
		down := make(chan error)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			down <- d.Shutdown(ctx)
		}()
		var end *client.End
		for ev := range events {
			if ev.End != nil {
				end = ev.End
			}
		}
		if end == nil || !end.Completed {
			t.Errorf("got end %v, want a natural one", end)
		}
		if err := <-down; err != nil {
			t.Error(err)
		}
	})
}

// When the grace is over, turns are suspended, and their clients are notified.
func TestHardShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := agentdtest.Start(t, agentdtest.Config{
			Scripts: map[string]string{"slow": `answers: [{text: "a", delay: 24h}]`},
		})
		failed := make(chan error, 1)
		started := make(chan struct{})
		go func() {
			c := d.Client(client.WithReconnect(client.ReconnectPolicy{Off: true}))
			for ev, err := range c.Run(t.Context(), llm("root", "scripted/slow"), "go") {
				if err != nil {
					failed <- err
					return
				}
				if as[*client.TurnStarted](ev) != nil {
					close(started)
				}
			}
		}()
		<-started
		synctest.Wait() // until its model responds
		soft := make(chan error, 1)
		go func() { soft <- d.Shutdown(context.Background()) }() // would wait for the turn
		synctest.Wait()
		begin := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := d.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := <-soft; err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took < 10*time.Second || took > 20*time.Second {
			t.Errorf("took %v, want the grace and a little", took)
		}
		err := <-failed
		if !strings.Contains(err.Error(), "attach again") {
			t.Errorf("the client got %v, want that the turn goes on later", err)
		}
	})
}

// Nobody can connect any more while running turns are waited for.
func TestNoConnectionWhileStopping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := testdaemon.NewListener()
		d, err := daemon.New(daemon.Config{Listener: l, Scripts: map[string]string{"slow": slow}})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		tr := l.Transport()
		defer tr.CloseIdleConnections()
		started := make(chan struct{})
		ended := make(chan error, 1)
		go func() {
			for ev, err := range client.New(l.URL(), client.WithHTTPClient(&http.Client{Transport: tr})).Run(t.Context(), llm("root", "scripted/slow"), "go") {
				if err != nil {
					ended <- err
					return
				}
				if as[*client.TurnStarted](ev) != nil {
					close(started)
				}
			}
			ended <- nil
		}()
		<-started
		synctest.Wait() // until its model responds
		down := make(chan error, 1)
		go func() { down <- d.Shutdown(context.Background()) }()
		synctest.Wait()
		if c, err := l.DialContext(t.Context(), "", ""); err == nil {
			_ = c.Close()
			t.Error("a connection was accepted")
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := <-down; err != nil {
			t.Error(err)
		}
	})
}

func TestLogGuard(t *testing.T) {
	var log buffer
	l := daemon.NewLogger(&log, daemon.LogConfig{
		Level: slog.LevelDebug, JSON: true,
		Secrets: []string{"canary-1", "canary-2", "canary-3"},
	})
	l.Info("says canary-1", slog.String("text", "has canary-2 in it"), slog.Any("error", &client.Error{Code: client.ErrInternal, Message: "canary-3"}),
		slog.String("gemini_api_key", "anything"), slog.Any("key", daemon.Providers{GeminiAPIKey: "canary-1"}.GeminiAPIKey), slog.Int("tokens", 7))
	got := log.String()
	if strings.Contains(got, "canary") || strings.Contains(got, "anything") || !strings.Contains(got, "in it") || !strings.Contains(got, `"tokens":7`) {
		t.Errorf("got %s", got)
	}
}

// A client that sends no heartbeats may take its time for a tool call.
func TestQuietClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := agentdtest.Start(t, agentdtest.Config{},
			testdaemon.WithTurnLimits(limits.Limits{ToolTimeout: 40 * time.Minute}))
		c := d.Client(client.WithHeartbeatInterval(time.Hour), client.WithToolTimeout(time.Hour))
		err := client.AddTool(c, "work", "Works", func(ctx context.Context, _ struct{}) (any, error) {
			time.Sleep(39 * time.Minute)
			return "done", nil
		})
		if err != nil {
			t.Fatal(err)
		}
		res, err := c.Do(t.Context(), llm("root", "scripted/demo", "work"), "go")
		if err != nil || !res.Completed || !strings.Contains(res.Text, "done") {
			t.Errorf("got %v, %v", res, err)
		}
	})
}

// as is what an event says if it is of type T, else nil.
func as[T client.EventData](event *client.Event) T {
	data, _ := event.Data.(T)
	return data
}
