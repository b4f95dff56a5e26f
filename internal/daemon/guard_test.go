package daemon_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/gen/proto/go/agentd/v1/agentdv1connect"
	"github.com/apzuk3/agentd/internal/daemon"
)

// A page whose name leads to this machine, or that calls it by its address, reaches
// nothing; clients that are no browsers, and pages that are allowed, do.
func TestForeignPages(t *testing.T) {
	open := map[string]daemon.Config{
		"127.0.0.1:0": {AllowedHosts: []string{"Agents.example"}, CORSOrigins: []string{"https://app.example.com"}},
		"0.0.0.0:0":   {}, // whoever opens it to the network has something in front of it
	}
	for addr, cfg := range open {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Listener = l
		d := start(t, cfg)
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			host, origin string
			refused      string
		}{
			{"127.0.0.1:" + port, "", ""},
			{"localhost:" + port, "", ""},
			{"LocalHost.", "", ""},
			{"a.localhost", "", ""},
			{"[::1]:" + port, "", ""},
			{"10.1.2.3", "", ""},
			{"agents.example", "", ""},
			{"Agents.example:443", "", ""},
			{"localhost:" + port, "http://localhost:" + port, ""},
			{"localhost:" + port, "https://app.example.com", ""},
			{"evil.example:" + port, "", "evil.example"},
			{"evil.example:" + port, "http://evil.example:" + port, "evil.example"},
			{"localhost.evil.example", "", "evil.example"},
			{"127.0.0.1.evil.example", "", "evil.example"},
			{"127.0.0.1:" + port, "https://evil.example", "https://evil.example"},
			{"localhost:" + port, "http://localhost:1", "http://localhost:1"},
			{"localhost:" + port, "null", "null"},
		} {
			for _, path := range []string{
				"/healthz",
				agentdv1connect.SessionServiceListSessionsProcedure + "?connect=v1&encoding=json&message=" + url.QueryEscape("{}"),
			} {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:"+port+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Host = tc.host
				if tc.origin != "" {
					req.Header.Set("Origin", tc.origin)
				}
				resp, err := h2c(t).Do(req)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				want := http.StatusOK
				if tc.refused != "" && addr == "127.0.0.1:0" {
					want = http.StatusForbidden
				}
				if err != nil || resp.StatusCode != want || want == http.StatusForbidden && !strings.Contains(string(body), tc.refused) {
					t.Errorf("on %s, %q from %q: %d %q, %v; want %d", addr, tc.host, tc.origin, resp.StatusCode, body, err, want)
				}
			}
		}
		stop(t, d)
	}
}

// A health check over HTTP/1.0 names no host, and is answered.
func TestNoHost(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := start(t, daemon.Config{Listener: l})
	defer stop(t, d)
	for header, want := range map[string]int{
		"":                                 http.StatusOK,
		"Origin: https://evil.example\r\n": http.StatusForbidden,
		"Host: evil.example\r\n":           http.StatusForbidden,
		"Host: localhost\r\n":              http.StatusOK,
	} {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "GET /healthz HTTP/1.0\r\n"+header+"\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		_ = conn.Close()
		if resp.StatusCode != want {
			t.Errorf("with %q: %d, want %d", header, resp.StatusCode, want)
		}
	}
}
