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

// outside is an address of this machine that others may reach, "" if it has none.
func outside(t *testing.T) string {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() {
			return n.IP.String()
		}
	}
	return ""
}

// A page whose name leads to this machine, or that calls it by its address, reaches
// nothing, also of a daemon that listens on every address; clients that are no
// browsers, and pages that are allowed, do. What comes from elsewhere is let through:
// whoever opens a daemon to the network has something in front of it.
func TestForeignPages(t *testing.T) {
	for _, at := range []struct{ listens, called string }{{"127.0.0.1:0", "127.0.0.1"}, {":0", "127.0.0.1"}, {":0", outside(t)}} {
		if at.called == "" {
			t.Log("this machine has no other address than loopback ones")
			continue
		}
		l, err := net.Listen("tcp", at.listens)
		if err != nil {
			t.Fatal(err)
		}
		d := start(t, daemon.Config{Listener: l, Insecure: true, AllowedHosts: []string{"Agents.example"}, CORSOrigins: []string{"https://app.example.com"}})
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
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at.called+":"+port+path, nil)
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
				if tc.refused != "" && at.called == "127.0.0.1" {
					want = http.StatusForbidden
				}
				if err != nil || resp.StatusCode != want || want == http.StatusForbidden && !strings.Contains(string(body), tc.refused) {
					t.Errorf("at %s of %s, %q from %q: %d %q, %v; want %d", at.called, at.listens, tc.host, tc.origin, resp.StatusCode, body, err, want)
				}
			}
		}
		stop(t, d)
	}
}

// A health check over HTTP/1.0 names no host, and is served.
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
