package daemon_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apzuk3/agentd/client"
	"github.com/apzuk3/agentd/internal/daemon"
	"github.com/apzuk3/agentd/internal/modelcall"
	"github.com/apzuk3/agentd/session/limits"
)

// keysOf is a provider's server that notes the keys it is called with, and refuses all.
func keysOf(t *testing.T) (url string, last func() string) {
	t.Helper()
	var mu sync.Mutex
	key := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		key = r.Header.Get("X-Api-Key")
		w.WriteHeader(http.StatusUnauthorized)
	}))
	t.Cleanup(s.Close)
	return s.URL, func() string {
		mu.Lock()
		defer mu.Unlock()
		return key
	}
}

// A reload changes what it can, all of it or nothing.
func TestReload(t *testing.T) {
	url, lastKey := keysOf(t)
	cert1, key1, pool1 := certificate(t)
	cert2, key2, pool2 := certificate(t)
	prices := filepath.Join(t.TempDir(), "prices.yaml")
	config := func(key, cert, certKey string, turns int) daemon.Config {
		return daemon.Config{
			Addr: "127.0.0.1:0", TLSCertFile: cert, TLSKeyFile: certKey, Prices: prices,
			Getenv: func(name string) string {
				return map[string]string{"ANTHROPIC_API_KEY": key, "ANTHROPIC_BASE_URL": url}[name]
			},
			Turns: limits.Limits{MaxTurns: turns}, ModelRetry: modelcall.Retry{Tries: 1},
		}
	}
	price := func(input string) {
		t.Helper()
		text := "date: 2026-10-10\nproviders: {anthropic: {claude-mine: {price: {input: " + input + ", output: 5}}}}\n"
		if err := os.WriteFile(prices, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	price("1")
	d := start(t, config("key-1", cert1, key1, 1))
	c := client.New(d.URL())
	t.Cleanup(c.CloseIdleConnections)
	serves := func(pool *x509.CertPool) bool {
		t.Helper()
		dialer := tls.Dialer{Config: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
		conn, err := dialer.DialContext(t.Context(), "tcp", d.Addr().String())
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}
	asked := func() string { // the key that a turn calls its model with
		t.Helper()
		if _, err := c.Do(t.Context(), llm("a", "claude-mine"), "go"); err == nil {
			t.Error("the provider refuses the call, the turn does not fail")
		}
		return lastKey()
	}
	input := func() (found float64) {
		t.Helper()
		list, err := c.Models(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list {
			if strings.HasSuffix(m.Name, "claude-mine") {
				found = m.Price.Tiers[0].Input
			}
		}
		return found
	}
	is := func(what, key string, pool, other *x509.CertPool, cost float64) {
		t.Helper()
		if got := asked(); got != key {
			t.Errorf("%s: the model is called with %q, want %q", what, got, key)
		}
		if !serves(pool) || serves(other) {
			t.Errorf("%s: not the certificate", what)
		}
		if got := input(); got != cost {
			t.Errorf("%s: a model costs %v, want %v", what, got, cost)
		}
	}
	is("at first", "key-1", pool1, pool2, 1)

	price("nothing")
	if err := d.Reload(config("key-2", cert2, key2, 2)); err == nil || !strings.Contains(err.Error(), "prices.yaml") {
		t.Errorf("a file that is wrong: %v", err)
	}
	price("3")
	for name, wrong := range map[string]daemon.Config{
		"certificate": config("key-2", cert2, key1, 2),
		"limits":      config("key-2", cert2, key2, -1),
	} {
		if err := d.Reload(wrong); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	negative := config("key-2", cert2, key2, 2)
	negative.StreamTimeout = -time.Second
	if err := d.Reload(negative); err == nil {
		t.Error("a stream's time below 0: no error")
	}
	is("after reloads that were refused", "key-1", pool1, pool2, 1)

	if err := d.Reload(config("key-2", cert2, key2, 2)); err != nil {
		t.Fatal(err)
	}
	is("after a reload", "key-2", pool2, pool1, 3)
}

// A turn that runs keeps its place; a new limit holds for the next.
func TestReloadOfLimits(t *testing.T) {
	config := func(turns int) daemon.Config {
		return daemon.Config{
			Addr: "127.0.0.1:0", Turns: limits.Limits{MaxTurns: turns},
			Scripts: map[string]string{"slow": `answers: [{text: [a, b], error: {kind: hang, after: 1}}]`},
		}
	}
	d := start(t, config(1))
	c := client.New(d.URL(), client.WithReconnect(client.ReconnectPolicy{Off: true}))
	t.Cleanup(c.CloseIdleConnections)
	begin := func(ctx context.Context) error { // returns when the model speaks
		for event, err := range c.Run(ctx, llm("a", "scripted/slow"), "go", client.WithOnLeave(client.OnLeaveDetach)) {
			if err != nil {
				return err
			}
			if event.OutputChunk != nil {
				break
			}
		}
		return nil
	}
	if err := begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := begin(t.Context()); err == nil || !strings.Contains(err.Error(), "its limit is 1") {
		t.Fatalf("a second turn: %v", err)
	}
	if err := d.Reload(config(2)); err != nil {
		t.Fatal(err)
	}
	if err := begin(t.Context()); err != nil {
		t.Errorf("a second turn after a reload: %v", err)
	}
	if err := begin(t.Context()); err == nil || !strings.Contains(err.Error(), "its limit is 2") {
		t.Errorf("a third turn: %v", err)
	}
}
