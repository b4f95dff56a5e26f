package daemon_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/internal/daemon"
)

// ask requests a path of the operator's listener under a name of its host, and returns the status and the text.
func ask(t *testing.T, d *daemon.Daemon, host, path string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+d.AdminAddr().String()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host, req.Close = host, true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// TestAdmin: the operator has a listener of its own, on which nothing of the protocol is, and which no web page
// reaches under a name of its own.
func TestAdmin(t *testing.T) {
	debug := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.Path) })
	d := start(t, daemon.Config{AdminAddr: "127.0.0.1:0", Debug: debug})
	for _, tt := range []struct {
		host, path string
		status     int
		text       string
	}{
		{"localhost", "/healthz", 200, "ok"},
		{"127.0.0.1", "/readyz", 200, "ready"},
		{"localhost", "/debug/pprof/heap", 200, "/debug/pprof/heap"},
		{"localhost", "/agentd.v1.SessionService/ListModels", 404, ""},
		{"rebound.example", "/readyz", 403, "rebound.example"},
	} {
		if status, text := ask(t, d, tt.host, tt.path); status != tt.status || !strings.Contains(text, tt.text) {
			t.Errorf("%s of %s: %d %q, want %d %q", tt.path, tt.host, status, text, tt.status, tt.text)
		}
	}
	addr := d.AdminAddr().String()
	stop(t, d)
	if c, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr); err == nil {
		_ = c.Close()
		t.Error("the operator's listener is open after the shutdown")
	}
}

// TestAdminAddrInUse: an address that is taken is an error, unless it may be.
func TestAdminAddrInUse(t *testing.T) {
	first := start(t, daemon.Config{AdminAddr: "127.0.0.1:0"})
	taken := first.AdminAddr().String()
	second, err := daemon.New(daemon.Config{Addr: "127.0.0.1:0", AdminAddr: taken})
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Start(t.Context()); err == nil || !strings.Contains(err.Error(), taken) {
		t.Errorf("started with %v, want an error that names %s", err, taken)
	}
	if err := second.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	log := &buffer{}
	third := start(t, daemon.Config{AdminAddr: taken, AdminMayFail: true, Logger: slog.New(slog.NewTextHandler(log, nil))})
	if third.AdminAddr() != nil || !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), taken) {
		t.Errorf("the log says %s", log)
	}
}
